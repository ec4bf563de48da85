"""Whether texts are in the language of a model that reads English."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass
from typing import Final

# Number of characters at the beginning of a text that determine its script, and its language.
_SCRIPT_SEEN: Final = 10_000
_WORDS_SEEN: Final = 500
_NO_LETTERS: Final = bytes(code for code in range(128) if not chr(code).isalpha())
# Words that only English has, among the languages below.
_ENGLISH: Final = frozenset(
    "the and with his she they it that are from by their then into which this there were has have"
    " while who another through its them these".split()
)
# Frequent words of German, French, Spanish, Italian, Portuguese, Dutch and Swedish that are no
# English words.
_OTHERS: Final = frozenset(
    "der das und ist ein eine einen einem einer nicht mit von zu zum zur im auf sich sie wird"
    " werden sind dann für über aus nach durch ihre seine ihr sein"
    " le la les du un une et est dans pas que qui il elle ils elles avec pour aux sa ses ce cette"
    " puis sont se où très à"
    " el los las y en con por su sus está del al lo luego como más"
    " lo gli e è di che non sono si nel nella della dal poi"
    " o os um uma é em com não na da dos seu sua"
    " de het een van op met voor naar zijn haar niet dat wordt"
    " och att det som på är ett med till han hon".split()
)
# A text with fewer of them may hold a foreign title.
_FEWEST: Final = 3


@dataclass
class LanguageCounts:
    """How many texts are in another script than the Latin one, or in another language."""

    texts: int = 0
    not_latin: int = 0
    not_english: int = 0  # of the texts in Latin script

    def add(self, text: str) -> None:
        """Count a text."""
        self.texts += 1
        if not text.isascii() and _mostly_not_latin(text[:_SCRIPT_SEEN]):
            self.not_latin += 1
        elif is_not_english(text):
            self.not_english += 1


def is_not_english(text: str) -> bool:
    """Return whether a text has mostly frequent words of some other European language."""
    words = text[:_WORDS_SEEN].lower().split()
    others = sum(map(_OTHERS.__contains__, words))
    english = sum(map(_ENGLISH.__contains__, words))
    return others >= _FEWEST and others > 2 * english


def _mostly_not_latin(text: str) -> bool:
    # Counting ASCII letters is fast, and decides on most texts.
    if 2 * len(text.encode("ascii", "ignore").translate(None, _NO_LETTERS)) >= len(text):
        return False
    letters = {c: count for c, count in Counter(text).items() if c.isalpha()}
    latin = sum(count for c, count in letters.items() if "LATIN" in unicodedata.name(c, ""))
    return 2 * latin < sum(letters.values())
