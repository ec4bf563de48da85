"""TensorRT engines: built, listed, found, refused; on a stand-in for NVIDIA's libraries."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import stand_in, tensorrt_stand_in
from support.changed_bundles import edit
from support.engines import TEXTS, built, run
from support.rounding import FP32_NOISE, PROBABILITIES, ROUNDOFF
from support.stories import stripped
from support.tiny_bert import build_tiny_bundle
from vcs_runtime import DeviceError, Embedder, Scorer
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.bundle.paths import home
from vcs_runtime.inference.tensorrt import engines_folder


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> stand_in.Machine:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))
    machine = stand_in.put_in(monkeypatch)
    tensorrt_stand_in.put_in(monkeypatch, tmp_path / "networks")
    return machine


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def test_an_engine_runs_and_gives_what_the_graph_gives(
    bundle: Path, machine: stand_in.Machine
) -> None:
    built(bundle)
    with Embedder.open(bundle, "cpu") as cpu:
        wanted = cpu.embed(TEXTS)
    machine.sessions.clear()
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        difference = np.abs(embedder.embed(TEXTS) - wanted).max()
        assert FP32_NOISE < difference < 4 * ROUNDOFF["fp16"]  # products are in fp16
        assert embedder.device.provider_name == "ort-tensorrt"
    [session] = machine.sessions
    assert session.model.is_relative_to(home() / "engines")
    assert list(session.providers) == ["TensorrtExecutionProvider", "CUDAExecutionProvider"]
    # Nothing is made when a model is opened.
    assert session.providers["TensorrtExecutionProvider"] == {}


def test_auto_takes_engines_that_were_measured_to_be_faster_else_cuda_and_says_why(
    bundle: Path, machine: stand_in.Machine
) -> None:
    def chosen() -> tuple[str, str]:
        with Embedder.open(bundle, "auto") as embedder:
            return embedder.device.provider_name, embedder.device.reason

    provider, reason = chosen()
    assert provider == "ort-cuda"
    assert "TensorRT is not used: there is no TensorRT engine of its embedder" in reason
    assert f"vcs-runtime engine build {bundle}" in reason
    for seconds, wanted in ((1.3, "ort-tensorrt"), (1.02, "ort-cuda"), (0.5, "ort-cuda")):
        built(bundle, seconds=(1.0, seconds))
        provider, reason = chosen()
        assert provider == wanted
        assert reason.endswith(f"{seconds:.2f} times as fast as CUDA here")
    report = json.loads(run("doctor", "--json", "--bundle", bundle).output)
    assert report["TensorRT engine"] == "0.50 times as fast as CUDA here"
    machine.libraries.discard("nvinfer")
    assert chosen()[1].endswith("TensorRT is not used: it is not installed")
    with pytest.raises(DeviceError, match=r"tensorrt:0: .* lacks libnvinfer\.so\.10"):
        Embedder.open(bundle, "tensorrt:0")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"architecture": (8, 9)}, r"NVIDIA H200 \(sm89\), TensorRT 10.16.1"),
        ({"gpu": "NVIDIA H100 PCIe"}, r"NVIDIA H100 PCIe \(sm90\)"),
        ({"tensorrt": 101700}, r"NVIDIA H200 \(sm90\), TensorRT 10.17.0, ONNX Runtime 1.31.1"),
    ],
)
def test_an_engine_for_another_gpu_or_by_another_version_is_none(
    bundle: Path, machine: stand_in.Machine, change: dict[str, Any], says: str
) -> None:
    built(bundle)
    for key, value in change.items():
        setattr(machine, key, value)
    opened = len(machine.sessions)
    with pytest.raises(
        DeviceError, match=f"no TensorRT engine of its embedder for {says}"
    ) as error:
        Embedder.open(bundle, "tensorrt:0")
    assert f"run `vcs-runtime engine build {bundle}`" in str(error.value)
    assert len(machine.sessions) == opened  # nothing was made or loaded
    with Embedder.open(bundle, "auto") as embedder:
        assert embedder.device.provider_name == "ort-cuda"


def test_another_graph_has_other_engines(
    bundle: Path, tmp_path: Path, machine: stand_in.Machine
) -> None:
    built(bundle)
    Embedder.open(Path(shutil.copytree(bundle, tmp_path / "copy")), "tensorrt:0").close()
    with pytest.raises(DeviceError, match="there is no TensorRT engine"):
        Embedder.open(build_tiny_bundle(tmp_path / "other", seed=1), "tensorrt:0")


def test_engines_are_not_loaded_where_others_can_write(
    bundle: Path, machine: stand_in.Machine
) -> None:
    """An engine is machine code."""
    built(bundle)
    folder, _ = engines_folder(open_bundle(bundle), "embedder", 0)
    folder.chmod(0o777)
    with pytest.raises(DeviceError, match="other users can write to it, so it is not used"):
        Embedder.open(bundle, "tensorrt:0")


def test_a_text_beyond_all_engines_is_refused(bundle: Path, machine: stand_in.Machine) -> None:
    built(bundle, (2, 8))
    with Embedder.open(bundle, "tensorrt:0", proof=False) as embedder:
        embedder.embed(["a man"])
        with pytest.raises(
            DeviceError, match=r"no TensorRT engine takes \d+ x \d+ tokens: build them again"
        ):
            embedder.embed(TEXTS)


def test_the_smallest_engine_that_takes_a_batch_runs_it(
    bundle: Path, machine: stand_in.Machine
) -> None:
    built(bundle, (16, 8), (4, 32))
    machine.sessions.clear()
    machine.runs.clear()  # CUDA's among them
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        embedder.embed(["a man"])
        embedder.embed(["a man " * 10])
        embedder.embed(
            [*TEXTS, *(f"a man {word}" for word in "runs walks sits looks smiles turns".split())]
        )
    assert {session.model.name for session in machine.sessions} == {"16x8.onnx", "4x32.onnx"}
    assert all((rows <= 16 and tokens <= 8) or rows <= 4 for (rows, tokens), _ in machine.runs)
    assert any(rows > 4 for (rows, _), _ in machine.runs)


def test_both_parts_of_a_bundle_get_engines(
    mixed_bundle: Path, tiny_bundle: Path, tmp_path: Path, machine: stand_in.Machine
) -> None:
    both = tmp_path / "both"
    done = run("bundle", "make", "--embedder", tiny_bundle, "--segmenter", mixed_bundle, "-o", both)
    assert done.exit_code == 0, done.output
    edit(both, lambda data: data["segmenter"]["model"].update(threshold=0.35))
    pair = (stripped(1, 2), stripped(2, 2))
    with Scorer.open(both, "cpu") as cpu:
        wanted = cpu.score(*pair)
        # No rounding to fp16 moves a cut, which would change a score as a whole.
        for probabilities in cpu.segmenter.boundary_probabilities(pair):
            assert np.abs(probabilities - 0.35).min() > PROBABILITIES["fp16"]
            assert probabilities.max() > 0.35
    built(both)
    with Scorer.open(both, "tensorrt:0") as scorer:
        found = scorer.score(*pair)
        assert (found.n_ref, found.n_gen) == (wanted.n_ref, wanted.n_gen)
        assert found.scores == pytest.approx(wanted.scores, abs=4 * ROUNDOFF["fp16"])
        # The engines compute otherwise than the graphs, so the signature has their digits.
        assert re.search(
            r"\|cut:\S+/fp16/ort-tensorrt@[0-9a-f]{4}\|.*\|prec:fp16\|.*engine:ort-tensorrt@[0-9a-f]{4}\|",
            scorer.signature,
        )


def test_doctor_names_the_gpu_and_what_is_missing(machine: stand_in.Machine) -> None:
    machine.libraries -= {"cublas", "nvinfer"}
    report = json.loads(run("doctor", "--json").output)
    assert report["GPU 0"] == "NVIDIA H200, sm90, 151 GB"
    assert report["libcudart.so.13"] == "13.0"
    assert report["libcuda.so.1"] == "CUDA 13.0"
    assert report["libcublas.so.13"] == "missing (nvidia-cublas)"
    assert "libnvinfer.so.10 (tensorrt-cu13>=10,<11" in report["TensorRT"]
    assert any(
        "CUDA provider of ONNX Runtime lacks libcublas.so.13" in line for line in report["problems"]
    )
    assert not any("nvinfer" in line for line in report["problems"])


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_bf16_is_refused_on_a_cpu(bundle: Path, device: str) -> None:
    edit(bundle, lambda data: data["embedder"].update(precision="bf16"))
    with pytest.raises(
        DeviceError,
        match=(
            f"^{device}: .* is in bf16, .* on a GPU only: use a GPU or openvino, .*--precision fp16"
        ),
    ):
        Embedder.open(bundle, device)
