"""Prompts: versioned text files in `prompts-1/`, or a folder of your own with the same files.

They ask for the same as the prompts of the paper's appendix F, in our own words (docs/guide/visil.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vcs_runtime.errors import InputError
from vcs_runtime.util.reading import read_whole
from vcs_runtime.visil.images import Image, Part

VERSION = "1"
# The fields of every prompt: each must occur once, and no others.
_FIELDS: Mapping[str, set[str]] = {
    "caption": {"images"},
    "keywords": {"caption"},
    "keyframes": {"images"},
    "summarize": {"images"},
    "summarize-keyframes": {"images", "keyframes"},
    "score": {"given", "masked_caption"},
    "correspond": {"images", "summaries"},
    "answer": {"given", "question", "options"},
    "given-video": {"images"},
    "given-text": {"summary"},
    "given-keyframe": {"images", "summary"},
    "given-keyframes": {"images", "summary"},
    "given-images": {"images"},
}
_FIELD = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Prompts:
    """A set of prompts.

    Attributes
    ----------
    version
        "1" for the built-in prompts; "own@" and eight digits of the hash for a folder of your own.
    texts
        Text of each prompt, by name.
    """

    version: str
    texts: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Prompts:
        """Read the prompts of a folder.

        Parameters
        ----------
        folder
            Folder with a file `NAME.txt` for each prompt.

        Returns
        -------
        Prompts
            The prompts.

        Raises
        ------
        InputError
            A file cannot be read, or its fields are wrong. The message names the file and the fields.
        """
        texts = {}
        for name, fields in _FIELDS.items():
            path = folder / f"{name}.txt"
            try:
                texts[name] = read_whole(path).decode().strip()
            except UnicodeDecodeError:
                raise InputError(f"{path}: not UTF-8") from None
            present = sorted(_FIELD.findall(texts[name]))
            if present != sorted(fields):
                raise InputError(
                    f"{path}: it must have the fields {sorted(fields)}, each once, but has {present}"
                )
        digest = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()
        return cls(VERSION if folder == _FOLDER else f"own@{digest[:8]}", texts)

    def fill(self, name: str, **fields: str | Sequence[Part]) -> list[Part]:
        """Fill the fields of a prompt.

        Parameters
        ----------
        name
            Name of the prompt.
        **fields
            Value of each field: a text, or a list of texts and images.

        Returns
        -------
        list of str and Image
            The prompt as texts and images. Adjacent texts are joined.
        """
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

    def given_video(self, frames: Sequence[Image]) -> list[Part]:
        """Return the part of a prompt that shows the frames of a video."""
        return self.fill("given-video", images=frames)

    def given_summary(self, text: str, keyframes: Sequence[Image]) -> list[Part]:
        """Return the part of a prompt that shows a summary of text, keyframes or both."""
        if not keyframes:
            return self.fill("given-text", summary=text)
        images = named(keyframes)
        if not text:
            return self.fill("given-images", images=images)
        return self.fill(
            "given-keyframe" if len(keyframes) == 1 else "given-keyframes", images=images, summary=text
        )


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
