"""Sessions on the real CUDA provider: what they print and refuse, and the stand-in's rules."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

from support import provider_rules
from support.changed_bundles import edit
from support.cuda_stand_ins import DryGpu
from support.tiny_sat import build_tiny_sat_bundle

OPTIONS = [
    {},
    {"arena_extend_strategy": "kNextPowerOfTwo", "use_tf32": "0", "gpu_mem_limit": "8000000000"},
    {"use_tf32": "True"},
    {"use_tf32": "yes"},
    {"use_tf32": 0},
    {"arena_extend_strategy": "kSame"},
    {"gpu_mem_limit": "8e9"},
    {"gpu_mem_limit": "-1"},
    {"device_id": "1"},
    {"device_id": "2"},
    {"device_id": "cuda:0"},
    {"nonsense": "1"},
]
SHRINKS = ["gpu:0", "gpu", "gpu:1", "cuda:0", "gpu:x", "cpu:0", "gpu:0;cpu:0", ""]


def segment(bundle: str, device: str) -> str:
    """Split a text, and return what was said against it."""
    from vcs_runtime import DeviceError, Segmenter

    try:
        with Segmenter.open(bundle, device) as segmenter:
            segmenter.split(["a man walks into the garden and a dog runs"])
    except DeviceError as error:
        return str(error)
    return ""


def test_a_library_and_a_command_say_nothing_on_standard_error(
    dry_gpu: DryGpu, sat_bundle: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    run = dry_gpu.call(segment, str(sat_bundle), "cuda:0")
    assert (run.value, run.stderr) == ("", "")
    assert run.log.kernels
    (tmp_path / "a.txt").write_text("a man walks into the garden and a dog runs")
    files = [str(tmp_path / "a.txt"), str(tmp_path / "a.txt")]
    models = ["--bundle", str(tiny_bundle), "--segmenter", str(sat_bundle)]
    for device in ("cuda:0", "cuda:1"):
        done = dry_gpu.command(["score", *files, *models, "--device", device], gpus=2)
        assert done.log.kernels
        assert "onnxruntime" not in done.stderr, done.stderr


def test_a_graph_whose_work_the_cpu_would_do_is_refused(dry_gpu: DryGpu, tmp_path: Path) -> None:
    bundle = build_tiny_sat_bundle(tmp_path, precision="int8")
    assert "is in int8" in dry_gpu.call(segment, str(bundle), "cuda:0").value
    assert dry_gpu.call(segment, str(bundle), "auto").value == ""
    edit(bundle, lambda data: data["segmenter"]["model"].update(precision="fp32"))
    said = dry_gpu.call(segment, str(bundle), "cuda:0").value
    assert "DynamicQuantizeLinear (12), MatMulInteger (18); use `--device cpu`" in said


def answers(bundle: str) -> dict[str, list[Any]]:
    """Return which of `OPTIONS` and `SHRINKS` the real provider takes; None where it refuses."""
    import numpy as np
    import onnxruntime as ort

    from vcs_runtime.bundle.opening import open_bundle
    from vcs_runtime.inference.device import choose_device
    from vcs_runtime.inference.onnx_session import run_bound

    choose_device("cuda:0")  # loads NVIDIA's libraries
    model = str(open_bundle(bundle).root / "segmenter/model.onnx")

    def opened(given: dict[str, Any]) -> Any:
        try:
            session = ort.InferenceSession(
                model, providers=[("CUDAExecutionProvider", given)], enable_fallback=False
            )
        except Exception:
            return None
        return session.get_provider_options()["CUDAExecutionProvider"]

    session = ort.InferenceSession(model, providers=["CUDAExecutionProvider"])
    ids = np.ones((1, 8), np.int64)

    def shrunk(places: str) -> bool:
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", places)
        inputs = {item.name: ids for item in session.get_inputs()}
        try:
            run_bound(session, [session.get_outputs()[0].name], inputs, options, "cuda", 0)
        except Exception:
            return False
        return True

    return {
        "options": [opened(given) for given in OPTIONS],
        "shrinks": [shrunk(places) for places in SHRINKS],
    }


def test_the_stand_in_of_the_unit_tests_takes_and_refuses_what_the_real_provider_does(
    dry_gpu: DryGpu, sat_bundle: Path
) -> None:
    real = dry_gpu.call(answers, str(sat_bundle), gpus=2).value
    for given, taken in zip(OPTIONS, real["options"], strict=True):
        try:
            ours = provider_rules.cuda_options(given, 2)
        except RuntimeError:
            ours = None
        assert (ours is None) == (taken is None), given
        assert ours is None or ours.items() <= taken.items()
    for places, taken in zip(SHRINKS, real["shrinks"], strict=True):
        try:
            provider_rules.check_run_entries({"memory.enable_memory_arena_shrinkage": places}, 0)
            ours = True
        except RuntimeError:
            ours = False
        assert ours == taken, places


def test_libraries_are_found_in_packages_of_nvidia_anywhere(
    dry_gpu: DryGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in an environment over a base image that has NVIDIA's packages."""
    lacking = ["libcublas.so.13", "libcublasLt.so.13", "libcurand.so.10"]
    assert f"lacks {lacking[0]}" in dry_gpu.command(["doctor"], lacking=lacking).stdout
    folder = tmp_path / "nvidia/cu13/lib"
    folder.mkdir(parents=True)
    for name in lacking:
        (folder / name).symlink_to(dry_gpu.folder / name)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    (tmp_path / "a.txt").write_text("a man walks into the garden.")
    files = [str(tmp_path / "a.txt")] * 2
    done = dry_gpu.command(["score", *files, "--device", "cuda:0"], lacking=lacking, vectors=384)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.log.kernels


def current_gpus(bundle: str) -> list[int]:
    """Choose GPU 1 as a trainer does, use models on GPU 0, and return the GPU after each step."""
    from vcs_runtime import Scorer

    cuda, chosen = ctypes.CDLL("libcudart.so.13"), ctypes.c_int()
    after = []

    def now() -> None:
        cuda.cudaGetDevice(ctypes.byref(chosen))
        after.append(chosen.value)

    cuda.cudaSetDevice(1)
    scorer = Scorer.open(bundle, device="cuda:0")
    now()
    for _ in range(2):  # the second score opens the models again
        scorer.score("A man opens the door. A dog runs.", "A man opens a door. The dog runs out.")
        now()
        scorer.release()
        now()
    scorer.close()
    now()
    return after


def test_the_callers_current_gpu_stays(dry_gpu: DryGpu) -> None:
    assert dry_gpu.call(current_gpus, "default", gpus=2, vectors=384).value == [1] * 6


UNFIT = [
    (
        {"capability": "7.0"},
        "is sm70, but ONNX Runtime 1.31.1 has code only for sm75, sm80, sm86, sm89, sm90a, sm120a",
    ),
    ({"capability": "10.0"}, "is sm100, but"),
    ({"capability": "12.1"}, "is sm121, but"),
    (
        {"driver": 12040},
        "driver supports CUDA 12.4, but ONNX Runtime 1.31.1 needs CUDA 13: install driver 580",
    ),
]


@pytest.mark.parametrize(("machine", "why"), UNFIT)
def test_a_gpu_that_cannot_run_is_refused_and_auto_takes_the_processor(
    dry_gpu: DryGpu, tmp_path: Path, machine: dict[str, Any], why: str
) -> None:
    text = tmp_path / "a.txt"
    text.write_text("A man opens the door. A dog runs.")
    score = ["score", str(text), str(text), "--device"]
    refused = dry_gpu.command([*score, "cuda:0"], **machine)
    assert refused.returncode == 2
    assert why in refused.stderr
    chosen = dry_gpu.command([*score, "auto"], **machine)
    assert chosen.returncode == 0
    assert why in chosen.stderr
    doctor = dry_gpu.command(["doctor"], **machine)
    assert doctor.returncode == 1
    assert why in doctor.stdout


@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.7", "9.0", "12.0"])
def test_gpus_for_which_the_wheel_has_code_are_taken(dry_gpu: DryGpu, capability: str) -> None:
    assert (
        "device auto          ort-cuda" in dry_gpu.command(["doctor"], capability=capability).stdout
    )
