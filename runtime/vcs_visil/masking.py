"""Captions with masked keywords, and keywords chosen without a model."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vcs_runtime.errors import TextError, unknown_choice
from vcs_runtime.text.cleaning import STOP_WORDS, check_text

MASK = "[MASK]"
COUNTS = ("first", "all")

_JOINERS = "'’-‐‑"  # characters that join two parts of a word
_WORD = re.compile("w+(?:jw+)*")
_POSSESSIVES = ("'s", "’s")
MAX_KEYWORDS = 20
"""Largest number of keywords."""
# Frequent English words, and words of any video description: they carry little information.
_FREQUENT = frozenset(
    """
    able across actually almost along already also although always among another anything around
    away back become becomes begins behind beside big camera cannot clearly close comes continues
    could different done either else end entire even every everything far first focus footage frame
    front gets give given gives goes going good got great half image indicate keep keeps kind large
    last later left less like likely long look looks made make makes making many may maybe might
    moment moments move moves much must near nearby need never new next nothing often old one others
    overall part person piece place point possibly quickly quite rather really right say says scene
    second see seem seems seen sequence set several shot show showing shown shows side since
    slightly slowly small someone something sometimes soon start starts still such suddenly take
    taken takes taking thing things third three throughout together toward towards two upon use used
    uses using various video view viewer visible way ways well whether whole within without would
    yet
    """.split()
)


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

    Apostrophes and hyphens within a word belong to it: "sedan" is not in "sedan-chair". A
    possessive 's does not belong to the word and stays unmasked.

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
        raise TextError(f"caption: the text must not contain {MASK}")
    if isinstance(keywords, str):
        raise TypeError("keywords must be a sequence of strings, not one string")
    _check_keywords(keywords)
    spans = list(_occurrences(caption, set(keywords)))
    order = list(dict.fromkeys(word for _, _, word in spans))
    missing = tuple(word for word in keywords if word not in order)
    if missing and not drop_missing:
        raise TextError(f"keywords: {missing[0]!r} is not a word of the caption")
    present = [word for word in keywords if word not in missing]
    if not present:
        raise TextError("keywords: no keyword is in the caption")
    for position, (word, expected) in enumerate(zip(present, order, strict=True), 1):
        if word != expected:
            raise TextError(
                f"keywords: keyword {position}, {word!r}, must come after {expected!r}, as in the"
                " caption"
            )
    text, end = "", 0
    for start, stop, _ in spans:
        text += caption[end:start] + MASK
        end = stop
    words = [word for _, _, word in spans]
    scored = range(len(words)) if count == "all" else map(words.index, order)
    return MaskedCaption(
        text + caption[end:], " ".join(words), tuple(scored), tuple(order), missing
    )


def builtin_keywords(caption: str, limit: int = MAX_KEYWORDS) -> list[str]:
    """Choose keywords that are spread over a caption.

    A model that reads the caption chooses better. The caption is cut into `limit` stretches, and
    each gives its best word; the best other words fill up the rest. Rare words come before frequent
    ones, then long before short, then early before late. Raises TextError if no word can be a
    keyword.
    """
    check_text(caption, "caption")
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit!r}")
    words = [_without_possessive(caption[start:end].lower()) for start, end in _words(caption)]
    first: dict[str, int] = {}
    for place, word in enumerate(words):
        if len(word) > 2 and word.isalpha() and word not in STOP_WORDS and word != "video":
            first.setdefault(word, place)
    if not first:
        raise TextError("caption: no word of the caption can be a keyword")

    def rank(word: str) -> tuple[bool, int, int]:
        return word in _FREQUENT, -len(word), first[word]

    stretches: dict[int, str] = {}
    for word, place in first.items():
        stretch = place * limit // len(words)
        if word not in _FREQUENT and (
            stretch not in stretches or rank(word) < rank(stretches[stretch])
        ):
            stretches[stretch] = word
    chosen = list(stretches.values())
    chosen += sorted(first.keys() - set(chosen), key=rank)[: limit - len(chosen)]
    return sorted(chosen, key=first.__getitem__)


def _words(caption: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of every word: letters, marks, digits, apostrophes and hyphens."""
    for match in _WORD.finditer("".join(map(_kind, caption))):
        yield match.span()


def _kind(character: str) -> str:
    """Return "j" for a joiner, "w" for a character of a word, or a space."""
    if character in _JOINERS:
        return "j"
    if character == "_" or unicodedata.category(character)[0] in "LMN":
        return "w"
    return " "


def _without_possessive(word: str) -> str:
    """Return the word without a possessive 's."""
    return word[:-2] if word.endswith(_POSSESSIVES) else word


def _occurrences(caption: str, keywords: set[str]) -> Iterator[tuple[int, int, str]]:
    for start, end in _words(caption):
        word = caption[start:end].lower()
        bare = _without_possessive(word)
        if word in keywords:
            yield start, end, word
        elif bare in keywords:
            yield (start, end - (len(word) - len(bare)), bare)  # lower case may be longer


def _check_keywords(keywords: Sequence[str]) -> None:
    if not keywords:
        raise TextError("keywords: the list is empty")
    seen = set()
    for word in keywords:
        check_text(word, "keywords")
        if word.split() != [word]:
            raise TextError(f"keywords: {word!r} is not a single word")
        if word != word.lower():
            raise TextError(f"keywords: {word!r} is not in lower case")
        if word in seen:
            raise TextError(f"keywords: {word!r} occurs twice")
        seen.add(word)
