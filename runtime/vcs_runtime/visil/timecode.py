"""SMPTE timecodes and frame numbers."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from numbers import Real

from vcs_runtime.errors import TextError

_TIMECODE = re.compile(r"(\d\d):(\d\d):(\d\d)([:;])(\d\d)", re.ASCII)
# Numbers that drop-frame timecode skips each minute, by rounded rate. 29.97 means 30000/1001.
_DROP = {30: 2, 60: 4}
_NTSC = Fraction(1000, 1001)


def parse_timecode(text: str, fps: Fraction | float, *, frames: int | None = None) -> int:
    """Convert a timecode to a frame number.

    Parameters
    ----------
    text
        "HH:MM:SS:FF", or "HH:MM:SS;FF" for drop-frame timecode (29.97 and 59.94 frames per second only).
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
            f"timecode: {text!r}: at {float(rate):g} frames a second there is no frame {frame:02}"
        )
    minutes += 60 * hours
    at = (60 * minutes + seconds) * number + frame
    if match[4] == ";":
        dropped = _DROP.get(number)
        if dropped is None or not math.isclose(rate, number * _NTSC, rel_tol=1e-4):
            raise TextError(f"timecode: {text!r} drops frames, which {float(rate):g} frames a second do not")
        if minutes % 10 and not seconds and frame < dropped:
            raise TextError(f"timecode: {text!r}: drop-frame timecode leaves this number out")
        at -= dropped * (minutes - minutes // 10)
    if frames is not None and at >= frames:
        raise TextError(f"timecode: {text!r} is frame {at}, past the end of {frames} frames")
    return at


def check_rate(fps: Fraction | float) -> Fraction:
    """Return the frame rate as a fraction; raise ValueError if it is not a number of at least 1."""
    if isinstance(fps, bool) or not isinstance(fps, Real) or not math.isfinite(fps):
        raise ValueError(f"fps must be a number of frames a second, not {fps!r}")
    rate = fps if isinstance(fps, Fraction) else Fraction(float(fps))
    if round(rate) < 1:
        raise ValueError(f"fps must be at least 1, not {fps!r}")
    return rate


def timecode(frame: int, fps: Fraction | float) -> str:
    """Return the timecode HH:MM:SS:FF (without drop frames) of a frame counted from 0."""
    seconds, rest = divmod(frame, round(check_rate(fps)))
    minutes, seconds = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}:{rest:02}"
