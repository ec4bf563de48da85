"""The stand-ins themselves: what they lend, what they refuse, and what they write down."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from support.cuda_stand_ins import Copy, DryGpu, mark


def take(*sizes: int) -> list[int]:
    runtime = ctypes.CDLL("libcudart.so.13")
    pointer = ctypes.c_void_p()
    mark("taken")
    return [runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size)) for size in sizes]


def test_memory_is_lent_up_to_the_limit(dry_gpu: DryGpu) -> None:
    run = dry_gpu.call(take, 600, 500, 400, memory=1000)
    assert run.value == [0, 2, 0]
    assert run.log.peak == run.log["taken"].final == 1000
    assert [(event.bytes, event.level) for event in run.log.refused] == [(500, 600)]


def there_and_back(number: int) -> int:
    runtime = ctypes.CDLL("libcudart.so.13")
    there, back = ctypes.c_void_p(), ctypes.c_int64()
    runtime.cudaMalloc(ctypes.byref(there), ctypes.c_size_t(8))
    runtime.cudaMemcpy(there, ctypes.byref(ctypes.c_int64(number)), ctypes.c_size_t(8), 1)
    runtime.cudaMemcpyAsync(ctypes.byref(back), there, ctypes.c_size_t(8), 2, None)
    return back.value


def test_copies_are_made_and_recorded(dry_gpu: DryGpu) -> None:
    run = dry_gpu.call(there_and_back, 77)
    assert run.value == 77
    assert run.log.copies == [Copy("to the GPU", 8, False), Copy("from the GPU", 8, True)]


def test_a_command_sees_the_gpus_and_which_library_is_missing(dry_gpu: DryGpu) -> None:
    there = dry_gpu.command(["doctor"], capability="8.9", memory=24e9, gpus=2).stdout
    assert re.search(r"^device auto +ort-cuda ", there, re.MULTILINE)
    assert re.search(r"^GPU 0 +stand-in of a GPU, sm89, 24 GB, FP8$", there, re.MULTILINE)
    lacking = dry_gpu.command(["doctor"], lacking=["libcublas.so.13"]).stdout
    assert re.search(r"^device auto +ort-cpu .*missing: libcublas.so.13 ", lacking, re.MULTILINE)


def launch(bundle: str, device: str) -> None:
    from vcs_runtime import Embedder

    with Embedder.open(bundle, device) as embedder:
        mark("text")
        embedder.embed(["A man."])


def test_each_gpu_has_memory_of_its_own(dry_gpu: DryGpu, tiny_bundle: Path) -> None:
    log = dry_gpu.call(launch, str(tiny_bundle), "cuda:1", gpus=2).log
    assert {event.gpu for event in log.memory} == {1}
    assert log["text"].kernels


def test_launches_can_be_compared(dry_gpu: DryGpu, tiny_bundle: Path) -> None:
    one, two = (dry_gpu.call(launch, str(tiny_bundle), "cuda:0").log["text"] for _ in range(2))
    assert one.launches == two.launches
    assert len(one.launches) == len(one.kernels) + len(one.products) > 20
