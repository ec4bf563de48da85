"""NV-Embed in FP8: rounding, calibrated ranges, the gate on what is lost, and what runs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from click.testing import CliRunner

from support.checkpoints.files import write_safetensors
from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.embedders import spec_of
from support.numpy_nv_embed import embed
from support.numpy_onnx import run
from support.outliers import plant
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.checkpoint.nv_embed import open_nv_embed
from vcs_export.checkpoint.safetensors_reader import open_shards
from vcs_export.checks.quantization_error import calibrate, calibration_texts, outputs, tokens
from vcs_export.errors import ExportError
from vcs_export.families.build import CUDA_FILE, MODEL_FILE, TOKENIZER_FILE, WEIGHTS_FILE
from vcs_export.graph.decoder_model import write_decoder_model
from vcs_export.graph.nv_embed import nv_embed_model
from vcs_export.graph.streamed import FLOAT, DataFile, StreamedGraph
from vcs_export.quantization import fp8
from vcs_runtime import Embedder
from vcs_runtime.cli import cli
from vcs_runtime.inference.batching import batches

TEXTS = ["the dog runs", "a young woman opens the door and looks at the river", "two cats", "she sits."]
Q_PROJ = "embedding_model.layers.0.self_attn.q_proj.weight"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wide enough that single roundings average out; only read."""
    return write_tiny_nv_embed(tmp_path_factory.mktemp("fp8") / "checkpoint", hidden=96, intermediate=160)


@pytest.fixture(scope="module")
def bundle(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(checkpoint, tmp_path_factory.mktemp("bundle"))


def build(checkpoint: Path, folder: Path, **options: object) -> Path:
    given = {"precision": "fp8", "texts": TEXTS, "device": "cpu", **options}
    return build_tiny_nv_embed_bundle(folder, checkpoint=checkpoint, **given)


@pytest.mark.parametrize("largest", [448.0, 448.1, 1.0, 0.02, 3e4, 1e-30, 0.0, 6e4])
def test_a_scale_is_the_least_power_of_two_that_does_not_overflow(largest: float) -> None:
    scale = fp8.scale(largest)
    assert math.frexp(scale)[0] == 0.5
    assert float(np.float16(scale)) == scale
    assert largest / scale <= fp8.LARGEST
    assert largest / scale > fp8.LARGEST / 2 or scale == 2.0**-14


def test_a_finer_scale_or_one_for_each_row_would_be_no_more_exact() -> None:
    """What the choice of one power of two rests on: rows of very different sizes lose no more so."""
    rng = np.random.default_rng(1)
    matrix = (rng.standard_normal((64, 512)) * 10.0 ** rng.uniform(-3, 0, (64, 1))).astype(np.float32)

    def error(scale: np.ndarray | float) -> float:
        [rounded] = fp8.quantise([matrix / scale], 1.0)
        lost = rounded.astype(np.float32) * scale - matrix
        return float(np.sqrt((lost**2).sum(1) / (matrix**2).sum(1)).mean())

    ours = error(fp8.scale(fp8.largest([matrix])))
    assert ours < 1.05 * error(np.abs(matrix).max() / fp8.LARGEST)
    assert ours < 1.05 * error(np.abs(matrix).max(1, keepdims=True) / fp8.LARGEST)


@pytest.mark.parametrize("kind", [ir.DataType.FLOAT16, ir.DataType.BFLOAT16])
def test_numbers_of_16_bits_become_what_they_become_in_float32(kind: ir.DataType) -> None:
    block = np.random.default_rng(3).standard_normal((40, 30)).astype(kind.numpy())
    block[0, 0] = -7
    wide = block.astype(np.float32)
    assert fp8.largest([block[1:], block]) == fp8.largest([wide]) == 7
    for scale in (2.0**-6, 2.0**-3):
        [narrow], [wanted] = fp8.quantise([block], scale), fp8.quantise([wide], scale)
        np.testing.assert_array_equal(narrow, wanted)
        assert narrow.dtype == fp8.TYPE.numpy()
    assert np.abs(wanted.astype(np.float32) * scale - wide).max() <= 0.25  # half a step below 8


def test_a_layer_multiplies_rounded_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 48), (32,)))
    tensors = {"w.weight": weight, "w.bias": bias}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    stored = open_shards(tmp_path, {name: tensor.shape for name, tensor in tensors.items()})
    with DataFile(tmp_path / "m.onnx.data") as data:
        scales = fp8.Scales({"w.weight": fp8.Range(6.0, 1.0)})
        graph = StreamedGraph(24, "fp8", data, False, scales=scales)
        ids = graph.input("ids", ("rows", 48))
        x = graph.computed(graph.op("Mul", graph.op("Cast", ids, to=int(FLOAT)), graph.scalar(0.125)))
        y = graph.exact(graph.linear(x, stored["w.weight"], stored["w.bias"]))
        graph.save(y, "y", ("rows", 32), tmp_path / "m.onnx")
    given = rng.integers(-900, 900, (7, 48))  # up to 112: beyond the range of 12, which is where it stops
    [got] = ort.InferenceSession(str(tmp_path / "m.onnx")).run(None, {"ids": given})
    kind = fp8.TYPE.numpy()
    scale = fp8.scale(12.0)
    rounded = np.clip(given * 0.125 / scale, -448, 448).astype(kind).astype(np.float32) * scale
    matrix = (weight / fp8.scale(np.abs(weight).max())).astype(kind).astype(np.float32)
    wanted = rounded @ matrix.T * fp8.scale(np.abs(weight).max()) + bias.astype(np.float16)
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=0.05)
    assert np.abs(rounded).max() == 448 * scale


def test_ranges_are_those_of_the_published_formula(checkpoint: Path, bundle: Path, tmp_path: Path) -> None:
    opened = open_nv_embed(checkpoint)
    exact = tmp_path / "model.onnx"
    written = write_decoder_model(nv_embed_model(opened), exact, "fp32", link=False, watch=True)
    # The layer in the pooling is eight times as wide as the model, and is written in as many parts.
    assert len(written.watched) == 7 * opened.decoder.num_hidden_layers + 8
    spec = spec_of(bundle)
    ranges = calibrate(exact, written.watched, bundle / TOKENIZER_FILE, spec, TEXTS)
    name = "embedding_model.layers.0.input_layernorm.weight"
    table, norm = (opened.tensors[key].rows() for key in ("embedding_model.embed_tokens.weight", name))
    rows = table[[i for row in tokens(bundle / TOKENIZER_FILE, spec, TEXTS) for i in row]]
    root = np.sqrt((rows**2).mean(1, keepdims=True) + opened.decoder.rms_norm_eps)
    inputs = np.abs(rows / root * norm)
    assert ranges[Q_PROJ].largest == pytest.approx(inputs.max(), rel=1e-5)
    assert ranges[Q_PROJ].mean == pytest.approx(inputs.mean(), rel=1e-5)
    assert ranges[Q_PROJ] == ranges[Q_PROJ.replace("q_proj", "v_proj")]
    [(_, found)] = outputs(exact, spec.layout, tokens(bundle / TOKENIZER_FILE, spec, TEXTS[:1]), "cpu")
    assert [array.ndim for array in found] == [2, 1, 1]


def test_a_matrix_whose_inputs_have_outliers_stays_in_half_precision(tmp_path: Path) -> None:
    planted = write_tiny_nv_embed(
        tmp_path / "checkpoint",
        hidden=96,
        intermediate=320,
        layers=3,
        change=lambda tensors: plant(tensors, 1, "<s>"),
    )
    graph = onnx.load(build(planted, tmp_path) / MODEL_FILE, load_external_data=False).graph
    types = {item.name: item.data_type for item in graph.initializer if ".layers." in item.name}
    half = {name for name, kind in types.items() if kind == onnx.TensorProto.FLOAT16}
    assert half == {"embedding_model.layers.1.mlp.down_proj.weight"}
    assert sum(kind == onnx.TensorProto.FLOAT8E4M3FN for kind in types.values()) == 3 * 7 - 1


def test_a_matrix_whose_rows_are_no_multiple_of_16_bytes_stays_in_half_precision(tmp_path: Path) -> None:
    """cuBLASLt refuses others in FP8, in the first run on a GPU."""
    uneven = write_tiny_nv_embed(tmp_path / "checkpoint", hidden=64, intermediate=40, layers=1)
    graph = onnx.load(build(uneven, tmp_path) / MODEL_FILE, load_external_data=False).graph
    types = {item.name: item.data_type for item in graph.initializer if ".layers." in item.name}
    half = {name for name, kind in types.items() if kind == onnx.TensorProto.FLOAT16}
    assert half == {f"embedding_model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up", "down")}
    assert sum(kind == onnx.TensorProto.FLOAT8E4M3FN for kind in types.values()) == 4


@pytest.mark.parametrize("ratio", [100, 2048, 16384, 65536])
def test_rounding_loses_more_once_the_largest_input_outgrows_the_others(ratio: int) -> None:
    """What the ratio rests on, up to which a matrix is multiplied in fp8."""
    x = np.random.default_rng(4).standard_normal((1, 1 << 16)).astype(np.float32)
    seen = fp8.Range(ratio * float(np.abs(x).mean()), float(np.abs(x).mean()))
    [levels] = fp8.quantise([x], seen.scale)
    error = np.linalg.norm(levels.astype(np.float32) * seen.scale - x) / np.linalg.norm(x)
    assert bool(error < 0.027) == seen.fits == (ratio <= 2048)


def test_what_is_lost_is_measured_and_small(checkpoint: Path, bundle: Path) -> None:
    spec = spec_of(bundle)
    assert (spec.precision, spec.layout, spec.weights) == ("fp8", "packed", (WEIGHTS_FILE,))
    assert spec.quantization_error is not None
    assert 0.99 < spec.quantization_error.cosine_min <= spec.quantization_error.cosine_mean < 1 - 1e-5
    with Embedder.open(bundle, "cpu") as embedder:
        got = embedder.embed(TEXTS)
    wanted = [embed(checkpoint, row) for row in tokens(bundle / TOKENIZER_FILE, spec, TEXTS)]
    cosines = np.sum(got * wanted, axis=1)
    assert cosines.min() > 0.99
    assert cosines.mean() == pytest.approx(spec.quantization_error.cosine_mean, abs=1e-3)
    other = embed(checkpoint, [1, 5, 9, 2])
    assert np.abs(got @ other).max() < 0.9  # not all texts are near each other


def test_a_vector_does_not_depend_on_its_batch(bundle: Path) -> None:
    with Embedder.open(bundle, "cpu") as embedder:
        together = embedder.embed(TEXTS)
        alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
        backwards = embedder.embed(TEXTS[::-1])[::-1]
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(together, backwards)


def test_a_second_export_gives_the_same_bytes_and_fewer_than_half_precision(
    checkpoint: Path, bundle: Path, tmp_path: Path
) -> None:
    second = build(checkpoint, tmp_path)
    for path in (MODEL_FILE, CUDA_FILE, WEIGHTS_FILE, "bundle.json"):
        assert (second / path).read_bytes() == (bundle / path).read_bytes()
    half = build(checkpoint, tmp_path / "half", precision="fp16")
    assert (bundle / WEIGHTS_FILE).stat().st_size < (half / WEIGHTS_FILE).stat().st_size


def test_texts_of_ones_own_set_the_ranges(checkpoint: Path, bundle: Path, tmp_path: Path) -> None:
    assert len(calibration_texts()) >= 40
    own = build(checkpoint, tmp_path, calibration=["a"])
    assert (own / MODEL_FILE).read_bytes() != (bundle / MODEL_FILE).read_bytes()
    assert (own / WEIGHTS_FILE).read_bytes() == (bundle / WEIGHTS_FILE).read_bytes()


@pytest.mark.parametrize("precision", ["fp8", "int8"])
def test_a_loss_over_the_gate_leaves_no_bundle(checkpoint: Path, tmp_path: Path, precision: str) -> None:
    with pytest.raises(ExportError, match=rf"{precision} loses too much .* less than 1 \(--least-cosine\)"):
        build(checkpoint, tmp_path, precision=precision, least_cosine=1.0)
    assert not list(tmp_path.iterdir())
    build(checkpoint, tmp_path, precision=precision, least_cosine=0.9)


def test_a_checkpoint_with_a_weight_that_is_no_number_is_refused(tmp_path: Path) -> None:
    source = write_tiny_nv_embed(tmp_path / "checkpoint")
    path = source / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-4:] = np.array([np.nan], np.float32).tobytes()
    path.write_bytes(content)
    with pytest.raises(ExportError, match=r"model.safetensors: the tensor \S+ holds NaN or infinity"):
        build(source, tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("rounded", [False, True])
def test_the_graph_for_cuda_computes_the_same(tmp_path: Path, rounded: bool) -> None:
    """To the last bits of float64 where only FP8 rounds. Where fp16 rounds too, some numbers fall to another
    neighbour in FP8, which moves vectors by about as much as FP8 itself does."""
    half = write_tiny_nv_embed(tmp_path / "checkpoint", dtype="F16", hidden=96, intermediate=160)
    bundle = build(half, tmp_path)
    spec = spec_of(bundle)
    rows = tokens(bundle / TOKENIZER_FILE, spec, TEXTS)
    [packed], [varlen] = (
        list(batches(rows, 1 << 12, layout, 1, mixed=True)) for layout in ("packed", "varlen")
    )
    assert packed.rows == varlen.rows
    on_cpu = run(bundle / MODEL_FILE, packed.inputs, exact=not rounded)
    on_cuda = run(bundle / CUDA_FILE, varlen.inputs, exact=not rounded)
    lost = 1 - np.sum(on_cpu * on_cuda, axis=1).min()
    assert lost < (0.01 if rounded else 1e-12)
    products = [node.op_type for node in onnx.load(bundle / CUDA_FILE, load_external_data=False).graph.node]
    assert products.count("GemmFloat8") == 7 * 2 + 8


def test_options_that_do_not_go_together_are_refused(checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="least_cosine must be -1 to 1, not 2"):
        build(checkpoint, tmp_path, least_cosine=2)
    with pytest.raises(ExportError, match="device must be auto, cpu or cuda:N, not tensorrt:0"):
        build(checkpoint, tmp_path, device="tensorrt:0")


def test_the_command_says_what_it_measures_on(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("\n".join(TEXTS), "utf-8")
    command = ["export", "nv-embed-v2", "--from", str(checkpoint), "-o", str(tmp_path / "b")]
    texts = ["--calibration", str(tmp_path / "texts"), "--text", str(tmp_path / "texts")]
    done = CliRunner().invoke(cli, [*command, "--precision", "fp8", *texts, "--device", "cpu"])
    assert done.exit_code == 0, done.output
    assert "fp8 is measured on ort-cpu (named)" in done.stderr
    assert "cosine of fp8 to unquantised vectors, 4 texts: mean 0.99" in done.stderr
