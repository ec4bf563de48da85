"""The ViSIL score: how much of a video's caption is lost in a summary (docs/guide/visil.md).

    ViSIL = log P(caption | video) - log P(caption | summary)

P is a vision-language model's probability of the keywords of the caption. The unit is nats; lower is better.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vcs_runtime._version import __version__
from vcs_runtime.errors import TextError, unknown_choice
from vcs_runtime.visil.images import Part
from vcs_runtime.visil.masking import COUNTS, MaskedCaption, mask_caption
from vcs_runtime.visil.models.logprobs import LogProbs, by_word, check_forced
from vcs_runtime.visil.prompts import Prompts, builtin
from vcs_runtime.visil.summaries import Summary, Video

DEFINITION = "1"
"""Version of the definition, for signatures."""
METHODS = ("forced", "sequential")
"""Methods of asking for the answer: whole, or mask by mask."""


@dataclass(frozen=True, slots=True)
class VisilOptions:
    """How ViSIL is computed.

    Attributes
    ----------
    samples
        Number of times that the model is asked. Log-probabilities are averaged (a geometric mean).
    method
        "forced" asks for the whole answer at once, each word given the ones before it. "sequential" asks for
        one mask at a time, with the masks before it filled in.
    count
        Which occurrences of a keyword are scored: "first" or "all".
    prompts
        The prompts; None for the built-in ones.
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
        """The prompts in use: those of the user, or the built-in ones."""
        return self.prompts or builtin()

    def signature(self, fingerprint: str, frames: int | str) -> str:
        """Return everything that a score depends on except its texts and images.

        Parameters
        ----------
        fingerprint
            Fingerprint of the model.
        frames
            Number of frames of the video.

        Returns
        -------
        str
            Fields `key:value`, separated by "|".
        """
        fields = {
            "def": DEFINITION, "model": fingerprint, "prompt": self.wording.version, "frames": frames,
            "samples": self.samples, "method": self.method, "count": self.count,
            "v": __version__,
        }  # fmt: skip
        return "|".join(["visil", *(f"{key}:{value}" for key, value in fields.items())])


@dataclass(frozen=True, slots=True)
class Side:
    """Log-probability of the scored words, given the video or given a summary.

    Attributes
    ----------
    by_word
        Log-probability of each word in nats, averaged over the runs.
    runs
        Sum over the words in each run, in nats.
    prompt_tokens
        Number of tokens of the prompt; None if the model does not report it.
    """

    by_word: tuple[float, ...]
    runs: tuple[float, ...]
    prompt_tokens: int | None

    @property
    def log_p(self) -> float:
        """Sum over the words, never clipped."""
        return math.fsum(self.by_word)

    @property
    def spread(self) -> float | None:
        """Standard deviation of the sums of the runs; None for a single run."""
        return statistics.stdev(self.runs) if len(self.runs) > 1 else None


@dataclass(frozen=True, slots=True)
class VisilResult:
    """The score of one summary.

    Attributes
    ----------
    name
        Name of the summary.
    visil
        The score in nats, the sum of `losses`.
    per_keyword
        Mean of `losses`.
    words
        The scored words.
    losses
        Contribution of each word in nats.
    video, summary
        Log-probabilities given the video and given the summary.
    tokens
        Length of the summary, as specified or as counted by the model; None if unknown.
    frames
        Number of frames of the video.
    samples
        Number of times that the model was asked.
    signature
        Everything that the score depends on except its texts and images.
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
        """Return the score as an object for JSON, without the signature."""
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
    """Score summaries of a video. The probabilities given the video are computed once.

    Parameters
    ----------
    video
        The video.
    caption
        The caption. It should come from another model than the one that scores.
    keywords
        Keywords of the caption, as for `mask_caption`.
    summaries
        Summaries with different names. A `Video` may stand among them.
    logprobs
        The model that scores. Check it with `probe` first.
    samples
        Number of times that the model is asked.
    method
        "forced" or "sequential", as in `VisilOptions`.
    count
        Which occurrences of a keyword are scored: "first" or "all".
    drop_missing
        Leave out keywords that are not in the caption, instead of refusing them.
    prompts
        The prompts; None for the built-in ones.

    Returns
    -------
    list of VisilResult
        One result per summary.

    Raises
    ------
    TextError
        A text cannot be scored.
    ModelError
        The model fails.
    """
    options = VisilOptions(samples, method, count, prompts)
    masked = mask_caption(caption, keywords, count=count, drop_missing=drop_missing)
    return score(video, masked, summaries, logprobs, options)


def score(
    video: Video, masked: MaskedCaption, summaries: Sequence[Summary | Video], logprobs: LogProbs,
    options: VisilOptions,
) -> list[VisilResult]:  # fmt: skip
    """Score summaries as `visil` does, for a caption that is masked already."""
    names = [summary.name for summary in summaries]
    if len(set(names)) < len(names):
        raise TextError(f"summaries: two have the same name (the names are {', '.join(map(repr, names))})")
    prompts = options.wording
    sides: dict[tuple[Part, ...], Side] = {}

    def side(shown: Video | Summary) -> Side:
        given = prompts.given(shown)
        key = tuple(given)
        if key not in sides:
            sides[key] = _side(given, masked, logprobs, options)
        return sides[key]

    words = tuple(masked.words[i] for i in masked.scored)
    signature = options.signature(logprobs.fingerprint, len(video.frames))
    results = []
    for summary in summaries:
        of_video, of_summary = side(video), side(summary)
        losses = tuple(v - s for v, s in zip(of_video.by_word, of_summary.by_word, strict=True))
        total = math.fsum(losses)  # a sum of differences, so that equal sides give exactly 0
        tokens = summary.tokens if isinstance(summary, Summary) else None
        results.append(VisilResult(
            summary.name, total, total / len(losses), words, losses, of_video, of_summary,
            count_tokens(summary, logprobs) if tokens is None else tokens,
            len(video.frames), options.samples, signature,
        ))  # fmt: skip
    return results


def count_tokens(summary: Summary | Video, logprobs: LogProbs) -> int | None:
    """Count the model's tokens of the text and images of a summary.

    The count is the difference of two prompts, with and without the summary. The tokens that a chat template
    adds do not count.

    Parameters
    ----------
    summary
        A summary, or a video.
    logprobs
        The model.

    Returns
    -------
    int or None
        Number of tokens; None if the model does not report it.
    """
    content: list[Part]
    content = [*summary.frames] if isinstance(summary, Video) else [*summary.keyframes, summary.text]
    before: list[Part] = ["Summary: "]
    try:
        whole = logprobs.force(before + [part for part in content if part], "a").prompt_tokens
        rest = logprobs.force(before, "a").prompt_tokens
    except TextError:  # some servers report only the likeliest tokens, and "a" is not one of them
        return None
    return None if whole is None or rest is None else whole - rest


def _side(given: list[Part], masked: MaskedCaption, logprobs: LogProbs, options: VisilOptions) -> Side:
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
    check_forced(forced, masked.answer)
    words = by_word(forced, masked.answer)
    return [words[i] for i in masked.scored], forced.prompt_tokens


def _sequential(
    prompt: Prompt, masked: MaskedCaption, logprobs: LogProbs, run: int
) -> tuple[list[float], int | None]:
    values, tokens = [], None
    for i in masked.scored:
        forced = logprobs.force(prompt(masked.revealed(i)), masked.words[i], run)
        check_forced(forced, masked.words[i])
        values.append(math.fsum(forced.logprobs))
        tokens = forced.prompt_tokens if tokens is None else tokens
    return values, tokens


_FORCE = {"forced": _forced, "sequential": _sequential}
