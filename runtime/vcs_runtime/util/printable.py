"""Texts in messages, tables and CSV files, without control characters or formulas.

They come from outside: ids, names of files, answers of servers, words of a bundle.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

# Control characters and surrogates; marks of direction, which show a text in another order; ends of
# lines.
_ESCAPED = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # scripts and emoji need them
# A spreadsheet runs what begins so, or drops the first two and runs the rest.
_FORMULAS: Final = ("\t", "\r", "=", "+", "-", "@")
_SAFE: Final[ContextVar[bool]] = ContextVar("safe", default=False)


def printable(text: object, keep: str = "") -> str:
    r"""Return a text in which no character controls a terminal; such characters are escaped."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c in keep or not _is_escaped(c) else _escape(c) for c in shown)


def _is_escaped(character: str) -> bool:
    return unicodedata.category(character) in _ESCAPED and character not in _JOINERS


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def enumerated(names: Sequence[str]) -> str:
    """Return names as a part of a sentence: "a, b and c"."""
    first = [", ".join(names[:-1])] if names[1:] else []
    return " and ".join([*first, *names[-1:]])


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: "1 video", "2 videos"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextmanager
def formulas_as_text() -> Iterator[None]:
    """Write CSV files in the block whose texts no spreadsheet runs."""
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
