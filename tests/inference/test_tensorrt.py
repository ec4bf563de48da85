"""TensorRT engines: made, listed, found, refused; on a stand-in for ONNX Runtime and NVIDIA's libraries."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from support import stand_in
from support.stories import story, stripped
from vcs_export.checks.tensorrt_engines import build_engines
from vcs_export.errors import ExportError
from vcs_runtime import BundleError, DeviceError, Embedder, Scorer
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.onnx_check import check_engine_graph
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

TEXTS = [story(i, 1 + i % 3) for i in range(12)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> stand_in.Machine:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))
    machine = stand_in.put_in(monkeypatch)

    def built(model: Path, options: dict[str, str]) -> None:
        if options.get("trt_dump_ep_context_model") == "1":
            stand_in.write_engine(Path(options["trt_ep_context_file_path"]), model)

    machine.built = built
    return machine


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def built(bundle: Path, **options: Any) -> Path:
    build_engines(open_bundle(bundle), "tensorrt:0", **options)
    return bundle


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_an_engine_is_made_with_a_range_of_shapes_and_listed(bundle: Path, machine: stand_in.Machine) -> None:
    before = json.loads((bundle / MANIFEST).read_text())
    done = run("engine", "build", bundle, "--shape", "8x64")
    assert done.exit_code == 0, done.output
    [session] = [s for s in machine.sessions if "trt_engine_cache_enable" in str(s.providers)]
    options = session.providers["TensorrtExecutionProvider"]
    assert options["trt_profile_min_shapes"] == "input_ids:1x1,attention_mask:1x1"
    longest = -(-before["embedder"]["max_tokens"] // 16) * 16
    assert longest < 64
    assert options["trt_profile_max_shapes"] == f"input_ids:8x{longest},attention_mask:8x{longest}"
    assert options["trt_ep_context_embed_mode"] == "0"
    assert Path(options["trt_timing_cache_path"]).is_dir()
    assert "trt_fp16_enable" not in options  # the graph's own types
    after = json.loads((bundle / MANIFEST).read_text())
    [engine] = after.pop("engines")
    assert engine == {
        "part": "embedder",
        "model": f"engines/sm90/embedder-8x{longest}/model.onnx",
        "engine": f"engines/sm90/embedder-8x{longest}/TRTKernel_0_sm90.engine",
        "made_of": open_bundle(bundle).graph_hash(open_bundle(bundle).manifest.embedder),  # type: ignore[arg-type]
        "architecture": "sm90",
        "tensorrt": "10.16.1",
        "onnxruntime": "1.31.1",
        "rows": 8,
        "tokens": longest,
    }
    added = [entry for entry in after["files"] if entry not in before["files"]]
    assert {entry["path"] for entry in added} == {engine["model"], engine["engine"]}
    after["files"] = before["files"]
    assert after == before
    assert not list(bundle.parent.glob(".*engines-*"))


def test_an_engine_runs_and_gives_what_the_graph_gives(bundle: Path, machine: stand_in.Machine) -> None:
    built(bundle)
    with Embedder.open(bundle, "cpu") as cpu:
        wanted = cpu.embed(TEXTS)
    machine.sessions.clear()
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        np.testing.assert_allclose(embedder.embed(TEXTS), wanted, atol=2e-6)
        assert embedder.device.provider_name == "ort-tensorrt"
    [session] = machine.sessions
    assert session.model.parts[-4:-2] == ("engines", "sm90")
    assert list(session.providers) == ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
    # Nothing is made when a model is opened.
    assert session.providers["TensorrtExecutionProvider"] == {"device_id": "0"}


def test_auto_takes_an_engine_that_fits_else_cuda_and_says_why(
    bundle: Path, machine: stand_in.Machine
) -> None:
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-cuda"
        assert "no TensorRT engine: bundle" in embedder.device.reason
        assert f"vcs-runtime engine build {bundle}" in embedder.device.reason
    built(bundle)
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-tensorrt"
        assert embedder.device.reason == "auto: the bundle has a TensorRT engine for sm90"
    machine.libraries.discard("nvinfer")
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.reason.endswith("no TensorRT engine: TensorRT is not there")
    with pytest.raises(DeviceError, match=r"tensorrt:0: .* lacks libnvinfer\.so\.10"):
        Embedder.open(bundle, "tensorrt:0")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architecture": (8, 9)}, "architecture sm90, here sm89"),
        ({"tensorrt": 101700}, "tensorrt 10.16.1, here 10.17.0"),
    ],
)
def test_an_engine_for_another_gpu_or_by_another_version_is_refused_with_the_command(
    bundle: Path, machine: stand_in.Machine, change: dict[str, Any], says: str
) -> None:
    built(bundle)
    for key, value in change.items():
        setattr(machine, key, value)
    opened = len(machine.sessions)
    with pytest.raises(DeviceError, match=says) as error:
        Embedder.open(bundle, "tensorrt:0")
    assert f"run `vcs-runtime engine build {bundle}` on this machine" in str(error.value)
    assert len(machine.sessions) == opened  # nothing was made or loaded
    assert says in run("engine", "list", bundle).output


def test_an_engine_of_another_graph_is_stale(bundle: Path, machine: stand_in.Machine) -> None:
    built(bundle)
    manifest = open_bundle(bundle).manifest
    assert manifest.engines
    stale = replace(manifest, engines=(replace(manifest.engines[0], made_of="0" * 64),))
    (bundle / MANIFEST).write_text(stale.to_json())
    with pytest.raises(DeviceError, match="made_of 000000000000, here"):
        Embedder.open(bundle, "tensorrt:0")


def test_an_engine_that_was_made_elsewhere_is_loaded_only_when_trusted(
    bundle: Path, machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built(bundle)
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "another machine"))
    with pytest.raises(DeviceError, match="is machine code that was not made here") as error:
        Embedder.open(bundle, "tensorrt:0")
    assert f"vcs-runtime engine trust {bundle}" in str(error.value)
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-cuda"
    assert run("engine", "trust", bundle).exit_code == 0
    Embedder.open(bundle, "tensorrt:0").close()
    [engine] = bundle.rglob("*.engine")
    engine.write_bytes(engine.read_bytes() + b" ")
    with pytest.raises(BundleError):
        Embedder.open(bundle, "tensorrt:0")


def test_batches_beyond_an_engine_go_to_cuda_and_that_is_said_once(
    bundle: Path, machine: stand_in.Machine, caplog: pytest.LogCaptureFixture
) -> None:
    built(bundle, shapes=[(2, 8)])
    with Embedder.open(bundle, "cpu") as cpu:
        wanted = cpu.embed(TEXTS)
    machine.sessions.clear()
    with caplog.at_level(logging.WARNING, "vcs_runtime"), Embedder.open(bundle, "tensorrt:0") as embedder:
        embedder.embed(["a man"])
        assert len(machine.sessions) == 1
        np.testing.assert_allclose(embedder.embed(TEXTS), wanted, atol=2e-6)
        embedder.embed(TEXTS)
        assert [list(s.providers) for s in machine.sessions[1:]] == [["CUDAExecutionProvider"]]
        embedder.release()
        np.testing.assert_allclose(embedder.embed(TEXTS), wanted, atol=2e-6)
    [record] = caplog.records
    assert "beyond the TensorRT engine's 2 x 8" in record.getMessage()


def test_the_smallest_engine_that_takes_a_batch_runs_it(bundle: Path, machine: stand_in.Machine) -> None:
    built(bundle, shapes=[(16, 8), (4, 32)])
    machine.sessions.clear()
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        embedder.embed(["a man"])
        embedder.embed(["a man " * 10])
        embedder.embed([*TEXTS, *(f"a man {word}" for word in "runs walks sits looks smiles turns".split())])
    assert {session.model.parent.name for session in machine.sessions} == {"embedder-16x8", "embedder-4x32"}
    assert all((rows <= 16 and tokens <= 8) or rows <= 4 for (rows, tokens), _ in machine.runs)
    assert any(rows > 4 for (rows, _), _ in machine.runs)


def test_both_parts_of_a_bundle_get_engines(
    mixed_bundle: Path, tiny_bundle: Path, tmp_path: Path, machine: stand_in.Machine
) -> None:
    both = tmp_path / "both"
    done = run("bundle", "make", "--embedder", tiny_bundle, "--segmenter", mixed_bundle, "-o", both)
    assert done.exit_code == 0, done.output
    pair = (stripped(1, 3), stripped(2, 3))
    with Scorer.open(both, "cpu") as cpu:
        wanted = cpu.score(*pair)
    built(both)
    with Scorer.open(both, "tensorrt:0") as scorer:
        assert scorer.score(*pair).scores == pytest.approx(wanted.scores, abs=1e-5)
        assert "engine:ort-tensorrt" in scorer.signature
    engines = open_bundle(both).manifest.engines
    assert engines
    assert [engine.part for engine in engines] == ["embedder", "segmenter"]
    # What is made of the bundle afterwards leaves the engines behind.
    done = run("bundle", "make", "--embedder", both, "--segmenter", both, "-o", tmp_path / "next")
    assert done.exit_code == 0, done.output
    assert open_bundle(tmp_path / "next").manifest.engines is None
    assert not list((tmp_path / "next").rglob("*.engine"))
    # One part anew: the other one's stays.
    built(both, parts=["embedder"])
    assert len(open_bundle(both).manifest.engines or ()) == 2


def test_a_bundle_with_engines_packs_and_unpacks(
    bundle: Path, tmp_path: Path, machine: stand_in.Machine
) -> None:
    built(bundle)
    assert run("bundle", "pack", bundle, "-o", tmp_path / "b.tar").exit_code == 0
    assert run("bundle", "unpack", tmp_path / "b.tar", "-o", tmp_path / "other").exit_code == 0
    with Embedder.open(tmp_path / "other", "tensorrt:0") as embedder:  # the same bytes on the same machine
        assert embedder.device.engines


@pytest.mark.parametrize("pieces", [0, 2])
def test_a_graph_that_tensorrt_takes_in_part_leaves_the_bundle_as_it_was(
    bundle: Path, machine: stand_in.Machine, pieces: int
) -> None:
    before = (bundle / MANIFEST).read_bytes()

    def some(model: Path, options: dict[str, str]) -> None:
        if context := options.get("trt_ep_context_file_path"):
            stand_in.write_engine(Path(context), model, pieces)

    machine.built = some
    with pytest.raises(ExportError, match=f"took the graph in {pieces} pieces"):
        built(bundle)
    assert (bundle / MANIFEST).read_bytes() == before
    assert not (bundle / "engines").exists()
    open_bundle(bundle)


def test_a_failed_build_says_what_tensorrt_said(bundle: Path, machine: stand_in.Machine) -> None:
    def fail(model: Path, options: dict[str, str]) -> None:
        raise RuntimeError("TensorRT EP failed to create engine from network")

    machine.built = fail
    done = run("engine", "build", bundle)
    assert isinstance(done.exception, ExportError)
    assert "failed to create engine from network" in str(done.exception)


def test_a_packed_graph_is_refused_before_anything_is_made(tmp_path: Path, machine: stand_in.Machine) -> None:
    from support.tiny_nv_embed import build_tiny_nv_embed_bundle

    packed = build_tiny_nv_embed_bundle(tmp_path / "packed")
    with pytest.raises(ExportError, match="export it with `--target tensorrt`"):
        built(packed)
    assert not machine.sessions


def test_engine_check_goes_through_parse_build_parity_and_speed(
    bundle: Path, machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("engine", "check", bundle)
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if line.startswith("ok")]
    assert [line.split(": ")[0].split()[1] for line in lines] == ["embedder", "built", "embedder", "embedder"]
    assert "differs from CUDA by" in done.output
    assert "times that of CUDA" in done.output
    # And where an engine computes something else:
    embed = Embedder.embed

    def wrong(self: Embedder, *texts: Any, **options: Any) -> Any:
        return embed(self, *texts, **options) * (-1 if self.device.engines else 1)

    monkeypatch.setattr(Embedder, "embed", wrong)
    done = run("engine", "check", bundle)
    assert done.exit_code == 1
    assert "FAILED embedder: parity" in done.output


def test_the_static_check_needs_no_gpu(tiny_bundle: Path, tmp_path: Path) -> None:
    from support.tiny_nv_embed import build_tiny_nv_embed_bundle

    done = run("engine", "check", "--static", tiny_bundle)
    assert (done.exit_code, done.output) == (0, "ok     embedder: operators: all known to TensorRT 10\n")
    done = run("engine", "check", "--static", build_tiny_nv_embed_bundle(tmp_path / "packed"))
    assert done.exit_code == 1
    assert "nonpad_kv_seqlen" in done.output


def test_without_a_gpu_nothing_is_made(bundle: Path) -> None:
    with pytest.raises(DeviceError, match="tensorrt:0: the installed ONNX Runtime has no Tensorrt"):
        built(bundle)


def test_a_wrong_shape_is_refused(bundle: Path) -> None:
    done = run("engine", "build", bundle, "--shape", "8 by 64")
    assert done.exit_code == 2
    assert "is not ROWSxTOKENS" in done.output


ATTACKS: dict[str, Callable[[Path], None]] = {
    "another file": lambda path: stand_in.write_engine(path, path, ep_cache_context="../secret.engine"),
    "an engine inside": lambda path: stand_in.write_engine(path, path, embed_mode=1),
    "no mode": lambda path: stand_in.write_engine(path, path, embed_mode="0"),
    "no context": lambda path: stand_in.write_engine(path, path, ep_cache_context=3),
    "a tensor": lambda path: stand_in.write_engine(
        path, path, extra=onnx.helper.make_tensor("t", onnx.TensorProto.FLOAT, [1], [1.0])
    ),
    "two nodes": lambda path: _save(path, ["EPContext", "EPContext"]),
    "another operator": lambda path: _save(path, ["Relu"]),
    "no node": lambda path: _save(path, []),
    "no graph": lambda path: path.write_bytes(b"\x08\x09") and None,
    "nothing": lambda path: path.write_bytes(b"") and None,
    "too large": lambda path: path.write_bytes(bytes(2 << 20)) and None,
}


def _save(path: Path, operators: list[str]) -> None:
    nodes = [onnx.helper.make_node(kind, ["x"], ["y"], domain="com.microsoft") for kind in operators]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [], [])), path)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_graph_of_an_engine_refers_to_its_engine_and_to_nothing_else(tmp_path: Path, attack: str) -> None:
    path = tmp_path / "model.onnx"
    stand_in.write_engine(path, path)
    check_engine_graph(path, "TRTKernel_0_sm90.engine")
    ATTACKS[attack](path)
    with pytest.raises(BundleError, match=r"model\.onnx: "):
        check_engine_graph(path, "TRTKernel_0_sm90.engine")


def test_doctor_names_the_gpu_and_what_is_missing(machine: stand_in.Machine) -> None:
    machine.libraries -= {"cublas", "nvinfer"}
    report = json.loads(run("doctor", "--json").output)
    assert report["GPU 0"] == "NVIDIA H200, sm90, 151 GB, FP8"
    assert report["libcudart.so.13"] == "13.0"
    assert report["libcudnn.so.9"] == "9.14.0"
    assert report["libcuda.so.1"] == "CUDA 13.0"
    assert report["libcublas.so.13"] == "missing (nvidia-cublas)"
    assert "libnvinfer.so.10 (tensorrt-cu13>=10,<11" in report["TensorRT"]
    assert any("CUDA provider of ONNX Runtime lacks libcublas.so.13" in line for line in report["problems"])
    assert not any("nvinfer" in line for line in report["problems"])


@pytest.fixture
def fp8(bundle: Path) -> Path:
    """A bundle that says it is in FP8; what it computes does not matter here."""
    data = json.loads((bundle / MANIFEST).read_text())
    data["embedder"]["precision"] = "fp8"
    (bundle / MANIFEST).write_text(json.dumps(data))
    return bundle


@pytest.mark.parametrize("architecture", [(8, 0), (8, 6), (7, 5)])
def test_fp8_is_refused_on_a_gpu_that_has_none(
    fp8: Path, machine: stand_in.Machine, architecture: tuple[int, int]
) -> None:
    machine.architecture = architecture
    needs = r"in FP8, which needs a GPU of compute capability 8\.9 or later .* is sm(80|86|75): .*fp16"
    with pytest.raises(DeviceError, match=f"cuda:0: .*{needs}"):
        Embedder.open(fp8, "cuda:0")
    with pytest.raises(DeviceError, match=f"tensorrt:0: .*{needs}"):
        Embedder.open(fp8, "tensorrt:0")
    with pytest.raises(DeviceError, match=needs):
        build_engines(open_bundle(fp8))
    assert not machine.sessions
    with Embedder.open(fp8, "auto") as embedder:  # alone may fall back, and says so
        assert embedder.device.provider_name == "ort-cpu"
        assert "auto: " in embedder.device.reason
        assert "in FP8" in embedder.device.reason


@pytest.mark.parametrize("architecture", [(8, 9), (9, 0), (10, 0), (12, 0)])
def test_fp8_runs_from_ada_on(fp8: Path, machine: stand_in.Machine, architecture: tuple[int, int]) -> None:
    machine.architecture = architecture
    built(fp8)
    with Embedder.open(fp8, "auto") as embedder:
        assert embedder.device.provider_name == "ort-tensorrt"
        assert embedder.embed(TEXTS[:2]).shape[0] == 2
