"""`substitution`: how much two texts replace; `strict` caps scores by it (section 15)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import checked_finite, readable
from vcs_numba.jit.kernel import Kernel, array, types
from vcs_numba.jit.threads import for_each
from vcs_numba.kernels.counterparts import CLASS_COUNT, SIMILARITY, WEIGHT, Ids, Text
from vcs_numba.kernels.matching import Floats
from vcs_numba.kernels.replaced import replace
from vcs_numba.kernels.windows import Ints
from vcs_numba.scores import Scores
from vcs_numba.substitution_inputs import (
    DEFAULT_SUBSTITUTION,
    SubstitutionParams,
    Vocabulary,
    Words,
)

_TEXT = (
    array(types.int32, 2, readonly=True),
    array(types.float64, 2, readonly=True),
    array(types.int64, 1, readonly=True),
    array(types.float64, 2),
    array(types.int32, 2),
)
_REPLACE: Final = Kernel(
    replace,
    _TEXT,
    _TEXT,
    array(types.float32, 2, readonly=True),
    array(types.boolean, 2, readonly=True),
    array(types.float64, 1, readonly=True),
    array(types.float64, 1),
)


class Replacements(NamedTuple):
    """The words of one text, with the words that replace them in the other text.

    Attributes
    ----------
    partner
        int32 (n,): position of the word in the other text; -1 where nothing replaced the word.
    weight
        float64 (n,), in [0, 1]: how surely it was replaced; 0 without a partner.
    similarity
        float64 (n,): similarity to the partner; -1 if both exclude each other, or if only one is
        negated. NaN without a partner.
    word_class
        int32 (n,): code of `WORD_CLASSES`; for a word with a partner, the class of the pair.
    """

    partner: Ids
    weight: Floats
    similarity: Floats
    word_class: Ids


@dataclass(frozen=True, eq=False)
class Substitution:
    """What was replaced between two texts (docs/reference/vcs.md, section 15). Smaller is better.

    Attributes
    ----------
    substitution
        The largest weighted share, in [0, 1].
    thing, action, quality, name
        Replaced share of each class of words, in [0, 1].
    gen, ref
        The pairs of each text's words. A word may be the partner of several words.
    """

    substitution: float
    thing: float
    action: float
    quality: float
    name: float
    gen: Replacements
    ref: Replacements


class Strict(NamedTuple):
    """Scores lowered by their caps (docs/reference/vcs.md, section 15). Larger is better.

    Attributes
    ----------
    vcs_strict
        VCS under the cap of substitution, in [0, 1].
    margin_strict
        The margin under the same cap, and below 0 under that of LAS; in [-1, 1].
    """

    vcs_strict: float
    margin_strict: float


class WordPair(NamedTuple):
    """The words of one pair of texts, and how the chunks of the texts match.

    Attributes
    ----------
    gen, ref
        Words of the generated text and of the reference.
    gen_match
        Integers (n_gen,): the match of each generated chunk, as `Alignment.precision.match`.
    ref_match
        Integers (n_ref,): the match of each chunk of the reference, as `Alignment.recall.match`.
    """

    gen: Words
    ref: Words
    gen_match: npt.ArrayLike
    ref_match: npt.ArrayLike


def substitution(
    gen: Words,
    ref: Words,
    gen_match: npt.ArrayLike,
    ref_match: npt.ArrayLike,
    vocabulary: Vocabulary,
    params: SubstitutionParams = DEFAULT_SUBSTITUTION,
) -> Substitution:
    """Compute how much of the reference was replaced (docs/reference/vcs.md, section 15).

    A word counts as replaced if it has no counterpart near the matched chunk, and another word
    without a counterpart is in its place. Words that were only added or only left out do not count.

    Parameters
    ----------
    gen
        Words of the generated text.
    ref
        Words of the reference.
    gen_match
        Integers (n_gen,): the match of each generated chunk, as `Alignment.precision.match`.
    ref_match
        Integers (n_ref,): the match of each chunk of the reference, as `Alignment.recall.match`.
    vocabulary
        The vectors of the words, and the words that exclude each other.
    params
        Constants of the formula.

    Returns
    -------
    Substitution
        The shares, and the replaced words of both texts. The same inputs give the same bits on
        every machine.

    Raises
    ------
    ValueError
        A match is not a chunk of the other side; a word refers to a chunk, vector or list that does
        not exist; or an argument has another type. The message names the argument.
    """
    return _substitution(WordPair(gen, ref, gen_match, ref_match), vocabulary, params, "")


def substitution_batch(
    pairs: Sequence[WordPair],
    vocabulary: Vocabulary,
    params: SubstitutionParams = DEFAULT_SUBSTITUTION,
) -> list[Substitution]:
    """Compare many pairs on all cores; each result equals `substitution` of its pair bit for bit.

    Parameters
    ----------
    pairs
        The arguments of `substitution` that differ from pair to pair.
    vocabulary
        The vectors of all words, and the words that exclude each other.
    params
        Constants of the formula.

    Returns
    -------
    list of Substitution
        The results in the order of the pairs.

    Raises
    ------
    ValueError
        As for `substitution`. The message names the pair: "pairs[17].gen_match: ...".
    """
    results: list[Any] = [None] * len(pairs)

    def compare(k: int) -> None:
        results[k] = _substitution(pairs[k], vocabulary, params, f"pairs[{k}].")

    for_each(len(pairs), compare)
    return results


def strict_cap(substitution: float, params: SubstitutionParams = DEFAULT_SUBSTITUTION) -> float:
    """Return the largest score that a pair may have: 1 minus slope times excess.

    Parameters
    ----------
    substitution
        Substitution of the pair, in [0, 1].
    params
        Constants; `allowance` and `slope` are used.

    Returns
    -------
    float
        1 up to the allowance, then falling.

    Raises
    ------
    ValueError
        `substitution` is not a number in [0, 1].
    """
    _checked_params(params)
    value = checked_finite(substitution, "substitution")
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"substitution must be between 0 and 1, not {value!r}")
    return 1.0 - params.slope * max(0.0, value - params.allowance)


def strict(
    scores: Scores, substitution: float, params: SubstitutionParams = DEFAULT_SUBSTITUTION
) -> Strict:
    """Lower VCS and the margin of a pair to the cap that its substitution sets.

    A pair whose scores are below the cap keeps them. Below 0 the order of the few events that both
    texts share is mostly chance, so LAS caps the margin.

    Parameters
    ----------
    scores
        The scores of the pair; `vcs`, `margin` and `las` are used.
    substitution
        Substitution of the pair, in [0, 1].
    params
        Constants; `allowance` and `slope` are used.

    Returns
    -------
    Strict
        `vcs_strict` is at least 0, as VCS is.

    Raises
    ------
    ValueError
        A score is not finite, or `substitution` is not a number in [0, 1]. The message names the
        argument.
    """
    cap = strict_cap(substitution, params)
    vcs = checked_finite(scores.vcs, "vcs")
    margin = checked_finite(scores.margin, "margin")
    las = checked_finite(scores.las, "las")
    if margin < 0.0:
        cap = min(cap, max(-1.0, 10.0 * margin) * (1.0 - las * las * las))
    return Strict(max(0.0, min(vcs, cap)), max(-1.0, min(margin, cap)))


def _substitution(
    pair: WordPair, vocabulary: Vocabulary, params: SubstitutionParams, prefix: str
) -> Substitution:
    packed = _checked_params(params).packed
    if not isinstance(vocabulary, Vocabulary):
        raise ValueError(
            f"vocabulary must be a vcs_numba.Vocabulary, not {type(vocabulary).__name__}"
        )
    gen, ref, gen_match, ref_match = pair
    gen_chunks = _matches(gen_match, f"{prefix}gen_match")
    ref_chunks = _matches(ref_match, f"{prefix}ref_match")
    sides = (("gen", gen, gen_chunks, ref_chunks), ("ref", ref, ref_chunks, gen_chunks))
    for name, words, matches, others in sides:
        _check_words(words, len(matches), vocabulary, f"{prefix}{name}")
        if matches.min() < 0 or matches.max() >= len(others):
            raise ValueError(
                f"{prefix}{name}_match: a match is not the number of one of the other text's"
                f" {len(others)} chunks"
            )
    gen_text = _kernel_text(gen, gen_chunks)
    ref_text = _kernel_text(ref, ref_chunks)
    out = np.empty(1 + CLASS_COUNT)
    _REPLACE.call(gen_text, ref_text, vocabulary.vectors, vocabulary.excluding, packed, out)
    largest, thing, action, quality, name_share = out.tolist()
    return Substitution(
        substitution=largest,
        thing=thing,
        action=action,
        quality=quality,
        name=name_share,
        gen=_replacements(gen_text),
        ref=_replacements(ref_text),
    )


def _kernel_text(words: Words, matches: Ints) -> Text:
    """Return the arrays of one text for the kernel, which writes to the last two."""
    numbers = np.zeros((3, len(words)))
    ids = np.full((2, len(words)), -1, dtype=np.int32)
    return words.packed, words.log_class, matches, numbers, ids


def _replacements(text: Text) -> Replacements:
    *_, numbers, (partner, word_class) = text
    similarity = np.where(partner >= 0, numbers[SIMILARITY], np.nan)
    return Replacements(partner, numbers[WEIGHT], similarity, word_class)


def _check_words(words: Any, chunks: int, vocabulary: Vocabulary, name: str) -> None:
    if not isinstance(words, Words):
        raise ValueError(f"{name} must be a vcs_numba.Words, not {type(words).__name__}")
    vector, chunk, exclusion = words.limits
    for field, top, count in (
        ("vector", vector, len(vocabulary.vectors)),
        ("chunk", chunk, chunks),
        ("exclusion", exclusion, len(vocabulary.excluding)),
    ):
        if top >= count:
            raise ValueError(f"{name}.{field} must be below {count}, not {top}")


def _matches(values: Any, name: str) -> Ints:
    matches = readable(values, name)
    if matches.ndim != 1 or not matches.size or matches.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be one integer for each chunk, not {matches.dtype} of shape"
            f" {matches.shape}"
        )
    return np.ascontiguousarray(matches, dtype=np.int64)


def _checked_params(params: Any) -> SubstitutionParams:
    if not isinstance(params, SubstitutionParams):
        raise ValueError(
            f"params must be a vcs_numba.SubstitutionParams, not {type(params).__name__}"
        )
    return params
