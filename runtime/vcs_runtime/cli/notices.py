"""Notices on standard error: where models run, and what was assumed of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import click

from vcs_runtime.bundle.paths import DEFAULT_EMBEDDER, FAST, INT8_EMBEDDER, vector_store
from vcs_runtime.cli.messages import verbose, warn, warnings_as_lines
from vcs_runtime.cli.options import usage_errors
from vcs_runtime.inference.device import UNUSED_GPU, describe
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.jobs.readers.rows import LIST
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.segmentation.custom import TIME_STAMPS
from vcs_runtime.text.markup import STAMPS, MarkupCounts

# Embedders that read only English.
_ENGLISH = (DEFAULT_EMBEDDER, INT8_EMBEDDER, FAST)
# What programs write for a missing text.
_NO_TEXTS = (
    "nan,none,null,na,n/a,#n/a,nat,undefined,empty,error,api error,failed,timeout,no response"
).split(",")
_REFUSAL = re.compile(
    r"\W*(?:(?:I'?m |I am )?(?:very )?sorry\b|unfortunately, I\b|as an AI\b"
    r"|I(?: cannot| can'?t| can not|(?:'m| am) (?:unable|not able)) )"
    r"|\[?error\b|request (?:timed out|failed)|the (?:request|response) was blocked",
    re.IGNORECASE,
)


def report_device(description: str) -> None:
    """Report on standard error a device that leaves a GPU unused; with --verbose, any device."""
    if verbose() or description.startswith(UNUSED_GPU):
        warn(description)


@contextmanager
def open_scorer(config: ScorerConfig) -> Iterator[Scorer]:
    """Open a scorer for a job, and report on standard error what its user should know.

    Before the job: if no model uses the GPU; with --verbose, the device in any case. After it: if
    vectors could not be stored, or texts are not in the model's language.
    """
    if config.bundle == FAST and config.cache == vector_store():
        config = replace(config, cache=None)  # static vectors are made faster than they are read
    with usage_errors(), warnings_as_lines():
        scorer = Scorer.from_config(config)
    report_device(describe(scorer.embedder.device))
    segmenter_device = scorer.segmenter.device
    if segmenter_device and segmenter_device.is_gpu != scorer.embedder.device.is_gpu:
        report_device(describe(segmenter_device))
    with scorer:
        yield scorer
    if scorer.cache_failure:
        warn(
            f"vectors are not kept for later commands: {scorer.cache_failure}. To use no cache, add"
            " --no-cache"
        )
    counts = scorer.languages
    others = []
    if counts.not_latin:
        others.append(f"not in Latin script: {counts.not_latin} of {counts.texts} texts")
    if counts.not_english:
        others.append(f"probably not in English: {counts.not_english} of {counts.texts} texts")
    for some in others:
        if scorer.compares_words:
            warn(
                f"{some}. Their substitution is 0, because only English words are compared"
                " (docs/guide/explain.md)"
            )
        if scorer.embedder.name in _ENGLISH:
            warn(
                f"{some}. Their scores mean little, because the model reads only English: use a"
                " multilingual bundle (docs/guide/texts.md)"
            )


def markup_notice(pairs: Iterable[InputPair], cleaned: Sequence[str]) -> None:
    """Warn of probably unintended markup in generated texts, and name the option against it."""
    counts = MarkupCounts()
    by_times = True
    for pair in pairs:
        counts.add(pair.generated)
        by_times = by_times and _may_have_times(pair)
    options = getattr(click.get_current_context(silent=True), "params", {})
    has_sentences = not options.get("short")
    used = [*cleaned]
    if has_sentences and options.get("segmenter") == TIME_STAMPS:
        used.append(TIME_STAMPS)
    if has_sentences and counts.timed and TIME_STAMPS not in used:
        end = ", because not all references have times"
        if by_times:
            end = f". To score by them, add --segmenter {TIME_STAMPS}"
        warn(
            f"the times of segments are not used in {counts.timed} of {counts.total} generated"
            f" texts{end}"
        )
    unused = counts.unused(used)
    if not unused:
        return
    remedy = f"--clean {','.join([*cleaned, *unused])}"
    if has_sentences and by_times and counts.found[STAMPS] and TIME_STAMPS in unused:
        remedy += f", or score by the times with --segmenter {TIME_STAMPS}"
    warn(f"markup is scored as words: {counts.shares(unused)}. To remove it, add {remedy}")


def _may_have_times(pair: InputPair) -> bool:
    """Return whether every reference has time stamps, or is no text."""
    return all(not isinstance(text, str) or STAMPS.find(text) for text in pair.references)


def assumptions(pairs: Iterable[InputPair]) -> Iterator[InputPair]:
    """Yield pairs, then name on standard error what was assumed of the pairs."""
    lists = 0
    no_texts: list[str] = []
    refusals: list[str] = []
    unread: list[str] = []
    for pair in pairs:
        yield pair
        if pair.from_list:
            lists += 1
        for text in (*pair.references, pair.generated):
            if not isinstance(text, str):
                continue
            example = f"{text.strip()[:40]!r} (id {pair.name})"
            if text.strip("<>[]()*. \n").casefold() in _NO_TEXTS:
                no_texts.append(example)
            elif _REFUSAL.match(text.replace("’", "'")):
                refusals.append(example)
            elif LIST.fullmatch(text):
                unread.append(example)
    if lists:
        warn(f"a list written as text was read as several texts (number of pairs: {lists})")
    if unread:
        warn(f"texts like lists were scored as one text each: {len(unread)}, such as {unread[0]}")
    if refusals:
        warn(
            "texts that begin like a refusal or an error were scored as descriptions:"
            f" {len(refusals)}, such as {refusals[0]}"
        )
    if no_texts:
        warn(
            "words that programs write for a missing text were scored as descriptions:"
            f" {len(no_texts)}, such as {no_texts[0]}. Leave such a text empty"
        )
