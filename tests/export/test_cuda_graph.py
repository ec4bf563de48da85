"""NV-Embed's graph for CUDA, computed by an interpreter in NumPy and by ONNX Runtime on a CPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from support.checkpoints.nv_embed import VOCABULARY, write_tiny_nv_embed
from support.command_line import vcs
from support.cuda_kernels import differences
from support.embedders import spec_of
from support.matrix import matrix
from support.numpy_nv_embed import embed
from support.numpy_onnx import run
from support.rounding import ROUNDOFF
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.families.build import CUDA_FILE, MODEL_FILE
from vcs_runtime import BundleError
from vcs_runtime.bundle.merge import merge
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import batches

TEXTS = ["the dog runs", "a young woman opens the door and looks at the river", "two cats"]
SHAPES: list[dict[str, Any]] = [
    {},
    {
        "hidden": 24,
        "heads": 3,
        "groups": 1,
        "head_dim": 16,
        "layers": 1,
        "latents": 1,
        "cross_heads": 1,
    },
    {
        "hidden": 40,
        "heads": 4,
        "groups": 4,
        "intermediate": 30,
        "latents": 9,
        "cross_heads": 3,
        "layers": 3,
    },
]


def bundle_of(folder: Path, precision: str, **shape: Any) -> tuple[Path, Path]:
    checkpoint = write_tiny_nv_embed(folder / "checkpoint", dtype="F16", **shape)
    options: dict[str, Any] = {}
    if precision == "int8":
        options = {"texts": TEXTS, "least_cosine": -1, "most_change": 1}
    bundle = build_tiny_nv_embed_bundle(
        folder, checkpoint=checkpoint, precision=precision, **options
    )
    return checkpoint, bundle


def sequences() -> list[list[int]]:
    rng = np.random.default_rng(0)
    lengths = (5, 60, 17, 18, 64, 19, 5, 33)
    return [[1, *rng.integers(3, len(VOCABULARY), length - 2).tolist(), 2] for length in lengths]


def compute(bundle: Path, file: str, layout: str, skip: int, exact: bool) -> NDArray[Any]:
    rows = sequences()
    vectors = np.empty((len(rows), 0))
    for batch in batches(rows, 10_000, layout, skip, mixed=True):
        output = run(bundle / file, batch.inputs, exact=exact)
        if not vectors.size:
            vectors = np.empty((len(rows), output.shape[1]), output.dtype)
        vectors[batch.rows] = output
    return vectors


@matrix("shape, skip", SHAPES, [0, 3])
def test_without_rounding_both_graphs_compute_one_function(
    tmp_path: Path, shape: dict[str, Any], skip: int
) -> None:
    checkpoint, bundle = bundle_of(tmp_path, "fp16", **shape)
    cuda = compute(bundle, CUDA_FILE, "varlen", skip, exact=True)
    np.testing.assert_allclose(
        cuda, compute(bundle, MODEL_FILE, "packed", skip, exact=True), rtol=0, atol=1e-8
    )
    # Stored in fp16, tables of rotation and folded matrices are rounded.
    want = [embed(checkpoint, row, skip) for row in sequences()]
    np.testing.assert_allclose(cuda, want, rtol=0, atol=1e-3)


@matrix("precision, shape, skip", ["fp16", "int8"], SHAPES[::2], [0, 3])
def test_onnx_runtimes_kernels_compute_what_the_interpreter_does(
    tmp_path: Path, precision: str, shape: dict[str, Any], skip: int
) -> None:
    _, bundle = bundle_of(tmp_path, precision, **shape)
    theirs, ours = differences(bundle / CUDA_FILE, sequences(), "varlen", skip)
    # ONNX Runtime rounds as often as the interpreter, or less often where it merges operators.
    assert theirs < 1.5 * ours
    assert ours < 10 * ROUNDOFF["fp16"]


@pytest.mark.parametrize("skip", [0, 3])
def test_in_bf16_attention_keeps_its_places_and_the_function_stays(
    tmp_path: Path, skip: int
) -> None:
    _, bundle = bundle_of(tmp_path, "bf16")
    spec = spec_of(bundle)
    assert spec.cuda is not None
    assert spec.cuda.layout == "packed"
    exact = [compute(bundle, file, "packed", skip, exact=True) for file in (CUDA_FILE, MODEL_FILE)]
    np.testing.assert_allclose(*exact, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        compute(bundle, CUDA_FILE, "packed", skip, exact=False), exact[1], rtol=0, atol=3e-2
    )


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_with_rounding_the_graph_for_cuda_is_as_near_as_the_other(
    tmp_path: Path, precision: str
) -> None:
    _, bundle = bundle_of(tmp_path, precision)
    want = compute(bundle, MODEL_FILE, "packed", 0, exact=True)
    cuda = compute(bundle, CUDA_FILE, "varlen", 0, exact=False)
    assert cuda.dtype == np.float32
    np.testing.assert_allclose(cuda, want, rtol=0, atol=5e-3)
    assert np.abs(cuda - want).max() > 1e-6


def test_a_vector_does_not_depend_on_the_place_of_its_text_in_a_batch(tmp_path: Path) -> None:
    _, bundle = bundle_of(tmp_path, "fp16")
    rows = sequences()
    [many] = batches(rows, 10_000, "varlen", mixed=True)
    together = run(bundle / CUDA_FILE, many.inputs)
    for number, row in enumerate(many.rows):
        [one] = batches([rows[row]], 10_000, "varlen", mixed=True)
        np.testing.assert_allclose(
            run(bundle / CUDA_FILE, one.inputs)[0], together[number], atol=1e-3
        )


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_both_graphs_share_their_weights(tmp_path: Path, precision: str) -> None:
    _, bundle = bundle_of(tmp_path, precision, hidden=160, intermediate=200)
    places = [
        {
            tensor.name: tuple((item.key, item.value) for item in tensor.external_data)
            for tensor in onnx.load(bundle / file, load_external_data=False).graph.initializer
            if tensor.external_data
        }
        for file in (MODEL_FILE, CUDA_FILE)
    ]
    matrices = {name for name in places[0] if ".mlp." in name and not name.endswith(".scales")}
    assert len(matrices) == 3 * 2
    assert {name: places[0][name] for name in matrices} == {
        name: places[1][name] for name in matrices
    }
    own = {place for place in places[1].values() if place not in places[0].values()}
    kinds = {
        name: size for name, place in places[1].items() if place in own for _, size in place[-1:]
    }
    assert sum(map(int, kinds.values())) < 0.1 * sum(
        file.stat().st_size for file in bundle.rglob("*.data")
    )
    assert (bundle / CUDA_FILE).stat().st_size < 60_000


def test_a_bundle_lists_its_graph_for_cuda_and_says_so(tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision="fp16")
    opened = open_bundle(bundle, full=True)
    spec = opened.manifest.embedder
    assert spec is not None
    assert spec.cuda is not None
    assert (spec.layout, spec.cuda.model, spec.cuda.layout) == ("packed", CUDA_FILE, "varlen")
    assert CUDA_FILE in {entry.path for entry in opened.manifest.files}
    assert "a second graph for CUDA, varlen" in vcs("bundle", "info", bundle).stdout


def test_a_bundle_in_single_precision_has_none(tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision="fp32")
    assert spec_of(bundle).cuda is None
    assert not (bundle / CUDA_FILE).exists()


def test_the_graph_for_cuda_comes_along_and_is_checked(tmp_path: Path) -> None:
    checkpoint, bundle = bundle_of(tmp_path, "fp16")
    from support.tiny_sat import build_tiny_sat_bundle

    sat = build_tiny_sat_bundle(tmp_path / "sat")
    merge(bundle, sat, tmp_path / "both")
    made = spec_of(tmp_path / "both")
    assert made.cuda is not None
    assert (tmp_path / "both" / made.cuda.model).read_bytes() == (bundle / CUDA_FILE).read_bytes()
    shutil.copy(checkpoint / "config.json", tmp_path / "both" / made.cuda.model)
    with pytest.raises(BundleError, match="model.cuda.onnx"):
        open_bundle(tmp_path / "both")
