"""Foreign texts in messages and tables: ids, names of files, answers of servers, words of a bundle."""

from __future__ import annotations

import unicodedata

# Control characters and surrogates; marks of direction, which show a text in another order; ends of lines.
_ESCAPED = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_JOINERS = "\u200c\u200d"  # scripts and emoji need them


def printable(text: object, keep: str = "") -> str:
    r"""Return a text in which no character controls a terminal; such characters are shown escaped."""
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(c if c in keep or not _is_escaped(c) else _escape(c) for c in shown)


def _is_escaped(character: str) -> bool:
    return unicodedata.category(character) in _ESCAPED and character not in _JOINERS


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
