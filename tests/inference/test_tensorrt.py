"""TensorRT engines: found, chosen, run and refused, over the fake of NVIDIA's packages."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import fake_tensorrt
from support.changed_bundles import edit
from support.engines import TEXTS, built, checked, run
from support.fake_tensorrt import Fake, files
from support.rounding import FP32_NOISE, PROBABILITIES, ROUNDOFF
from support.stories import stripped
from support.tiny_bert import build_tiny_bundle
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_runtime import DeviceError, Embedder, Scorer
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.bundle.paths import home
from vcs_runtime.inference import tensorrt
from vcs_runtime.inference.embedder import embedder_spec
from vcs_runtime.inference.tensorrt import engine_folder
from vcs_runtime.scoring.signature import long_form


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    monkeypatch.setenv("VCS_RUNTIME_HOME", str(tmp_path / "home"))
    return fake_tensorrt.put_in(monkeypatch)


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def folder_of(bundle: Path) -> Path:
    opened = open_bundle(bundle)
    return engine_folder(opened, embedder_spec(opened))


def small_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorrt, "profiles_of", lambda spec: ((16, 8), (4, 32)))


def test_an_engine_runs_and_gives_what_the_graph_gives(bundle: Path, fake: Fake) -> None:
    built(bundle)
    with Embedder.open(bundle, "cpu") as cpu:
        wanted = cpu.embed(TEXTS)
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        for texts in (TEXTS, TEXTS[:3]):  # the second batch lies in memory that the first left
            difference = np.abs(embedder.embed(texts) - wanted[: len(texts)]).max()
            assert FP32_NOISE < difference < 4 * ROUNDOFF["fp16"]  # products are in fp16
        assert embedder.device.provider_name == "tensorrt-rtx"
    assert fake.runs
    assert all(tokens % 8 == 0 for _, (_, tokens) in fake.runs)
    assert fake.limits == [0]
    assert fake.kinds == ["NONE"]


def test_the_smallest_profile_that_takes_a_batch_runs_it(
    bundle: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_profiles(monkeypatch)
    built(bundle)
    more = [f"a man {word}" for word in "runs walks sits looks smiles turns".split()]
    with Embedder.open(bundle, "cpu") as cpu:
        wanted = cpu.embed([*TEXTS, *more])
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        vectors = embedder.embed([*TEXTS, *more])
    assert np.abs(vectors - wanted).max() < 4 * ROUNDOFF["fp16"]
    assert {number for number, _ in fake.runs} == {0, 1}
    for number, (rows, tokens) in fake.runs:
        assert (rows <= 16 and tokens <= 8) if number == 0 else rows <= 4
    assert any(rows > 4 for _, (rows, _) in fake.runs)


def test_a_batch_beyond_all_profiles_is_refused(
    bundle: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt, "profiles_of", lambda spec: ((2, 8),))
    built(bundle)
    with Embedder.open(bundle, "tensorrt:0", proof=False) as embedder:
        embedder.embed(["a man"])
        with pytest.raises(DeviceError, match=r"the engine does not fit \d+ x \d+ tokens: build"):
            embedder.embed(TEXTS)


def test_released_memory_is_taken_again_with_the_weights(bundle: Path, fake: Fake) -> None:
    built(bundle)
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        before = embedder.embed(TEXTS)
        assert fake.taken > 0
        embedder.release()
        assert fake.taken == 0
        assert fake.loads == ["load", "unload"]
        assert np.array_equal(embedder.embed(TEXTS), before)
        assert fake.loads == ["load", "unload", "load"]
    assert fake.taken == 0
    with pytest.raises(RuntimeError, match="closed"):
        embedder.embed(["another text"])


def test_compiled_kernels_lie_beside_the_engine_for_this_user_alone(
    bundle: Path, fake: Fake
) -> None:
    built(bundle)
    Embedder.open(bundle, "tensorrt:0").close()
    assert fake.kernels == b""
    path = folder_of(bundle) / "kernels-NVIDIA-L4.bin"
    assert path.read_bytes() == b"kernels of all runs"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    Embedder.open(bundle, "tensorrt:0").close()
    assert fake.kernels == b"kernels of all runs"
    fake.machine.gpu, fake.kernels = "NVIDIA L40S", b""
    Embedder.open(bundle, "tensorrt:0").close()
    assert fake.kernels == b""
    assert "kernels-NVIDIA-L40S.bin" in files(home())


def test_batches_become_smaller_where_memory_does_not_suffice(bundle: Path, fake: Fake) -> None:
    built(bundle)
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        fake.runs.clear()  # of the proof, which the first opening in a process compares
        embedder.embed(TEXTS)
        [(_, (rows, _))] = fake.runs
        fake.runs.clear()
        embedder.release()
        fake.room = 3000
        with Embedder.open(bundle, "cpu") as cpu:
            wanted = cpu.embed(TEXTS)
        assert np.abs(embedder.embed(TEXTS) - wanted).max() < 4 * ROUNDOFF["fp16"]
    assert max(rows for _, (rows, _) in fake.runs) < rows


def test_a_limit_of_memory_holds_for_weights_and_batches(bundle: Path, fake: Fake) -> None:
    built(bundle)
    size = (folder_of(bundle) / "engine.plan").stat().st_size
    Embedder.open(bundle, "tensorrt:0", gpu_memory_gb=1).close()
    assert fake.limits == [10**9 - size]
    with (
        Embedder.open(bundle, "tensorrt:0", gpu_memory_gb=size / 1e9) as embedder,
        pytest.raises(DeviceError, match="TensorRT failed on .*OUT_OF_MEMORY"),
    ):
        embedder.embed(["a man"])


def test_fixed_shapes_depend_on_each_text_alone(bundle: Path, fake: Fake) -> None:
    built(bundle)
    with Embedder.open(bundle, "tensorrt:0", batch_invariant=True) as embedder:
        alone = embedder.embed(TEXTS[:1])
        assert np.array_equal(embedder.embed(TEXTS)[:1], alone)
    assert len({rows for _, (rows, tokens) in fake.runs if tokens == 32}) == 1


def test_auto_takes_an_engine_that_was_measured_to_be_faster_else_cuda_and_says_why(
    bundle: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen() -> tuple[str, str]:
        with Embedder.open(bundle, "auto") as embedder:
            return embedder.device.provider_name, embedder.device.reason

    provider, reason = chosen()
    assert provider == "ort-cuda"
    assert "TensorRT is not used: there is no engine of its embedder by tensorrt-rtx 1.7." in reason
    assert f"vcs-runtime engine build {bundle}" in reason
    built(bundle)
    provider, reason = chosen()
    assert provider == "ort-cuda"
    assert reason.endswith(f"not measured on this GPU: run `vcs-runtime engine check {bundle}`")
    for seconds, wanted in ((1.3, "tensorrt-rtx"), (1.02, "ort-cuda"), (0.5, "ort-cuda")):
        checked(bundle, seconds)
        provider, reason = chosen()
        assert provider == wanted
        assert reason.endswith(f"{seconds:.2f} times as fast as CUDA here")
    report = json.loads(run("doctor", "--json", "--bundle", bundle).output)
    assert report["TensorRT engine"] == "0.50 times as fast as CUDA here"
    checked(bundle, 1.3)
    fake.machine.gpu = "NVIDIA L40S"
    assert chosen()[0] == "ort-cuda"
    monkeypatch.setitem(sys.modules, "tensorrt_rtx_bindings", None)
    assert re.search(
        r"not used: TensorRT needs tensorrt_rtx_bindings .*`vcs-runtime\[tensorrt\]`", chosen()[1]
    )
    with pytest.raises(Exception, match=r"install `vcs-runtime\[tensorrt\]`"):
        Embedder.open(bundle, "tensorrt:0")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"architecture": (9, 0)},
            r"NVIDIA L4 is sm90, .* for sm80, sm86, .*: use cuda:0, or NVID",
        ),
        ({"architecture": (7, 5)}, r"NVIDIA L4 is sm75, but TensorRT for RTX builds engines"),
        ({"driver": 12040}, r"driver supports CUDA 12.4, but TensorRT for RTX 1.7.* driver 580 or"),
        ({"gpus": 0}, "there is no such GPU; the driver shows 0"),
    ],
)
def test_a_gpu_that_runs_no_engine_is_told_why(
    bundle: Path, fake: Fake, change: dict[str, Any], says: str
) -> None:
    built(bundle)
    for key, value in change.items():
        setattr(fake.machine, key, value)
    with pytest.raises(DeviceError, match=f"0: .*{says}"):
        Embedder.open(bundle, "tensorrt:0")


def test_another_release_or_graph_has_another_engine(
    bundle: Path, tmp_path: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(bundle)
    Embedder.open(Path(shutil.copytree(bundle, tmp_path / "copy")), "tensorrt:0").close()
    with pytest.raises(DeviceError, match="there is no engine of its embedder"):
        Embedder.open(build_tiny_bundle(tmp_path / "other", seed=1), "tensorrt:0")
    monkeypatch.setattr(sys.modules["tensorrt_rtx_bindings"], "__version__", "1.8.0.1")
    with pytest.raises(DeviceError, match=r"no engine of its embedder by tensorrt-rtx 1\.8\.0\.1"):
        Embedder.open(bundle, "tensorrt:0")


def test_engines_are_not_loaded_where_others_can_write(bundle: Path, fake: Fake) -> None:
    """An engine holds machine code."""
    built(bundle)
    folder_of(bundle).chmod(0o777)
    with pytest.raises(DeviceError, match="other users can write to this folder"):
        Embedder.open(bundle, "tensorrt:0")


def test_a_damaged_or_missing_engine_is_refused(bundle: Path, fake: Fake) -> None:
    built(bundle)
    plan = folder_of(bundle) / "engine.plan"
    content = plan.read_bytes()
    plan.write_bytes(content[:-1] + b"?")
    with pytest.raises(DeviceError, match=r"tensorrt:0: .*engine\.plan is damaged: build engines"):
        Embedder.open(bundle, "tensorrt:0")
    plan.unlink()
    with pytest.raises(DeviceError, match=r"tensorrt:0: .*engine\.plan"):
        Embedder.open(bundle, "tensorrt:0")


def test_a_decoder_has_no_engine(tmp_path: Path, fake: Fake) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path)
    with pytest.raises(DeviceError, match="is a decoder, whose graphs have operators that"):
        Embedder.open(bundle, "tensorrt:0")


def test_both_parts_of_a_bundle_get_engines(
    mixed_bundle: Path, tiny_bundle: Path, tmp_path: Path, fake: Fake
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
        digits = json.loads((folder_of(both) / "engine.json").read_text())["sha256"][:4]
        assert re.search(
            rf"\|cut:\S+/fp16/tensorrt-rtx@[0-9a-f]{{4}}\|.*\|prec:fp16\|.*engine:tensorrt-rtx@{digits}\|",
            scorer.signature,
        )
        versions = long_form(scorer.signature).split("|")
        assert "tensorrt:1.7.1.116" in versions
        assert not any(field.startswith("ort:") for field in versions)


def test_an_engine_needs_no_onnx_runtime(
    bundle: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(bundle)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with Embedder.open(bundle, "tensorrt:0") as embedder:
        assert embedder.embed(["a man"]).shape == (1, 32)


def test_the_gpu_that_was_named_runs_the_engine_in_a_thread_of_its_own(
    bundle: Path, fake: Fake
) -> None:
    fake.machine.gpus = 2
    built(bundle)
    Embedder.open(bundle, "tensorrt:1").close()
    assert list(fake.current.values()) == [1]
    assert threading.get_ident() not in fake.current  # the caller's stays as it is


def test_a_built_engine_shows_no_vectors_of_tokens(bundle: Path, fake: Fake) -> None:
    built(bundle)
    with (
        Embedder.open(bundle, "tensorrt:0") as embedder,
        pytest.raises(DeviceError, match="an engine has no vectors of tokens"),
    ):
        embedder.show_tokens()


def test_doctor_names_the_gpu_and_what_is_missing(fake: Fake) -> None:
    fake.machine.libraries -= {"cublas"}
    report = json.loads(run("doctor", "--json").output)
    assert report["GPU 0"] == "NVIDIA L4, sm89, 151 GB"
    assert report["libcudart.so.13"] == "13.0"
    assert report["libcuda.so.1"] == "CUDA 13.0"
    assert report["libcublas.so.13"] == "missing (nvidia-cublas)"
    assert any(
        "CUDA provider of ONNX Runtime lacks libcublas.so.13" in line for line in report["problems"]
    )
    assert not any("TensorRT" in line for line in report["problems"])


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_bf16_is_refused_on_a_cpu(bundle: Path, device: str) -> None:
    edit(bundle, lambda data: data["embedder"].update(precision="bf16"))
    with pytest.raises(
        DeviceError,
        match=(
            f"^{device}: .* is in bf16, .* only GPU kernels: use a GPU or openvino, .*--precision fp16"
        ),
    ):
        Embedder.open(bundle, device)
