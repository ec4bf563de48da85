"""Replaced words of a pair, with their places, and sentences about substitution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from vcs_numba import WORD_CLASSES, Scores
from vcs_numba.substitution import strict_cap
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
#: The share of each class of words, and the name of its words in sentences.
_NAMED: Final = {
    "thing": ("replaced_things", "noun", "nouns"),
    "action": ("replaced_actions", "verb", "verbs"),
    "quality": ("replaced_qualities", "quality", "qualities"),
    "name": ("replaced_names", "name", "names"),
}


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
        "excludes" if the lists say that the words exclude each other, "negated" if only one of them
        is negated, "" otherwise.
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
        return CONTRASTS.get(self.contrast) or f"{self.similarity:z.2f}"


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
    """Return at most `count` replaced words with the largest weights, in the order of the text."""
    chosen = sorted(range(len(replaced)), key=lambda i: -replaced[i].weight)[:count]
    return tuple(replaced[i] for i in sorted(chosen))


def left_out(replaced: Sequence[ReplacedWord], count: int = MOST_LISTED) -> str:
    """Say how many replaced words `surest` leaves out; "" if there are none."""
    more = len(replaced) - count
    return f"{more} more, which are less sure" if more > 0 else ""


def describe_substitution(
    words: ReplacedWords, replaced: Sequence[ReplacedWord], scores: Scores, strict: StrictScores
) -> str:
    """Say how much was replaced, and what that does to VCS."""
    kinds = Counter(word.word_class for word in replaced)
    found = [
        (getattr(strict, share), count, nouns)
        for kind, (share, *nouns) in _NAMED.items()
        if (count := kinds[kind])
    ]
    parts = [
        f"{count} {nouns[count > 1]} ({share:.3f} of all)"
        for share, count, nouns in sorted(found, reverse=True)
    ]
    if not (len(words.reference) and len(words.generated)):
        what = "no word could be compared, because one of the texts has no words in Latin letters."
    elif not parts:
        what = "hardly a word was replaced." if strict.substitution else "no word was replaced."
    else:
        was = "was" if len(replaced) == 1 else "were"
        what = f"{enumerated(parts)} {was} replaced.{_weighed(words, kinds, strict)}"
    return f"Substitution is {strict.substitution:.3f}: {what}{_lowered(scores, strict)}"


def _weighed(words: ReplacedWords, kinds: Iterable[str], strict: StrictScores) -> str:
    """Return sentences on what changed the substitution score besides replaced words.

    A kind with few words counts as larger, nouns count more than other words, and similar words
    lower the score.
    """
    least, weight = DEFAULT_SUBSTITUTION.least_mass, DEFAULT_SUBSTITUTION.thing_weight
    sides = (words.pairs.gen.word_class, words.pairs.ref.word_class)
    codes = [WORD_CLASSES.index(kind) for kind in kinds]
    few = any(max((side == code).sum() for side in sides) < least for code in codes)
    most = max(getattr(strict, share) for share, *_ in _NAMED.values())
    top = max(most, weight * strict.replaced_things)
    less = min(top, 1.0) - strict.substitution
    said = [f" Fewer than {least:g} words of a kind count as {least:g}."] * few
    said += [f" Nouns count {weight:.2f} times."] * (top - most >= 5e-4)
    said += [f" The text is in other words, so {less:.3f} is taken off."] * (less >= 5e-4)
    said += [" Too few words were replaced to lower VCS."] * (
        strict_cap(strict.substitution) == 1.0
    )
    return "".join(said)


def _lowered(scores: Scores, strict: StrictScores) -> str:
    """Say what the cap is, and what it lowers: VCS, or the margin where VCS is 0."""
    cap = max(-1.0, strict_cap(strict.substitution))
    score = "vcs" if scores.vcs > 0 else "margin"
    before, after = getattr(scores, score), getattr(strict, f"{score}_strict")
    said = f" Strict scores are at most {cap:z.3f}." if cap < 1 else ""
    if after < before:
        by_content = "Where VCS is 0, LAS counts: " * (score == "margin" and after < cap)
        name = f"{by_content}{LABELS[f'{score}_strict']}"
        said += f" {name[0].upper()}{name[1:]} is {after:z.3f}, down from {before:z.3f}."
    return said


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
    (chunk, place), (other_chunk, other_place) = (
        _place(words.generated, own),
        _place(words.reference, other),
    )
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
