"""Engines by the real builder of TensorRT for RTX, which needs no GPU.

What an engine computes is not known without one. Nothing here looks into an engine.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from support import fake_tensorrt, tiny_modernbert
from support.gpu_bundles import GpuBundles
from support.tiny_bert import build_tiny_bundle
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.checks.tensorrt_engines import build_plan
from vcs_export.errors import ExportError
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.graph.half import write_half
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS, SEGMENTER_INPUTS
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.inference import rtx_session
from vcs_runtime.inference.rtx_session import CAPABILITIES, import_tensorrt, logger
from vcs_runtime.inference.tensorrt import profiles_of


def modernbert(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ModernBERT of two layers, in the width of the published ones."""
    sizes = {"HIDDEN": 768, "HEADS": 12, "INNER": 1152, "LAYERS": 2, "POSITIONS": 2048}
    for name, size in sizes.items():
        monkeypatch.setattr(tiny_modernbert, name, size)
    source = tiny_modernbert.write_tiny_modernbert(folder / "checkpoint", local_attention=128)
    info = BundleInfo("m", "CC0-1.0", "random numbers")
    return build_sentence_bundle(Build(source, folder / "bundle", info))


def bundle_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    if name == "BERT":
        return open_bundle(
            build_tiny_bundle(folder, hidden=768, heads=12, max_position=512, max_tokens=512)
        )
    if name == "SaT":
        return open_bundle(build_tiny_sat_bundle(folder, layers=2, hidden=768, heads=12))
    if name == "ModernBERT":
        return open_bundle(modernbert(folder, monkeypatch))
    return open_bundle("default")


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("default", "embedder"),
        ("default", "segmenter"),
        ("BERT", "embedder"),
        ("SaT", "segmenter"),
        ("ModernBERT", "embedder"),
    ],
)
def test_an_engine_has_the_same_bytes_each_time_and_what_the_session_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    bundle = bundle_of(name, tmp_path / "made", monkeypatch)
    spec = bundle.part(part)
    assert spec is not None
    half = write_half(bundle.path(spec.model), tmp_path / "half")
    if isinstance(spec, EmbedderSpec):
        names = EMBEDDER_INPUTS["padded"]
    else:
        names = SEGMENTER_INPUTS[spec.kind]
    inputs, outputs = tensors_of(half)
    assert inputs == dict.fromkeys(names, ("INT64", 2))
    [(kind, rank)] = outputs.values()
    assert (kind in ("FLOAT", "HALF"), rank) == (True, 2 if part == "embedder" else 3)

    log = io.StringIO()
    plan = build_plan(half, profiles_of(spec), log)
    assert len(plan) > half.with_name(f"{half.name}.data").stat().st_size * 0.9
    again = build_plan(half, profiles_of(spec))
    # The builder arranges some hundred bytes of a ModernBERT's engine by chance.
    assert again == plan or (name == "ModernBERT" and len(again) == len(plan))
    assert log.getvalue().startswith("INFO ")
    assert not re.search("ERROR|not self-consistent", log.getvalue())


def tensors_of(graph: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return kind and number of axes of each input and of each output of a parsed graph."""
    trt = import_tensorrt()
    log = logger(trt)
    network = trt.Builder(log).create_network(0)
    assert trt.OnnxParser(network, log).parse_from_file(str(graph))
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    outputs = [network.get_output(i) for i in range(network.num_outputs)]
    return tuple(
        {item.name: (item.dtype.name, len(item.shape)) for item in items}
        for items in (inputs, outputs)
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("default", "parser refuses the graph: .* It accepts only standard ONNX operators"),
        ("int8", "parser refuses the graph: .*MatMulNBits"),
        ("fp16", "builds no engine"),
    ],
)
def test_graphs_of_decoders_and_of_cuda_are_refused(
    bundles: GpuBundles, name: str, says: str
) -> None:
    bundle = open_bundle("default" if name == "default" else bundles.nv_embed(name))
    spec = bundle.part("embedder")
    assert spec is not None
    graph = spec.model
    if name == "default":
        assert spec.cuda is not None
        graph = spec.cuda.model
    with pytest.raises(ExportError, match=f"{says}.*: use cuda:N"):
        build_plan(bundle.path(graph), profiles_of(spec))


def test_no_engine_is_built_for_turing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turing has the capability 7.5. Hopper's 9.0 cannot even be named."""
    known = import_tensorrt().ComputeCapability.__members__
    assert set(map(str.upper, CAPABILITIES)) | {"SM75"} == known.keys() - {"NONE", "CURRENT"}
    half = write_half(build_tiny_bundle(tmp_path) / "embedder/model.onnx", tmp_path / "half")
    monkeypatch.setattr(rtx_session, "CAPABILITIES", (*CAPABILITIES, "sm75"))
    with pytest.raises(
        ExportError, match=r"builds no engine: .*Turing.*FP32 GEMM is not supported"
    ):
        build_plan(half, ((8, 32),))


def test_the_fake_has_no_call_that_nvidias_packages_lack() -> None:
    trt = import_tensorrt()
    core = pytest.importorskip("cuda.core")
    for fake, real in (
        (fake_tensorrt.Engine, trt.ICudaEngine),
        (fake_tensorrt.Context, trt.IExecutionContext),
        (fake_tensorrt.Buffer, core.Buffer),
    ):
        calls = {name for name in vars(fake) if not name.startswith("_")}
        assert calls <= set(dir(real))
    assert {"weights_loaded", "num_io_tensors"} <= set(dir(trt.ICudaEngine))
    assert {"serialize", "deserialize"} <= set(dir(trt.IRuntimeCache))
    config = set(dir(trt.IRuntimeConfig))
    assert {"create_runtime_cache", "set_runtime_cache"} <= config
    assert "dynamic_shapes_kernel_specialization_strategy" in config
    assert "defer_weights_loading" in dir(trt.Runtime)
    assert core.DeviceMemoryResourceOptions(max_size=1).max_size == 1
    assert {"EAGER", "NONE"} <= trt.DynamicShapesKernelSpecializationStrategy.__members__.keys()
    assert "USER_MANAGED" in trt.ExecutionContextAllocationStrategy.__members__
