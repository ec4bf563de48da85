"""Sentences found by their punctuation, with the `sentencex` package (MIT).

Rules must see a text *before* punctuation is deleted. A text that has no sentence punctuation would come out
as one segment, and a score of one segment says nothing about order or local content: `doubt` finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.errors import BundleError

# What ends a sentence in the scripts that sentencex knows.
TERMINATORS = frozenset(".!?…‼⁇⁈⁉。！？｡．؟۔।॥։።၊။។")
# sentencex 1.0.32 panics on white space of more than one byte ("A.\u2028"), so it sees plain blanks and
# newlines in its place; the text is cut at the offsets that it finds.
_PLAIN_SPACES = {
    code: "\n" if code in (0x85, 0x2028, 0x2029) else " "
    for code in range(0x80, 0x3001)
    if chr(code).isspace()
}
# The longest sentence that is believed: a longer one has lost its punctuation.
MAX_WORDS = 100


class Rules:
    """Cuts a text into sentences by rules; holds no model and needs no device."""

    def __init__(self, spec: RulesSpec) -> None:
        """Raises BundleError where the package that `spec` names is not installed."""
        try:
            from sentencex import get_sentence_boundaries
        except ImportError:
            raise BundleError(
                "the default segmenter needs `sentencex`: install `vcs-runtime[default]`"
            ) from None
        self._find = get_sentence_boundaries
        self.spec = spec
        self.identity = f"{spec.name}@{version('sentencex')}"

    def split(self, text: str) -> list[str]:
        """Cut a text into sentences, white space kept: the pieces join to the text again."""
        pieces: list[str] = []
        for boundary in self._find(self.spec.language, text.translate(_PLAIN_SPACES)):
            piece = text[boundary["start_index"] : boundary["end_index"]]
            # The white space between paragraphs comes as pieces of its own: join it to the piece before.
            if pieces and piece.isspace():
                pieces[-1] += piece
            else:
                pieces.append(piece)
        return pieces


def doubt(text: str, sentences: Sequence[str]) -> str | None:
    """Why the `sentences` that rules found in `text` may be none, in words; None where they are believed."""
    if TERMINATORS.isdisjoint(text):
        return (
            "the text has no sentence punctuation, so the rule-based segmenter cannot cut it "
            "(for captions of a few words use short texts: `score_short`, `--short`)"
        )
    longest = max((len(sentence.split()) for sentence in sentences), default=0)
    if longest > MAX_WORDS:
        return (
            f"{longest} words without sentence punctuation between them: "
            "the rule-based segmenter cannot cut the text"
        )
    return None
