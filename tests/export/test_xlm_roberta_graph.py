"""The SaT graph computes what SaT computes, and its files follow from the checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from support.changed_bundles import contents
from support.checkpoints.sat import VOCABULARY
from support.matrix import matrix
from support.numpy_bert import Array, linear, load, transform
from support.rounding import SUMS
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.families.sat import MODEL_FILE, WEIGHTS_FILE

PAD = 1


def boundary_logits(folder: Path, ids: list[int]) -> Array:
    """SaT's forward pass in NumPy, float64: the logits of label 0, `(tokens,)`, for one window."""
    config, tensors = load(folder, "roberta.")
    positions, last = [], PAD
    for token in ids:
        last += token != PAD
        positions.append(PAD if token == PAD else last)
    row, column = np.indices((len(ids), len(ids)))
    visible = np.ones((len(ids), len(ids)), bool)
    if config["lookahead"] is not None:
        visible = column <= row + config["lookahead"] // config["num_hidden_layers"]
    states = transform(tensors, config, ids, positions, visible)
    return linear(states, tensors, "classifier")[:, 0]


def session(bundle: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        str(bundle / MODEL_FILE), options, providers=["CPUExecutionProvider"]
    )


def run(
    opened: ort.InferenceSession, rows: list[list[int]], length: int | None = None
) -> list[NDArray[np.float32]]:
    """The logits of each row, without those of its padding."""
    length = length or max(map(len, rows))
    ids = np.full((len(rows), length), PAD, np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    logits = opened.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    assert logits.shape == (len(rows), length, 1)
    assert logits.dtype == np.float32
    assert np.isfinite(logits).all()
    return [logits[i, : len(row), 0] for i, row in enumerate(rows)]


def check_logits(got: NDArray[np.float32], checkpoint: Path, row: list[int]) -> None:
    """Compare the logits of a row with those in NumPy. They are sums of numbers of up to 8."""
    np.testing.assert_allclose(got, boundary_logits(checkpoint, row), rtol=0, atol=8 * SUMS)


def windows(count: int, longest: int, seed: int = 0) -> list[list[int]]:
    """Framed windows of words, of 3 to `longest` tokens."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest - 1, count)
    return [[0, *rng.integers(4, len(VOCABULARY), n).tolist(), 2] for n in lengths]


@pytest.mark.parametrize(
    ("layers", "lookahead", "num_labels", "hidden", "heads"),
    [
        (1, None, 1, 32, 4),
        (3, None, 1, 32, 4),
        (12, None, 4, 24, 3),
        (1, 5, 1, 32, 1),
        (3, 48, 111, 32, 4),
        (3, 10, 1, 48, 12),
        (3, 2, 1, 32, 4),
        (6, 0, 1, 32, 4),
    ],
)
def test_logits_equal_a_plain_forward_pass(
    tmp_path: Path, layers: int, lookahead: int | None, num_labels: int, hidden: int, heads: int
) -> None:
    bundle = build_tiny_sat_bundle(
        tmp_path,
        layers=layers,
        lookahead=lookahead,
        num_labels=num_labels,
        hidden=hidden,
        heads=heads,
        seed=layers,
    )
    rows = [*windows(6, 70, layers), [0, 9, 2]]
    for row, got in zip(rows, run(session(bundle), rows), strict=True):
        check_logits(got, tmp_path / "checkpoint", row)


@pytest.mark.parametrize("lookahead", [None, 48])
def test_the_longest_window_is_computed(tmp_path: Path, lookahead: int | None) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, lookahead=lookahead, layers=2)
    row = [0, *np.random.default_rng(1).integers(4, len(VOCABULARY), 510).tolist(), 2]
    [got] = run(session(bundle), [row])
    check_logits(got, tmp_path / "checkpoint", row)


def test_a_pad_that_a_text_spells_out_takes_no_position(tmp_path: Path) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, layers=2)
    row = [0, 20, PAD, 30, PAD, PAD, 40, 2]
    [got] = run(session(bundle), [row], 12)
    check_logits(got, tmp_path / "checkpoint", row)


def test_the_comparison_would_notice_a_wrong_lookahead(tmp_path: Path) -> None:
    row = windows(1, 60, 3)[0]
    limited, free = (
        run(session(build_tiny_sat_bundle(tmp_path / str(n), lookahead=n)), [row])[0]
        for n in (6, None)
    )
    assert np.abs(limited - free).max() > 1e-2


def test_limited_lookahead_hides_what_is_further_right(tmp_path: Path) -> None:
    opened = session(build_tiny_sat_bundle(tmp_path, lookahead=6, layers=3))
    row = windows(1, 60, 4)[0][:40]
    other = [*row[:30], *reversed(row[30:])]
    [first], [second] = run(opened, [row]), run(opened, [other])
    np.testing.assert_allclose(first[:24], second[:24], rtol=0, atol=1e-5)
    assert np.abs(first[24:30] - second[24:30]).max() > 1e-4


@pytest.mark.parametrize(("precision", "lookahead"), [("fp32", None), ("fp32", 48), ("fp16", 48)])
def test_padding_and_company_do_not_change_logits(
    tmp_path: Path, precision: str, lookahead: int | None
) -> None:
    opened = session(build_tiny_sat_bundle(tmp_path, precision=precision, lookahead=lookahead))
    rows = windows(5, 40, 6)
    for row, got in zip(rows, run(opened, rows, 64), strict=True):
        tolerance = 5e-6 if precision == "fp32" else 2e-2
        np.testing.assert_allclose(got, run(opened, [row])[0], rtol=0, atol=tolerance)


@matrix("precision, lookahead", ["fp16", "int8"], [None, 48])
def test_lower_precisions_stay_near(tmp_path: Path, precision: str, lookahead: int | None) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, precision=precision, lookahead=lookahead)
    opened = session(bundle)
    worst = 0.0
    for row in windows(6, 60, 7):
        [got] = run(opened, [row])  # int8 takes its ranges from the batch: one at a time
        want = boundary_logits(tmp_path / "checkpoint", row)
        worst = max(worst, float(np.abs(1 / (1 + np.exp(-got)) - 1 / (1 + np.exp(-want))).max()))
    assert 0 < worst < {"fp16": 0.02, "int8": 0.15}[precision]


@pytest.mark.parametrize("half", [False, True])
def test_half_precision_checkpoints_and_bare_names_are_read(tmp_path: Path, half: bool) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, half=half, prefix="")
    row = windows(1, 30, 8)[0]
    [got] = run(session(bundle), [row])
    check_logits(got, tmp_path / "checkpoint", row)


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_inputs_output_and_operators_are_standard(tmp_path: Path, precision: str) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, precision=precision, lookahead=48, num_labels=5)
    opened = session(bundle)
    inputs = [(i.name, i.type, i.shape) for i in opened.get_inputs()]
    assert inputs == [
        (name, "tensor(int64)", ["batch", "tokens"]) for name in ("input_ids", "attention_mask")
    ]
    outputs = [(o.name, o.type, o.shape) for o in opened.get_outputs()]
    assert outputs == [("logits", "tensor(float)", ["batch", "tokens", 1])]
    model = ir.load(bundle / MODEL_FILE)
    assert dict(model.graph.opset_imports) == {"": 17}
    assert {node.domain for node in model.graph} == {""}


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_second_export_gives_the_same_bytes(tmp_path: Path, precision: str) -> None:
    first, second = (build_tiny_sat_bundle(tmp_path / name, precision=precision) for name in "ab")
    bundle = contents(first)
    assert len(bundle) == (4 if precision == "int8" else 5)
    assert bundle == contents(second)


def test_lower_precisions_are_smaller(tmp_path: Path) -> None:
    fp32, fp16, int8 = (
        (build_tiny_sat_bundle(tmp_path / p, precision=p) / WEIGHTS_FILE).stat().st_size
        for p in ("fp32", "fp16", "int8")
    )
    assert int8 < fp16 < fp32
