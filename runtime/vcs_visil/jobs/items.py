"""Items of a job: videos with captions, keywords and summaries, read from JSONL."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_visil.frames import FrameFolder, VideoFile, check_rate, parse_timecode, uniform
from vcs_visil.summaries import Image, Summary, Video

MADE = "made"
"""Field of a line with the signatures of the fields that steps have added."""


@dataclass(frozen=True)
class Item:
    """One line of a JSONL file of videos."""

    place: str  # file and line, for errors
    folder: Path  # of the file: paths in the line are relative to it
    row: Mapping[str, Any]

    @property
    def id(self) -> str | int:
        """The id of the line."""
        return self.row["id"]  # type: ignore[no-any-return]

    def text(self, name: str) -> str:
        """Return a field that must be a text."""
        value = self.row.get(name)
        if not isinstance(value, str):
            raise InputError(f"{self.place}: {name!r} must be a text, not {_kind(value)}")
        return value

    def several(self, name: str) -> list[Any]:
        """Return a field that must be a list of at least one value."""
        value = self.row.get(name)
        if not isinstance(value, list) or not value:
            raise InputError(
                f"{self.place}: {name!r} must be a list that is not empty, not {_kind(value)}"
            )
        return value

    @property
    def made(self) -> dict[str, str]:
        """The signatures of the fields that steps have added."""
        signatures = self.row.get(MADE, {})
        if not isinstance(signatures, dict) or not all(
            isinstance(value, str) for value in signatures.values()
        ):
            raise InputError(f"{self.place}: {MADE!r} must be an object of texts")
        return signatures

    @cached_property
    def file(self) -> VideoFile | FrameFolder:
        """The video file, or the folder of its frames with "fps" frames per second."""
        path = self.folder / self.text("video")
        if not path.is_dir():
            return VideoFile(path)
        try:
            return FrameFolder(path, check_rate(self._number("fps")))
        except ValueError as error:
            raise InputError(f"{self.place}: {error}") from None

    def sampled(self, frames: int) -> list[int]:
        """Return uniformly sampled frame numbers, from second "start" to second "end" if given."""
        first, stop = 0, self.file.frames
        if self.row.get("start") is not None:
            first = max(first, round(self._number("start") * self.file.fps))
        if self.row.get("end") is not None:
            stop = min(stop, round(self._number("end") * self.file.fps))
        if first >= stop:
            raise InputError(
                f"{self.place}: there is no frame between 'start' and 'end' (the file has"
                f" {self.file.frames} frames)"
            )
        return [first + number for number in uniform(stop - first, frames)]

    def video(self, frames: int) -> Video:
        """Return the images of the field "frames", or frames of the file in the field "video"."""
        if "frames" in self.row:
            images = []
            for path in self.several("frames"):
                images.append(Image.read(self.folder / _text(path, self.place)))
            return Video(images)
        return Video(self.file.read(self.sampled(frames)))

    def _number(self, name: str) -> float:
        value = self.row.get(name)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 <= value < math.inf
        ):
            raise InputError(
                f"{self.place}: {name!r} must be a number of at least 0, not {value!r}"
            )
        return value

    def summaries(self) -> list[Summary]:
        """Return the summaries with their keyframes."""
        return [self._summary(value) for value in self.several("summaries")]

    def _summary(self, value: Any) -> Summary:
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise InputError(f"{self.place}: a summary must be an object with a 'name'")
        keyframes = value.get("keyframes", [])
        tokens = value.get("tokens")
        if (
            not isinstance(keyframes, list)
            or isinstance(tokens, bool)
            or not isinstance(tokens, int | float | None)
        ):
            raise InputError(f"{self.place}: 'keyframes' must be a list, and 'tokens' a number")
        text = _text(value.get("text", ""), self.place)
        return Summary(text, [self.keyframe(name) for name in keyframes], value["name"], tokens)

    def rounds(self) -> list[list[tuple[Summary, Mapping[str, Any]]]]:
        """Return the summaries as they are judged together, each with its fields in the line.

        If there are confused summaries, a summary and its confused forms are never in one round.
        Each round has true and confused ones, as in a Latin square.
        """
        true = list(zip(self.summaries(), self.several("summaries"), strict=True))
        if "confused" not in self.row:
            return [true]
        confused = [(self._summary(fields), fields) for fields in self.several("confused")]
        kinds = list(dict.fromkeys(fields.get("confused") for _, fields in confused))
        count = len(kinds) + 1  # a round for the true form, and one for each confused form
        rounds: list[list[tuple[Summary, Mapping[str, Any]]]] = [[] for _ in range(count)]
        for i, (summary, fields) in enumerate(true):
            rounds[i % count].append((summary, {"corresponds": True, **fields}))
            for other, other_fields in confused:
                if other_fields.get("of") == summary.name:
                    shift = 1 + kinds.index(other_fields.get("confused"))
                    rounds[(i + shift) % count].append((other, other_fields))
        return [shown for shown in rounds if shown]

    def truth(self, fields: Mapping[str, Any]) -> bool | None:
        """Return whether a summary corresponds to the video by its fields, or None."""
        value = fields.get("corresponds")
        if not isinstance(value, bool | None):
            raise InputError(f"{self.place}: a summary's 'corresponds' must be true or false")
        return value

    def chosen_keyframes(self, count: int) -> list[str]:
        """Return the first `count` keyframes: timecodes or image files."""
        listed = self.several("keyframes")[:count] if count else []
        if len(listed) < count:
            raise InputError(f"{self.place}: {len(listed)} keyframes; {count} are needed")
        names = [value.get("timestamp") if isinstance(value, dict) else value for value in listed]
        return [_text(name, self.place) for name in names]

    def questions(self) -> list[tuple[str, list[str], str]]:
        """Return the questions: text, options, and the letter of the right option."""
        questions = []
        for value in self.several("questions"):
            fields = value if isinstance(value, dict) else {}
            question, options = fields.get("question"), fields.get("options")
            right = fields.get("answer")
            if (
                not isinstance(question, str)
                or not isinstance(options, list)
                or not 2 <= len(options) <= len(string.ascii_uppercase)
                or not all(isinstance(option, str) for option in options)
            ):
                raise InputError(
                    f"{self.place}: a question must be an object with 'question', a text,"
                    " 'options', a list of 2 to 26 texts, and 'answer'"
                )
            letters = string.ascii_uppercase[: len(options)]
            if not isinstance(right, str) or len(right) != 1 or right not in letters:
                raise InputError(
                    f"{self.place}: 'answer' must be one of {', '.join(letters)}, not {right!r}"
                )
            questions.append((question, options, right))
        return questions

    def keyframe(self, name: Any) -> Image:
        """Read a keyframe: an image file, or the frame at a timecode of a video file."""
        if isinstance(name, dict):
            other = {**self.row, "video": _text(name.get("video"), self.place)}
            return Item(self.place, self.folder, other).keyframe(
                _text(name.get("timestamp"), self.place)
            )
        text = _text(name, self.place)
        if text.count(":") + text.count(";") == 3 and "/" not in text:
            return self.file.read([parse_timecode(text, self.file.fps, frames=self.file.frames)])[0]
        return Image.read(self.folder / text)


def read_items(path: Path) -> Iterator[Item]:
    """Read the items of a JSONL file one at a time; raise InputError naming the line."""
    seen = set()
    for number, row in read_jsonl(path):
        place = f"{path} line {number}"
        name = row.get("id") if isinstance(row, dict) else None
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise InputError(
                f"{place}: must be an object with an 'id', which is a string or a whole number"
            )
        if name in seen:
            raise InputError(f"{place}: id {name!r} occurs twice")
        seen.add(name)
        yield Item(place, path.parent, row)


def read_videos(path: Path) -> list[Item]:
    """Read all items of a file; raise InputError if there is none."""
    items = list(read_items(path))
    if not items:
        raise InputError(f"{path}: the file holds no videos")
    return items


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{place}: must be a text, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
