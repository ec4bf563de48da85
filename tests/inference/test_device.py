"""Which execution provider runs a model, over the stand-in: used, or refused with a reason."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from support import fake_tensorrt, stand_in
from vcs_runtime import DeviceError, Embedder
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import choose_device, describe
from vcs_runtime.inference.onnx_session import provider_options


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> stand_in.Machine:
    return stand_in.put_in(monkeypatch)


def test_a_gpu_is_named_by_its_number_unless_it_is_the_first(machine: stand_in.Machine) -> None:
    """ONNX Runtime warns on standard error of each session that names its GPU."""
    machine.gpus = 2
    for device, number in (("cuda:0", None), ("cuda:1", "1")):
        assert {
            options.get("device_id") for _, options in provider_options(choose_device(device))
        } == {number}


def test_what_onnx_runtimes_loader_prints_does_not_reach_the_output(
    tiny_bundle: Path, machine: stand_in.Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    Embedder.open(tiny_bundle, "cuda:0").close()
    assert capsys.readouterr().out == ""


def test_a_provider_that_does_not_start_is_named(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.put_in(monkeypatch, starts=False)
    with pytest.raises(DeviceError, match="fell back to CPUExecutionProvider"):
        Embedder.open(tiny_bundle, "cuda:0")


def test_a_forked_child_of_a_process_that_used_cuda_is_told_so(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.put_in(monkeypatch, forked=True)
    why = "this process was forked after CUDA was used: start processes with the method spawn"
    for device in ("cuda:0", "cuda:all"):
        with pytest.raises(DeviceError, match=why):
            Embedder.open(tiny_bundle, device)
    chosen = choose_device("auto")
    assert chosen.reason == f"auto: CUDA cannot start: cuda:0: {why}"
    assert describe(chosen).startswith("the GPU is not used: ort-cpu")


def test_libraries_that_are_missing_are_named_with_their_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = stand_in.put_in(monkeypatch)
    assert choose_device("cuda:0").provider_name == "ort-cuda"  # without cuDNN
    machine.libraries.discard("cublas")
    told = "libcublas.so.13 (nvidia-cublas)"
    with pytest.raises(DeviceError) as error:
        choose_device("cuda:0")
    assert str(error.value) == f"cuda:0: the CUDAExecutionProvider of ONNX Runtime lacks {told}"
    assert choose_device("auto").reason == f"auto: CUDA cannot start: missing: {told}"


def test_auto_takes_a_gpu_only_where_it_can_start_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = stand_in.put_in(monkeypatch)
    assert choose_device("auto").provider_name == "ort-cuda"
    machine.libraries.discard("curand")
    device = choose_device("auto")
    assert device.provider_name == "ort-cpu"
    assert device.reason == "auto: CUDA cannot start: missing: libcurand.so.10 (nvidia-curand)"
    machine.libraries.add("curand")
    machine.gpus = 0
    assert "there is no such GPU; the driver shows 0" in choose_device("auto").reason
    machine.available = ["CPUExecutionProvider"]
    assert (
        choose_device("auto").reason
        == "auto: the installed ONNX Runtime has no CUDAExecutionProvider"
    )


def test_without_a_number_the_gpu_is_that_of_the_local_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = fake_tensorrt.put_in(monkeypatch).machine
    devices = ("auto", "cuda", "tensorrt")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert [choose_device(device).index for device in devices] == [0, 0, 0]  # one GPU for each rank
    machine.gpus = 8
    assert [choose_device(device).index for device in devices] == [3, 3, 3]
    assert choose_device("cuda:2").index == 2
    with pytest.warns(
        UserWarning,
        match=r"cuda:0 is used on local rank 3; .* the GPU of the rank, give 'cuda'",
    ):
        assert choose_device("cuda:0").index == 0
    for rank in ("", "0", "8", "-1", "x", "³"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert [choose_device(device).index for device in (*devices, "cuda:0")] == [0, 0, 0, 0]


def test_machine_code_runs_within_its_major_version_and_ptx_on_what_comes_later(
    tmp_path: Path,
) -> None:
    """The layout is NVIDIA's; `make gpu-dry` reads it from the wheel."""

    def entry(kind: int, architecture: int, flags: int) -> bytes:
        head = struct.pack("<HHIQQIIQQ", kind, 1, 48, 5, 0, 0, architecture, 0, flags)
        return head + b"code!"

    def block(*entries: bytes) -> bytes:
        return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(b"".join(entries))) + b"".join(entries)

    library = tmp_path / "capi/libonnxruntime_providers_cuda.so"
    library.parent.mkdir()
    blocks = (
        block(entry(2, 80, 17), entry(2, 86, 17)),
        b"other bytes",
        block(entry(2, 90, 17 | 1 << 20)),
    )
    library.write_bytes(b"".join((b"ELF", *blocks, block(entry(1, 120, 17)))))
    codes = nvidia.machine_code(tmp_path)
    assert list(map(str, codes)) == ["sm80", "sm86", "sm90a", "compute120"]
    runs = {80, 86, 87, 90, 120, 121, 130}
    tried = runs | {70, 75, 91, 100}
    assert {gpu for gpu in tried if any(code.runs_on(gpu) for code in codes)} == runs
    assert nvidia.machine_code(tmp_path / "elsewhere") == ()
