"""Batches of fixed shapes: the same shapes, and the same vectors to the bit, in any company."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import stand_in
from support.stories import story, stripped
from support.tiny_layouts import build_layout_bundle
from vcs_runtime import Embedder, Scorer, Segmenter
from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS
from vcs_runtime.errors import DeviceMemoryError
from vcs_runtime.inference.batching import RUN_TOKENS, fixed_batches, fixed_groups, fixed_shapes

LAYOUTS = ["padded", "packed"]
TEXTS = [" ".join((story(i) + " " + story(i + 1)).split()[: 1 + i % 28]) for i in range(60)]
LENGTHS = st.lists(
    st.one_of(st.integers(1, 80), st.integers(1, 1100), st.integers(1, 9000)),
    min_size=1,
    max_size=80,
)


@given(LENGTHS, st.sampled_from(sorted(EMBEDDER_INPUTS)), st.integers(1, 200), st.integers(1, 9000))
def test_every_text_is_in_one_run_whose_shape_depends_on_the_text_alone(
    lengths: list[int], layout: str, most: int, longest: int
) -> None:
    lengths = [min(length, longest) for length in lengths]
    shape_of = fixed_shapes(layout, longest, lambda width: most)
    seen: list[int] = []
    for texts, shape in fixed_groups(lengths, shape_of):
        tokens = sum(lengths[text] for text in texts)
        fillers = shape.fillers([lengths[text] for text in texts])
        assert {shape_of(lengths[text]) for text in texts} == {shape}
        assert max(lengths[text] for text in texts) <= shape.width
        assert len(texts) + len(fillers) == shape.rows
        assert all(1 <= length <= shape.width for length in fillers)
        if layout == "padded":
            assert shape.rows <= most
        else:
            assert tokens + sum(fillers) == shape.tokens
            assert shape.width <= longest, "a filler would have places beyond the model's"
        seen += texts
    assert sorted(seen) == list(range(len(lengths)))


@given(LENGTHS, LENGTHS, st.sampled_from(sorted(EMBEDDER_INPUTS)), st.integers(0, 1))
def test_the_inputs_of_a_text_have_the_same_shapes_alone_and_among_others(
    lengths: list[int], others: list[int], layout: str, skip: int
) -> None:
    def shapes(of: list[int]) -> dict[int, Any]:
        sequences = [[7] * max(2, length) for length in of]
        shape_of = fixed_shapes(layout, 9000, lambda width: 4096)
        return {
            row: {name: array.shape for name, array in batch.inputs.items()}
            for batch in fixed_batches(sequences, shape_of, layout, skip)
            for row in batch.rows
        }

    among = shapes(lengths + others)
    assert shapes(lengths[:1])[0] == among[0]


def test_two_shapes_take_all_usual_texts_and_one_run_is_never_long() -> None:
    shape_of = fixed_shapes("varlen", 32768, lambda width: 1)
    assert len({shape_of(length) for length in range(1, RUN_TOKENS // 2 + 1)}) == 2
    assert all(
        shape_of(length).tokens <= max(RUN_TOKENS, length + 1088) for length in range(1, 20_000, 7)
    )


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> stand_in.Machine:
    return stand_in.put_in(monkeypatch)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_vector_is_the_same_to_the_bit_alone_and_among_others(
    tmp_path: Path, machine: stand_in.Machine, layout: str
) -> None:
    """As the stand-in's processor computes them, with the inputs that a GPU would get."""
    bundle = build_layout_bundle(tmp_path / layout, layout)
    with Embedder.open(bundle, "cpu") as cpu:
        exact = cpu.embed(TEXTS)
    with Embedder.open(bundle, "cuda:0", batch_invariant=True) as gpu:
        among = gpu.embed(TEXTS)
        shapes = {shape for shape, _ in machine.runs}
        order = random.Random(0).sample(range(len(TEXTS)), 20)
        np.testing.assert_array_equal(gpu.embed([TEXTS[i] for i in order]), among[order])
        for i in (0, 5, 27):
            np.testing.assert_array_equal(gpu.embed([TEXTS[i]])[0], among[i])
        assert {shape for shape, _ in machine.runs} == shapes
        assert gpu.signature_fields[-2:] == ("engine:ort-cuda", "batch:invariant")
        with Embedder.open(bundle, "cuda:0") as other:
            assert other.cache_identity != gpu.cache_identity
            assert "batch:invariant" not in other.signature_fields
    np.testing.assert_allclose(among, exact, atol=2e-6)


def test_a_split_is_the_same_to_the_bit_alone_and_among_others(
    sat_bundle: Path, machine: stand_in.Machine
) -> None:
    texts = [stripped(i, 1 + i % 9) for i in range(30)]
    with Segmenter.open(sat_bundle, "cpu") as cpu:
        exact = cpu.boundary_probabilities(texts)
    with Segmenter.open(sat_bundle, "cuda:0:fp32", batch_invariant=True) as gpu:
        machine.runs.clear()
        among = gpu.boundary_probabilities(texts)
        shapes = {shape for shape, _ in machine.runs}
        for i, text in enumerate(texts):
            np.testing.assert_array_equal(gpu.boundary_probabilities([text])[0], among[i])
            np.testing.assert_allclose(among[i], exact[i], atol=1e-5)
        assert {shape for shape, _ in machine.runs} == shapes


def test_on_a_processor_it_changes_nothing(tiny_bundle: Path) -> None:
    with (
        Scorer.open(tiny_bundle, "cpu") as usual,
        Scorer.open(tiny_bundle, "cpu", batch_invariant=True) as fixed,
    ):
        assert usual.signature == fixed.signature
        assert usual.embedder.cache_identity == fixed.embedder.cache_identity


def test_a_score_says_that_it_does_not_depend_on_its_batch(
    tiny_bundle: Path, machine: stand_in.Machine
) -> None:
    with Scorer.open(tiny_bundle, "cuda:0", batch_invariant=True) as scorer:
        assert re.search(
            r"\|engine:ort-cuda@\w{4}\|batch:invariant\|v:",
            scorer.score(story(1), story(2)).signature,
        )


def test_a_batch_of_a_fixed_shape_is_not_halved(tmp_path: Path, machine: stand_in.Machine) -> None:
    def fail(inputs: dict[str, Any]) -> None:
        raise RuntimeError("Failed to allocate memory for requested buffer of size 9")

    bundle = build_layout_bundle(tmp_path / "b", "packed")
    with Embedder.open(bundle, "cuda:0", batch_invariant=True) as embedder:
        machine.before = fail
        with pytest.raises(
            DeviceMemoryError, match="allow more memory, or leave out --batch-invariant"
        ):
            embedder.embed(TEXTS)
    assert len(machine.runs) == 1
