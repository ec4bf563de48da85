"""NV-Embed's graph for a CPU computes the published formula, and follows from the checkpoint."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from support.checkpoints.nv_embed import VOCABULARY, write_tiny_nv_embed
from support.matrix import matrix
from support.numpy_nv_embed import embed
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.families.build import MODEL_FILE
from vcs_export.quantization.nbits import BLOCK, quantise

Inputs = dict[str, NDArray[np.int64]]
TEXTS = ["the dog runs", "a young woman opens the door and looks at the river", "two cats"]
SHAPES: list[dict[str, Any]] = [
    {},
    {"hidden": 24, "heads": 3, "groups": 1, "layers": 1, "latents": 1, "cross_heads": 1},
    {"hidden": 40, "heads": 4, "groups": 4, "intermediate": 30, "latents": 9, "cross_heads": 3},
    {"hidden": 32, "heads": 8, "groups": 2, "head_dim": 6, "layers": 3, "cross_size": 40},
]


def session(bundle: Path) -> ort.InferenceSession:
    return ort.InferenceSession(str(bundle / MODEL_FILE), providers=["CPUExecutionProvider"])


def inputs(rows: list[list[int]], skips: Iterable[int], width: int | None = None) -> Inputs:
    """One batch, whose attention is padded to `width`."""
    lengths = np.array([len(row) for row in rows], np.int64)
    ids = np.zeros((len(rows), width or lengths.max()), np.int64)
    for row, target in zip(rows, ids, strict=True):
        target[: len(row)] = row
    places = np.arange(ids.shape[1])
    mask, skip = places < lengths[:, None], np.array(list(skips), np.int64)
    scatter = np.flatnonzero(mask)
    gather = np.zeros(mask.size, np.int64)
    gather[scatter] = np.arange(scatter.size)
    return {
        "input_ids": ids.ravel()[scatter],
        "gather": gather.reshape(mask.shape),
        "scatter": scatter,
        "lengths": lengths,
        "skip": skip,
    }


def run(opened: ort.InferenceSession, given: Inputs) -> NDArray[np.float32]:
    vectors: NDArray[np.float32] = opened.run(None, given)[0]
    assert vectors.dtype == np.float32
    return vectors


def rows(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(3, len(VOCABULARY), rng.integers(1, longest + 1)).tolist()
        for _ in range(count)
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_vectors_equal_the_published_formula(tmp_path: Path, shape: dict[str, Any]) -> None:
    checkpoint = write_tiny_nv_embed(tmp_path / "checkpoint", **shape)
    opened = session(build_tiny_nv_embed_bundle(tmp_path, checkpoint=checkpoint))
    batch = [[1], *rows(6, 40), [1, 9, 2], list(range(64))]
    skips = [0, *(min(i, len(row) - 1) for i, row in enumerate(batch[1:-1])), 10]
    got = run(opened, inputs(batch, skips))
    want = [embed(checkpoint, row, skip) for row, skip in zip(batch, skips, strict=True)]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A checkpoint, and a graph of it."""
    folder = tmp_path_factory.mktemp("tiny")
    checkpoint = write_tiny_nv_embed(folder / "checkpoint")
    return {
        "checkpoint": checkpoint,
        "graph": session(build_tiny_nv_embed_bundle(folder, checkpoint=checkpoint)),
    }


def test_padding_and_company_do_not_change_vectors(tiny: dict[str, Any]) -> None:
    batch = rows(7, 30, 1)
    got = run(tiny["graph"], inputs(batch, [0] * 7, 48))
    alone = np.concatenate([run(tiny["graph"], inputs([row], [0])) for row in batch])
    np.testing.assert_allclose(got, alone, rtol=0, atol=1e-6)
    order = np.random.default_rng(2).permutation(7)
    shuffled = run(tiny["graph"], inputs([batch[i] for i in order], [0] * 7))
    np.testing.assert_allclose(shuffled, got[order], rtol=0, atol=1e-6)


def test_the_comparison_would_notice_what_matters(tiny: dict[str, Any]) -> None:
    row = rows(1, 40, 4)[0][:20]
    checkpoint = tiny["checkpoint"]
    want = embed(checkpoint, row, 5)
    given = inputs([row, row * 2], [5, 5])
    for name, wrong in {
        "padding as text": run(tiny["graph"], inputs([[*row, 0, 0, 0]], [5]))[0],
        "causal": embed(checkpoint, row, 5, causal=True),
        "instruction pooled": embed(checkpoint, row),
        "one token too many pooled": embed(checkpoint, row, 4),
        "other order": embed(checkpoint, [*row[:5], *reversed(row[5:])], 5),
    }.items():
        assert np.abs(wrong - want).max() > 1e-2, name
    np.testing.assert_allclose(run(tiny["graph"], given)[0], want, rtol=0, atol=1e-5)


def test_a_text_of_which_nothing_is_pooled_spoils_no_other(tiny: dict[str, Any]) -> None:
    got = run(tiny["graph"], inputs([[1, 9, 2], [1, 8]], [3, 0]))
    assert np.isfinite(got).all()
    np.testing.assert_allclose(got[1], embed(tiny["checkpoint"], [1, 8]), rtol=0, atol=1e-5)


@matrix("dtype, precision", ["F16", "BF16", "F32"], ["fp32", "fp16"])
def test_checkpoints_of_any_float_type_are_read(tmp_path: Path, dtype: str, precision: str) -> None:
    checkpoint = write_tiny_nv_embed(tmp_path / "checkpoint", dtype=dtype, shards=3)
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=checkpoint, precision=precision)
    batch = rows(4, 30, 5)
    got = run(session(bundle), inputs(batch, [0, 0, 0, 0]))
    tolerance = 1e-5 if precision == "fp32" else 5e-3
    np.testing.assert_allclose(
        got, [embed(checkpoint, row) for row in batch], rtol=0, atol=tolerance
    )


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_the_standard_itself_computes_the_same(tmp_path: Path, precision: str) -> None:
    # ONNX's own interpreter: the only one on a CPU for bfloat16, and no code of ONNX Runtime's.
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision=precision, weights="copy")
    evaluator = ReferenceEvaluator(onnx.load(bundle / MODEL_FILE))
    batch, skips = [list(range(3, 20)), [1, 9, 2]], [4, 0]
    got = np.asarray(evaluator.run(None, dict(inputs(batch, skips)))[0])
    want = [
        embed(tmp_path / "checkpoint", row, skip) for row, skip in zip(batch, skips, strict=True)
    ]
    tolerance = {"fp32": 1e-5, "fp16": 5e-3, "bf16": 2e-2}[precision]
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


def test_quantised_weights_stay_near(tmp_path: Path) -> None:
    # A width that blocks do not divide, so that the last one of each row is filled up.
    checkpoint = write_tiny_nv_embed(tmp_path / "checkpoint", hidden=160, intermediate=200)
    bundle = build_tiny_nv_embed_bundle(
        tmp_path, checkpoint=checkpoint, precision="int8", texts=TEXTS
    )
    batch = rows(5, 30, 6)
    opened = session(bundle)
    got = run(opened, inputs(batch, [0] * 5))
    worst = np.abs(got - [embed(checkpoint, row) for row in batch]).max()
    assert 1e-6 < worst < 0.05
    alone = np.concatenate([run(opened, inputs([row], [0])) for row in batch])
    # A CPU rounds these inputs to 8 bits: the last bit of a sum may move one by a level.
    np.testing.assert_allclose(got, alone, rtol=0, atol=0.001)


def test_stored_levels_are_what_onnx_runtime_multiplies_with() -> None:
    weight = np.random.default_rng(7).standard_normal((24, 200)).astype(np.float32)
    weight[3], weight[4, :BLOCK] = 0, np.abs(weight[4, :BLOCK])
    [(stored, scale)] = quantise([weight])
    x = ir.Value(name="x", shape=ir.Shape((None, 200)), type=ir.TensorType(ir.DataType.FLOAT))
    y = ir.Value(name="y", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape((None, 24)))
    constants = [
        ir.Value(
            name=name,
            const_value=ir.tensor(array),
            shape=ir.Shape(array.shape),
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
        )
        for name, array in (("levels", stored), ("scales", scale))
    ]
    settings = {"N": 24, "K": 200, "bits": 8, "block_size": BLOCK}
    node = ir.node("MatMulNBits", [x, *constants], settings, domain="com.microsoft", outputs=[y])
    graph = ir.Graph(
        [x],
        [y],
        nodes=[node],
        initializers=constants,
        opset_imports={"": 23, "com.microsoft": 1},
        name="g",
    )
    opened = ort.InferenceSession(ir.to_proto(ir.Model(graph, ir_version=11)).SerializeToString())
    used = opened.run(None, {"x": np.eye(200, dtype=np.float32)})[0].T
    assert np.abs(used - weight).max() <= 0.005 * np.abs(weight).max()
    assert not used[3].any()
    # The number furthest from zero is kept but for the rounding of its scale.
    assert np.array_equal(scale, scale.astype(np.float16))
    blocks, kept = (np.pad(m, ((0, 0), (0, 56))).reshape(24, 2, BLOCK) for m in (weight, used))
    furthest = np.abs(blocks).argmax(axis=2)[:, :, None]
    np.testing.assert_allclose(
        np.take_along_axis(kept, furthest, 2), np.take_along_axis(blocks, furthest, 2), rtol=2**-11
    )


@pytest.mark.parametrize("precision", ["int8", "fp32", "fp16", "bf16"])
def test_inputs_output_and_operators(tmp_path: Path, precision: str) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision=precision, texts=TEXTS)
    graph = ir.load(bundle / MODEL_FILE).graph
    assert all(value.dtype == ir.DataType.INT64 for value in graph.inputs)
    assert [value.name for value in graph.inputs] == list(inputs([[1]], [0]))
    [output] = graph.outputs
    assert (output.name, output.dtype) == ("embedding", ir.DataType.FLOAT)
    nodes = list(graph.all_nodes())
    domains = {node.domain for node in nodes}
    assert domains == ({"", "com.microsoft"} if precision == "int8" else {""})
    assert {"Attention", "RotaryEmbedding", "RMSNormalization"} <= {node.op_type for node in nodes}
    assert all(node.inputs[3] is None for node in nodes if node.op_type == "Attention")
    stored = {value.dtype for value in graph.initializers.values()}
    assert (ir.DataType.BFLOAT16 in stored) == (precision == "bf16")
