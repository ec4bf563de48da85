"""Frames of video files, by number or uniformly sampled. Decoding needs PyAV (extra `video`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.util.extras import require
from vcs_runtime.visil import png
from vcs_runtime.visil.logprobs import Image

FRAMES = 16
"""Default number of frames of a video."""
LONG_SIDE = 768
"""Largest length of a frame's longer side in pixels; larger frames are scaled down."""


def uniform(count: int, samples: int) -> list[int]:
    """Choose frames of a video uniformly: the middles of equal parts.

    Parameters
    ----------
    count
        Number of frames in the video.
    samples
        Number of frames to choose. If the video has fewer, all are chosen.

    Returns
    -------
    list of int
        Frame numbers in increasing order, counted from 0.
    """
    if samples < 1:
        raise ValueError(f"frames must be at least 1, not {samples!r}")
    if count <= samples:
        return list(range(count))
    return [(2 * i + 1) * count // (2 * samples) for i in range(samples)]


class VideoFile:
    """A video file with a constant frame rate.

    Attributes
    ----------
    path
        The file.
    fps
        Frames per second.
    frames
        Number of frames.
    """

    def __init__(self, path: Path) -> None:
        """Read the frame rate and the number of frames.

        Parameters
        ----------
        path
            The video file.

        Raises
        ------
        MissingExtraError
            PyAV is not installed.
        InputError
            The file cannot be read or has no video. The message names the file.
        """
        self.path = path
        with self._stream() as (container, stream):
            if not stream.average_rate:
                raise InputError(f"{path}: the frame rate is unknown")
            self.fps = Fraction(stream.average_rate)
            self.frames = stream.frames or sum(1 for _ in container.decode(stream))
            if not self.frames:
                raise InputError(f"{path}: no frame can be read")

    def read(self, numbers: Sequence[int]) -> list[Image]:
        """Decode frames.

        Parameters
        ----------
        numbers
            Frame numbers, counted from 0, in any order.

        Returns
        -------
        list of Image
            One PNG per number. The longer side has at most `LONG_SIDE` pixels.

        Raises
        ------
        InputError
            A frame does not exist or cannot be decoded. The message names the file and the frame.
        """
        images = []
        with self._stream() as (container, stream):
            start = (stream.start_time or 0) * stream.time_base
            for number in numbers:
                if not 0 <= number < self.frames:
                    raise InputError(f"{self.path}: no frame {number}; there are {self.frames}")
                at = start + number / self.fps
                container.seek(int(at / stream.time_base), stream=stream)
                # `seek` stops at the keyframe before it; the frame itself is within half a frame of its time.
                for frame in container.decode(stream):
                    if frame.pts is not None and frame.pts * stream.time_base > at - 1 / (2 * self.fps):
                        images.append(_image(frame))
                        break
                else:
                    raise InputError(f"{self.path}: frame {number} cannot be read")
        return images

    @contextmanager
    def _stream(self) -> Iterator[tuple[Any, Any]]:
        av = require("av", "video", "reading frames of a video")
        try:
            with av.open(str(self.path)) as container:
                if not container.streams.video:
                    raise InputError(f"{self.path}: the file has no video stream")
                yield container, container.streams.video[0]
        except (av.FFmpegError, OSError) as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None


def _image(frame: Any) -> Image:
    scale = min(1.0, LONG_SIDE / max(frame.width, frame.height))
    width, height = (max(1, round(side * scale)) for side in (frame.width, frame.height))
    return Image(png.encode(frame.reformat(width, height, format="rgb24").to_ndarray()))
