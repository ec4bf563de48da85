"""The kinds of rewrite that a language model makes, under the names and ids of the authors' files.

The bounds on the number of words hold all of the authors' own rewrites (39 of each kind).
"""

from __future__ import annotations

from dataclasses import dataclass

WORDS = "Word-Level and Grammar"
LENGTH = "Brevity and Verbosity"
CONTENT = "Content Additions & Omissions"
DISTORTED = "Content Corruption"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of rewrite."""

    id: str
    name: str
    category: str
    valid: bool  # whether the rewrite tells the same story
    task: str  # the prompt that asks for it
    fewest: float  # words, as a multiple of those of the description
    most: float  # likewise
    aim: float | None = None  # likewise, as the prompt asks; None if it names none
    parts: str = ""  # what a distortion replaces
    keeps_sentences: bool = False  # a sentence for every sentence of the description


def _distortion(id_: str, name: str, parts: str) -> Kind:
    return Kind(
        id_, name, DISTORTED, False, "distortion", 0.7, 1.4, parts=parts, keeps_sentences=True
    )  # fmt: skip


KINDS = (
    Kind("1.1", "Synonym Substitution", WORDS, True, "lexical", 0.7, 1.4, keeps_sentences=True),
    Kind("1.2", "Active <-> Passive Transformation", WORDS, True, "voice", 0.8, 1.5, keeps_sentences=True),
    # In the papers' Table 1, but not in the authors' files.
    Kind("1.3", "Paraphrasing", WORDS, True, "paraphrase", 0.6, 1.5),
    Kind("2.1", "Brevity - L1", LENGTH, True, "abstraction", 0.3, 0.8, 0.5),
    Kind("2.2", "Brevity - L2", LENGTH, True, "abstraction", 0.1, 0.65, 0.3),
    Kind("2.3", "Verbosity - L1", LENGTH, True, "elaboration", 1.05, 1.7, 1.3),
    Kind("2.4", "Verbosity - L2", LENGTH, True, "elaboration", 1.2, 2.0, 1.5),
    Kind("2.5", "Macro-Actions -> Micro-Actions", LENGTH, True, "decomposition", 0.9, 2.5),
    Kind("2.6", "Micro-Actions -> Macro-Actions", LENGTH, True, "aggregation", 0.2, 0.9),
    Kind("3.1", "Insert Attributes, Emotions and Scene", CONTENT, True, "attributes", 1.1, 2.5,
         keeps_sentences=True),
    _distortion("4.1", "Subject Corruption", "the subject: who or what acts"),
    _distortion("4.2", "Object Corruption", "the object: what is acted upon"),
    _distortion("4.3", "Action Corruption", "the action: what the verb says"),
    _distortion("4.7", "Subject-Action-Object Corruption",
                "the subject, the action and the object: who acts, what is done, and to what"),
    Kind("5.1", "Summarization", "Summarization", False, "summary", 0.02, 0.45, 0.25),
)  # fmt: skip
