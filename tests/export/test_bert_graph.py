"""The graph computes what BERT computes, and its files follow from the checkpoint alone."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from support.changed_bundles import contents
from support.checkpoints.bert import WORDS, write_tiny_checkpoint
from support.numpy_bert import encode
from support.tiny_bert import build_tiny_bundle
from vcs_export.checkpoint.transformer import bare_tokenizer
from vcs_export.errors import CheckpointError
from vcs_export.families.build import MODEL_FILE, TOKENIZER_FILE, WEIGHTS_FILE, Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.graph.builder import ALIGNMENT, GraphBuilder
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle


def session(bundle: Path, threads: int = 1) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(
        str(bundle / MODEL_FILE), options, providers=["CPUExecutionProvider"]
    )


def run(
    opened: ort.InferenceSession, rows: list[list[int]], length: int | None = None
) -> NDArray[np.float32]:
    length = length or max(map(len, rows))
    ids, mask = np.zeros((2, len(rows), length), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    vectors: NDArray[np.float32] = opened.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    return vectors


def random_rows(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(5, 80, int(rng.integers(1, longest + 1))).tolist() for _ in range(count)]


@pytest.mark.parametrize(
    ("hidden", "layers", "heads", "seed"),
    [(32, 2, 4, 0), (24, 1, 3, 1), (64, 3, 1, 2), (48, 2, 12, 3)],
)
def test_vectors_equal_a_plain_forward_pass(
    tmp_path: Path, hidden: int, layers: int, heads: int, seed: int
) -> None:
    bundle = build_tiny_bundle(tmp_path, hidden=hidden, layers=layers, heads=heads, seed=seed)
    rows = [*random_rows(8, 32, seed), [7], [9] * 32]
    got = run(session(bundle), rows)
    assert got.shape == (10, hidden)
    assert got.dtype == np.float32
    want = np.stack([encode(tmp_path / "checkpoint", row) for row in rows])
    np.testing.assert_allclose(got, want, rtol=0, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=0, atol=1e-6)


def test_the_comparison_would_notice_a_forgotten_mask(tiny_bundle: Path) -> None:
    row = random_rows(1, 12, 5)[0]
    padded = [*row, *([0] * 8)]
    assert (
        np.abs(run(session(tiny_bundle), [row], 20) - run(session(tiny_bundle), [padded])).max()
        > 1e-2
    )


def test_padding_does_not_change_a_vector(tiny_bundle: Path) -> None:
    rows, opened = random_rows(6, 20, 6), session(tiny_bundle)
    alone = np.concatenate([run(opened, [row]) for row in rows])
    np.testing.assert_allclose(run(opened, rows, 32), alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_at_equal_length_a_vector_is_the_same_bits_whatever_is_beside_it(
    tiny_bundle: Path, threads: int
) -> None:
    opened = session(tiny_bundle, threads)
    rng = np.random.default_rng(7)
    for length in (8, 16, 32):
        rows = random_rows(9, length, length)
        alone = np.concatenate([run(opened, [row], length) for row in rows])
        for size in (2, 3, 9, 40):
            chosen = rng.integers(0, len(rows), size)
            batch = run(opened, [rows[i] for i in chosen], length)
            np.testing.assert_array_equal(batch, alone[chosen])


def test_a_row_without_tokens_is_zero_and_leaves_the_others_alone(tiny_bundle: Path) -> None:
    opened, row = session(tiny_bundle), [2, 50, 51, 3]
    got = run(opened, [row, []])
    np.testing.assert_array_equal(got[1], 0)
    np.testing.assert_array_equal(got[0], run(opened, [row])[0])


def test_inputs_and_output_are_named_and_typed(tiny_bundle: Path) -> None:
    opened = session(tiny_bundle)
    inputs = [(i.name, i.type, i.shape) for i in opened.get_inputs()]
    assert inputs == [
        (name, "tensor(int64)", ["batch", "tokens"]) for name in ("input_ids", "attention_mask")
    ]
    outputs = [(o.name, o.type, o.shape) for o in opened.get_outputs()]
    assert outputs == [("embedding", "tensor(float)", ["batch", 32])]


def test_only_standard_operators_are_used(tiny_bundle: Path) -> None:
    model = ir.load(tiny_bundle / MODEL_FILE)
    assert dict(model.graph.opset_imports) == {"": 17}
    assert {node.domain for node in model.graph} == {""}


def test_the_optimiser_recognises_the_pattern(tiny_bundle: Path, tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3  # it warns that the file suits this machine only
    ort.InferenceSession(str(tiny_bundle / MODEL_FILE), options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in ir.load(tmp_path / "optimised.onnx").graph]
    assert kinds.count("BiasGelu") == 2
    assert kinds.count("FusedMatMul") == 2
    assert "Erf" not in kinds


def test_a_second_export_gives_the_same_bytes(checkpoint: Path, tmp_path: Path) -> None:
    first, second = (
        build_sentence_bundle(Build(checkpoint, tmp_path / name, BundleInfo("n", "l", "s")))
        for name in ("first", "second")
    )
    assert len(contents(first)) == 5
    assert contents(first) == contents(second)


def test_the_layout_of_the_weights_file_is_fixed(tmp_path: Path) -> None:
    """By a re-implementation: should this fail, the hash in every signature has changed."""
    source = write_tiny_checkpoint(tmp_path / "checkpoint", layers=1)
    bundle = build_sentence_bundle(Build(source, tmp_path / "bundle", BundleInfo("n", "l", "s")))
    t = load_file(source / "model.safetensors")
    order = ["embeddings.word_embeddings.weight", "positions", "embeddings.LayerNorm"]
    order += [f"encoder.layer.0.attention.self.{name}" for name in ("query", "key", "value")]
    order += [f"encoder.layer.0.attention.output.{name}" for name in ("dense", "LayerNorm")]
    order += [
        f"encoder.layer.0.{name}"
        for name in ("intermediate.dense", "output.dense", "output.LayerNorm")
    ]
    arrays = []
    for name in order:
        if name == "positions":
            types = t["embeddings.token_type_embeddings.weight"]
            arrays.append(t["embeddings.position_embeddings.weight"] + types[:1])
        elif name in t:
            arrays.append(t[name])
        else:
            arrays += [t[f"{name}.weight"].T, t[f"{name}.bias"]]
    expected = b""
    for array in arrays:
        expected += bytes(-len(expected) % ALIGNMENT) + array.tobytes(order="C")
    content = (bundle / WEIGHTS_FILE).read_bytes()
    assert hashlib.sha256(content).hexdigest() == hashlib.sha256(expected).hexdigest()
    assert open_bundle(bundle).manifest.embedder is not None


def test_the_manifest_says_how_to_run_it(tiny_bundle: Path) -> None:
    opened = open_bundle(tiny_bundle)
    spec = opened.manifest.embedder
    assert spec is not None
    assert (spec.name, spec.dimension, spec.max_tokens) == ("tiny-bert", 32, 32)
    assert (spec.long_text, spec.precision) == ("window_mean", "fp32")
    weights = hashlib.sha256((tiny_bundle / WEIGHTS_FILE).read_bytes()).hexdigest()
    assert opened.digests(spec.weights) == [weights]


def test_a_bundle_may_be_moved(tiny_bundle: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(tiny_bundle, tmp_path / "elsewhere"))
    row = [2, 50, 3]
    np.testing.assert_array_equal(run(session(moved), [row]), run(session(tiny_bundle), [row]))


def test_the_tokenizer_cuts_and_pads_nothing(checkpoint: Path, tiny_bundle: Path) -> None:
    text = " ".join(WORDS)
    before = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    after = Tokenizer.from_file(str(tiny_bundle / TOKENIZER_FILE))
    assert (before.truncation is None, before.padding is None) == (False, False)
    assert (after.truncation, after.padding) == (None, None)
    assert len(before.encode(text).ids) == len(before.encode("a").ids) == 16
    ids = after.encode(text).ids
    assert len(ids) == len(WORDS) + 2
    assert len(after.encode("a").ids) == 3
    before.no_truncation()
    before.no_padding()
    assert before.encode(text).ids == ids


@pytest.mark.parametrize("content", ["[]", '{"version": "1.0"}', "{", ""])
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        bare_tokenizer(path)


def test_tokenizers_keep_their_unicode(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps({"model": {"vocab": {"\u00e9\u4e2d\U0001f600": 0}}}), encoding="utf-8"
    )
    assert json.loads(bare_tokenizer(path))["model"] == {"vocab": {"\u00e9\u4e2d\U0001f600": 0}}


def test_a_builder_refuses_what_would_be_written_wrong() -> None:
    graph = GraphBuilder(17)
    graph.weight("w", np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="w: added twice"):
        graph.weight("w", np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="v: float32 was expected, not float64"):
        graph.weight("v", np.zeros(3))  # type: ignore[arg-type]
