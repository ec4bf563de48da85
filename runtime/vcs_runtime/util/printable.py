"""Texts in messages, tables and CSV files, without control characters or formulas.

Such texts come from outside: ids, names of files, answers of servers, words of a bundle.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

# Control characters, surrogates, ends of lines, and marks of direction, which reorder a text.
_ESCAPED = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # scripts and emoji need them
# A spreadsheet runs a text that begins so. It may drop a tab or a return, and run the rest.
_FORMULAS: Final = ("\t", "\r", "=", "+", "-", "@")
_SAFE: Final[ContextVar[bool]] = ContextVar("safe", default=False)


def printable(text: object, keep: str = "") -> str:
    r"""Return a text in which no character controls a terminal; such characters are escaped."""
    shown = str(text)
    if shown.isprintable():
        return shown
    allowed = keep + _JOINERS
    return "".join(c if c in allowed else _escaped(c) for c in shown)


def _escaped(character: str) -> str:
    """Return a character, or its escape if it controls a terminal."""
    if unicodedata.category(character) in _ESCAPED:
        return character.encode("unicode_escape").decode()
    return character


def enumerated(names: Sequence[str]) -> str:
    """Return names as a part of a sentence: "a, b and c"."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 video", "2 videos"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextmanager
def formulas_as_text() -> Iterator[None]:
    """Write CSV files in the block so that no spreadsheet runs a text as a formula."""
    token = _SAFE.set(True)
    try:
        yield
    finally:
        _SAFE.reset(token)


def cell(value: Any) -> Any:
    """Return a value for a CSV file.

    Within `formulas_as_text`, a text like a formula begins with `'`.
    """
    if _SAFE.get() and isinstance(value, str) and value.startswith(_FORMULAS):
        return f"'{value}"
    return value
