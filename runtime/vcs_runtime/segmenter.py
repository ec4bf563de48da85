"""The rule-based segmenter: sentences found by their punctuation, with the `sentencex` package (MIT).

It must see the text *before* punctuation is deleted. A text that has no sentence punctuation would come out
as one segment, and a score of one segment says nothing about order or local content: it is refused.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle import Bundle, RulesSpec, open_bundle
from vcs_runtime.errors import BundleError, TextError

# What ends a sentence in the scripts that sentencex knows.
TERMINATORS = frozenset(".!?…‼⁇⁈⁉。！？｡．؟۔।॥։።၊။។")
# sentencex 1.0.32 panics on white space of more than one byte ("A.\u2028"), so it sees plain blanks and
# newlines in its place; the text is cut at the offsets that it finds.
_PLAIN_SPACES = {
    code: "\n" if code in (0x85, 0x2028, 0x2029) else " "
    for code in range(0x80, 0x3001)
    if chr(code).isspace()
}
# The longest sentence that is believed of a text which is cut nowhere else.
MAX_LONE_WORDS = 100


class Segmenter:
    """Cuts texts into sentences. Open one with `Segmenter.open`; it holds no model and needs no device."""

    def __init__(self, spec: RulesSpec) -> None:
        try:
            from sentencex import get_sentence_boundaries
        except ImportError:
            raise BundleError(
                "the default segmenter needs `sentencex`: install `vcs-runtime[default]`"
            ) from None
        self._find = get_sentence_boundaries
        self.spec = spec
        self.identity = f"{spec.name}@{version('sentencex')}"

    @classmethod
    def open(cls, bundle: str | os.PathLike[str] | Bundle = "default", device: str = "auto") -> Segmenter:
        """Open the segmenter of a bundle (a folder, or "default"). `device` is there for segmenters that
        are models; rules run on the CPU whatever it says. Raises BundleError."""
        opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        if opened.manifest.segmenter is None or opened.manifest.segmenter.rules is None:
            raise BundleError(f"bundle {opened.root}: it holds no segmenter")
        return cls(opened.manifest.segmenter.rules)

    def split(self, texts: Sequence[str], threshold: float | None = None) -> list[list[str]]:
        """Cut each text into sentences, white space kept: the pieces of a text join to the text again.

        `threshold` belongs to segmenters that give probabilities; rules refuse it (ValueError).
        """
        if threshold is not None:
            raise ValueError("threshold: a rule-based segmenter has none")
        if isinstance(texts, str):
            raise TypeError("texts must be a sequence of strings, not one string")
        return [self._split(text) for text in texts]

    def boundary_probabilities(self, texts: Sequence[str]) -> list[npt.NDArray[np.float32]]:
        """Per text one float32 array, one value per character: 1 where a segment ends, else 0."""
        result = []
        for text, pieces in zip(texts, self.split(texts), strict=True):
            probabilities = np.zeros(len(text), np.float32)
            if pieces:
                probabilities[np.cumsum([len(piece) for piece in pieces]) - 1] = 1.0
            result.append(probabilities)
        return result

    def sentences(self, text: str, what: str) -> list[str]:
        """`split` for one text that is to be scored: refuses what has no sentence punctuation.

        Raises TextError that begins with `what`.
        """
        pieces = [piece for piece in self._split(text) if not piece.isspace()]
        if len(pieces) > 1:
            return pieces
        if TERMINATORS.isdisjoint(text):
            raise TextError(
                f"{what}: the text has no sentence punctuation, so the rule-based segmenter cannot cut it "
                "(for captions of a few words use short texts: `score_short`, `--short`)"
            )
        if (words := len(text.split())) > MAX_LONE_WORDS:
            raise TextError(
                f"{what}: {words} words without sentence punctuation between them: "
                "the rule-based segmenter cannot cut the text"
            )
        return pieces

    def _split(self, text: str) -> list[str]:
        pieces: list[str] = []
        for boundary in self._find(self.spec.language, text.translate(_PLAIN_SPACES)):
            piece = text[boundary["start_index"] : boundary["end_index"]]
            # The white space between paragraphs comes as pieces of its own: join it to the piece before.
            if pieces and piece.isspace():
                pieces[-1] += piece
            else:
                pieces.append(piece)
        return pieces

    def close(self) -> None:
        """Nothing to give back: rules hold no model."""

    def __enter__(self) -> Segmenter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
