"""Segments with start and end times, read from time stamps (docs/guide/texts.md, "Time stamps")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vcs_runtime.errors import TextError

_CLOCK = r"(?:\d{1,3}:)?\d{1,2}:\d\d(?:[.,]\d{1,6})?"
_TIME = rf"{_CLOCK}|\d{{1,6}}(?:\.\d{{1,6}})?"  # or seconds
_TO = r" ?(?:-->|[-–—]|to) ?"
_STAMP = re.compile(
    # A cue of SRT or WebVTT, whose number stands on the line before it; or a range in brackets.
    # Numbers in parentheses may be years.
    rf"^(?:\d{{1,6}}[^\S\n]*\n)?[^\S\n]*({_CLOCK}) ?--> ?({_CLOCK})(?:[^\S\n][^\n]*)?$"
    rf"|\[({_TIME})s?{_TO}({_TIME})s?\]:?|\(({_CLOCK}){_TO}({_CLOCK})\):?",
    re.MULTILINE,
)
# Parts of WebVTT beside its cues: its head, notes, and names of cues.
_ASIDE = re.compile(
    r"\AWEBVTT.*(?:\n(?!.*-->).+)*|(?<=\n\n)(?:(?:NOTE|STYLE|REGION)\b.*(?:\n.+)*|.+(?=\n.*-->))"
)
# A stamp without an end within a segment: its text would become a part of this segment.
_HALF = re.compile(rf"\[{_CLOCK}|^[^\S\n]*(?:\({_CLOCK}\)|{_CLOCK}{_TO}{_CLOCK})|-->", re.MULTILINE)
_INSTANT = 0.001  # seconds that a moment lasts: the smallest step of SRT
_SHOWN = 40  # characters of a text in an error


class TimedSegment(NamedTuple):
    """A segment of a text, and when it happens in the video, in seconds."""

    start: float
    end: float
    text: str


def timed_segments(text: str, name: str) -> list[TimedSegment]:
    """Return the segments of a text with time stamps, in the order of their starts.

    Raises TextError, which starts with `name`, unless every part of the text has a stamp before it
    that does not end before it starts.
    """
    text = text.strip()
    if text.startswith("WEBVTT"):
        text = _ASIDE.sub("", text)
    stamps = list(_STAMP.finditer(text))
    starts = [stamp.start() for stamp in stamps]
    before = text[: starts[0]].strip() if stamps else text.strip()
    if before:
        place = "before the first time stamp"
        if not stamps:
            place = "without a start and an end such as [00:12-00:18]"
        raise TextError(f"{name}: there is text {place}: {before[:_SHOWN]!r}")
    segments = []
    ends = [*starts, len(text)][1:]
    for stamp, end in zip(stamps, ends, strict=True):
        first, last = (_seconds(time) for time in stamp.groups() if time)
        if last < first:
            raise TextError(f"{name}: the time stamp {stamp[0].strip()!r} ends before it starts")
        piece = text[stamp.end() : end].strip()
        if half := _HALF.search(piece):
            raise TextError(
                f"{name}: a time stamp needs start and end: {piece[half.start() :][:_SHOWN]!r}"
            )
        if piece:
            segments.append(TimedSegment(first, max(last, first + _INSTANT), piece))
    if not segments:
        raise TextError(f"{name}: there is no text after its time stamps")
    return sorted(segments, key=lambda segment: segment[:2])


def stamped(value: Any) -> Any:
    """Return timed segments as one text with time stamps, and any other value unchanged.

    A segment is an object with `start` and `end` in seconds, and `text`.
    """
    if not isinstance(value, Sequence) or not value or not all(map(_is_segment, value)):
        return value
    return "\n".join(
        f"[{_clock(row['start'])}-{_clock(row['end'])}] {row['text']}" for row in value
    )


def _is_segment(value: object) -> bool:
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
        return False
    times = value.get("start"), value.get("end")
    return all(
        isinstance(t, int | float) and not isinstance(t, bool) and 0 <= t < 1e6 for t in times
    )


def _clock(seconds: float) -> str:
    """Return a time as 1:02:03.500, which `--clean time-stamps` removes, too."""
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60}:{minutes % 60:02}:{rest / 1000:06.3f}"


def _seconds(time: str) -> float:
    """Return the seconds of a time such as 1:02:03.5, 02:03,500 or 123.5."""
    seconds = 0.0
    for part in time.replace(",", ".").split(":"):
        seconds = 60 * seconds + float(part)
    return seconds
