"""Pairs of quotation marks and brackets in texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

#: What may stand before an item of a list, beside ASCII marks and numbers: bullets, dashes, arrows,
#: numbers in circles, shapes and emoji, with what joins emoji.
BULLETS = "•‣⁃◦–—·※∙\u2190-\u21ff\u2460-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff\ufe0f\u200d"
#: Marks before an item of a list, and the letters or Roman numbers that count items.
ITEM = rf"[-=*+#>~{BULLETS}]++"
LETTER = "[a-h]"
ROMAN = "x?(?:i{1,3}|i?[vx]|vi{1,3})"
# What opens a pair of marks, and then all that may close it.
_PAIRS = (
    "\"\" “” „“” ‟” ”” «» »« ‹› ‘’ ‚‘’ ❝❞ ＂＂ ＇＇ 「」 『』 《》 〈〉 ``' ''"
    " () （） [] ［］ 【】 〔〕 〖〗 ⟨⟩ {} ｛｝ <>"
)
#: What closes a pair of marks, by what opens it.
CLOSERS = {pair[0]: pair[1:] for pair in _PAIRS.split()}
_MARK = re.compile(f"[{re.escape(''.join({*CLOSERS, *''.join(CLOSERS.values())}))}]")
# Marks around a text that are removed at most: more are no quotation.
_LAYERS = 4
# Marks of pairs whose other half can be missing, as in an answer that was cut off.
_HALVES = {*CLOSERS} - {*"<'’‘‚`＇"}
_CLOSED = re.compile(r"[.!?…。！？][\"”“»)\]}」』】）]++\Z")
# Marks that can be apostrophes. They open before a word, and close after one.
_APOSTROPHES = frozenset("'’‘`")


def marks_in(block: str) -> list[tuple[int, str]]:
    """Return where marks are, in order, without apostrophes inside words."""
    marks = []
    for match in _MARK.finditer(block):
        position, mark = match.start(), match.group()
        if mark in _APOSTROPHES:
            before, after = block[position - 1 : position], block[position + 1 : position + 2]
            opens = not before.isalnum() and after.isalnum()
            closes = not after.isalnum() and before not in _APOSTROPHES and not before.isspace()
            if not opens and not (closes and before):
                continue
        marks.append((position, mark))
    return marks


def pairs_of(marks: Sequence[tuple[int, str]]) -> list[tuple[int, int]]:
    """Return where the outermost pairs of marks open and close; other marks are left out."""
    pairs: list[tuple[int, int]] = []
    opened: list[tuple[int, str]] = []
    awaited: Counter[str] = Counter()  # closing marks of what is opened
    for position, mark in marks:
        if awaited[mark]:
            # Marks that were opened inside and not closed have no partner.
            closes = False
            while not closes:
                start, opening = opened.pop()
                awaited.subtract(CLOSERS[opening])
                closes = mark in CLOSERS[opening]
            while pairs and pairs[-1][0] > start:
                pairs.pop()
            pairs.append((start, position))
        elif mark in CLOSERS:
            opened.append((position, mark))
            awaited.update(CLOSERS[mark])
    return pairs


def unwrapped(text: str) -> str:
    """Return a text without the marks that enclose all of it (docs/reference/vcs.md, section 1)."""
    for _ in range(_LAYERS):
        bare = text.strip()
        if bare[:1] not in CLOSERS or bare[-1] not in CLOSERS[bare[0]]:
            break
        more = len(bare) - len(bare.lstrip(bare[0])) - 1  # as in ``LaTeX''
        if 0 < more < _LAYERS and bare.endswith(bare[-1] * (more + 1)):
            bare = bare[more:-more]
        inner = bare[1:-1].strip()
        if not inner or pairs_of(marks_in(bare)) != [(0, len(bare) - 1)]:
            break
        text = inner
    return _without_half_pairs(text)


def _without_half_pairs(text: str) -> str:
    """Remove marks that open at the start of a text, or close after its last sentence, alone."""
    for _ in range(_LAYERS):
        bare = text.strip()
        opened, closed = bare[1:] and bare[0] in _HALVES, _CLOSED.search(bare[-8:])
        if not opened and not closed:
            break
        paired = {position for pair in pairs_of(marks_in(bare)) for position in pair}
        if opened and 0 not in paired:
            text = bare[1:]
        elif closed and len(bare) - 1 not in paired:
            text = bare[:-1]
        else:
            break
    return text
