"""Sentences found by their punctuation, with the `sentencex` package (MIT).

Rules must see a text *before* punctuation is deleted. A text without sentence punctuation would be one
segment, and the score of one segment says nothing about order or local content; `doubt` detects such texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version

from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.errors import BundleError, TextError

# Characters that end a sentence in the scripts that sentencex knows.
TERMINATORS = frozenset(".!?…‼⁇⁈⁉。！？｡．؟۔।॥։።၊။។")
# sentencex 1.0.32 panics on white space of more than one byte ("A.\u2028"). So it sees blanks and newlines
# instead, and the original text is split at the offsets that it finds.
_PLAIN_SPACES = {
    code: "\n" if code in (0x85, 0x2028, 0x2029) else " "
    for code in range(0x80, 0x3001)
    if chr(code).isspace()
}
# The time of sentencex 1.0.32 grows with the square of the number of these: of a million for some minutes.
_SLOW = frozenset("'`«»‹›‘’‚‛“”„‟「」『』") | (TERMINATORS - frozenset(".!?"))
MAX_MARKS = 50_000
# The longest plausible sentence: a longer one has lost its punctuation.
MAX_WORDS = 100


class Rules:
    """Splits texts into sentences by rules, without a model or a device."""

    def __init__(self, spec: RulesSpec) -> None:
        """Load the rules; raises BundleError if the package that `spec` names is not installed."""
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
        """Split a text into sentences with their white space; joined they are the text again.

        Raises TextError if they are not, as with versions of `sentencex` before 1.0.29, and for a text that
        is `crowded`.
        """
        if reason := crowded(text):
            raise TextError(reason)
        pieces: list[str] = []
        end = 0
        for boundary in self._find(self.spec.language, text.translate(_PLAIN_SPACES)):
            # sentencex 1.0.32 reads 10,000 characters at a time, and leaves out white space between them.
            gap = text[end : boundary["start_index"]]
            piece = text[boundary["start_index"] : boundary["end_index"]]
            if boundary["start_index"] < end or gap.strip():
                raise self._garbled()
            # White space between paragraphs comes as separate pieces: append it to the piece before.
            if pieces and piece.isspace():
                pieces[-1] += gap + piece
            else:
                if pieces:
                    pieces[-1] += gap
                pieces.append(piece if pieces else gap + piece)
            end = boundary["end_index"]
        if text[end:].strip() or (text and not pieces):
            raise self._garbled()
        if pieces:
            pieces[-1] += text[end:]
        return pieces

    def _garbled(self) -> TextError:
        return TextError(
            f"the sentences that {self.identity} found do not join to their text again: install "
            "sentencex 1.0.29 or later"
        )


def crowded(text: str) -> str | None:
    """Return why rules cannot split a text in reasonable time; None if they can."""
    if len(text) > MAX_MARKS and (count := sum(map(text.count, _SLOW))) > MAX_MARKS:
        return (
            f"the text has {count:,} quotation marks and ends of sentences, more than {MAX_MARKS:,}: "
            "the rule-based segmenter cannot cut it"
        )
    return None


def doubt(text: str, sentences: Sequence[str]) -> str | None:
    """Return why the `sentences` that rules found in `text` are implausible; None if they are plausible."""
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
