"""`substitution` and `strict`, against the formula of section 15 in plain Python."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from support.plain_python import printed_with_and_without_numba
from support.word_oracle import Oracle, drawn_pair, drawn_vocabulary, drawn_words
from vcs_numba import (
    Scores,
    Substitution,
    SubstitutionParams,
    Vocabulary,
    WordPair,
    Words,
    strict,
    strict_cap,
    substitution,
    substitution_batch,
)
from vcs_numba.jit.kernel import numba_config

DEFAULT = SubstitutionParams()


def changed(given: Words, **changes: Any) -> Words:
    """Words with other values of some fields, of any type."""
    return replace(given, **changes)


def vocabulary_of(vectors: Any, excluding: Any) -> Vocabulary:
    """A vocabulary of arrays of any type."""
    return Vocabulary(vectors, excluding)


def numbers(result: Substitution) -> list[float]:
    """All numbers of a result, for comparing bits."""
    values = [
        getattr(result, field.name) for field in fields(result) if field.name not in ("gen", "ref")
    ]
    for side in (result.gen, result.ref):
        values += [value for column in side for value in column.tolist()]
    return [float(value).hex() for value in values]  # type: ignore[misc]


def check(
    pair: WordPair, vocabulary: Vocabulary, params: SubstitutionParams = DEFAULT
) -> Substitution:
    result = substitution(*pair, vocabulary, params)
    expected = Oracle(pair, vocabulary, params).result()
    shares = [result.thing, result.action, result.quality, result.name]
    assert shares == pytest.approx(expected["shares"], rel=0, abs=1e-12)
    assert result.substitution == pytest.approx(expected["substitution"], rel=0, abs=1e-12)
    for side, rows in ((result.gen, expected["gen"]), (result.ref, expected["ref"])):
        columns = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        np.testing.assert_array_equal(side.partner, columns[0])
        np.testing.assert_allclose(side.weight, columns[1], rtol=0, atol=1e-14)
        np.testing.assert_allclose(side.similarity, columns[2], rtol=0, atol=1e-14)
        np.testing.assert_array_equal(side.word_class, columns[3])
    return result


@pytest.mark.parametrize("seed", range(40))
def test_numbers_are_those_of_the_definition(seed: int) -> None:
    draw = np.random.default_rng(seed)
    vocabulary = drawn_vocabulary(draw)
    check(drawn_pair(draw), vocabulary)
    check(drawn_pair(draw), vocabulary, drawn_params(draw))


def drawn_params(draw: np.random.Generator) -> SubstitutionParams:
    low, high = np.sort(draw.uniform(-0.5, 1, 2))
    reaches = np.sort(draw.integers(0, 3, 2))[::-1]
    values = (
        low,
        high,
        *reaches,
        *draw.random(2),
        draw.uniform(1, 20),
        draw.uniform(0, 2),
        draw.random(),
    )
    return SubstitutionParams(*values)


@pytest.mark.parametrize("counts", [(0, 0), (0, 7), (7, 0), (1, 1), (90, 80), (70, 3)])
@pytest.mark.parametrize("chunks", [(1, 1), (1, 4), (3, 40)])
def test_empty_long_and_single_chunk_texts(
    counts: tuple[int, int], chunks: tuple[int, int]
) -> None:
    draw = np.random.default_rng(5)
    result = check(drawn_pair(draw, counts, chunks), drawn_vocabulary(draw))
    if not all(counts):
        assert result.substitution == 0.0
        assert (result.gen.partner == -1).all()


def words(
    vectors: list[int], chunk: list[int] | None = None, group: int = 1, **changes: Any
) -> Words:
    """Words whose stems are their vectors."""
    count = len(vectors)
    logs = np.where(np.arange(3) == min(group, 2), 0.0, -5.0) * np.ones((count, 1))
    off = np.zeros(count, dtype=bool)
    given = {
        "name": off,
        "negated": off,
        "exclusion": np.zeros(count, dtype=int),
        "log_class": logs,
        **changes,
    }
    return Words(vectors, vectors, chunk or [0] * count, **given)  # type: ignore[arg-type]


#: Every type is another direction: words are the same, or have no similarity.
PLAIN = vocabulary_of(np.eye(40), np.pad(~np.eye(2, dtype=bool), (1, 0)))


def test_a_replaced_word_is_named_with_its_partner() -> None:
    result = check(WordPair(words([1, 2, 3]), words([1, 4, 3]), [0], [0]), PLAIN)
    assert result.gen.partner.tolist() == result.ref.partner.tolist() == [-1, 1, -1]
    assert result.gen.weight[1] == 1.0
    assert result.gen.similarity[1] == 0.0
    assert result.action == result.substitution == 1 / 8
    everything = check(
        WordPair(words(list(range(16))), words(list(range(16, 32))), [0], [0]), PLAIN
    )
    assert everything.substitution > 0.25
    heavy = replace(DEFAULT, thing_weight=9.0)
    things = words([1, 2], group=0), words([3, 4], group=0)
    assert check(WordPair(*things, [0], [0]), PLAIN, heavy).substitution == 1.0
    assert np.isnan(result.gen.similarity[0])


@pytest.mark.parametrize(("gen", "ref"), [([1, 2, 3, 4, 5], [1, 2, 3]), ([1, 3], [1, 2, 3, 4])])
def test_added_and_left_out_words_do_not_count(gen: list[int], ref: list[int]) -> None:
    assert check(WordPair(words(gen), words(ref), [0], [0]), PLAIN).substitution == 0.0


def test_words_that_exclude_each_other_are_another_word_whatever_their_vectors() -> None:
    vocabulary = vocabulary_of(np.ones((2, 1)), PLAIN.excluding)
    left, right = words([0], exclusion=[1]), words([1], exclusion=[2])
    assert check(WordPair(left, words([1]), [0], [0]), vocabulary).substitution == 0.0
    result = check(WordPair(left, right, [0], [0]), vocabulary)
    assert result.gen.similarity.tolist() == [-1.0]
    assert result.substitution == 1 / 8
    every = PLAIN.excluding.copy()
    every[1, 1] = True  # one code for many words, of which equal ones exclude nothing
    equal = words([0, 1], exclusion=[1, 1])
    assert (
        check(
            WordPair(equal, equal, [0], [0]), vocabulary_of(vocabulary.vectors, every)
        ).gen.weight.max()
        == 0.0
    )


def test_words_that_exclude_each_other_need_neither_a_class_nor_a_place_in_common() -> None:
    gen = words([3, 1, 5], exclusion=[0, 1, 0])
    ref = changed(words([6, 2, 7], exclusion=[0, 2, 0]), log_class=[[0, -9, -9]] * 3)
    assert check(WordPair(gen, ref, [0], [0]), PLAIN).gen.partner.tolist() == [-1, 1, -1]


def test_neighbours_that_are_both_replaced_are_not_paired_crosswise() -> None:
    """As in "a man opens the red door" and "a man slams the blue door"."""
    classes = np.where(np.arange(3) == [[0], [1], [2], [0]], 0.0, -5.0)
    gen = words([1, 2, 3, 4], exclusion=[0, 0, 1, 0], log_class=classes)
    ref = words([1, 5, 6, 4], exclusion=[0, 0, 2, 0], log_class=classes)
    for own, other in (
        (gen, ref),
        (changed(gen, exclusion=[0] * 4), changed(ref, exclusion=[0] * 4)),
    ):
        result = check(WordPair(own, other, [0], [0]), PLAIN)
        assert result.gen.partner.tolist() == result.ref.partner.tolist() == [-1, 1, 2, -1]


def test_a_negated_word_replaces_the_same_word() -> None:
    result = check(WordPair(words([1, 2], negated=[False, True]), words([1, 2]), [0], [0]), PLAIN)
    assert result.gen.partner.tolist() == [-1, 1]
    assert result.gen.similarity[1] == -1.0


def test_a_word_of_a_list_must_be_found_in_the_matched_chunk_itself() -> None:
    ref = words([1, 2, 3, 9], [0, 0, 1, 1])
    gen = words([1, 9, 3, 4], [0, 0, 1, 1])
    assert check(WordPair(gen, ref, [0, 1], [0, 1]), PLAIN).gen.partner.tolist() == [-1, -1, -1, -1]
    listed = changed(gen, exclusion=[0, 1, 0, 0])
    assert check(WordPair(listed, ref, [0, 1], [0, 1]), PLAIN).gen.partner.tolist() == [
        -1,
        1,
        -1,
        3,
    ]


def test_among_equal_partners_the_first_wins() -> None:
    params = replace(DEFAULT, context_weight=0.0)
    result = check(WordPair(words([1, 2]), words([3, 4, 5]), [0], [0]), PLAIN, params)
    assert result.gen.partner.tolist() == [0, 0]
    assert result.ref.partner.tolist() == [0, 0, 0]


def test_a_name_stays_a_name_and_a_class_is_that_of_both_words() -> None:
    names = words([1, 2, 3], name=[False, True, False])
    other = check(WordPair(words([1, 4, 3]), names, [0], [0]), PLAIN)
    assert other.substitution == 0.0  # an action in the place of a name
    result = check(WordPair(words([1, 4, 3], name=[False, True, False]), names, [0], [0]), PLAIN)
    assert (result.name, result.action) == (1 / 8, 0.0)
    # Things, which outvote unsure actions.
    sure = changed(words([1, 4, 3]), log_class=[[0, -9, -9]] * 3)
    unsure = changed(words([1, 5, 3]), log_class=[[-1, -0.5, -9]] * 3)
    result = check(WordPair(sure, unsure, [0], [0]), PLAIN)
    assert result.thing == 1 / 8
    assert result.substitution == pytest.approx(1.3 / 8, abs=1e-15)
    assert result.ref.word_class.tolist() == [1, 0, 1]


def test_batched_equals_single_to_the_bit() -> None:
    draw = np.random.default_rng(8)
    vocabulary = drawn_vocabulary(draw)
    pairs = [drawn_pair(draw) for _ in range(60)]
    batch = substitution_batch(pairs, vocabulary)
    assert [numbers(result) for result in batch] == [
        numbers(substitution(*pair, vocabulary)) for pair in pairs
    ]
    assert len({result.substitution for result in batch}) > 15
    assert substitution_batch([], vocabulary) == []


def test_a_result_depends_neither_on_the_table_of_vectors_nor_on_forms_of_arrays() -> None:
    draw = np.random.default_rng(9)
    vocabulary = drawn_vocabulary(draw)
    pair = drawn_pair(draw, (30, 30))
    order = draw.permutation(len(vocabulary.vectors))
    moved = vocabulary_of(
        np.asfortranarray(vocabulary.vectors[order]), vocabulary.excluding.astype(bool).T
    )
    places = np.argsort(order)
    gen, ref = (changed(side, vector=places[side.vector].astype(np.int64)) for side in pair[:2])
    gen = changed(gen, log_class=gen.log_class + 7.0, stem=np.repeat(gen.stem, 2)[::2])
    strided = np.repeat(np.asarray(pair.ref_match), 2)[::2]
    again = substitution(gen, ref, np.asarray(pair.gen_match).tolist(), strided, moved)
    assert numbers(again) == numbers(substitution(*pair, vocabulary))


@pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="is the inner run")
def test_plain_python_gives_the_same_bits() -> None:
    script = (
        "import sys; sys.path[:0] = ['tests/lib', 'tests/core']\n"
        "import numpy as np\nfrom support.word_oracle import drawn_pair, drawn_vocabulary\n"
        "from vcs_numba import substitution\nfrom test_substitution import numbers\n"
        "draw = np.random.default_rng(4)\nvocabulary = drawn_vocabulary(draw)\n"
        "print([numbers(substitution(*drawn_pair(draw), vocabulary)) for _ in range(12)])"
    )
    compiled, plain = printed_with_and_without_numba(script)
    assert compiled == plain != ""


@pytest.mark.parametrize(
    ("vcs", "margin", "las", "share", "expected"),
    [
        (0.9, 0.8, 0.9, 0.25, (0.9, 0.8)),  # what valid rewrites reach
        (0.9, 0.8, 0.9, 0.35, (0.4, 0.4)),
        (0.5, 0.1, 0.5, 0.325, (0.5, 0.1)),  # the scores say worse already
        (0.9, 0.8, 0.9, 1.0, (0.0, -1.0)),
        (0.0, -0.6, 0.5, 0.0, (0.0, -0.875)),  # below 0 LAS caps the margin
        (0.0, -0.05, 0.5, 0.0, (0.0, -0.4375)),
        (0.0, -0.6, 0.8, 0.0, (0.0, -0.6)),
        (0.0, -0.6, -0.5, 0.0, (0.0, -1.0)),
    ],
)
def test_strict_scores_are_capped(
    vcs: float, margin: float, las: float, share: float, expected: tuple[float, float]
) -> None:
    assert strict(scores(vcs, margin, las), share) == pytest.approx(expected, abs=1e-15)
    assert strict_cap(0.3, replace(DEFAULT, allowance=0.1, slope=2.0)) == pytest.approx(0.6)


def scores(vcs: float, margin: float, las: float) -> Scores:
    return Scores(*[0.0] * len(Scores._fields))._replace(vcs=vcs, margin=margin, las=las)


def test_words_with_only_a_similar_counterpart_take_something_off() -> None:
    near = np.eye(40)
    near[20] = 0.8 * near[0] + 0.6 * near[21]  # a type that is similar to another
    vocabulary = vocabulary_of(near, PLAIN.excluding)
    ref = words([0, 1, 2, 3, *range(4, 16)])
    plain, reworded = (
        check(WordPair(words([*first, *range(28, 40)]), ref, [0], [0]), vocabulary)
        for first in ([0, 1, 2, 3], [20, 1, 2, 3])
    )
    assert plain.action == reworded.action
    assert plain.substitution - reworded.substitution == pytest.approx(4 / 16)


def test_constants_are_checked_and_survive_pickling() -> None:
    assert pickle.loads(pickle.dumps(DEFAULT)) == DEFAULT == SubstitutionParams(least_mass=8)
    for name, value, match in [
        ("low", 0.55, "^high must be greater than low"),
        ("high", 1.5, "^high must be between -1 and 1"),
        ("least_mass", 0, "^least_mass must be greater than 0"),
        ("slope", float("nan"), "^slope must be finite"),
        ("thing_weight", True, "^thing_weight must be a number"),
        ("context_weight", -0.1, "^context_weight must be between 0 and 1"),
        ("found_reach", -1, "^found_reach must be at least 0"),
        ("pair_reach", 2, "^pair_reach must be at most found_reach"),
    ]:
        with pytest.raises(ValueError, match=match):
            SubstitutionParams(**{name: value})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"stem": [1, -2]}, "^stem: ids must be at least 0"),
        ({"stem": [1, 2**31]}, "^stem: ids must be at least 0 and fit into int32"),
        ({"vector": [1.0, 2.0]}, "^vector must be integers"),
        ({"vector": [1, 2, 3]}, "^vector: 3 words, but stem has 2"),
        ({"chunk": [1, 0]}, "^chunk must be in ascending order"),
        ({"chunk": [[0, 0]]}, "^chunk must have 1 axes"),
        ({"log_class": np.zeros((2, 4))}, "^log_class must have 3 columns"),
        ({"log_class": np.full((2, 3), np.nan)}, "^log_class: holds NaN"),
        ({"name": [0, 1]}, "^name must be true and false"),
        ({"negated": [True]}, "^negated: 1 words"),
    ],
)
def test_bad_words_are_named(change: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        changed(words([1, 2]), **change)


def test_bad_vocabularies_are_named() -> None:
    for vectors, excluding, match in [
        (2 * np.eye(3), PLAIN.excluding, "^vectors: row 0 has the length 2"),
        (np.diag([1, 1e300]), PLAIN.excluding, "^vectors: the values of row 1 are too large"),
        (np.full((2, 2), np.inf), PLAIN.excluding, "^vectors: .*row 0"),
        (np.eye(3)[0], PLAIN.excluding, "^vectors must have 2 axes"),
        (np.eye(3), np.triu(np.ones((3, 3), bool), 1), "^excluding must be a symmetric"),
        (np.eye(3), np.ones((3, 3), bool), "^excluding: row 0"),
        (np.eye(3), np.zeros((0, 0), bool), "^excluding: row 0"),
        (np.eye(3), np.eye(3), "^excluding must be true and false"),
    ]:
        with pytest.raises(ValueError, match=match):
            vocabulary_of(vectors, excluding)
    nothing = words([])
    assert (
        substitution(
            nothing, nothing, [0], [0], vocabulary_of(np.zeros((0, 4)), PLAIN.excluding)
        ).thing
        == 0.0
    )


@pytest.mark.parametrize(
    ("gen", "gen_match", "ref_match", "match"),
    [
        (words([1]), [1], [0], "gen_match: a match is not the number of one of the other text's 1"),
        (words([1]), [0], [-1], "ref_match: a match is not the number of"),
        (words([1]), [0.0], [0], "gen_match must be one integer for each chunk"),
        (words([1]), [], [0], "gen_match must be one integer for each chunk"),
        (words([1], [1]), [0], [0], r"gen.chunk must be below 1, not 1"),
        (words([40]), [0], [0], r"gen.vector must be below 40, not 40"),
        (words([1], exclusion=[3]), [0], [0], r"gen.exclusion must be below 3, not 3"),
        ("text", [0], [0], "gen must be a vcs_numba.Words"),
    ],
)
def test_arguments_that_do_not_fit_are_named(
    gen: Any, gen_match: Any, ref_match: Any, match: str
) -> None:
    with pytest.raises(ValueError, match=f"^{match}"):
        substitution(gen, words([1]), gen_match, ref_match, PLAIN)
    good = WordPair(words([1]), words([1]), [0], [0])
    with pytest.raises(ValueError, match=rf"^pairs\[1\]\.{match}"):
        substitution_batch([good, WordPair(gen, words([1]), gen_match, ref_match)], PLAIN)


def test_other_types_and_values_are_refused() -> None:
    one = words([1])
    with pytest.raises(ValueError, match="^vocabulary must be"):
        substitution(one, one, [0], [0], None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="^params must be"):
        substitution(one, one, [0], [0], PLAIN, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="^substitution must be between 0 and 1"):
        strict(scores(0.5, 0.5, 0.5), 1.5)
    with pytest.raises(ValueError, match="^margin must be a finite number"):
        strict(scores(0.5, float("nan"), 0.5), 0.5)


def test_long_runs_of_words_keep_their_order_across_blocks() -> None:
    draw = np.random.default_rng(2)
    long = drawn_words(draw, 200, 2)
    check(WordPair(drawn_words(draw, 12, 2), long, [0, 1], [0, 1]), drawn_vocabulary(draw))


@pytest.mark.parametrize("place", [62, 63, 64, 65])
def test_neighbours_count_across_blocks_of_a_long_chunk(place: int) -> None:
    ref = list(range(70))
    gen = ref.copy()
    gen[place] = 70
    vocabulary = vocabulary_of(np.eye(71), PLAIN.excluding)
    result = substitution(words(gen), words(ref), [0], [0], vocabulary)
    assert result.gen.partner[place] == place
    assert result.gen.weight.sum() == 1.0
