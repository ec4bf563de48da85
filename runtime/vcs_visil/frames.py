"""Frames of video files, by number, timecode or uniformly sampled.

Decoding needs PyAV (extra `video`).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.util.extras import require
from vcs_runtime.util.reading import refuse_special
from vcs_visil.summaries import Image

FRAMES = 16
"""Default number of frames of a video."""
LONG_SIDE = 768
"""Largest length of a frame's longer side in pixels; larger frames are scaled down."""
_TIMECODE = re.compile(r"(\d\d):(\d\d):(\d\d)([:;])(\d\d)", re.ASCII)
_IMAGES = (".png", ".jpg", ".jpeg")
# Numbers that drop-frame timecode skips each minute, by rounded rate. 29.97 means 30000/1001.
_DROP = {30: 2, 60: 4}
_NTSC = Fraction(1000, 1001)


def uniform(count: int, samples: int) -> list[int]:
    """Choose frames of a video uniformly: the middles of equal parts; all if there are fewer."""
    if samples < 1:
        raise ValueError(f"frames must be at least 1, not {samples!r}")
    if count <= samples:
        return list(range(count))
    return [(2 * i + 1) * count // (2 * samples) for i in range(samples)]


def parse_timecode(text: str, fps: Fraction | float, *, frames: int | None = None) -> int:
    """Convert a timecode to a frame number.

    Parameters
    ----------
    text
        "HH:MM:SS:FF", or "HH:MM:SS;FF" for drop-frame timecode (29.97 and 59.94 frames per second
        only).
    fps
        Frames per second.
    frames
        Number of frames in the video, if known.

    Returns
    -------
    int
        Frame number, counted from 0.

    Raises
    ------
    TextError
        The text is not a timecode of this frame rate, or the frame is past the end.
    ValueError
        `fps` is not a frame rate.
    """
    rate = check_rate(fps)
    number = round(rate)
    match = _TIMECODE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise TextError(f"timecode: {text!r} is not of the form HH:MM:SS:FF (or HH:MM:SS;FF)")
    hours, minutes, seconds, frame = (int(match[i]) for i in (1, 2, 3, 5))
    if minutes > 59 or seconds > 59:
        raise TextError(f"timecode: {text!r} has more than 59 minutes or seconds")
    if frame >= number:
        raise TextError(
            f"timecode: {text!r}: there is no frame {frame:02} at {float(rate):g} frames a second"
        )
    minutes += 60 * hours
    at = (60 * minutes + seconds) * number + frame
    if match[4] == ";":
        dropped = _DROP.get(number)
        if dropped is None or not math.isclose(rate, number * _NTSC, rel_tol=1e-4):
            raise TextError(
                f"timecode: {text!r} is drop-frame timecode, but videos with {float(rate):g}"
                " frames a second have none"
            )
        if minutes % 10 and not seconds and frame < dropped:
            raise TextError(f"timecode: {text!r}: drop-frame timecode leaves out this number")
        at -= dropped * (minutes - minutes // 10)
    if frames is not None and at >= frames:
        raise TextError(f"timecode: {text!r} is frame {at}, but the video has only {frames} frames")
    return at


def check_rate(fps: Fraction | float) -> Fraction:
    """Return the frame rate as a fraction; raise ValueError if it is not a number of at least 1."""
    if isinstance(fps, bool) or not isinstance(fps, Real) or not math.isfinite(fps):
        raise ValueError(f"fps must be a number of frames a second, not {fps!r}")
    rate = fps if isinstance(fps, Fraction) else Fraction(float(fps))
    if round(rate) < 1:
        raise ValueError(f"fps must be at least 1, not {fps!r}")
    return rate


def format_timecode(frame: int, fps: Fraction | float) -> str:
    """Return the timecode HH:MM:SS:FF (without drop frames) of a frame counted from 0."""
    seconds, rest = divmod(frame, round(check_rate(fps)))
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}:{rest:02}"


class VideoFile:
    """A video file with a constant frame rate."""

    def __init__(self, path: Path) -> None:
        """Read the frame rate `fps` and the number of frames; raise InputError naming the file."""
        self.path = path
        with self._stream() as (container, stream):
            if not stream.average_rate:
                raise InputError(f"{path}: the frame rate is unknown")
            self.fps = Fraction(stream.average_rate)
            self.frames = stream.frames or sum(1 for _ in container.decode(stream))
            if not self.frames:
                raise InputError(f"{path}: no frame can be read")

    def read(self, numbers: Sequence[int]) -> list[Image]:
        """Decode frames, counted from 0, in any order, as PNG of at most `LONG_SIDE` pixels."""
        images = []
        with self._stream() as (container, stream):
            first = stream.start_time or 0
            start = first * stream.time_base
            for number in numbers:
                if not 0 <= number < self.frames:
                    raise InputError(f"{self.path}: no frame {number}; there are {self.frames}")
                at = start + number / self.fps
                container.seek(int(at / stream.time_base), stream=stream)
                # `seek` stops at the keyframe before it. The frame has a time within half a frame.
                earliest = at - 1 / (2 * self.fps)
                for frame in container.decode(stream):
                    if frame.pts is not None and frame.pts * stream.time_base > earliest:
                        images.append(_image(frame))
                        break
                else:
                    raise InputError(f"{self.path}: frame {number} cannot be read")
        return images

    @contextmanager
    def _stream(self) -> Iterator[tuple[Any, Any]]:
        av = require("av", "video", "reading frames of a video")
        try:
            refuse_special(self.path, self.path)  # FFmpeg would wait for data of a pipe
            # FFmpeg takes "http:/host/x" for an address, but an absolute path for a file, whatever
            # it holds.
            with av.open(os.path.abspath(self.path)) as container:
                if not container.streams.video:
                    raise InputError(f"{self.path}: the file has no video stream")
                yield container, container.streams.video[0]
        except (av.FFmpegError, OSError) as error:
            raise InputError(f"{self.path}: {error.strerror or error}") from None


class FrameFolder:
    """A folder of frames as PNG or JPEG files, in the order of their names."""

    def __init__(self, path: Path, fps: Fraction | float) -> None:
        """List the frames, `fps` of them per second.

        Raises InputError if there are no frames.
        """
        self.path, self.fps = path, check_rate(fps)
        self._files = sorted(file for file in path.iterdir() if file.suffix.lower() in _IMAGES)
        self.frames = len(self._files)
        if not self.frames:
            raise InputError(f"{path}: the folder holds no PNG or JPEG files")

    def read(self, numbers: Sequence[int]) -> list[Image]:
        """Return frames, unchanged; raise InputError naming the folder if one does not exist."""
        for number in numbers:
            if not 0 <= number < self.frames:
                raise InputError(f"{self.path}: no frame {number}; there are {self.frames}")
        return [Image.read(self._files[number]) for number in numbers]


def _image(frame: Any) -> Image:
    scale = min(1.0, LONG_SIDE / max(frame.width, frame.height))
    width, height = (max(1, round(side * scale)) for side in (frame.width, frame.height))
    return Image.from_pixels(frame.reformat(width, height, format="rgb24").to_ndarray())
