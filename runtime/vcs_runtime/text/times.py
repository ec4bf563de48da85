"""Segments with start and end times, read from time stamps (docs/guide/texts.md, "Time stamps")."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vcs_runtime.errors import TextError
from vcs_runtime.text.stamps import BARE, CLOCK, ENCLOSED, STARTS, at_beginning, without_groups

_FLAGS = re.IGNORECASE | re.MULTILINE
# The styles of stamps: a text has one of them.
_STYLES = [
    *(re.compile(pattern, _FLAGS) for pattern in ENCLOSED.values()),
    *(re.compile(at_beginning(pattern), _FLAGS) for pattern in BARE.values()),
]
_WITHOUT_END = [re.compile(at_beginning(pattern), _FLAGS) for pattern in STARTS.values()]
_LABELS = re.compile(
    at_beginning(*(without_groups(each) for each in (*ENCLOSED.values(), *BARE.values()))), _FLAGS
)
_STARTS = re.compile(at_beginning(*map(without_groups, STARTS.values())), _FLAGS)
# Parts of WebVTT beside its cues: its head, notes, and names of cues.
_ASIDE = re.compile(
    r"\AWEBVTT.*(?:\n(?!.*-->).+)*|(?<=\n\n)(?:(?:NOTE|STYLE|REGION)\b.*(?:\n.+)*|.+(?=\n.*-->))"
)
# A stamp without an end within a segment: its text would become a part of this segment.
_HALF = re.compile(rf"\[{CLOCK}|^[^\S\n]*\({CLOCK}\)|-->", re.MULTILINE)
_INSTANT = 0.001  # seconds that a moment lasts: the smallest step of SRT
# Marks within the cues of WebVTT and SRT, such as <v Bob>, <c.red>, <i> and {\\an8}.
_TAG = re.compile(
    r"</?(?:[bciuv]|lang|ruby|rt|font)(?:[. ][^<>\n]{0,80})?>|<\d\d:[\d:.]{1,12}>|\{\\\w{1,20}\}"
)
# Names of the text of a segment, and of its start and end in one list.
_TEXTS = ("text", "sentence", "caption", "description")
_PAIRS = ("timestamp", "timestamps", "segment", "span")
_TIME = re.compile(rf"{CLOCK}|\d{{1,6}}(?:\.\d{{1,6}})?s?")
_SHOWN = 40  # characters of a text in an error


class TimedSegment(NamedTuple):
    """A segment of a text, and when it happens in the video, in seconds."""

    start: float
    end: float
    text: str


class TimedText(str):
    """A text with time stamps that was made of segments, which it keeps."""

    segments: Sequence[TimedSegment] = ()

    @classmethod
    def of(cls, segments: Sequence[TimedSegment]) -> TimedText:
        """Write segments as a text with time stamps."""
        lines = [f"[{_clock(each.start)}-{_clock(each.end)}] {each.text}" for each in segments]
        text = cls("\n".join(lines))
        text.segments = tuple(segments)
        return text

    @property
    def plain(self) -> str:
        """The texts of the segments, one a line, without stamps."""
        return "\n".join(segment.text for segment in self.segments)

    def map(self, change: Callable[[str], str]) -> TimedText:
        """Return the text with the text of each segment changed."""
        return TimedText.of([each._replace(text=change(each.text)) for each in self.segments])


def timed_segments(text: str, name: str, latest: float = 0.0) -> list[TimedSegment]:
    """Return the segments of a text with time stamps, in the order of their starts.

    The style of the first stamp counts: other numbers within a sentence are text. Without ends a
    segment lasts until the next one starts, and the last one until `latest`, in seconds. Raises
    TextError, which starts with `name`, unless every part of the text has a stamp before it, of
    this style, that does not end before it starts.
    """
    return _closed(_open_segments(text, name), latest)


def timed_together(texts: Mapping[str, str]) -> dict[str, list[TimedSegment]]:
    """Return the segments of the texts of a pair, by name, as `timed_segments` does.

    A last segment without an end lasts until the latest time of all texts.
    """
    found = {name: _open_segments(text, name) for name, text in texts.items()}
    latest = max(each.end for segments in found.values() for each in _closed(segments, 0.0))
    return {name: _closed(segments, latest) for name, segments in found.items()}


def _open_segments(text: str, name: str) -> list[TimedSegment]:
    """Return the segments of a text by their starts; those without an end last for ever."""
    segments = []
    found = text.segments if isinstance(text, TimedText) else _parsed(text.strip(), name)
    for start, end, piece in found:
        if end < start:
            stamp = f"{_clock(start)}-{_clock(end)}"
            raise TextError(f"{name}: the time stamp {stamp!r} ends before it starts")
        if piece.strip():
            segments.append(TimedSegment(start, max(end, start + _INSTANT), piece.strip()))
    if not segments:
        raise TextError(f"{name}: there is no text after its time stamps")
    return sorted(segments, key=lambda segment: segment[:2])


def _closed(segments: Sequence[TimedSegment], latest: float) -> list[TimedSegment]:
    """End each segment without an end where the next one starts, and the last one at `latest`."""
    closed = []
    starts = [each.start for each in segments[1:]]
    for each, following in zip(segments, [*starts, latest], strict=True):
        if each.end == math.inf:
            each = each._replace(end=max(following, each.start + _INSTANT))
        closed.append(each)
    return closed


def _parsed(text: str, name: str) -> Iterator[TimedSegment]:
    """Yield the segments of a text as they are written."""
    if text.startswith("WEBVTT"):
        text = _ASIDE.sub("", text)
    styles = (*_STYLES, *_WITHOUT_END)
    first = [match for style in styles if (match := style.search(text))]
    if not first:
        place = "without a start and an end such as [00:12-00:18]"
        raise TextError(f"{name}: there is text {place}: {text.strip()[:_SHOWN]!r}")
    begun = min(first, key=re.Match.start)
    if before := text[: begun.start()].strip():
        raise TextError(f"{name}: there is text before the first time stamp: {before[:_SHOWN]!r}")
    stamps = list(begun.re.finditer(text))
    ends = [*(stamp.start() for stamp in stamps), len(text)][1:]
    for stamp, end in zip(stamps, ends, strict=True):
        piece = text[stamp.end() : end].strip()
        if other := _LABELS.search(piece):
            raise TextError(
                f"{name}: the time stamp {other[0].strip()!r} has a different style from the"
                f" first, {begun[0].strip()!r}: {piece[other.start() :].strip()[:_SHOWN]!r}"
            )
        half = _STARTS.search(piece) if begun.re in _WITHOUT_END else _HALF.search(piece)
        if half:
            raise TextError(
                f"{name}: a time stamp needs a start and an end: {piece[half.start() :][:_SHOWN]!r}"
            )
        if begun.re is _STYLES[0]:
            piece = _TAG.sub("", piece)
        # The group before the times is a list mark.
        times = [_seconds(group) for group in stamp.groups() if group and group[0].isdigit()]
        if len(times) == 1:
            times.append(math.inf)
        if times[1] < times[0]:
            raise TextError(f"{name}: the time stamp {stamp[0].strip()!r} ends before it starts")
        yield TimedSegment(times[0], times[1], piece)


def stamped(value: Any) -> Any:
    """Return timed segments as one `TimedText`, and any other value unchanged.

    Segments are a list of objects with text and times, or an object with lists of both.
    """
    if isinstance(value, Mapping) and {"timestamps", "sentences"} <= value.keys():
        times, texts = value["timestamps"], value["sentences"]
        if not isinstance(times, list) or not isinstance(texts, list) or len(times) != len(texts):
            return value
        rows = [{"timestamp": time, "text": text} for time, text in zip(times, texts, strict=True)]
        timed = stamped(rows)
        return value if timed is rows else timed
    if isinstance(value, Mapping) and isinstance(value.get("annotations"), list):  # of YouCook2
        timed = stamped(value["annotations"])
        return value if timed is value["annotations"] else timed
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return value
    segments = [segment for row in value if (segment := _segment(row))]
    return TimedText.of(segments) if len(segments) == len(value) else value


def _segment(row: object) -> TimedSegment | None:
    """Return the segment of an object with a text and its times, or None."""
    if not isinstance(row, Mapping):
        return None
    if "start_frame" in row and not row.keys() & {"start", "start_time", *_PAIRS}:
        raise TextError(
            "the times of segments from start_frame to end_frame are unknown without frames per"
            " second: give each segment start and end in seconds"
        )
    text = next((row[key] for key in _TEXTS if key in row), None)
    pair = next((row[key] for key in _PAIRS if key in row), None)
    if pair is None:
        pair = [row.get("start", row.get("start_time")), row.get("end", row.get("end_time"))]
    if not isinstance(text, str) or not isinstance(pair, list | tuple) or len(pair) != 2:
        return None
    start, end = map(_time, pair)
    return None if start is None or end is None else TimedSegment(start, end, text)


def _time(value: object) -> float | None:
    """Return the seconds of a number or a clock such as 00:12.5, or None."""
    if isinstance(value, str) and _TIME.fullmatch(value):
        return _seconds(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        return None
    return round(float(value), 3)  # milliseconds, as in a text


def _clock(seconds: float) -> str:
    """Return a time as 1:02:03.500, which `--clean time-stamps` removes, too."""
    minutes, rest = divmod(round(seconds * 1000), 60_000)
    return f"{minutes // 60}:{minutes % 60:02}:{rest / 1000:06.3f}"


def _seconds(time: str) -> float:
    """Return the seconds of a time such as 1:02:03.5, 02:03,500 or 123.5."""
    seconds = 0.0
    for part in time.rstrip("s").replace(",", ".").split(":"):
        seconds = 60 * seconds + float(part)
    return seconds
