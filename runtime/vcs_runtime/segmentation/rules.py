"""`Rules`: sentences by their punctuation, marks and line ends, without a model.

The package `sentencex` (MIT) finds the sentence ends of about 300 languages. It was written for
running text: it never cuts inside quotation marks or brackets, does not know that a line can be an
event, and its time grows with the square of some marks. So it gets prepared pieces of a text:

1. A text is read line by line (`_units`). A line end ends a sentence, unless the paragraph looks
   like a text that was wrapped at some width (`is_wrapped`).
2. A long line is read in blocks of bounded length, so the time grows linearly (`_starts_in`).
3. Where a pair of marks encloses more than one sentence, the block is read a second time without
   its marks. What starts inside the pair is a sentence, too (`_starts_inside`).
4. What has no letter, such as "1.", "-" or an emoji, is no sentence: it goes with the sentence
   beside it (`_join_without_letters`).

Rules must see a text before its punctuation is deleted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import pairwise

from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.errors import BundleError, TextError
from vcs_runtime.text.marks import CLOSERS, ITEM, ROMAN, marks_in, pairs_of

# Characters that end a sentence in the scripts that sentencex knows.
TERMINATORS = frozenset(".!?…‼⁇⁈⁉。！？｡．؟۔।॥։።၊။។")
# The longest plausible sentence: a longer one has lost its punctuation.
MAX_WORDS = 100

# sentencex 1.0.32 panics on white space of more than one byte ("A.\u2028"), so it sees blanks. The
# line ends of a wrapped paragraph are blanks, too.
_OTHER_SPACES = [
    chr(code) for code in range(0x3001) if chr(code).isspace() and chr(code) not in " \t"
]
# The dash, number or letter before an item of a list.
_NUMBER = re.compile(rf"\s*[(\[]?(?:\d{{1,3}}|[a-z]|{ROMAN})[.):\]]\s*", re.IGNORECASE)
_LIST_MARK = re.compile(rf"(?:\s*{ITEM}(?=\s)|{_NUMBER.pattern}(?<=\s))\s*(?=\S)", re.IGNORECASE)

# Characters that sentencex reads at once: it needs some milliseconds for the worst of this length.
_BLOCK = 3_000

# A paragraph counts as wrapped at a width only if its longest line has this many characters, ...
_MIN_WIDTH = 30
# ... and if each line but the last would reach this share of it with the next line's first word.
_FULL = 0.8
# From so many lines on, it is no coincidence that none had room for another word.
_MANY_LINES = 4


class Rules:
    """Splits texts into sentences by rules, without a model or a device."""

    def __init__(self, spec: RulesSpec) -> None:
        """Load the rules; raises BundleError if the package that `spec` names is not installed."""
        try:
            from sentencex import segment
        except ImportError:
            raise BundleError(
                "the default segmenter needs `sentencex`: install `vcs-runtime[default]`"
            ) from None
        self._segment = segment
        self.spec = spec
        self.identity = f"{spec.name}@{version('sentencex')}"

    def split(self, text: str) -> list[str]:
        """Split a text into sentences with their white space; joined they are the text again.

        Raises TextError if `sentencex` loses characters, as versions before 1.0.29 do.
        """
        starts = [0]
        for start, end in _units(text):
            if start:
                starts.append(start)
            starts += [start + offset for offset in self._starts_in(text[start:end])]
        pieces = [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]
        return _join_without_letters(pieces) if text else []

    def _starts_in(self, unit: str) -> Iterator[int]:
        """Yield where the sentences after the first start in a unit, such as a line."""
        mark = _LIST_MARK.match(unit)
        position = mark.end() if mark else 0
        while position < len(unit):
            block = unit[position : position + _BLOCK]
            starts = self._starts_in_block(block)
            for start in starts:
                yield position + start
            if position + _BLOCK >= len(unit):
                return
            # The last sentence of a block goes on in the next block, which reads it as a whole. A
            # sentence of half a block is not read again, but continued after a blank.
            if starts and starts[-1] > _BLOCK // 2:
                position += starts[-1]
            else:
                position += max(block.rfind(" ") + 1, _BLOCK // 2)

    def _starts_in_block(self, block: str) -> list[int]:
        """Return where the sentences after the first start in a block of at most `_BLOCK`."""
        plain = block
        for space in filter(block.__contains__, _OTHER_SPACES):
            plain = plain.replace(space, " ")
        starts = self._starts_by_sentencex(plain)
        marks = marks_in(block)
        pairs = [pair for pair in pairs_of(marks) if _may_hold_an_end(block, *pair)]
        if not pairs:
            return starts
        characters = list(plain)
        for position, _ in marks:
            characters[position] = " "
        without_marks = self._starts_by_sentencex("".join(characters))
        return sorted({*starts, *_starts_inside(block, without_marks, pairs)})

    def _starts_by_sentencex(self, plain: str) -> list[int]:
        starts = []
        position = 0
        pieces = self._segment(self.spec.language, plain)
        for piece in pieces:
            starts.append(position)
            position += len(piece)
        if "".join(pieces) != plain:
            raise TextError(
                f"the sentences of {self.identity} do not join to the text again: install"
                " sentencex 1.0.29 or later"
            )
        return starts[1:]


def doubt(text: str, sentences: Sequence[str]) -> str | None:
    """Return why the `sentences` that rules found in `text` are implausible, otherwise None."""
    if TERMINATORS.isdisjoint(text):
        return (
            "the text has no sentence punctuation, so rules cannot split it: use the learned"
            " segmenter, or short texts for captions of a few words (`--short`, `score_short`)"
        )
    # Shorter sentences have fewer words.
    long = (sentence for sentence in sentences if len(sentence) > 2 * MAX_WORDS)
    longest = max((len(sentence.split()) for sentence in long), default=0)
    if longest > MAX_WORDS:
        return (
            f"{longest} words have no sentence punctuation between them, so rules cannot split the"
            " text: use the learned segmenter"
        )
    return None


def _units(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part of a text in which no line end ends a sentence.

    A unit is a line, or a paragraph that is wrapped. Empty lines belong to the unit before them.
    """
    paragraph: list[tuple[int, int]] = []
    end = 0
    for line in text.splitlines(keepends=True):
        start, end = end, end + len(line)
        if not line.isspace():
            paragraph.append((start, end))
        elif paragraph:
            yield from _units_of(text, paragraph, end)
            paragraph = []
    if paragraph:
        yield from _units_of(text, paragraph, len(text))


def _units_of(text: str, lines: list[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    """Yield the units of a paragraph, of which the last reaches to `end`."""
    starts = [start for start, _ in lines]
    if len(lines) > 1 and is_wrapped([text[a:b].strip() for a, b in lines]):
        starts = starts[:1]
    yield from zip(starts, [*starts[1:], end], strict=True)


def is_wrapped(lines: Sequence[str]) -> bool:
    """Return whether a paragraph's lines are one text that was wrapped at some width.

    In a wrapped paragraph no line but the last has room for the next line's first word, and
    sentences run on across line ends, usually with a small letter. Lines that are events differ in
    length, or start with capitals.

    Parameters
    ----------
    lines
        At least two lines, none empty, without white space around them.

    Returns
    -------
    bool
        False if every line end ends a sentence.
    """
    width = max(map(len, lines))
    if width < _MIN_WIDTH:
        return False
    run_on = 0
    in_small_letters = 0
    full = True
    for line, following in pairwise(lines):
        filled = len(line) + 1 + len(following.split(maxsplit=1)[0])
        if filled < _FULL * width:
            return False
        full = full and filled > width
        if line.rstrip("\"'”’»)]*_")[-1:] not in TERMINATORS:
            run_on += 1
            in_small_letters += following[0].islower()
    if full and len(lines) >= _MANY_LINES:
        return run_on > 0
    # In a text without capitals a small letter says nothing.
    return not lines[0][0].islower() and 0 < run_on <= 4 * in_small_letters


def _starts_inside(
    block: str, starts: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> Iterator[int]:
    """Yield the starts of sentences inside pairs of marks.

    After a pair that holds more than one sentence, a capital starts a sentence, too.
    """
    # In "CLIPS.COM" there is none.
    candidates = deque(start for start in starts if not _is_inside_a_word(block, start))
    for opening, closing in pairs:
        while candidates and candidates[0] <= opening:
            candidates.popleft()
        inside = False
        while candidates and candidates[0] < closing:
            inside = True
            yield _before_opening_marks(block, candidates.popleft())
        if not inside or not candidates:
            continue
        follows = not block[closing + 1 : candidates[0]].strip()
        if follows and not block[candidates[0]].islower():
            yield candidates[0]


def _is_inside_a_word(block: str, start: int) -> bool:
    return block[start - 1] in ".!?" and block[start].isalnum()


def _may_hold_an_end(block: str, opening: int, closing: int) -> bool:
    """Return whether a sentence could end between two marks, before more text."""
    inside = block[opening + 1 : closing].rstrip()
    return not TERMINATORS.isdisjoint(inside[:-1])


def _before_opening_marks(block: str, start: int) -> int:
    """Move the start of a sentence to before the marks that open with it."""
    first = start
    position = start
    while position and (block[position - 1].isspace() or block[position - 1] in CLOSERS):
        position -= 1
        # A mark that closes as it opens is taken to open after a blank.
        mark = block[position]
        if mark in CLOSERS and (
            mark not in CLOSERS[mark] or position == 0 or block[position - 1].isspace()
        ):
            first = position
    return first


def _join_without_letters(pieces: list[str]) -> list[str]:
    """Join each piece without a letter to the piece before it, and a number to the piece after."""
    sentences: list[list[str]] = []
    waiting: list[str] = []
    for piece in pieces:
        if any(map(str.isalpha, piece)) and not _NUMBER.fullmatch(piece):
            sentences.append([*waiting, piece])
            waiting = []
        elif waiting or not sentences or _NUMBER.fullmatch(piece):
            waiting.append(piece)
        else:
            sentences[-1].append(piece)
    if sentences:
        sentences[-1] += waiting
    else:
        sentences = [waiting]
    return ["".join(sentence) for sentence in sentences]
