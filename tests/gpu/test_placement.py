"""Which nodes the CUDA provider takes, what crosses the bus, and what of NVIDIA's libraries is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.cuda_stand_ins import DryGpu, Run, WatchedSession, mark, watch_sessions
from support.gpu_bundles import LAYERS, SHAPES, GpuBundles, without_cuda_graph
from support.gpu_runs import attention, embed, segment
from support.tiny_modernbert import write_tiny_modernbert
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.opening import open_bundle

Embedded = Callable[..., Run]
# What only says how large something is: a few numbers, which the provider leaves to the CPU on purpose.
SHAPE_OPERATORS = {"Shape", "Size", "Gather", "Squeeze", "Unsqueeze", "Slice", "Concat", "Cast"}
SHORT = {name: SHAPES[name] for name in ("a pair", "a short text")}
TEXTS = ["man woman dog " * 80, "cat horse"]


@pytest.fixture(scope="session")
def default_bundle() -> Path:
    return open_bundle("default").root


@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp8", "int8"])
def test_nv_embed_computes_on_the_gpu_alone(embedded: Embedded, precision: str) -> None:
    run = embedded(precision)
    [session] = run.value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert len(session.nodes("CUDA")) > 60
    assert run.stderr == ""


def test_the_default_embedder_computes_on_the_gpu_alone(dry_gpu: DryGpu, default_bundle: Path) -> None:
    [session] = dry_gpu.call(embed, str(default_bundle), SHORT).value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert len(session.nodes("CUDA")) > 60


def test_modernbert_computes_on_the_gpu_alone(dry_gpu: DryGpu, tmp_path: Path) -> None:
    checkpoint = write_tiny_modernbert(tmp_path / "checkpoint")
    build = Build(checkpoint, tmp_path / "bundle", BundleInfo("tiny", "CC0-1.0", "random"))
    bundle = build_sentence_bundle(build)
    [session] = dry_gpu.call(embed, str(bundle), SHORT).value
    # The length and the number of blocks are a few numbers too.
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS | {"Add", "Sub", "Div", "Greater", "Where"}
    assert len(session.nodes("CUDA")) > 200


@pytest.mark.parametrize("bundle", ["default", "SaT fp16"])
def test_a_learned_segmenter_computes_on_the_gpu_alone(
    dry_gpu: DryGpu, bundles: GpuBundles, default_bundle: Path, bundle: str
) -> None:
    folder = default_bundle if bundle == "default" else bundles.sat("fp16")
    run = dry_gpu.call(segment, str(folder), TEXTS)
    [session] = run.value
    assert set(session.nodes("CPU")) <= SHAPE_OPERATORS
    assert run.log["texts"].kernels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision", ["fp16", "bf16", "fp8", "int8"])
def test_only_inputs_and_vectors_cross_the_bus(embedded: Embedded, precision: str, shape: str) -> None:
    run = embedded(precision)
    log, [session] = run.log[shape], run.value
    runs = sum(copy.kind == "from the GPU" for copy in log.copies)
    vectors = [copy.bytes for copy in log.copies if copy.kind == "from the GPU"]
    assert sum(vectors) == len(SHAPES[shape]) * 512 * 4
    assert sum(copy.kind == "to the GPU" for copy in log.copies) <= len(session.runs[0]) * runs


def test_a_learned_segmenter_needs_no_cudnn(
    dry_gpu: DryGpu, bundles: GpuBundles, default_bundle: Path
) -> None:
    for folder in (bundles.sat("fp16"), default_bundle):
        run = dry_gpu.call(segment, str(folder), TEXTS, lacking=["libcudnn.so.9"])
        assert run.log["texts"].kernels


def open_plainly(model: str, width: int = 0) -> WatchedSession:
    """Open a graph as any program would, without our settings; run it on three rows, if `width` is given."""
    import onnxruntime as ort

    sessions = watch_sessions()
    session = ort.InferenceSession(model, ort.SessionOptions(), [("CUDAExecutionProvider", {})])
    if width:
        mark("run")
        session.run(None, {item.name: np.ones((3, width), np.int64) for item in session.get_inputs()})
    return sessions[0]


def reduce_by_cudnn() -> str:
    """Run the operator by which vectors got unit length before, and return what is said against it."""
    import onnxruntime as ort
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, None]) for name in "xy")
    graph = helper.make_graph([helper.make_node("ReduceL2", ["x"], ["y"])], "before", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CUDAExecutionProvider"])
    try:
        session.run(None, {"x": np.ones((2, 3), np.float32)})
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize("bundle", ["fp16", "bf16", "int8", "BERT"])
def test_cudnn_is_not_needed(dry_gpu: DryGpu, bundles: GpuBundles, tiny_bundle: Path, bundle: str) -> None:
    folder = tiny_bundle if bundle == "BERT" else bundles.nv_embed(bundle)
    run = dry_gpu.call(embed, str(folder), SHORT, lacking=["libcudnn.so.9"])
    assert run.log["a pair"].kernels
    if bundle == "fp16":
        before = dry_gpu.call(reduce_by_cudnn, lacking=["libcudnn.so.9"]).value
        assert "cuDNN is unavailable" in before  # `inference.device` says what to do about it


def test_widths_of_padded_batches_are_multiples_of_4(
    dry_gpu: DryGpu, bundles: GpuBundles, default_bundle: Path
) -> None:
    """The CUDA provider has no fused attention for a mask of another width."""
    bundle = without_cuda_graph(bundles.nv_embed("fp16", target_runtime="tensorrt"))
    shapes = {"201": [201] * 3, "mixed": [201, 199, 171, 77, 9]}
    for folder, device in ((bundle, "cuda:0"), (default_bundle, "cuda:0:fp32")):
        run = dry_gpu.call(embed, str(folder), shapes, None, device)
        assert [inputs["input_ids"][1] for inputs in run.value[0].runs] == [204, 204]
    model = str(bundle / "embedder/model.onnx")
    odd, even = (
        set(attention(dry_gpu.call(open_plainly, model, width).log["run"], LAYERS)) for width in (201, 204)
    )
    assert even == {"attention_kernel_batched_impl"}
    assert odd != even
