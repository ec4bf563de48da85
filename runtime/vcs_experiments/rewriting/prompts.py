"""The prompts of rewrites: text files in `prompts-1/`, in our own words."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from vcs_experiments.rewriting.kinds import Kind
from vcs_runtime.util.reading import read_whole

VERSION = "1"
_FOLDER = Path(__file__).with_name(f"prompts-{VERSION}")
_FIELD = re.compile(r"\{([a-z]+)\}")


def ask_for(kind: Kind, text: str) -> str:
    """Return the prompt that asks for a rewrite of a description."""
    words = round((kind.aim or 0) * len(text.split()))
    return _filled("rewrite", task=_filled(kind.task, words=str(words), parts=kind.parts), text=text)


def ask_again(kind: Kind, text: str, answer: str, reason: str) -> str:
    """Return the prompt after an answer that could not be used."""
    return f"{ask_for(kind, text)}\n\n{_filled('again', answer=answer, reason=reason)}"


@cache
def identity() -> str:
    """Return the version of the prompts and eight digits of the hash of all of them."""
    data = "\0".join(f"{name}\0{text}" for name, text in _texts().items())
    return f"{VERSION}@{hashlib.sha256(data.encode()).hexdigest()[:8]}"


def _filled(name: str, **fields: str) -> str:
    """Fill the fields of a prompt in one pass: a description may hold what looks like a field."""
    return _FIELD.sub(lambda field: fields[field[1]], _texts()[name])


@cache
def _texts() -> dict[str, str]:
    files = sorted(_FOLDER.glob("*.txt"))
    return {path.stem: read_whole(path).decode().replace("\r\n", "\n").strip() for path in files}
