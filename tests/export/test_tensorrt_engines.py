"""`vcs-runtime engine`: built by a stand-in for TensorRT's package, listed, measured, refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest

from support import stand_in, tensorrt_stand_in
from support.changed_bundles import edit
from support.engines import TEXTS, built, run
from support.tensorrt_stand_in import BuilderFlag, Built
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.checks import tensorrt_engines
from vcs_export.errors import ExportError
from vcs_runtime import DeviceError, Embedder
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.opening import open_bundle


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> stand_in.Machine:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))
    return stand_in.put_in(monkeypatch)


@pytest.fixture
def tensorrt(machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Built:
    return tensorrt_stand_in.put_in(monkeypatch, tmp_path / "networks")


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def test_a_strongly_typed_engine_is_built_and_listed(bundle: Path, tensorrt: Built, tmp_path: Path) -> None:
    before = json.loads((bundle / MANIFEST).read_text())
    done = run("engine", "build", bundle)
    assert done.exit_code == 0, done.output
    [network] = tensorrt.networks
    assert network["flags"] == 1 << 1  # STRONGLY_TYPED alone: 0 would be the weakly typed network
    assert BuilderFlag.TF32 not in network["builder_flags"]
    longest = -(-before["embedder"]["max_tokens"] // 16) * 16
    rows = 32768 // longest
    shape = ((1, 1), (rows, longest // 2), (rows, longest))
    assert network["shapes"] == [{"input_ids": shape, "attention_mask": shape}]
    after = json.loads((bundle / MANIFEST).read_text())
    [engine] = after.pop("engines")
    assert engine == {
        "part": "embedder",
        "model": f"engines/NVIDIA-H200/embedder-{rows}x{longest}/model.onnx",
        "engine": f"engines/NVIDIA-H200/embedder-{rows}x{longest}/model.engine",
        "made_of": open_bundle(bundle).graph_hash(open_bundle(bundle).manifest.embedder),  # type: ignore[arg-type]
        "architecture": "sm90",
        "gpu": "NVIDIA H200",
        "tensorrt": "10.16.1",
        "onnxruntime": "1.31.1",
        "rows": rows,
        "tokens": longest,
        "precision": "fp16",
    }
    added = [entry for entry in after["files"] if entry not in before["files"]]
    assert {entry["path"] for entry in added} == {engine["model"], engine["engine"]}
    after["files"] = before["files"]
    assert after == before
    assert not list(bundle.parent.glob(".*engines-*"))


def test_the_graph_of_an_engine_is_as_onnx_runtime_writes_it(bundle: Path, tensorrt: Built) -> None:
    built(bundle, (8, 32))
    [engine] = open_bundle(bundle).manifest.engines or ()
    graph = onnx.load(bundle / engine.model).graph
    [node] = graph.node
    assert (node.op_type, node.domain) == ("EPContext", "com.microsoft")
    assert {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute} == {
        "embed_mode": 0,
        "ep_cache_context": b"model.engine",
        "hardware_architecture": b"90",
        "main_context": 1,
        "max_size": 0,
        "onnx_model_filename": b"model.onnx",
        "source": b"TensorrtExecutionProvider",
    }
    source = onnx.load(bundle / "embedder" / "model.onnx", load_external_data=False).graph
    for ours, theirs in ((graph.input, source.input), (graph.output, source.output)):
        assert [(item.name, item.type) for item in ours] == [(item.name, item.type) for item in theirs]
    assert list(node.input) == [item.name for item in graph.input]
    assert list(node.output) == [item.name for item in graph.output]


@pytest.mark.parametrize(
    ("longest", "sizes"),
    [(900, [(35, 912), (512, 64)]), (32, [(1024, 32)]), (8192, [(4, 8192), (32, 1024), (512, 64)])],
)
def test_chunks_documents_and_the_longest_texts_have_an_engine_each(
    bundle: Path, tensorrt: Built, longest: int, sizes: list[tuple[int, int]]
) -> None:
    edit(bundle, lambda data: data["embedder"].update(max_tokens=longest))
    built(bundle)
    assert [(engine.rows, engine.tokens) for engine in open_bundle(bundle).manifest.engines or ()] == sizes


def test_the_timing_of_kernels_is_kept_unless_it_is_of_another_version(
    bundle: Path, tensorrt: Built, tmp_path: Path
) -> None:
    built(bundle)
    [timing] = (tmp_path / "home" / "tensorrt").iterdir()
    assert timing.read_bytes() == b"timing of 10.16.1+"
    built(bundle)
    assert timing.read_bytes() == b"timing of 10.16.1++"
    tensorrt.timing = b"timing of another driver"
    built(bundle)
    assert timing.read_bytes() == b"timing of another driver+"


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("11.4.0.106", "loads engines of TensorRT 10, and the Python package tensorrt is 11.4.0.106"),
        ("10.9.0.34", "the Python package tensorrt is 10.9.0.34, and libnvinfer.so.10 is 10.16.1"),
        (
            None,
            r"needs the Python package tensorrt .*pip install 'tensorrt-cu13==10\.\*'.*\[tensorrt\].*pypi\.nvidia",
        ),
    ],
)
def test_a_missing_or_other_python_package_is_named(
    bundle: Path, tensorrt: Built, monkeypatch: pytest.MonkeyPatch, version: str | None, says: str
) -> None:
    if version:
        monkeypatch.setattr(sys.modules["tensorrt"], "__version__", version)
    else:
        monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(DeviceError, match=says):
        built(bundle)


def test_older_versions_of_the_python_package_have_three_numbers(
    bundle: Path, tensorrt: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", "10.16.1")
    assert built(bundle)


def test_tensorrts_own_words_end_a_build_that_fails(bundle: Path, tensorrt: Built) -> None:
    before = (bundle / MANIFEST).read_bytes()
    tensorrt.fails = "Error Code 10: Could not find any implementation for node"
    with pytest.raises(ExportError, match="embedder: TensorRT builds no engine: Error Code 10") as error:
        built(bundle)
    assert "chatter" not in str(error.value)
    tensorrt.refuses = "Attention has no kernel"
    with pytest.raises(
        ExportError, match="parser refuses the graph: Attention node_7: Attention has no kernel"
    ):
        built(bundle)
    assert (bundle / MANIFEST).read_bytes() == before
    assert not (bundle / "engines").exists()
    assert not list(bundle.parent.glob(".*engines-*"))


def test_an_engine_that_does_not_load_is_not_listed(
    bundle: Path, tensorrt: Built, machine: stand_in.Machine
) -> None:
    machine.starts = False
    with pytest.raises(DeviceError, match="fell back"):
        built(bundle)
    assert not open_bundle(bundle).manifest.engines


def test_what_is_no_encoder_is_refused_before_anything_is_built(tmp_path: Path, tensorrt: Built) -> None:
    with pytest.raises(ExportError, match="is a decoder, which CUDA runs without padding: use cuda:N"):
        built(build_tiny_nv_embed_bundle(tmp_path))
    sat = build_tiny_sat_bundle(tmp_path / "sat")
    edit(sat, lambda data: data["segmenter"]["model"].update(precision="int8"))
    with pytest.raises(ExportError, match="from graphs in fp32 or fp16, and tiny-sat is in int8"):
        built(sat)
    assert not tensorrt.networks


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt_engines, "job_texts", lambda: TEXTS)


def test_speed_is_measured_on_texts_like_those_of_a_job() -> None:
    lengths = [len(text.split()) for text in set(tensorrt_engines.job_texts())]
    assert sorted(lengths) == [20] * 630 + [450] * 27


@pytest.mark.usefixtures("few_texts")
def test_engine_check_goes_through_fit_parity_and_speed(
    bundle: Path, tensorrt: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_engines, "_times_cuda", lambda ours, cuda: 1.3)
    done = run("engine", "check", bundle)
    assert done.exit_code == 1
    assert (
        f"FAILED embedder: engine: bundle {bundle} has no TensorRT engine of its embedder: run" in done.output
    )
    built(bundle)
    done = run("engine", "check", bundle)
    assert done.exit_code == 0, done.output
    assert [line.split(": ")[1] for line in done.output.splitlines()] == ["engine", "parity", "speed"]
    assert "differs from CUDA by" in done.output
    assert "1.30 times that of CUDA" in done.output
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-tensorrt"
        assert embedder.device.reason == "auto: TensorRT engine, 1.30 times as fast as CUDA here"
    assert "model.onnx; 1.30 times as fast as CUDA here" in run("engine", "list", bundle).output
    # And where an engine computes something else:
    embed = Embedder.embed

    def wrong(self: Embedder, *texts: Any, **options: Any) -> Any:
        return embed(self, *texts, **options) * (-1 if self.device.engines else 1)

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "embed", wrong)
        done = run("engine", "check", bundle)
    assert done.exit_code == 1
    assert "FAILED embedder: parity" in done.output
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-cuda"
    assert "engine not measured yet" in run("engine", "list", bundle).output


@pytest.mark.usefixtures("few_texts")
def test_a_measured_speed_is_a_ratio_of_times(
    bundle: Path, tensorrt: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(tensorrt_engines.time, "perf_counter", lambda: next(clock))
    built(bundle)
    done = run("engine", "check", bundle)
    assert "ok     embedder: speed: 1.00 times that of CUDA" in done.output
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-cuda"
        assert embedder.device.reason.endswith("TensorRT is not used: 1.00 times as fast as CUDA here")


def test_without_a_gpu_nothing_is_built(bundle: Path) -> None:
    with pytest.raises(DeviceError, match="tensorrt:0: the installed ONNX Runtime has no Tensorrt"):
        built(bundle)


@pytest.mark.parametrize("command", ["build", "check", "list"])
def test_another_device_is_refused(bundle: Path, command: str) -> None:
    done = run("engine", command, bundle, "--device", "cuda:0")
    assert done.exit_code == 2
    assert "'cuda:0' is not tensorrt:N" in done.output
