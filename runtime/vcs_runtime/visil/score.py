"""The ViSIL score: how much of a video's caption a summary fails to carry (docs/visil.md).

    ViSIL = log P(caption | video) - log P(caption | summary)

by a vision-language model's own probabilities of the caption's keywords, in nats. Lower is better.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vcs_runtime._version import __version__
from vcs_runtime.errors import TextError, unknown_choice
from vcs_runtime.text.cleaning import check_string
from vcs_runtime.visil.logprobs import Image, LogProbs, Part, by_word, check
from vcs_runtime.visil.masking import COUNTS, MASK, MaskedCaption, mask_caption
from vcs_runtime.visil.prompts import Prompts, builtin

DEFINITION = "1"
METHODS = ("forced", "sequential")
MAX_KEYFRAMES = 3


@dataclass(frozen=True)
class Video:
    """A video as the model sees it: its frames, in order."""

    frames: Sequence[Image]
    name: str = "video"

    def __post_init__(self) -> None:
        if not self.frames or not all(isinstance(frame, Image) for frame in self.frames):
            raise TextError("video: frames must be one or more images")


@dataclass(frozen=True)
class Summary:
    """A summary: text, up to three keyframes in order, or both; the text may name them [KEYFRAME1], ...

    tokens  how long it is; without it, what the model reports
    """

    text: str = ""
    keyframes: Sequence[Image] = ()
    name: str = "summary"
    tokens: float | None = None

    def __post_init__(self) -> None:
        what = f"summary {self.name!r}"
        check_string(self.text, what)
        if len(self.keyframes) > MAX_KEYFRAMES:
            raise TextError(f"{what}: {len(self.keyframes)} keyframes, more than {MAX_KEYFRAMES}")
        if not self.keyframes and not self.text.strip():
            raise TextError(f"{what}: neither text nor keyframes")
        if MASK in self.text:
            raise TextError(f"{what}: it holds {MASK}")
        if self.tokens is not None and not (math.isfinite(self.tokens) and self.tokens >= 0):
            raise TextError(f"{what}: tokens must be a number of at least 0, not {self.tokens!r}")


@dataclass(frozen=True, slots=True)
class Options:
    """How ViSIL is computed.

    samples  times that the model is asked; log-probabilities are averaged over them (a geometric mean)
    method   "forced": the whole answer at once, each word given the ones before it. "sequential": a mask at a
             time, the ones before it filled in
    count    which occurrences of a keyword count: "first" or "all"
    prompts  the wording
    """

    samples: int = 1
    method: str = "forced"
    count: str = "first"
    prompts: Prompts | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.samples, int) or isinstance(self.samples, bool) or self.samples < 1:
            raise ValueError(f"samples must be a whole number of at least 1, not {self.samples!r}")
        if self.method not in METHODS:
            raise unknown_choice("method", self.method, METHODS)
        if self.count not in COUNTS:
            raise unknown_choice("count", self.count, COUNTS)

    @property
    def wording(self) -> Prompts:
        """The prompts: the given ones, or this package's."""
        return self.prompts or builtin()

    def signature(self, fingerprint: str, frames: int | str) -> str:
        """What a score depends on besides its texts and images, in fields `key:value` separated by "|"."""
        fields = {
            "def": DEFINITION, "model": fingerprint, "prompt": self.wording.version, "frames": frames,
            "samples": self.samples, "method": self.method, "count": self.count,
            "v": __version__,
        }  # fmt: skip
        return "|".join(["visil", *(f"{key}:{value}" for key, value in fields.items())])


@dataclass(frozen=True, slots=True)
class Side:
    """log P of the scored words on one side, in nats: the mean over the runs, and each run's sum."""

    by_word: tuple[float, ...]
    runs: tuple[float, ...]
    prompt_tokens: int | None

    @property
    def log_p(self) -> float:
        """The sum over the words; never clipped."""
        return math.fsum(self.by_word)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the runs' sums; None of a single run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else None


@dataclass(frozen=True, slots=True)
class VisilResult:
    """The score of one summary, in nats: `visil` is the sum, `per_keyword` the mean.

    words   the scored words;  losses  what each contributes to the sum
    tokens  the summary's length: as given, or as the model counts its texts and images; None if neither
    """

    name: str
    visil: float
    per_keyword: float
    words: tuple[str, ...]
    losses: tuple[float, ...]
    video: Side
    summary: Side
    tokens: float | None
    frames: int
    samples: int
    signature: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without the signature."""
        return {
            "name": self.name, "visil": self.visil, "per_keyword": self.per_keyword, "n": len(self.words),
            "tokens": self.tokens, "log_p_video": self.video.log_p, "log_p_summary": self.summary.log_p,
            "spread_video": self.video.spread, "spread_summary": self.summary.spread,
            "keywords": [
                {"word": word, "visil": loss, "log_p_video": v, "log_p_summary": s}
                for word, loss, v, s in zip(
                    self.words, self.losses, self.video.by_word, self.summary.by_word, strict=True
                )
            ],
        }  # fmt: skip


def visil(
    video: Video, caption: str, keywords: Sequence[str], summaries: Sequence[Summary | Video],
    logprobs: LogProbs, *, samples: int = 1, method: str = "forced", count: str = "first",
    drop_missing: bool = False, prompts: Prompts | None = None,
) -> list[VisilResult]:  # fmt: skip
    """Score summaries of a video; the video's side is computed once. A `Video` may stand among the summaries.

    caption, keywords  as for `mask_caption`; both should come from another model than the one that scores
    logprobs           the model that scores; `probe` it first
    Others as in `Options`. Raises TextError for texts, ModelError for what the model answers.
    """
    options = Options(samples, method, count, prompts)
    masked = mask_caption(caption, keywords, count=count, drop_missing=drop_missing)
    return score(video, masked, summaries, logprobs, options)


def score(
    video: Video, masked: MaskedCaption, summaries: Sequence[Summary | Video], logprobs: LogProbs,
    options: Options,
) -> list[VisilResult]:  # fmt: skip
    """As `visil`, of a caption that is masked already."""
    names = [summary.name for summary in summaries]
    if len(set(names)) < len(names):
        raise TextError(f"summaries: two have the same name (there is {', '.join(map(repr, names))})")
    prompts = options.wording
    known: dict[tuple[Part, ...], Side] = {}

    def side(shown: Video | Summary) -> Side:
        if isinstance(shown, Video):
            given = prompts.given_video(shown.frames)
        else:
            given = prompts.given_summary(shown.text, shown.keyframes)
        key = tuple(given)
        if key not in known:
            known[key] = _side(given, masked, logprobs, options)
        return known[key]

    words = tuple(masked.words[i] for i in masked.scored)
    line = options.signature(logprobs.fingerprint, len(video.frames))
    found = []
    for summary in summaries:
        here, there = side(video), side(summary)
        losses = tuple(v - s for v, s in zip(here.by_word, there.by_word, strict=True))
        total = math.fsum(losses)  # of word by word, so that equal sides give exactly 0
        tokens = summary.tokens if isinstance(summary, Summary) else None
        found.append(VisilResult(
            summary.name, total, total / len(losses), words, losses, here, there,
            count_tokens(summary, logprobs) if tokens is None else tokens,
            len(video.frames), options.samples, line,
        ))  # fmt: skip
    return found


def count_tokens(summary: Summary | Video, logprobs: LogProbs) -> int | None:
    """How many tokens the model makes of a summary's text and images; None where it does not say.

    The difference of two prompts, with and without it, so that what a chat adds around them does not count.
    """
    content: list[Part]
    content = [*summary.frames] if isinstance(summary, Video) else [*summary.keyframes, summary.text]
    before: list[Part] = ["Summary: "]
    try:
        whole = logprobs.force(before + [part for part in content if part], "a").prompt_tokens
        rest = logprobs.force(before, "a").prompt_tokens
    except TextError:  # "a" is not among the likeliest tokens, of which some servers tell only these
        return None
    return None if whole is None or rest is None else whole - rest


def _side(given: list[Part], masked: MaskedCaption, logprobs: LogProbs, options: Options) -> Side:
    prompts = options.wording
    ask = _FORCE[options.method]
    runs, tokens = [], None
    for run in range(options.samples):
        values, tokens = ask(
            lambda text: prompts.fill("score", given=given, masked_caption=text), masked, logprobs, run
        )
        runs.append(values)
    means = tuple(math.fsum(values) / len(runs) for values in zip(*runs, strict=True))
    return Side(means, tuple(map(math.fsum, runs)), tokens)


Prompt = Callable[[str], list[Part]]


def _forced(
    prompt: Prompt, masked: MaskedCaption, logprobs: LogProbs, run: int
) -> tuple[list[float], int | None]:
    forced = logprobs.force(prompt(masked.text), masked.answer, run)
    check(forced, masked.answer)
    words = by_word(forced, masked.answer)
    return [words[i] for i in masked.scored], forced.prompt_tokens


def _sequential(
    prompt: Prompt, masked: MaskedCaption, logprobs: LogProbs, run: int
) -> tuple[list[float], int | None]:
    values, tokens = [], None
    for i in masked.scored:
        forced = logprobs.force(prompt(masked.revealed(i)), masked.words[i], run)
        check(forced, masked.words[i])
        values.append(math.fsum(forced.logprobs))
        tokens = forced.prompt_tokens if tokens is None else tokens
    return values, tokens


_FORCE = {"forced": _forced, "sequential": _sequential}
