"""Batches cut by token budget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS, PADDING_STEP, POOL_GROUP, padded_length
from vcs_runtime.inference.batching import batches, groups, mixed_groups, width_step
from vcs_runtime.inference.tokenizer import cut_windows

SEQUENCES = st.lists(st.lists(st.integers(1, 9), max_size=40), max_size=30)


@given(SEQUENCES, st.integers(1, 200))
def test_every_sequence_is_in_one_batch_unchanged(sequences: list[list[int]], budget: int) -> None:
    seen = []
    for batch in batches(sequences, budget):
        both = batch.inputs["input_ids"], batch.inputs["attention_mask"]
        assert both[0].shape == both[1].shape
        assert both[0].dtype == both[1].dtype == np.int64
        for row, ids, mask in zip(batch.rows, *both, strict=True):
            assert ids[mask == 1].tolist() == sequences[row]
            assert mask.sum() == len(sequences[row])
        seen += batch.rows
    assert sorted(seen) == list(range(len(sequences)))


@given(SEQUENCES, st.integers(1, 200))
def test_batches_keep_to_the_budget_unless_one_sequence_exceeds_it(
    sequences: list[list[int]], budget: int
) -> None:
    for batch in batches(sequences, budget):
        assert batch.inputs["input_ids"].size <= budget or len(batch.rows) == 1


@given(SEQUENCES, SEQUENCES)
def test_the_padded_length_of_a_sequence_depends_on_itself_alone(
    some: list[list[int]], others: list[list[int]]
) -> None:
    for batch in batches(some + others, 10_000):
        for row in batch.rows:
            assert batch.inputs["input_ids"].shape[1] == padded_length(len((some + others)[row]))


@given(st.integers(0, 1000))
def test_padding_is_below_one_step(tokens: int) -> None:
    assert max(tokens, 1) <= padded_length(tokens) < max(tokens, 1) + PADDING_STEP
    assert padded_length(tokens) % PADDING_STEP == 0


@given(st.lists(st.integers(), max_size=300), st.integers(1, 50))
def test_windows_are_the_fewest_of_nearly_equal_length(ids: list[int], limit: int) -> None:
    windows = cut_windows(ids, limit)
    assert sum(windows, []) == ids
    assert len(windows) == max(1, -(-len(ids) // limit))
    lengths = [len(window) for window in windows]
    assert max(lengths) <= limit
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize(
    ("layout", "a_token", "small"), [("packed", 2, 4096), ("varlen", 16, 65536)]
)
@given(lengths=st.lists(st.integers(1, 900), max_size=60), budget=st.integers(1, 20_000))
def test_a_batch_without_padded_rows_has_few_places_or_a_number_for_each_of_its_tokens(
    layout: str, a_token: int, small: int, lengths: list[int], budget: int
) -> None:
    seen = []
    for rows, width in mixed_groups(lengths, budget, layout):
        tokens = sum(lengths[row] for row in rows)
        assert width == max(lengths[row] for row in rows)
        assert len(rows) == 1 or tokens <= budget
        assert len(rows) == 1 or len(rows) * width <= max(small, a_token * tokens)
        seen += rows
    assert sorted(seen) == list(range(len(lengths)))


def test_one_pair_is_one_varlen_batch_without_padding() -> None:
    pair = [[5] * 600] * 2 + [[6] * 26] * 46
    [batch] = batches(pair, 16384, "varlen", mixed=True)
    assert len(batch.inputs["input_ids"]) == sum(map(len, pair))


@given(
    st.lists(st.lists(st.integers(1, 9), min_size=4, max_size=60), min_size=1, max_size=20),
    st.integers(0, 3),
)
def test_a_varlen_batch_says_where_texts_and_their_pooled_tokens_lie(
    sequences: list[list[int]], skip: int
) -> None:
    [batch] = batches(sequences, 10_000, "varlen", skip, mixed=True)
    inputs = batch.inputs
    assert tuple(inputs) == EMBEDDER_INPUTS["varlen"]
    assert {array.dtype for array in inputs.values()} == {np.dtype(np.int64)}
    assert inputs["pool"].shape == (len(inputs["owners"]), POOL_GROUP)
    flat = inputs["input_ids"]
    padded = np.zeros(inputs["places"].size, np.int64)
    padded[inputs["places"].ravel()[: len(flat)]] = flat
    for number, row in enumerate(batch.rows):
        ids = sequences[row]
        first, last = inputs["starts"][number : number + 2]
        assert flat[first:last].tolist() == ids
        assert inputs["positions"][first:last].tolist() == list(range(len(ids)))
        assert padded.reshape(inputs["places"].shape)[number, : len(ids)].tolist() == ids
        mine = inputs["pool"][inputs["owners"] == number]
        assert mine[mine >= 0].tolist() == list(range(first + skip, last))
        assert len(mine) == -(-(len(ids) - skip) // POOL_GROUP)
        assert inputs["counts"][number] == len(ids) - skip
    assert sorted(inputs["places"].ravel()) == list(range(inputs["places"].size))


def test_the_texts_of_one_pair_are_not_padded_to_more_places_than_a_full_batch() -> None:
    """Two texts of 600 tokens and their 46 sentences: 28,800 places if they share one batch."""
    pair = [600] * 2 + [26] * 46
    assert sum(len(rows) * width for rows, width in mixed_groups(pair, 16384, "packed")) < 2 * sum(
        pair
    )


@given(st.lists(st.integers(0, 600), min_size=1, max_size=60), st.sampled_from([4, 8]))
def test_padded_widths_of_mixed_lengths_are_multiples_of_the_step(
    lengths: list[int], step: int
) -> None:
    """The CUDA provider has no fused attention for other widths."""
    for rows, width in mixed_groups(lengths, 4096, "padded", step=step):
        assert width % step == 0
        assert width - step < max(1, *(lengths[row] for row in rows)) <= width
    for layout, name in (("padded", "input_ids"), ("packed", "gather")):
        for batch in batches(
            [[1] * length for length in lengths], 4096, layout, mixed=True, step=step
        ):
            assert batch.inputs[name].shape[1] % step == 0


def test_packed_texts_of_one_length_have_no_padding() -> None:
    for batch in batches([[1] * 5] * 4 + [[1] * 6] * 2, 4096, "packed"):
        assert batch.inputs["gather"].size == batch.inputs["input_ids"].size
        assert batch.fillers == 0


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_packed_batches_of_one_length_have_even_numbers_of_rows_at_the_price_of_two_tokens(
    lengths: list[int],
) -> None:
    for batch in batches([[1] * length for length in lengths], 400, "packed"):
        tokens, texts = len(batch.inputs["input_ids"]), len(batch.inputs["lengths"])
        assert (tokens % 2, texts % 2) == (0, 0)
        assert texts == len(batch.rows) + batch.fillers
        assert tokens - sum(lengths[row] for row in batch.rows) <= 2


def test_providers_get_their_wider_steps_where_the_models_positions_reach() -> None:
    providers = ("ort-cpu", "ort-cuda", "tensorrt-rtx", "openvino")
    assert [width_step(provider, 510) for provider in providers] == [4, 4, 8, 16]
    assert [width_step(provider, 514) for provider in providers] == [4, 4, 4, 4]


@given(st.lists(st.integers(0, 600), max_size=60), st.integers(1, 9000), st.integers(1, 20))
def test_a_padded_batch_of_mixed_lengths_is_small_or_hardly_padded(
    lengths: list[int], budget: int, most: int
) -> None:
    seen: list[int] = []
    for rows, width in mixed_groups(lengths, budget, "padded", lambda length: most):
        places, tokens = len(rows) * width, sum(lengths[row] for row in rows)
        assert len(rows) <= most
        assert len(rows) == 1 or (places <= budget and places <= max(2048, 1.25 * tokens))
        seen += rows
    assert sorted(seen) == list(range(len(lengths)))


def test_a_batch_has_the_inputs_of_its_layout() -> None:
    for layout, names in EMBEDDER_INPUTS.items():
        [batch] = batches([[1, 2]], 100, layout)
        assert tuple(batch.inputs) == names


def test_the_longest_sequences_come_first_and_equal_lengths_keep_their_order() -> None:
    lengths = [3, 9, 3, 12, 1, 9]
    assert list(groups(lengths, 1000)) == [([3, 1, 5], 12), ([0, 2, 4], 4)]
    assert list(groups(lengths, 24)) == [([3, 1], 12), ([5], 12), ([0, 2, 4], 4)]
    assert list(mixed_groups(lengths, 20, "padded")) == [([3], 12), ([1, 5], 9), ([0, 2, 4], 3)]
