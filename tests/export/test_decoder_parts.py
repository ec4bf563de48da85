"""Each part that only some decoders have is computed as published, in the graph for a CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from support.matrix import matrix
from support.random_decoder import (
    GEMMA,
    LLAMA3,
    PARTS,
    RandomDecoder,
    random_rows,
    write_random_decoder,
)
from vcs_export.checkpoint.decoder import LocalAttention, Rotation
from vcs_export.graph.attention_layouts import rotation_tables
from vcs_export.graph.decoder_model import write_decoder_model
from vcs_runtime.inference.batching import batches

POOLINGS = ["mean", "last"]
# Texts shorter and longer than windows, some of one padded length and some not.
ROWS = random_rows(1, 2, 5, 6, 7, 17, 18, 20, 33, 64)
# What the model is without a part, where that is not the default.
WITHOUT: dict[str, Any] = {
    "local": None,
    "rope_scaling": None,
    "activation": "silu",
    "attention_scale": None,
}


def opened(decoder: RandomDecoder, pooling: str, precision: str = "fp32") -> Any:
    model = decoder.folder / f"{pooling}-{precision}.onnx"
    write_decoder_model(decoder.model(pooling), model, precision, link=False)
    return ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])


def run(session: Any, rows: list[list[int]], skip: int = 0, **how: Any) -> NDArray[np.float32]:
    vectors = {}
    for batch in batches(rows, 512, "packed", skip, **how):
        [found] = session.run(None, batch.inputs)
        assert len(found) == len(batch.rows) + batch.fillers
        vectors |= dict(zip(batch.rows, found, strict=False))
    return np.array([vectors[row] for row in range(len(rows))])


@matrix("part, pooling", [*PARTS, "Gemma"], POOLINGS)
def test_each_part_is_as_published(tmp_path: Path, part: str, pooling: str) -> None:
    decoder = write_random_decoder(tmp_path, **(GEMMA if part == "Gemma" else PARTS[part]))
    session = opened(decoder, pooling)
    want = decoder.vectors(ROWS, pooling)
    np.testing.assert_allclose(run(session, ROWS), want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(run(session, ROWS, mixed=True), want, rtol=0, atol=1e-5)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "nothing"])
def test_the_comparison_would_notice_a_part_that_is_missing(tmp_path: Path, part: str) -> None:
    changed = PARTS[part]
    decoder = write_random_decoder(tmp_path, **changed)
    plain = vars(write_random_decoder(tmp_path / "plain").config)
    for name in changed:
        without = decoder.vectors(ROWS[-1:], "last", **{name: plain[name]})
        assert np.abs(without - decoder.vectors(ROWS[-1:], "last")).max() > 1e-2, name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("reach", [4, 6])
def test_a_window_has_its_reach_to_the_token(tmp_path: Path, causal: bool, reach: int) -> None:
    decoder = write_random_decoder(tmp_path, causal=causal, local=PARTS["windows"]["local"])
    window = LocalAttention((True, False, True), reach, Rotation(100.0))
    other = decoder.vectors(ROWS[-1:], "last", local=window)
    assert np.abs(other - decoder.vectors(ROWS[-1:], "last")).max() > 1e-3


def test_tokens_of_an_instruction_are_not_pooled(tmp_path: Path) -> None:
    decoder = write_random_decoder(tmp_path, **GEMMA)
    rows = [row for row in ROWS if len(row) > 3]
    got = run(opened(decoder, "mean"), rows, 3)
    np.testing.assert_allclose(got, decoder.vectors(rows, "mean", 3), rtol=0, atol=1e-5)


@matrix("part, pooling", ["causal", "windows", "Gemma"], POOLINGS)
def test_a_text_alone_has_the_bits_that_it_has_in_a_batch(
    tmp_path: Path, part: str, pooling: str
) -> None:
    decoder = write_random_decoder(tmp_path, **(GEMMA if part == "Gemma" else PARTS[part]))
    session = opened(decoder, pooling)
    alone = np.concatenate([run(session, [row]) for row in ROWS])
    assert np.array_equal(run(session, ROWS), alone)


@pytest.mark.parametrize("part", ["causal", "causal windows", "Gemma"])
def test_the_standard_itself_computes_the_same(tmp_path: Path, part: str) -> None:
    # ONNX's own interpreter: no code of ONNX Runtime's.
    decoder = write_random_decoder(tmp_path, **(GEMMA if part == "Gemma" else PARTS[part]))
    opened(decoder, "last")
    evaluator = ReferenceEvaluator(onnx.load(tmp_path / "last-fp32.onnx"))
    rows = [ROWS[1], ROWS[-3]]
    [batch] = batches(rows, 512, "packed", mixed=True)
    got = np.asarray(evaluator.run(None, dict(batch.inputs))[0])
    np.testing.assert_allclose(
        got[np.argsort(batch.rows)], decoder.vectors(rows, "last"), rtol=0, atol=1e-5
    )


@matrix("part, precision", ["causal", "biases", "norms of heads", "windows"], ["fp16", "int8"])
def test_other_precisions_stay_near(tmp_path: Path, part: str, precision: str) -> None:
    sizes = {"hidden_size": 160, "intermediate_size": 256, "head_dim": 32}
    decoder = write_random_decoder(tmp_path, **PARTS[part], **sizes)
    got = run(opened(decoder, "mean", precision), ROWS)
    worst = np.abs(got - decoder.vectors(ROWS, "mean")).max()
    assert 1e-6 < worst < {"fp16": 5e-3, "int8": 2e-2}[precision]


def test_frequencies_by_llama_3_have_three_ranges() -> None:
    plain = rotation_tables(Rotation(10000.0), 12, 4)
    scaled = rotation_tables(Rotation(10000.0, LLAMA3), 12, 4)
    turned, slow = (np.arctan2(sines[1], cosines[1]) for cosines, sines in (plain, scaled))
    shares = slow / turned
    assert shares[0] == 1
    np.testing.assert_allclose(shares[2:], 1 / 8, rtol=1e-6)
    assert 1 / 8 < shares[1] < 1
    assert math.isclose(turned[0], 1, rel_tol=1e-6)
