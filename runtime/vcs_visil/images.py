"""Images in prompts, as PNG or JPEG files. PNG files are written by hand, because the probe has no PyAV."""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcs_runtime.errors import InputError
from vcs_runtime.util.reading import read_whole

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
            raise InputError("image: neither PNG nor JPEG")

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
            raise InputError(f"{path}: neither PNG nor JPEG") from None

    @classmethod
    def from_pixels(cls, pixels: npt.NDArray[np.uint8]) -> Image:
        """Encode RGB pixels, uint8 `(height, width, 3)`, as a PNG file."""
        height, width, _ = pixels.shape
        rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with 0: no filter
        rows[:, 1:] = pixels.reshape(height, -1)
        header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
        data = _PNG + b"".join(
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
            for kind, content in chunks
        )
        return cls(data)


Part = str | Image
"""One piece of a prompt."""


def as_base64(image: Image) -> str:
    """Return the file of an image in base64."""
    return base64.b64encode(image.data).decode()
