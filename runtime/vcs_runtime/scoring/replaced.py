"""The words of a pair that other words replaced, with their places, and sentences about substitution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from vcs_numba import WORD_CLASSES, Scores, strict_cap
from vcs_numba.substitution_inputs import DEFAULT_SUBSTITUTION
from vcs_runtime.scoring.result import ReplacedWords, StrictScores
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.util.printable import enumerated
from vcs_runtime.words.reading import TextWords

#: Smallest weight of a pair of words that is shown: below it, the word hardly counts as replaced.
LEAST_WEIGHT: Final = 0.1
#: Maximum number of pairs of words in a table.
MOST_LISTED: Final = 20

#: Why two words cannot stand for each other, whatever their vectors say, as tables name it.
CONTRASTS: Final = {"excludes": "excludes it", "negated": "one is negated"}

Place = tuple[int, int]
#: The name in sentences of the words of each share.
_NAMED: Final = {f"replaced_{plural}": plural for plural in ("things", "actions", "qualities", "names")}


@dataclass(frozen=True, slots=True)
class ReplacedWord:
    """A word of the reference, and the word of the generated text that stands in its place.

    Attributes
    ----------
    reference, generated
        Both words as they stand in the texts.
    word_class
        "thing", "action", "quality" or "name".
    similarity
        Similarity of the words, a cosine in [-1, 1]; -1 if there is a `contrast`.
    contrast
        "excludes" if the lists say that the words exclude each other, "negated" if only one of them is
        negated, "" otherwise.
    weight
        How surely the word was replaced, in [0.1, 1].
    reference_chunk, generated_chunk
        Numbers of the chunks of the words, from 0.
    reference_place, generated_place
        Where the words begin and end in their chunks, in characters from 0.
    """

    reference: str
    generated: str
    word_class: str
    similarity: float
    contrast: str
    weight: float
    reference_chunk: int
    generated_chunk: int
    reference_place: Place
    generated_place: Place

    @property
    def likeness(self) -> str:
        """How alike the words are: the similarity, or the contrast."""
        return CONTRASTS.get(self.contrast) or f"{self.similarity:.2f}"


def replaced_words(
    words: ReplacedWords, reference: Sequence[str], generated: Sequence[str]
) -> tuple[ReplacedWord, ...]:
    """List the replaced words in the order of the generated text, each reference word once."""
    found = words.pairs.gen
    surest: dict[int, int] = {}
    for own in np.flatnonzero(found.weight >= LEAST_WEIGHT).tolist():
        partner = int(found.partner[own])
        if partner not in surest or found.weight[own] > found.weight[surest[partner]]:
            surest[partner] = own
    return tuple(
        _described(words, own, other, reference, generated)
        for other, own in sorted(surest.items(), key=lambda item: item[1])
    )


def surest(replaced: Sequence[ReplacedWord], count: int = MOST_LISTED) -> tuple[ReplacedWord, ...]:
    """Return at most `count` replaced words, those with the largest weights, in the order of the text."""
    chosen = sorted(range(len(replaced)), key=lambda i: -replaced[i].weight)[:count]
    return tuple(replaced[i] for i in sorted(chosen))


def left_out(replaced: Sequence[ReplacedWord], count: int = MOST_LISTED) -> str:
    """Say how many replaced words `surest` leaves out; "" if there are none."""
    more = len(replaced) - count
    return f"{more} more, which are less sure" if more > 0 else ""


def describe_substitution(words: ReplacedWords, scores: Scores, strict: StrictScores) -> str:
    """Say how much was replaced, and what that does to VCS."""
    value = strict.substitution
    if not (len(words.reference) and len(words.generated)):
        what = "no word could be compared, because one of the texts has no words in Latin letters"
    elif not value:
        what = "no word was replaced"
    else:
        shares = {name: getattr(strict, name) for name in _NAMED}
        ranked = sorted((name for name in shares if shares[name] >= 5e-4), key=lambda name: -shares[name])
        parts = [f"{shares[name]:.3f} of the {_counted(words, _NAMED[name])}" for name in ranked]
        what = f"other words replaced {enumerated(parts)}" if parts else "hardly a word was replaced"
        if value - max(shares.values()) >= 5e-4:
            what += f", and a thing counts {DEFAULT_SUBSTITUTION.thing_weight:.2f} times"
    return f"Substitution is {value:.3f}: {what}. {_lowered(scores, strict)}"


def _counted(words: ReplacedWords, plural: str) -> str:
    """Name the words of a class; where they are few, say that they count as more."""
    code = list(_NAMED.values()).index(plural)
    count = min(int((side.word_class == code).sum()) for side in (words.pairs.gen, words.pairs.ref))
    least = DEFAULT_SUBSTITUTION.least_mass
    return plural if count >= least else f"{plural} ({count}, which count as {least:g})"


def _lowered(scores: Scores, strict: StrictScores) -> str:
    label, cap = LABELS["vcs_strict"], strict_cap(strict.substitution)
    if strict.vcs_strict < scores.vcs:
        return f"{label} is {strict.vcs_strict:.3f}, down from {scores.vcs:.3f}."
    if strict.substitution <= DEFAULT_SUBSTITUTION.allowance:
        why = f"substitution up to {DEFAULT_SUBSTITUTION.allowance:g} lowers nothing"
    else:
        why = f"so much substitution lowers only what is above {max(0.0, cap):.3f}"
    return f"{label} is {strict.vcs_strict:.3f}, as VCS is: {why}."


def _described(
    words: ReplacedWords, own: int, other: int, reference: Sequence[str], generated: Sequence[str]
) -> ReplacedWord:
    found = words.pairs.gen
    similarity = float(found.similarity[own])
    contrast = ""
    if bool(words.generated.is_negated[own]) != bool(words.reference.is_negated[other]):
        contrast = "negated"
    elif similarity == -1.0:
        contrast = "excludes"
    (chunk, place), (other_chunk, other_place) = _place(words.generated, own), _place(words.reference, other)
    return ReplacedWord(
        reference=reference[other_chunk][slice(*other_place)],
        generated=generated[chunk][slice(*place)],
        word_class=WORD_CLASSES[found.word_class[own]],
        similarity=similarity,
        contrast=contrast,
        weight=float(found.weight[own]),
        reference_chunk=other_chunk,
        generated_chunk=chunk,
        reference_place=other_place,
        generated_place=place,
    )


def _place(words: TextWords, at: int) -> tuple[int, Place]:
    return int(words.chunk[at]), (int(words.start[at]), int(words.stop[at]))
