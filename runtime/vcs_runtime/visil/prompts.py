"""The prompts: versioned text files in `prompts-1/`, or a folder of one's own with the same files.

They ask for what the prompts of the paper's appendix F ask for, in words of our own (docs/visil.md).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vcs_runtime.errors import InputError
from vcs_runtime.visil.logprobs import Image, Part

VERSION = "1"
# Every prompt, and the fields that it must have (and no others).
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
    """A set of prompts. `version`: "1", ..., or for a folder of one's own "own@" and digits of its hash."""

    version: str
    texts: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Prompts:
        """The prompts `NAME.txt` of a folder. Raises InputError naming the file and its fields."""
        texts = {}
        for name, fields in _FIELDS.items():
            path = folder / f"{name}.txt"
            try:
                texts[name] = path.read_text("utf-8").strip()
            except OSError as error:
                raise InputError(f"{path}: {error.strerror or error}") from None
            except UnicodeDecodeError:
                raise InputError(f"{path}: not UTF-8") from None
            found = _FIELD.findall(texts[name])
            if sorted(found) != sorted(fields):
                raise InputError(
                    f"{path}: it must have the fields {sorted(fields)}, each once, and has {sorted(found)}"
                )
        digest = hashlib.sha256("\0".join(texts.values()).encode()).hexdigest()
        return cls(VERSION if folder == _FOLDER else f"own@{digest[:8]}", texts)

    def fill(self, name: str, **fields: str | Sequence[Part]) -> list[Part]:
        """The prompt `name` with its fields filled in, as texts and images; texts side by side are joined."""
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
        """What is given: the frames of a video."""
        return self.fill("given-video", images=frames)

    def given_summary(self, text: str, keyframes: Sequence[Image]) -> list[Part]:
        """What is given: a summary of text, keyframes or both. Each keyframe stands behind its name."""
        if not keyframes:
            return self.fill("given-text", summary=text)
        images = named(keyframes)
        if not text:
            return self.fill("given-images", images=images)
        return self.fill(
            "given-keyframe" if len(keyframes) == 1 else "given-keyframes", images=images, summary=text
        )


def named(keyframes: Sequence[Image]) -> list[Part]:
    """The keyframes, each behind the placeholder by which a summary's text names it."""
    parts: list[Part] = []
    for i, image in enumerate(keyframes, 1):
        parts += [f"{' ' if i > 1 else ''}{placeholder(i)} ", image]
    return parts


def placeholder(number: int) -> str:
    """How a text names keyframe `number`, counted from 1."""
    return f"[KEYFRAME{number}]"


@cache
def builtin() -> Prompts:
    """The prompts of this package."""
    return Prompts.read(_FOLDER)


_FOLDER = Path(__file__).with_name(f"prompts-{VERSION}")
