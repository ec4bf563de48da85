"""Items of a job: videos with captions, keywords and summaries, read from JSONL (docs/guide/visil.md)."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.visil.frames import VideoFile, parse_timecode, uniform
from vcs_runtime.visil.images import Image
from vcs_runtime.visil.summaries import Summary, Video

MADE = "made"
"""Field of a line that contains the signature of each field that a step has made."""


@dataclass(frozen=True)
class Item:
    """One line of a JSONL file of videos.

    Attributes
    ----------
    place
        File and line, for errors.
    folder
        Folder of the file; paths in the line are relative to it.
    row
        The line.
    """

    place: str
    folder: Path
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
            raise InputError(f"{self.place}: {name!r} must be a list, and not empty, not {_kind(value)}")
        return value

    @property
    def made(self) -> dict[str, str]:
        """The signature of each field that a step has made."""
        made = self.row.get(MADE, {})
        if not isinstance(made, dict) or not all(isinstance(value, str) for value in made.values()):
            raise InputError(f"{self.place}: {MADE!r} must be an object of texts")
        return made

    @cached_property
    def file(self) -> VideoFile:
        """The video file."""
        return VideoFile(self.folder / self.text("video"))

    def video(self, frames: int) -> Video:
        """Return the images of the field "frames", or that many frames of the file in the field "video"."""
        if "frames" in self.row:
            return Video(
                [Image.read(self.folder / _text(path, self.place)) for path in self.several("frames")]
            )
        return Video(self.file.read(uniform(self.file.frames, frames)))

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

    def chosen_keyframes(self, count: int) -> list[str]:
        """Return the first `count` keyframes: timecodes or image files."""
        listed = self.several("keyframes")[:count] if count else []
        if len(listed) < count:
            raise InputError(f"{self.place}: {len(listed)} keyframes, but {count} are needed")
        return [_text(k.get("timestamp") if isinstance(k, dict) else k, self.place) for k in listed]

    def correspondences(self) -> list[bool | None]:
        """Return for each summary whether it corresponds to the video; None if the item does not say."""
        truths = [value.get("corresponds") for value in self.several("summaries") if isinstance(value, dict)]
        if not all(isinstance(value, bool | None) for value in truths):
            raise InputError(f"{self.place}: a summary's 'corresponds' must be true or false")
        return truths

    def questions(self) -> list[tuple[str, list[str], str]]:
        """Return the questions: text, options, and the letter of the right option."""
        questions = []
        for value in self.several("questions"):
            fields = value if isinstance(value, dict) else {}
            question, options, right = (fields.get(name) for name in ("question", "options", "answer"))
            if (
                not isinstance(question, str)
                or not isinstance(options, list)
                or not 2 <= len(options) <= len(string.ascii_uppercase)
                or not all(isinstance(option, str) for option in options)
            ):
                raise InputError(
                    f"{self.place}: a question must be an object with 'question', a text, 'options', "
                    "a list of 2 to 26 texts, and 'answer'"
                )
            letters = string.ascii_uppercase[: len(options)]
            if not isinstance(right, str) or len(right) != 1 or right not in letters:
                raise InputError(f"{self.place}: 'answer' must be one of {', '.join(letters)}, not {right!r}")
            questions.append((question, options, right))
        return questions

    def keyframe(self, name: Any) -> Image:
        """Read a keyframe: an image file, or the frame at a timecode of the video file."""
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
            raise InputError(f"{place}: an object with an 'id', a string or a whole number, was expected")
        if name in seen:
            raise InputError(f"{place}: id {name!r} is there twice")
        seen.add(name)
        yield Item(place, path.parent, row)


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"{place}: a text was expected, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return "nothing" if value is None else type(value).__name__
