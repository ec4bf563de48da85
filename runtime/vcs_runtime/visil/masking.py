"""The caption with its keywords masked, and the answer that fills the masks in again (docs/visil.md)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vcs_runtime.errors import TextError, unknown_choice
from vcs_runtime.text.cleaning import check_text

MASK = "[MASK]"
COUNTS = ("first", "all")

_JOINERS = "'’-‐‑"  # word characters where they stand within a word
_WORD = re.compile("w+(?:jw+)*")
_POSSESSIVES = ("'s", "’s")


@dataclass(frozen=True, slots=True)
class MaskedCaption:
    """A caption whose keywords are masked.

    text      the caption with `[MASK]` for every whole-word occurrence of a keyword
    answer    the masked words in lower case, one space between
    scored    indices of the scored words in the answer's words
    keywords  the keywords, in the order of their first occurrence
    dropped   keywords that were given, but are not in the caption
    """

    text: str
    answer: str
    scored: tuple[int, ...]
    keywords: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words of the answer, a word a mask."""
        return self.answer.split(" ")

    def revealed(self, count: int) -> str:
        """The text with its first `count` masks filled in again."""
        pieces = self.text.split(MASK)
        filled = [*self.words[:count], *[MASK] * (len(pieces) - 1 - count), ""]
        return "".join(piece + word for piece, word in zip(pieces, filled, strict=True))


def mask_caption(
    caption: str, keywords: Sequence[str], *, count: str = "first", drop_missing: bool = False
) -> MaskedCaption:
    """Mask every whole-word occurrence of each keyword, whatever its case.

    keywords      lower-case words, each once, in the order of their first occurrence in the caption
    count         which occurrences are scored: "first" (of each keyword), or "all"
    drop_missing  leave out keywords that are not in the caption, instead of refusing them

    Apostrophes and hyphens within a word belong to it ("sedan" is not in "sedan-chair"); a possessive 's does
    not hide a word, and stays unmasked. Raises TextError naming the keyword.
    """
    if count not in COUNTS:
        raise unknown_choice("count", count, COUNTS)
    check_text(caption, "caption")
    if MASK in caption:
        raise TextError(f"caption: it holds {MASK} already")
    if isinstance(keywords, str):
        raise TypeError("keywords must be a sequence of strings, not one string")
    _check_keywords(keywords)
    spans = list(_occurrences(caption, set(keywords)))
    order = list(dict.fromkeys(word for _, _, word in spans))
    missing = tuple(word for word in keywords if word not in order)
    if missing and not drop_missing:
        raise TextError(f"keywords: {missing[0]!r} is no word of the caption")
    given = [word for word in keywords if word not in missing]
    if not given:
        raise TextError("keywords: there are none to score")
    for position, (have, want) in enumerate(zip(given, order, strict=True)):
        if have != want:
            raise TextError(
                f"keywords: out of order: {have!r} is there before {want!r}, which comes first in the caption"
                f" (keyword {position + 1})"
            )
    text, end = "", 0
    for start, stop, _ in spans:
        text += caption[end:start] + MASK
        end = stop
    words = [word for _, _, word in spans]
    scored = range(len(words)) if count == "all" else map(words.index, order)
    return MaskedCaption(text + caption[end:], " ".join(words), tuple(scored), tuple(order), missing)


def caption_words(caption: str) -> Iterator[tuple[int, int]]:
    """Start and end of every word: letters, marks and digits, with apostrophes and hyphens between them."""
    kinds = "".join(
        "j" if c in _JOINERS else "w" if c == "_" or unicodedata.category(c)[0] in "LMN" else " "
        for c in caption
    )
    for match in _WORD.finditer(kinds):
        yield match.span()


def without_possessive(word: str) -> str:
    """The word without a possessive 's."""
    return word[:-2] if word.endswith(_POSSESSIVES) else word


def _occurrences(caption: str, keywords: set[str]) -> Iterator[tuple[int, int, str]]:
    for start, end in caption_words(caption):
        word = caption[start:end].lower()
        bare = without_possessive(word)
        if word in keywords:
            yield start, end, word
        elif bare in keywords:
            yield start, end - (len(word) - len(bare)), bare  # not start + len: lower case may be longer


def _check_keywords(keywords: Sequence[str]) -> None:
    if not keywords:
        raise TextError("keywords: there are none")
    seen = set()
    for word in keywords:
        check_text(word, "keywords")
        if word.split() != [word]:
            raise TextError(f"keywords: {word!r} is not a single word")
        if word != word.lower():
            raise TextError(f"keywords: {word!r} is not in lower case")
        if word in seen:
            raise TextError(f"keywords: {word!r} is there twice")
        seen.add(word)
