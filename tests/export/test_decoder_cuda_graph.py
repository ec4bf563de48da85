"""Graphs for CUDA of each kind of decoder, computed in NumPy and by ONNX Runtime on a CPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from support.cuda_kernels import differences
from support.matrix import matrix
from support.numpy_onnx import names, run
from support.random_decoder import GEMMA, PARTS, RandomDecoder, random_rows, write_random_decoder
from support.rounding import ROUNDOFF
from vcs_export.graph.decoder_model import cuda_layout, write_decoder_model
from vcs_runtime.inference.batching import batches

ROWS = random_rows(1, 5, 6, 7, 17, 33, 64)
ALL = {**PARTS, "Gemma": GEMMA | {"fp16": False}}
poolings = pytest.mark.parametrize("pooling", ["mean", "last"])


class Graphs:
    """Both graphs of a decoder in one precision."""

    def __init__(self, decoder: RandomDecoder, pooling: str, precision: str) -> None:
        self.cpu, self.cuda = (
            decoder.folder / f"{pooling}-{which}.onnx" for which in ("cpu", "cuda")
        )
        self.layouts = {self.cpu: "packed", self.cuda: cuda_layout(decoder.config, precision)}
        write_decoder_model(decoder.model(pooling), self.cpu, precision, link=False, cuda=self.cuda)

    def compute(self, graph: Path, exact: bool, skip: int = 0) -> NDArray[Any]:
        layout = self.layouts[graph]
        assert layout is not None
        rows = [row for row in ROWS if len(row) > skip]
        vectors = {}
        for batch in batches(rows, 200, layout, skip, mixed=True, step=4):
            vectors |= dict(zip(batch.rows, run(graph, batch.inputs, exact=exact), strict=True))
        return np.array([vectors[row] for row in range(len(rows))])


# Gemma overflows in fp16, and no such bundle is built.
HALVES = [(part, "bf16") for part in ALL] + [(part, "fp16") for part in PARTS]


@matrix("case, pooling", HALVES, ["mean", "last"])
def test_without_rounding_both_graphs_compute_one_function(
    tmp_path: Path, case: tuple[str, str], pooling: str
) -> None:
    part, precision = case
    decoder = write_random_decoder(
        tmp_path, dtype={"fp16": "F16", "bf16": "BF16"}[precision], **ALL[part]
    )
    graphs = Graphs(decoder, pooling, precision)
    got = graphs.compute(graphs.cuda, exact=True)
    # 1 plus the weight of a norm is rounded, where its kernel wants it in half precision.
    rounding = 1e-8 if not decoder.config.norm_offset else 2e-3
    np.testing.assert_allclose(got, graphs.compute(graphs.cpu, exact=True), rtol=0, atol=rounding)
    # Tables of rotation are stored in half precision.
    tolerance = {"fp16": 2e-3, "bf16": 3e-2}[precision]
    np.testing.assert_allclose(got, decoder.vectors(ROWS, pooling), rtol=0, atol=tolerance)


KERNELS = [(part, "fp16") for part in PARTS] + [
    (part, "int8") for part in ("biases", "GELU", "windows")
]


@matrix("case, pooling", KERNELS, ["mean", "last"])
def test_onnx_runtimes_kernels_compute_each_part_as_the_interpreter_does(
    tmp_path: Path, case: tuple[str, str], pooling: str
) -> None:
    part, precision = case
    graphs = Graphs(write_random_decoder(tmp_path, dtype="F16", **PARTS[part]), pooling, precision)
    theirs, ours = differences(graphs.cuda, ROWS, str(graphs.layouts[graphs.cuda]))
    # ONNX Runtime rounds as often as the interpreter, or less often where it merges operators.
    assert theirs < 1.5 * ours
    assert ours < 10 * ROUNDOFF["fp16"]


@pytest.mark.parametrize(
    ("part", "precision", "layout"),
    [
        ("nothing", "fp16", "varlen"),
        ("biases", "int8", "varlen"),
        ("causal", "fp16", "packed"),
        ("windows", "int8", "packed"),
        ("nothing", "bf16", "packed"),
        ("Gemma", "bf16", "packed"),
        ("Gemma", "int8", "packed"),
        ("causal", "fp32", None),
        ("Gemma", "fp32", None),
    ],
)
def test_the_kernel_without_padding_is_for_texts_that_see_each_other_whole(
    tmp_path: Path, part: str, precision: str, layout: str | None
) -> None:
    assert cuda_layout(write_random_decoder(tmp_path, **ALL[part]).config, precision) == layout


@matrix(
    "case, pooling",
    [
        ("causal", "fp16", 5e-3),
        ("Gemma", "bf16", 6e-2),
        ("Gemma", "int8", 6e-2),
        ("causal", "int8", 2e-2),
    ],
    ["mean", "last"],
)
def test_with_rounding_vectors_stay_near(
    tmp_path: Path, case: tuple[str, str, float], pooling: str
) -> None:
    part, precision, tolerance = case
    sizes = {"hidden_size": 160, "intermediate_size": 256, "head_dim": 32}
    decoder = write_random_decoder(tmp_path, dtype="BF16", **ALL[part], **sizes)
    graphs = Graphs(decoder, pooling, precision)
    got = graphs.compute(graphs.cuda, exact=False)
    assert got.dtype == np.float32
    worst = np.abs(got - decoder.vectors(ROWS, pooling)).max()
    assert 1e-6 < worst < tolerance


def test_quantised_gemma_multiplies_in_bfloat16_and_shares_its_levels(tmp_path: Path) -> None:
    sizes = {"hidden_size": 160, "intermediate_size": 256}
    decoder = write_random_decoder(tmp_path, **ALL["Gemma"], **sizes)
    graphs = Graphs(decoder, "mean", "int8")
    tensors = [
        {
            tensor.name: (tensor.data_type, *(item.value for item in tensor.external_data))
            for tensor in onnx.load(path, load_external_data=False).graph.initializer
        }
        for path in (graphs.cpu, graphs.cuda)
    ]
    levels = {name for name in tensors[0] if name.endswith(".levels")}
    assert len(levels) == 7 * 3
    assert all(tensors[0][name] == tensors[1][name] for name in levels)
    scales = {tensors[1][name][0] for name in tensors[1] if name.endswith(".scales")}
    assert scales == {onnx.TensorProto.BFLOAT16}


def test_instructions_are_not_pooled(tmp_path: Path) -> None:
    decoder = write_random_decoder(tmp_path, dtype="BF16", **ALL["Gemma"])
    graphs = Graphs(decoder, "mean", "bf16")
    want = decoder.vectors([row for row in ROWS if len(row) > 4], "mean", 4)
    np.testing.assert_allclose(
        graphs.compute(graphs.cuda, exact=True, skip=4), want, rtol=0, atol=3e-2
    )


def test_half_precision_costs_no_further_operators(tmp_path: Path) -> None:
    """No norm in fp16 is followed by a conversion, and no norm of heads in any type."""
    decoder = write_random_decoder(tmp_path, **PARTS["causal"], **PARTS["norms of heads"])
    for precision, casts in (("fp16", 0), ("bf16", 2 * 3)):
        graphs = Graphs(decoder, "last", precision)
        kinds = Counter(names(graphs.cuda))
        assert kinds["RMSNormalization"] == 4 * 3 + 1
        assert kinds["Attention"] == 3
        # Beside those: the embeddings, and two sums of each layer.
        assert kinds["Cast"] - casts == 1 + 2 * 3
