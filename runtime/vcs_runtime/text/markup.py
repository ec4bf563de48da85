"""Cleaning of model output, from reasoning to time stamps (docs/reference/vcs.md, section 1).

Every pattern is anchored or has possessive, disjoint parts, so that hostile texts take linear time.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import pairwise
from typing import Final

#: What can be cleaned away, in the order of signatures.
CLEANINGS: Final = ("markdown", "think", "list-numbers", "time-stamps")

_THINK = re.compile(r"<(/?)think>", re.IGNORECASE)

# The first characters of lines that are not running text.
_LINE_MARKS = frozenset("#*_-+=|>`~[•‣⁃◦▪●○")
_HEADING = re.compile(r"(?:#{1,6}(?:\s++|$))++")
_CLOSING_MARKS = re.compile(r"(?<![#\s])\s++#++$")
_MARKDOWN = re.compile(r"^(?:#{1,6} |[-*+] |`{3})|\*\*\S", re.MULTILINE)
_TITLE = re.compile(r"(\*\*|__)(?=\S)[^*_]++\1:?")
_BULLET = re.compile(r"(?:[•‣⁃◦▪●○]\s*+|[-*+](?:\s++|$))++")
_FENCE = re.compile(r"`{3,}+\s*+[\w+#.-]*+|~{3,}+")
_LINK_TARGET = re.compile(r"\[[^\[\]]++\]:\s++<?https?://")
_INLINE = (
    # Links and images; an address may hold pairs of parentheses.
    (re.compile(r"!?\[([^\[\]\n]*+)\]\((?:[^()\n]++|\([^()\n]*+\))*+\)"), r"\1"),
    (re.compile(r"(`{1,3})([^`\n]++)\1"), r"\2"),
    (re.compile(r"~~(?=\S)([^~\n]++)(?<=\S)~~"), r"\1"),
    (re.compile(r"(\*{2,3})(?=\S)([^*\n]++)(?<=\S)\1"), r"\2"),
    # A single star or line inside a word is no emphasis: 2*3, snake_case.
    (re.compile(r"(?<!\w)\*(?=\S)([^*\n]++)(?<=\S)\*(?!\w)"), r"\1"),
    (re.compile(r"(?<!\w)(_{1,3})(?=\S)([^_\n]++)(?<=\S)\1(?!\w)"), r"\2"),
    # One half of a pair, in an answer that was cut off.
    (re.compile(r"(?<![\w*])\*{2,}+|(?<!\*)\*{2,}+(?!\w)|`{3,}+"), ""),
)

_NUMBER = r"(?:\((\d{1,3})\)|(\d{1,3})[.)]|step (\d{1,3})[.:)])"
_FURTHER = _NUMBER.replace("(\\d{1,3})", "\\d{1,3}")
_NUMBERS = rf"{_NUMBER}(?:[^\S\n]++|$)(?:{_FURTHER}(?:[^\S\n]++|$))*+"
_ENDS = '.!?:;…。！？：；"”)'
_AT_START = re.compile(rf"[^\S\n]*+{_NUMBERS}", re.IGNORECASE)
_WITHIN = re.compile(rf"(?<=[{_ENDS}])[^\S\n]++{_NUMBERS}", re.IGNORECASE | re.MULTILINE)
_ANYWHERE = re.compile(
    rf"(?:^[^\S\n]*+|(?<=[{_ENDS}])[^\S\n]++){_NUMBERS}", re.IGNORECASE | re.MULTILINE
)

_TIME = r"(?:\d{1,2}:)?\d{1,2}:\d\d(?:[.,]\d{1,3})?"
_STAMP = re.compile(
    rf"^(?:\d{{1,5}}[^\S\n]?\n)?{_TIME} ?--> ?{_TIME}[^\S\n]*+$"
    rf"|[\[(]{_TIME}(?: ?(?:-->|[-–—]|to) ?{_TIME})?[\])]:?",
    re.MULTILINE,
)

# One cleaning may reveal another, as in nested marks. A text that is still not clean is no text of
# a model: it loses every character that these patterns need.
_ROUNDS = 8
_MARKS = {
    "markdown": re.compile(r"[-*_`~#|>\[\]+=•‣⁃◦▪●○]"),
    "think": re.compile("<"),
    "list-numbers": re.compile(r"\d"),
    "time-stamps": re.compile(r"\d"),
}


def remove_markup(text: str, cleanings: Collection[str]) -> str:
    """Remove reasoning, Markdown, list numbers and time stamps, as named in `cleanings`.

    The result may be "".
    """
    for _ in range(_ROUNDS):
        cleaned = text
        if "think" in cleanings:
            cleaned = _without_think(cleaned)
        if "markdown" in cleanings:
            cleaned = _without_markdown(cleaned)
        if "list-numbers" in cleanings:
            cleaned = _without_list_numbers(cleaned)
        if "time-stamps" in cleanings:
            cleaned = _STAMP.sub("", cleaned)
        if cleaned == text:
            return text
        text = cleaned.strip()
    for name in cleanings:
        text = _MARKS[name].sub("", text)
    return text.strip()


def markup_in(text: str) -> list[str]:
    """Return the names of `CLEANINGS` for markup that is probably not meant to be scored."""
    names = []
    if _STAMP.search(text):
        names.append("time-stamps")
    if _THINK.search(text):
        names.append("think")
    if _MARKDOWN.search(text):
        names.append("markdown")
    return names


def _without_think(text: str) -> str:
    """Keep the text outside `<think>` and `</think>`; either tag may be missing.

    Text after an opening tag and text before a closing tag are removed.
    """
    pieces: list[str] = []
    start, opened = 0, False
    for tag in _THINK.finditer(text):
        if not tag[1] and not opened:
            pieces.append(text[start : tag.start()])
        start, opened = tag.end(), not tag[1]
    if not opened:
        pieces.append(text[start:])
    return "\n".join(pieces)


class _Lines:
    """Lines with empty ones around headings and before items, because sentences end there."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._apart = False

    def add(self, line: str, before: bool = False, after: bool = False) -> None:
        """Add a line, apart from the lines before or after it."""
        if (before or self._apart) and self._lines and self._lines[-1].strip() and line.strip():
            self._lines.append("")
        self._lines.append(line)
        self._apart = after

    def text(self) -> str:
        """Return all lines."""
        return "\n".join(self._lines)


def _without_markdown(text: str) -> str:
    out = _Lines()
    for line in text.split("\n"):
        bare = line.strip()
        if bare[:1] not in _LINE_MARKS:
            out.add(line)
        elif _is_rule(bare) or _FENCE.fullmatch(bare) or _LINK_TARGET.match(bare):
            out.add("")
        elif bare.startswith("|"):
            cells = [cell.strip() for cell in bare.strip("|").split("|")]
            is_separator = not any(cell.strip(":-") for cell in cells)
            row = "" if is_separator else ", ".join(filter(None, cells))
            out.add(row, before=True, after=True)
        elif bare.startswith(">"):
            out.add(bare.lstrip("> \t"))
        elif heading := _HEADING.match(bare):
            out.add(_CLOSING_MARKS.sub("", bare[heading.end() :]), before=True, after=True)
        elif bullet := _BULLET.match(bare):
            out.add(bare[bullet.end() :], before=True)
        else:
            title = _TITLE.fullmatch(bare) is not None
            out.add(line, before=title, after=title)
    text = out.text()
    for pattern, replacement in _INLINE:
        text = pattern.sub(replacement, text)
    return text


def _is_rule(bare: str) -> bool:
    """Whether a line is a horizontal rule, or the line under a heading."""
    if bare[:1] not in ("-", "*", "_", "="):
        return False
    marks = "".join(bare.split())
    return len(marks) > 2 and len(set(marks)) == 1


def _without_list_numbers(text: str) -> str:
    """Remove the numbers of lists, and put each item into a separate paragraph.

    A line that begins with a number may be a wrapped sentence. So the number counts where a
    sentence has ended, or if it is 1 or the next one. Within a line it counts after the end of a
    sentence, in a text whose numbers go on from 1 to 2.
    """
    numbers = map(_first_number, _ANYWHERE.finditer(text))
    if any(pair == (1, 2) for pair in pairwise(numbers)):
        text = _WITHIN.sub(r"\n\n", text)
    out = _Lines()
    last, ended = 0, True
    for line in text.split("\n"):
        match = _AT_START.match(line)
        number = _first_number(match) if match else 0
        if match and (ended or number in (1, last + 1)):
            line, last = line[match.end() :], number
            out.add(line, before=True)
        else:
            out.add(line)
        ended = line.rstrip()[-1:] in _ENDS  # an empty line ends a sentence, too
    return out.text()


def _first_number(match: re.Match[str]) -> int:
    return int(next(filter(None, match.groups())))
