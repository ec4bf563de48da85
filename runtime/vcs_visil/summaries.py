"""What a model is shown: a video, or a summary of it of text, keyframes or both."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.text.cleaning import check_string
from vcs_runtime.util.reading import read_whole
from vcs_visil.masking import MASK

_PNG = b"\x89PNG\r\n\x1a\n"
_KINDS = ((_PNG, "image/png"), (b"\xff\xd8\xff", "image/jpeg"))


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """An image as the model receives it.

    Attributes
    ----------
    data
        Bytes of a PNG or JPEG file.
    """

    data: bytes

    def __post_init__(self) -> None:
        if not any(self.data.startswith(magic) for magic, _ in _KINDS):
            raise InputError("image must be PNG or JPEG")

    @property
    def media_type(self) -> str:
        """The media type, `image/png` or `image/jpeg`."""
        return next(name for magic, name in _KINDS if self.data.startswith(magic))

    @classmethod
    def read(cls, path: Path) -> Image:
        """Read a PNG or JPEG file; raise InputError naming the file if that fails."""
        data = read_whole(path)
        try:
            return cls(data)
        except InputError:
            raise InputError(f"{path} must be a PNG or JPEG file") from None

    @classmethod
    def from_pixels(cls, pixels: npt.NDArray[np.uint8]) -> Image:
        """Encode RGB pixels, uint8 `(height, width, 3)`, as a PNG file."""
        height, width, _ = pixels.shape
        rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with 0: no filter
        rows[:, 1:] = pixels.reshape(height, -1)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
        data = _PNG + b"".join(
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
            for kind, content in chunks
        )
        return cls(data)


Part = str | Image
"""One piece of a prompt."""


def as_base64(image: Image) -> str:
    """Return the file of an image in base64."""
    return base64.b64encode(image.data).decode()


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
            raise TextError(f"{label}: {len(self.keyframes)} keyframes, at most {MAX_KEYFRAMES}")
        if not self.keyframes and not self.text.strip():
            raise TextError(f"{label} has neither text nor keyframes")
        if MASK in self.text:
            raise TextError(f"{label} must not contain {MASK}")
        if self.tokens is not None and not (math.isfinite(self.tokens) and self.tokens >= 0):
            raise TextError(f"{label}: tokens must be a number of at least 0, not {self.tokens!r}")

    @property
    def format(self) -> str:
        """The format: "text", "1-image" to "3-image", or "1-image only" without a text."""
        if not self.keyframes:
            return TEXT
        return f"{len(self.keyframes)}-image{'' if self.text else ' only'}"
