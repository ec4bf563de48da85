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
    """A word as its letters tell it."""

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
    """Return what is known of a word."""
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
