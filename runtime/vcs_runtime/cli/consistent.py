"""`--segmenter consistent`: the commands decide for a whole job which segmenter splits its texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from vcs_runtime.cli.messages import warn
from vcs_runtime.errors import InputError, OtherSignatureError
from vcs_runtime.experiments.datasets.texts import Case
from vcs_runtime.jobs.pairs import PairSource
from vcs_runtime.scoring.consistency import decided
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.segmentation.segmenter import CONSISTENT

Named = tuple[str, Any]
"""The place of a pair in the input, and its texts."""


def located(source: PairSource) -> Iterator[Named]:
    """Read the pairs of an input, each with its place."""
    for pair in source.read():
        name = f" (id {pair.id})" if pair.id is not None else ""
        yield f"{source} {pair.place}{name}", pair.texts


def texts_of(cases: Iterable[Case], *texts: Mapping[str, Any]) -> Iterator[Named]:
    """Yield the texts of an experiment, those of cases and those by id, each as a pair with itself."""
    by_id = chain(
        ((case.id, [case.reference, case.generated]) for case in cases),
        chain.from_iterable(own.items() for own in texts),
    )
    for name, text in by_id:
        for one in [text] if isinstance(text, str) else text:
            yield name, (one, one)


def decide(config: ScorerConfig, pairs: Iterable[Named], options: Options = Options()) -> ScorerConfig:
    """Return a config without "consistent": its job has one segmenter, which is reported on standard error.

    Parameters
    ----------
    config
        The config of a command.
    pairs
        All pairs of the job, each with its place. They are read only if the segmenter is "consistent".
    options
        How the pairs are scored.

    Returns
    -------
    ScorerConfig
        The config itself, or one with an opened bundle and a segmenter.
    """
    if config.segmenter != CONSISTENT:
        return config
    pairs = iter(pairs)
    first = list(islice(pairs, 1))
    if not first:  # words are compared
        return replace(config, segmenter="auto")
    own, found = decided(config, chain(first, pairs), itemgetter(1), options)
    if found:
        warn(
            "--segmenter consistent: the learned segmenter splits all texts, because rules cannot split "
            f"{found[0][0]}"
        )
    elif own.segmenter == "rules":
        warn("--segmenter consistent: rules split all texts")
    return own


@contextmanager
def continuing(config: ScorerConfig, decided_as: ScorerConfig) -> Iterator[None]:
    """Say why an output cannot be continued, if the job was to decide on its segmenter."""
    try:
        yield
    except OtherSignatureError as error:
        if config.segmenter != CONSISTENT or "seg" not in error.fields:
            raise
        splits = "rules split" if decided_as.segmenter == "rules" else "the learned segmenter splits"
        raise InputError(
            f"{error}. The input has changed since: now {splits} all of its texts (--segmenter consistent), "
            "which is not how the output was begun"
        ) from None
