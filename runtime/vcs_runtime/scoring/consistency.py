"""Which segmenters split pairs, and which one splits all pairs of a job (`--segmenter consistent`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.preparation import Preparation
from vcs_runtime.scoring.result import Pair
from vcs_runtime.segmentation.custom import ScoringSegmenter
from vcs_runtime.segmentation.segmenter import Segmenter, choose_segmenter

T = TypeVar("T")
_MEMORY: Final = 16 << 20  # bytes for how texts were split: references are repeated


def segmenters_of(
    segmenter: ScoringSegmenter, pairs: Iterable[Pair], options: Options = Options()
) -> Iterator[str | None]:
    """Find the name of what splits each pair, as results have it; None for a pair that cannot be scored.

    Parameters
    ----------
    segmenter
        The segmenter of a scorer.
    pairs
        The pairs.
    options
        How they are scored.

    Returns
    -------
    iterator of str or None
        The names, in order.
    """
    preparation = Preparation(segmenter, _MEMORY)
    return (preparation.segmenter_of(pair, options) for pair in pairs)


def decided(
    config: ScorerConfig, items: Iterable[T], key: Callable[[T], Pair], options: Options
) -> tuple[ScorerConfig, list[T]]:
    """Decide which segmenter splits all texts of a job: rules, unless a text needs the learned segmenter.

    The decision depends on the texts and on `clean` alone, so a job that is continued decides alike.

    Parameters
    ----------
    config
        A configuration whose segmenter is "consistent".
    items
        All items of the job, read up to the first one that decides.
    key
        Returns the pair of an item, or raises the item's TextError.
    options
        How the pairs are scored.

    Returns
    -------
    config
        The same with an opened bundle and the segmenter "rules" or "learned"; "auto" if the bundle has only
        one of the two, or if words are compared.
    items
        The first item that needs the learned segmenter; empty if rules split all texts, or nothing is to
        decide.

    Raises
    ------
    BundleError
        The bundle cannot be used, or holds no segmenter.
    """
    assert isinstance(config.bundle, str | os.PathLike | Bundle)
    bundle = config.bundle if isinstance(config.bundle, Bundle) else open_bundle(config.bundle)
    spec = choose_segmenter(bundle, "auto")
    if options.short or spec.rules is None or spec.model is None:
        return replace(config, bundle=bundle, segmenter="auto"), []
    with Segmenter.open(bundle, "cpu") as segmenter:  # whose model is not opened
        preparation = Preparation(segmenter, _MEMORY)
        item = preparation.first_beyond_rules(items, key, options)
    found = [] if item is None else [item]
    return replace(config, bundle=bundle, segmenter="learned" if found else "rules"), found
