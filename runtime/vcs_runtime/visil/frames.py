"""Frames of video files, by number, timecode or uniformly (extra `video`: PyAV)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from vcs_runtime.errors import DeviceError, InputError
from vcs_runtime.visil import png
from vcs_runtime.visil.logprobs import Image

FRAMES = 16
"""Of a video, where nobody says how many."""
LONG_SIDE = 768
"""Pixels of the longer side that a frame is scaled down to, if it is larger."""


def uniform(count: int, wanted: int) -> list[int]:
    """The middles of `wanted` equal parts of `count` frames; all frames, if there are fewer."""
    if wanted < 1:
        raise ValueError(f"frames must be at least 1, not {wanted!r}")
    if count <= wanted:
        return list(range(count))
    return [(2 * i + 1) * count // (2 * wanted) for i in range(wanted)]


class VideoFile:
    """A video file of a constant frame rate. `fps`: frames a second; `frames`: how many."""

    def __init__(self, path: Path) -> None:
        """Look at the file. Raises DeviceError without PyAV, InputError naming the file."""
        self.path = path
        with self._stream() as (container, stream):
            if not stream.average_rate:
                raise InputError(f"{path}: its frame rate is not known")
            self.fps = Fraction(stream.average_rate)
            self.frames = stream.frames or sum(1 for _ in container.decode(stream))
            if not self.frames:
                raise InputError(f"{path}: no frame can be read")

    def read(self, numbers: Sequence[int]) -> list[Image]:
        """The frames of these numbers, counted from 0, as PNG of at most `LONG_SIDE` pixels a side."""
        found = []
        with self._stream() as (container, stream):
            start = (stream.start_time or 0) * stream.time_base
            for number in numbers:
                if not 0 <= number < self.frames:
                    raise InputError(f"{self.path}: no frame {number}; there are {self.frames}")
                at = start + number / self.fps
                container.seek(int(at / stream.time_base), stream=stream)
                # The keyframe before it, and on from there: within half a frame it is the one.
                for frame in container.decode(stream):
                    if frame.pts is not None and frame.pts * stream.time_base > at - 1 / (2 * self.fps):
                        found.append(_image(frame))
                        break
                else:
                    raise InputError(f"{self.path}: frame {number} cannot be read")
        return found

    @contextmanager
    def _stream(self) -> Iterator[tuple[Any, Any]]:
        try:
            import av
        except ImportError as error:
            raise DeviceError(f"frames of videos need `vcs-runtime[video]` ({error})") from None
        try:
            with av.open(str(self.path)) as container:
                if not container.streams.video:
                    raise InputError(f"{self.path}: no video in it")
                yield container, container.streams.video[0]
        except (av.FFmpegError, OSError) as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None


def _image(frame: Any) -> Image:
    scale = min(1.0, LONG_SIDE / max(frame.width, frame.height))
    width, height = (max(1, round(side * scale)) for side in (frame.width, frame.height))
    return Image(png.encode(frame.reformat(width, height, format="rgb24").to_ndarray()))
