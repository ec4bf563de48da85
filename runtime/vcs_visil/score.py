"""The ViSIL score: how much of a video's caption is lost in a summary (docs/guide/visil.md).

    ViSIL = log P(caption | video) - log P(caption | summary)

P is a vision-language model's probability of the keywords of the caption. The unit is nats; lower
is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vcs_runtime.errors import TextError
from vcs_visil.asking import Model, Side, VisilOptions, ask, count_tokens
from vcs_visil.masking import MaskedCaption, mask_caption
from vcs_visil.models.generated import FLOOR, TOP
from vcs_visil.prompts import Prompts
from vcs_visil.summaries import Part, Summary, Video


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
    format
        Format of the summary: "text", "1-image" to "3-image", or "video".
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
    format: str

    def to_dict(self) -> dict[str, Any]:
        """Return the score as an object for JSON, without the signature."""
        keywords = [
            {"word": word, "visil": loss, "log_p_video": v, "log_p_summary": s}
            for word, loss, v, s in zip(
                self.words, self.losses, self.video.by_word, self.summary.by_word, strict=True
            )
        ]
        if self.approximate:
            for keyword, v, s in zip(keywords, self.video.known, self.summary.known, strict=True):
                keyword |= {"known_video": v, "known_summary": s}
        return {
            "name": self.name,
            "format": self.format,
            "visil": self.visil,
            "per_keyword": self.per_keyword,
            "n": len(self.words),
            **({"approximate": True} if self.approximate else {}),
            "tokens": self.tokens,
            "log_p_video": self.video.log_p,
            "log_p_summary": self.summary.log_p,
            "spread_video": self.video.spread,
            "spread_summary": self.summary.spread,
            "keywords": keywords,
        }

    @property
    def approximate(self) -> bool:
        """Whether the probabilities belong to generated answers, where some are unknown."""
        return bool(self.video.known)


def visil(
    video: Video,
    caption: str,
    keywords: Sequence[str],
    summaries: Sequence[Summary | Video],
    model: Model,
    *,
    samples: int = 1,
    method: str = "forced",
    count: str = "first",
    drop_missing: bool = False,
    prompts: Prompts | None = None,
    top: int = TOP,
    floor: float = FLOOR,
) -> list[VisilResult]:
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
        Summaries with different names. One of them may be a `Video`.
    model
        The model that scores. Check it with `probe` first.
    samples
        Number of times that the model is asked.
    method
        "forced", "sequential" or "generate", as in `VisilOptions`.
    count
        Which occurrences of a keyword are scored: "first" or "all".
    drop_missing
        Leave out keywords that are not in the caption, instead of refusing them.
    prompts
        The prompts; None for the built-in ones.
    top
        Number of likeliest tokens to request per token, for "generate".
    floor
        Lowest log-probability of a word in nats, for "generate".

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
    options = VisilOptions(samples, method, count, prompts, top, floor)
    masked = mask_caption(caption, keywords, count=count, drop_missing=drop_missing)
    return score(video, masked, summaries, model, options)


def score(
    video: Video,
    masked: MaskedCaption,
    summaries: Sequence[Summary | Video],
    model: Model,
    options: VisilOptions,
) -> list[VisilResult]:
    """Score summaries as `visil` does, for a caption that is masked already."""
    names = [summary.name for summary in summaries]
    if len(set(names)) < len(names):
        raise TextError(
            f"summaries: two have the same name (the names are {', '.join(map(repr, names))})"
        )
    prompts = options.wording
    sides: dict[tuple[Part, ...], Side] = {}

    def side(shown: Video | Summary) -> Side:
        parts = prompts.given(shown)
        key = tuple(parts)
        if key not in sides:
            sides[key] = ask(parts, masked, model, options)
        return sides[key]

    words = tuple(masked.words[i] for i in masked.scored)
    signature = options.signature(model.fingerprint, len(video.frames))
    results = []
    for summary in summaries:
        of_video, of_summary = side(video), side(summary)
        if of_video.known and all(value == options.floor for value in of_video.by_word):
            raise TextError(
                f"there is no score, because the model finds none of the {len(words)} keywords in"
                " the video"
            )
        losses = tuple(v - s for v, s in zip(of_video.by_word, of_summary.by_word, strict=True))
        total = math.fsum(losses)  # a sum of differences, so that equal sides give exactly 0
        tokens = summary.tokens if isinstance(summary, Summary) else None
        results.append(
            VisilResult(
                summary.name,
                total,
                total / len(losses),
                words,
                losses,
                of_video,
                of_summary,
                count_tokens(summary, model, options) if tokens is None else tokens,
                len(video.frames),
                options.samples,
                signature,
                summary.format,
            )
        )
    return results
