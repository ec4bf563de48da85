"""PNG files from pixels, without a library: the probe draws its images where PyAV is not installed."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt


def encode(pixels: npt.NDArray[np.uint8]) -> bytes:
    """Return the bytes of a PNG file with RGB `pixels`, uint8 `(height, width, 3)`."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with 0: no filter
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
