"""Captions with masked keywords, and the answer that fills the masks (docs/visil.md)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vcs_runtime.errors import TextError, unknown_choice
from vcs_runtime.text.cleaning import check_text

MASK = "[MASK]"
COUNTS = ("first", "all")

_JOINERS = "'’-‐‑"  # characters that join two parts of a word
_WORD = re.compile("w+(?:jw+)*")
_POSSESSIVES = ("'s", "’s")


@dataclass(frozen=True, slots=True)
class MaskedCaption:
    """A caption whose keywords are masked.

    Attributes
    ----------
    text
        The caption with `[MASK]` in place of every whole-word occurrence of a keyword.
    answer
        The masked words in lower case, separated by one space.
    scored
        Indices of the scored words among the words of the answer.
    keywords
        Keywords in the order of their first occurrence.
    dropped
        Keywords that are not in the caption and were left out.
    """

    text: str
    answer: str
    scored: tuple[int, ...]
    keywords: tuple[str, ...]
    dropped: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words of the answer, one per mask."""
        return self.answer.split(" ")

    def revealed(self, count: int) -> str:
        """Return the text with its first `count` masks filled in."""
        pieces = self.text.split(MASK)
        filled = [*self.words[:count], *[MASK] * (len(pieces) - 1 - count), ""]
        return "".join(piece + word for piece, word in zip(pieces, filled, strict=True))


def mask_caption(
    caption: str, keywords: Sequence[str], *, count: str = "first", drop_missing: bool = False
) -> MaskedCaption:
    """Mask every whole-word occurrence of each keyword, in upper or lower case.

    Apostrophes and hyphens within a word belong to it: "sedan" is not in "sedan-chair". A possessive 's does
    not belong to the word and stays unmasked.

    Parameters
    ----------
    caption
        The caption; it must not contain `[MASK]`.
    keywords
        Lower-case words without repetition, in the order of their first occurrence in the caption.
    count
        Which occurrences are scored: "first" (of each keyword) or "all".
    drop_missing
        Leave out keywords that are not in the caption, instead of refusing them.

    Returns
    -------
    MaskedCaption
        The masked caption and its answer.

    Raises
    ------
    TextError
        The caption or a keyword cannot be used. The message names the keyword.
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
    present = [word for word in keywords if word not in missing]
    if not present:
        raise TextError("keywords: there are none to score")
    for position, (word, expected) in enumerate(zip(present, order, strict=True), 1):
        if word != expected:
            raise TextError(
                f"keywords: out of order: {word!r} is there before {expected!r}, which comes first in the "
                f"caption (keyword {position})"
            )
    text, end = "", 0
    for start, stop, _ in spans:
        text += caption[end:start] + MASK
        end = stop
    words = [word for _, _, word in spans]
    scored = range(len(words)) if count == "all" else map(words.index, order)
    return MaskedCaption(text + caption[end:], " ".join(words), tuple(scored), tuple(order), missing)


def caption_words(caption: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of every word: letters, marks and digits, joined by apostrophes and hyphens."""
    kinds = "".join(
        "j" if c in _JOINERS else "w" if c == "_" or unicodedata.category(c)[0] in "LMN" else " "
        for c in caption
    )
    for match in _WORD.finditer(kinds):
        yield match.span()


def without_possessive(word: str) -> str:
    """Return the word without a possessive 's."""
    return word[:-2] if word.endswith(_POSSESSIVES) else word


def _occurrences(caption: str, keywords: set[str]) -> Iterator[tuple[int, int, str]]:
    for start, end in caption_words(caption):
        word = caption[start:end].lower()
        bare = without_possessive(word)
        if word in keywords:
            yield start, end, word
        elif bare in keywords:
            yield (
                start,
                end - (len(word) - len(bare)),
                bare,
            )  # lower case may be longer


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
