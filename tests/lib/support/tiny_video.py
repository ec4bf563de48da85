"""A synthetic video whose frames tell their numbers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest


def write_video(path: Path, rate: Fraction, count: int) -> Path:
    """Frame i is white in its first i + 1 columns; every tenth is a keyframe. Needs PyAV."""
    av = pytest.importorskip("av")

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate, options={"g": "10", "qscale": "2"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for i in range(count):
            pixels = np.zeros((48, 64, 3), np.uint8)
            pixels[:, : i + 1] = 255
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    return path
