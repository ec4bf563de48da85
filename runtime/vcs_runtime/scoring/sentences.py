"""The sentences of texts as they stand, with their punctuation: what HM-CF compares."""

from __future__ import annotations

from collections.abc import Sequence

from vcs_runtime.errors import TextError
from vcs_runtime.segmentation.custom import ScoringSegmenter
from vcs_runtime.util.lru import LRUCache

Pieces = list[str] | TextError
"""The pieces of a text, or why a segmenter refuses it."""


def split_learned(segmenter: ScoringSegmenter, texts: Sequence[str]) -> dict[str, Pieces]:
    """Split texts that rules leave, in one call; a text that is refused does not take the others with it."""
    try:
        return dict(zip(texts, segmenter.split_learned(texts), strict=True))
    except TextError as error:
        if len(texts) > 1:
            return {name: own for text in texts for name, own in split_learned(segmenter, [text]).items()}
        return {texts[0]: error}


class Sentences:
    """Splits texts into sentences as they stand, and remembers them.

    Contractions and punctuation stay, unlike in the chunks of VCS. Each text is split by itself: by rules if
    it has sentence punctuation, otherwise by the learned segmenter. A text that none of them can split is one
    sentence.
    """

    def __init__(self, segmenter: ScoringSegmenter, memory_bytes: int) -> None:
        self._segmenter = segmenter
        self._known: LRUCache[list[str]] = LRUCache(memory_bytes, lambda pieces: sum(map(len, pieces)))

    def split(self, texts: Sequence[str]) -> dict[str, Pieces]:
        """Split texts, each of which holds something."""
        split: dict[str, Pieces] = {}
        left = []
        for text in dict.fromkeys(texts):
            pieces = self._known.get(text) or self._by_rules(text)
            if pieces is None:
                left.append(text)
            else:
                split[text] = pieces
        split |= split_learned(self._segmenter, left) if left else {}
        for text, own in split.items():
            if not isinstance(own, TextError):
                split[text] = sentences = [piece.strip() for piece in own if piece.strip()] or [text.strip()]
                self._known.put(text, sentences)
        return split

    def _by_rules(self, text: str) -> list[str] | None:
        try:
            return self._segmenter.sentences(text, "text")
        except TextError:  # no punctuation, and no learned segmenter
            return [text]
