"""What is known of a word by its letters alone, remembered for each word that was seen."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Final

from vcs_runtime.words.classes import word_features
from vcs_runtime.words.exclusions import exclusion_code
from vcs_runtime.words.lists import FUNCTION_WORDS, NEGATORS
from vcs_runtime.words.stems import stem

#: Number of different words that are remembered.
REMEMBERED: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word as its letters tell it.

    Attributes
    ----------
    form
        In small letters, with a plain apostrophe and without a possessive ending: what has a vector.
    stem
        What all forms of the word have in common.
    exclusion
        Its row of `excluding_table`; 0 for a word that excludes nothing.
    is_content
        Whether it is no function word.
    negates
        Whether it negates the next content word.
    is_capital
        Whether it begins with a capital letter.
    ending
        Its last two letters.
    seen_as
        How a neighbour sees it: a function word as it is, any other by its ending.
    features
        Its own features, for its class.
    """

    form: str
    stem: str
    exclusion: int
    is_content: bool
    negates: bool
    is_capital: bool
    ending: str
    seen_as: str
    features: tuple[int, ...]


@functools.lru_cache(REMEMBERED)
def lexeme(word: str) -> Lexeme:
    """Return what is known of a word.

    Parameters
    ----------
    word
        A run of Latin letters and digits, as it stands in a text.

    Returns
    -------
    Lexeme
        What is known of it.
    """
    small = word.lower().replace("’", "'")
    form = small.removesuffix("'s")
    negated_verb = small.endswith("n't")
    is_content = not (small in FUNCTION_WORDS or form in FUNCTION_WORDS or negated_verb)
    word_stem = stem(form)
    return Lexeme(
        form=form,
        stem=word_stem,
        exclusion=exclusion_code(word_stem),
        is_content=is_content,
        negates=negated_verb or small in NEGATORS,
        is_capital=word[0].isupper(),
        ending=form[-2:],
        seen_as="s" + form[-2:] if is_content else "p" + form,
        features=word_features(form, word_stem) if is_content else (),
    )
