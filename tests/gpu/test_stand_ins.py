"""The stand-ins themselves: what they lend, what they refuse, and what they write down."""

from __future__ import annotations

import ctypes

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


def test_a_command_sees_the_gpu_and_what_it_lacks(dry_gpu: DryGpu) -> None:
    assert "ort-cuda" in dry_gpu.command(["doctor"]).stdout
    assert "libcublas.so.13" in dry_gpu.command(["doctor"], lacking=["libcublas.so.13"]).stdout
