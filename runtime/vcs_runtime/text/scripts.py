"""Scripts of texts: how many are not written in Latin letters, which models of English do not read."""

from __future__ import annotations

import unicodedata
from collections import Counter
from dataclasses import dataclass

# The beginning of a text tells its script.
_SEEN = 10_000


@dataclass
class ScriptCounts:
    """How many texts are not in Latin script."""

    texts: int = 0
    not_latin: int = 0

    def add(self, text: str) -> None:
        """Count a text."""
        self.texts += 1
        self.not_latin += not text.isascii() and _mostly_not_latin(text[:_SEEN])


def _mostly_not_latin(text: str) -> bool:
    letters = {c: count for c, count in Counter(text).items() if c.isalpha()}
    latin = sum(count for c, count in letters.items() if "LATIN" in unicodedata.name(c, ""))
    return 2 * latin < sum(letters.values())
