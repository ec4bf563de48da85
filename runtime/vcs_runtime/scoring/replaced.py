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

#: Reasons why two words cannot stand for each other, whatever their vectors, as tables name them.
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
    """A word of the reference, and the word that replaces it in the generated text.

    Attributes
    ----------
    reference, generated
        Both words as they are written in the texts.
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
    pairs = words.pairs.gen
    # The position of the surest generated word for each word of the reference.
    surest: dict[int, int] = {}
    for position in np.flatnonzero(pairs.weight >= LEAST_WEIGHT).tolist():
        partner = int(pairs.partner[position])
        if partner not in surest or pairs.weight[position] > pairs.weight[surest[partner]]:
            surest[partner] = position
    return tuple(
        _described(words, position, reference, generated) for position in sorted(surest.values())
    )


def surest(replaced: Sequence[ReplacedWord], count: int = MOST_LISTED) -> tuple[ReplacedWord, ...]:
    """Return at most `count` replaced words with the largest weights, in the order of the text."""
    chosen = sorted(range(len(replaced)), key=lambda i: -replaced[i].weight)[:count]
    return tuple(replaced[i] for i in sorted(chosen))


def left_out(replaced: Sequence[ReplacedWord], count: int = MOST_LISTED) -> str:
    """Return the number of replaced words that `surest` leaves out, as text; "" if none."""
    more = len(replaced) - count
    return f"{more} more, which are less sure" if more > 0 else ""


def describe_substitution(
    words: ReplacedWords, replaced: Sequence[ReplacedWord], scores: Scores, strict: StrictScores
) -> str:
    """Return sentences on the replaced words and their effect on VCS."""
    counts = Counter(word.word_class for word in replaced)
    shares = []
    for word_class, (score, singular, plural) in _NAMED.items():
        count = counts[word_class]
        if count:
            noun = singular if count == 1 else plural
            shares.append((getattr(strict, score), count, noun))
    shares.sort(reverse=True)
    if not len(words.reference) or not len(words.generated):
        text = "no word could be compared, because one of the texts has no words in Latin letters."
    elif shares:
        parts = [f"{count} {noun} ({share:.3f} of all)" for share, count, noun in shares]
        verb = "was" if len(replaced) == 1 else "were"
        text = f"{enumerated(parts)} {verb} replaced.{_weighed(words, counts, strict)}"
    elif strict.substitution:
        text = "almost no word was replaced."
    else:
        text = "no word was replaced."
    return f"Substitution is {strict.substitution:.3f}: {text}{_lowered(scores, strict)}"


def _weighed(words: ReplacedWords, kinds: Iterable[str], strict: StrictScores) -> str:
    """Return sentences on the other influences on the substitution score.

    A kind with few words counts as larger, nouns count more than other words, and similar words
    lower the score.
    """
    least, weight = DEFAULT_SUBSTITUTION.least_mass, DEFAULT_SUBSTITUTION.thing_weight
    largest_share = max(getattr(strict, score) for score, *_ in _NAMED.values())
    largest_weighted = max(largest_share, weight * strict.replaced_things)
    taken_off = min(largest_weighted, 1.0) - strict.substitution
    text = ""
    if any(_count_of_kind(words, kind) < least for kind in kinds):
        text += f" Fewer than {least:g} words of a kind count as {least:g}."
    # Differences that three digits do not show are not mentioned.
    if largest_weighted - largest_share >= 5e-4:
        text += f" Nouns count {weight:.2f} times."
    if taken_off >= 5e-4:
        text += f" The text is worded differently, so {taken_off:.3f} is subtracted."
    if strict_cap(strict.substitution) == 1.0:
        text += " Too few words were replaced to lower VCS."
    return text


def _count_of_kind(words: ReplacedWords, kind: str) -> int:
    """Count the words of a class in the text that has more of them."""
    code = WORD_CLASSES.index(kind)
    generated = int((words.pairs.gen.word_class == code).sum())
    reference = int((words.pairs.ref.word_class == code).sum())
    return max(generated, reference)


def _lowered(scores: Scores, strict: StrictScores) -> str:
    """Return sentences on the cap, and on the score that it lowers: VCS, or the margin."""
    cap = max(-1.0, strict_cap(strict.substitution))
    text = f" Strict scores are at most {cap:z.3f}." if cap < 1 else ""
    if scores.vcs > 0:
        before, after = scores.vcs, strict.vcs_strict
        subject = LABELS["vcs_strict"]
    else:
        before, after = scores.margin, strict.margin_strict
        label = LABELS["margin_strict"]
        subject = label.capitalize()
        if after < cap:
            subject = f"For pairs with a VCS of 0, LAS counts: {label}"
    if after < before:
        text += f" {subject} is {after:z.3f}, down from {before:z.3f}."
    return text


def _described(
    words: ReplacedWords, position: int, reference: Sequence[str], generated: Sequence[str]
) -> ReplacedWord:
    """Describe the generated word at a position and the word of the reference that it replaces."""
    pairs = words.pairs.gen
    partner = int(pairs.partner[position])
    similarity = float(pairs.similarity[position])
    contrast = ""
    if bool(words.generated.is_negated[position]) != bool(words.reference.is_negated[partner]):
        contrast = "negated"
    elif similarity == -1.0:
        contrast = "excludes"
    generated_chunk, generated_place = _place(words.generated, position)
    reference_chunk, reference_place = _place(words.reference, partner)
    return ReplacedWord(
        reference=reference[reference_chunk][slice(*reference_place)],
        generated=generated[generated_chunk][slice(*generated_place)],
        word_class=WORD_CLASSES[pairs.word_class[position]],
        similarity=similarity,
        contrast=contrast,
        weight=float(pairs.weight[position]),
        reference_chunk=reference_chunk,
        generated_chunk=generated_chunk,
        reference_place=reference_place,
        generated_place=generated_place,
    )


def _place(words: TextWords, position: int) -> tuple[int, Place]:
    """Return the chunk of a word, and its place in the chunk."""
    start, stop = int(words.start[position]), int(words.stop[position])
    return int(words.chunk[position]), (start, stop)
