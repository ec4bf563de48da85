"""What a model is shown: a video, or a summary of it of text, keyframes or both."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vcs_runtime.errors import TextError
from vcs_runtime.text.cleaning import check_string
from vcs_visil.images import Image
from vcs_visil.masking import MASK

VIDEO, TEXT = "video", "text"
"""Formats of a full video, and of a summary without keyframes."""
MAX_KEYFRAMES = 3
"""Largest number of keyframes of a summary."""


@dataclass(frozen=True)
class Video:
    """A video as the model sees it.

    Attributes
    ----------
    frames
        Frames in order.
    name
        Name of the video among summaries.
    """

    frames: Sequence[Image]
    name: str = "video"

    def __post_init__(self) -> None:
        if not self.frames or not all(isinstance(frame, Image) for frame in self.frames):
            raise TextError("video: frames must be one or more images")

    @property
    def format(self) -> str:
        """The format of a video: "video"."""
        return VIDEO


@dataclass(frozen=True)
class Summary:
    """A summary of a video: text, keyframes or both.

    Attributes
    ----------
    text
        The text. It may name the keyframes as [KEYFRAME1], [KEYFRAME2] and [KEYFRAME3].
    keyframes
        Up to three images in order.
    name
        Name of the summary in results.
    tokens
        Length of the summary in tokens; None if the model shall count them.
    """

    text: str = ""
    keyframes: Sequence[Image] = ()
    name: str = "summary"
    tokens: float | None = None

    def __post_init__(self) -> None:
        label = f"summary {self.name!r}"
        check_string(self.text, label)
        if len(self.keyframes) > MAX_KEYFRAMES:
            raise TextError(f"{label}: {len(self.keyframes)} keyframes, more than {MAX_KEYFRAMES}")
        if not self.keyframes and not self.text.strip():
            raise TextError(f"{label}: neither text nor keyframes")
        if MASK in self.text:
            raise TextError(f"{label}: it contains {MASK}")
        if self.tokens is not None and not (math.isfinite(self.tokens) and self.tokens >= 0):
            raise TextError(f"{label}: tokens must be a number of at least 0, not {self.tokens!r}")

    @property
    def format(self) -> str:
        """The format: "text", "1-image" to "3-image", or "1-image only" without a text."""
        if not self.keyframes:
            return TEXT
        return f"{len(self.keyframes)}-image{'' if self.text else ' only'}"
