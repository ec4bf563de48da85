"""Prompts: versioned text files in `prompts-1/`, or a user's folder with the same files.

They ask for the same as the prompts of the paper's appendix F, in our own words
(docs/guide/visil.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vcs_runtime.errors import InputError
from vcs_runtime.util.atomic import file_errors
from vcs_runtime.util.reading import read_whole
from vcs_visil.summaries import Image, Part, Summary, Video

VERSION = "1"
# The fields of every prompt: each must occur once, and no others.
_GIVEN: Mapping[str, set[str]] = {
    "given-video": {"images"},
    "given-text": {"summary"},
    "given-keyframe": {"images", "summary"},
    "given-keyframes": {"images", "summary"},
    "given-images": {"images"},
}
_FIELDS: Mapping[str, set[str]] = {
    "caption": {"images"},
    "keywords": {"caption"},
    "keyframes": {"images"},
    "summarize": {"images"},
    "summarize-keyframes": {"images", "keyframes"},
    "score": {"given", "masked_caption"},
    "correspond": {"images", "summaries"},
    "answer": {"given", "question", "options"},
    "confuse": {"change", "summary"},
    **_GIVEN,
}
# Prompts that a folder may leave out: what is given for an answer, where it differs from a score's.
_OPTIONAL: Mapping[str, set[str]] = {f"answer-{name}": fields for name, fields in _GIVEN.items()}
_FIELD = re.compile(r"\{([a-z_]+)\}")
# Whatever looks like a field: a name that is written otherwise, such as {masked.caption}, is found
# as well.
_LIKE_A_FIELD = re.compile(r"\{([A-Za-z][\w .-]*)\}")


@dataclass(frozen=True)
class Prompts:
    """A set of prompts."""

    version: str  # "1", or "own@" and eight digits of the hash of a folder's texts
    texts: Mapping[str, str]  # by name, with fields in braces

    @classmethod
    def read(cls, folder: Path) -> Prompts:
        """Read the prompts of a folder; raise InputError naming the file and line."""
        present = _names(folder)
        texts = {
            name: _read(folder / f"{name}.txt", fields)
            for name, fields in {**_FIELDS, **_OPTIONAL}.items()
            if name in _FIELDS or name in present
        }
        hashed = [text if name in _FIELDS else f"{name}\0{text}" for name, text in texts.items()]
        digest = hashlib.sha256("\0".join(hashed).encode()).hexdigest()
        return cls(VERSION if folder == _FOLDER else f"own@{digest[:8]}", texts)

    def fill(self, name: str, **fields: str | Sequence[Part]) -> list[Part]:
        """Fill the fields of a prompt in one pass: a text may look as if it had fields."""
        pieces = _FIELD.split(self.texts[name])  # text, field, text, field, ..., text
        parts: list[Part] = []
        for i, piece in enumerate(pieces):
            value = fields[piece] if i % 2 else piece
            for part in [value] if isinstance(value, str) else value:
                if isinstance(part, str) and parts and isinstance(parts[-1], str):
                    parts[-1] += part
                elif part:
                    parts.append(part)
        return parts

    def given(self, shown: Summary | Video, step: str = "") -> list[Part]:
        """Return the part of a prompt with a video, or a summary of text, keyframes or both."""
        fields: dict[str, Sequence[Part]]
        if isinstance(shown, Video):
            name, fields = "given-video", {"images": shown.frames}
        else:
            name = {0: "given-text", 1: "given-keyframe"}.get(
                len(shown.keyframes), "given-keyframes"
            )
            fields = {"images": named(shown.keyframes)} if shown.keyframes else {}
            if shown.text:
                fields["summary"] = [shown.text]
            else:
                name = "given-images"
        of_step = f"{step}-{name}"
        return self.fill(of_step if of_step in self.texts else name, **fields)


def _names(folder: Path) -> set[str]:
    """Return the names of the prompts in a folder.

    Raises InputError, which names a file with another name.
    """
    known = {*_FIELDS, *_OPTIONAL}
    with file_errors(folder):
        files = sorted(
            path for path in folder.iterdir() if not path.name.startswith((".", "README"))
        )
    for path in files:
        if path.suffix != ".txt" or path.stem not in known:
            listed = ", ".join(f"{name}.txt" for name in sorted(known))
            raise InputError(f"{path}: no prompt has this name; the names are {listed}")
    return {path.stem for path in files}


def _read(path: Path, fields: set[str]) -> str:
    """Return the text of a prompt.

    Raises InputError with file and line unless its fields are right.
    """
    try:
        text = read_whole(path).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8") from None
    wanted = ", ".join(f"{{{name}}}" for name in sorted(fields))
    seen = set()
    for number, line in enumerate(text.split("\n"), 1):
        for name in _LIKE_A_FIELD.findall(line):
            if name not in fields:
                raise InputError(
                    f"{path} line {number}: {{{name}}} is not one of the fields {wanted}"
                )
            if name in seen:
                raise InputError(f"{path} line {number}: the field {{{name}}} occurs twice")
            seen.add(name)
    if missing := sorted(fields - seen):
        raise InputError(
            f"{path}: the field {{{missing[0]}}} is missing; this prompt has {wanted}, each once"
        )
    return text.strip()


def named(keyframes: Sequence[Image]) -> list[Part]:
    """Return the keyframes, each after the placeholder that names it in the text of a summary."""
    parts: list[Part] = []
    for i, image in enumerate(keyframes, 1):
        parts += [f"{' ' if i > 1 else ''}{placeholder(i)} ", image]
    return parts


def placeholder(number: int) -> str:
    """Return the placeholder that names keyframe `number`, counted from 1."""
    return f"[KEYFRAME{number}]"


@cache
def builtin() -> Prompts:
    """Return the built-in prompts."""
    return Prompts.read(_FOLDER)


_FOLDER = Path(__file__).with_name(f"prompts-{VERSION}")
