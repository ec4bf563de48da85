"""Sessions: options of a GPU, too little memory, release; on a stand-in, and on the CPU."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from support import stand_in
from support.processes import captured, run_python
from support.stories import story, stripped
from support.tiny_layouts import build_layout_bundle
from support.waiting import HANGS_AFTER_S
from vcs_runtime import DeviceError, Embedder, Scorer, Segmenter
from vcs_runtime.errors import DeviceMemoryError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import Device, choose_device
from vcs_runtime.inference.session import Budget, FittingBatches
from vcs_runtime.util.stages import ahead

TEXTS = [" ".join(story(i).split()[: 1 + i % 9]) for i in range(40)]
NO_MEMORY = (
    "[ONNXRuntimeError] : 1 : FAIL : bfc_arena.cc:360 Failed to allocate memory for requested"
    " buffer of size 9"
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> stand_in.Machine:
    return stand_in.put_in(monkeypatch)


@pytest.fixture(scope="module", params=["packed", "padded"])
def layout_bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_layout_bundle(tmp_path_factory.mktemp("layouts") / request.param, request.param)


def test_a_gpu_session_has_an_arena_that_doubles_keeps_float32_and_has_its_weights_apart(
    tiny_bundle: Path, machine: stand_in.Machine
) -> None:
    Embedder.open(tiny_bundle, "cuda:0", gpu_memory_gb=1.5).close()
    [session] = machine.sessions
    assert session.providers == {
        "CUDAExecutionProvider": {
            "arena_extend_strategy": "kNextPowerOfTwo",
            "use_tf32": "0",
            "gpu_mem_limit": "1500000000",
        }
    }
    key = "session.use_device_allocator_for_initializers"
    assert session.options.get_session_config_entry(key) == "1"
    assert not session.options.enable_mem_pattern


def test_both_models_share_the_memory_that_may_be_taken(
    mixed_bundle: Path, tiny_bundle: Path, machine: stand_in.Machine
) -> None:
    with Scorer.open(tiny_bundle, "cuda:0", segmenter=mixed_bundle, gpu_memory_gb=2):
        limits = [
            int(s.providers["CUDAExecutionProvider"]["gpu_mem_limit"]) for s in machine.sessions
        ]
    assert len(limits) == 2
    assert sum(limits) == pytest.approx(2e9, abs=2)
    sizes = [
        next((bundle / part).glob("*.data")).stat().st_size
        for bundle, part in ((tiny_bundle, "embedder"), (mixed_bundle, "segmenter"))
    ]
    # The gaps between the tensors of a file take no memory.
    assert limits[0] / limits[1] == pytest.approx(sizes[0] / sizes[1], rel=0.03)


@pytest.mark.parametrize("wrong", [0, -1, "2", True, float("nan"), float("inf"), 1e300])
def test_a_limit_that_is_none_is_refused(tiny_bundle: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match="^gpu_memory_gb must be a number of GB above 0"):
        Embedder.open(tiny_bundle, "cpu", gpu_memory_gb=wrong)


def test_a_gpu_computes_what_the_cpu_does(layout_bundle: Path, machine: stand_in.Machine) -> None:
    with Embedder.open(layout_bundle, "cuda:0") as gpu:
        found = gpu.embed(TEXTS)
    assert machine.runs
    with Embedder.open(layout_bundle, "cpu") as cpu:
        np.testing.assert_allclose(found, cpu.embed(TEXTS), atol=2e-6)


def test_batches_that_memory_does_not_suffice_for_are_halved(
    layout_bundle: Path, machine: stand_in.Machine
) -> None:
    """The stand-in has memory for five texts at a time, and fails as ONNX Runtime does."""

    failed: list[int] = []

    def fail(inputs: dict[str, Any]) -> None:
        rows = len(inputs["lengths" if "lengths" in inputs else "input_ids"])
        if rows > 5:
            failed.append(rows)
            raise RuntimeError(NO_MEMORY)

    with Embedder.open(layout_bundle, "cuda:0") as embedder:
        whole = embedder.embed(TEXTS)
        machine.before = fail
        np.testing.assert_allclose(embedder.embed(TEXTS), whole, atol=2e-6)
        assert len(failed) > 1
        failed.clear()
        embedder.embed(TEXTS)
        assert not failed  # what fits is remembered
        machine.before = lambda inputs: fail({"lengths": [0] * 6})
        with pytest.raises(DeviceMemoryError, match="Failed to allocate memory"):
            embedder.embed(TEXTS[:1])


def test_a_boundary_model_halves_its_batches_too(
    sat_bundle: Path, machine: stand_in.Machine
) -> None:
    texts = [stripped(i, 8) for i in range(6)]

    def fail(inputs: dict[str, Any]) -> None:
        if len(inputs["input_ids"]) > 2:
            raise RuntimeError("CUDA failure 2: out of memory ; GPU=0")

    with Segmenter.open(sat_bundle, "cuda:0:fp32") as segmenter:
        whole = segmenter.boundary_probabilities(texts)
        machine.before = fail
        for found, wanted in zip(segmenter.boundary_probabilities(texts), whole, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_another_failure_is_no_lack_of_memory_and_names_the_model(
    layout_bundle: Path, machine: stand_in.Machine
) -> None:
    def fail(inputs: dict[str, Any]) -> None:
        raise RuntimeError("Non-zero status code returned while running Gather node")

    with Embedder.open(layout_bundle, "cuda:0") as embedder:
        machine.before = fail
        with pytest.raises(
            DeviceError, match=r"model\.onnx: ONNX Runtime failed on .*Gather node"
        ) as error:
            embedder.embed(TEXTS)
    assert not isinstance(error.value, DeviceMemoryError)
    assert len(machine.runs) == 1


_STARVED = """
import re, resource, sys
from vcs_runtime import Embedder
from vcs_runtime.inference import batching, session

batching.TOKEN_BUDGET.update({"ort-cpu": 1 << 30, "openvino": 1 << 30})
texts = [" ".join(["dog", "car", str(i)] * 8) for i in range(4096)]
run = session.run_session

def address_space(name):
    return 1024 * int(re.search(rf"^{name}:\\s+(\\d+) kB", open("/proc/self/status").read(), \
re.M)[1])

# What the run of one batch of all texts takes here, in a process of its own.
if len(sys.argv) == 3:
    taken = []
    def measured(*arguments, **options):
        before = address_space("VmSize")
        results = run(*arguments, **options)
        taken.append(address_space("VmPeak") - before)
        return results
    with Embedder.open(sys.argv[1], sys.argv[2], threads=1) as embedder:
        session.run_session = measured
        embedder.embed(texts)
    print(max(taken))
    raise SystemExit

def starved(*arguments, **options):
    most = address_space("VmSize") + int(sys.argv[3]) // 2
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    try:
        return run(*arguments, **options)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)

with Embedder.open(sys.argv[1], sys.argv[2], threads=1) as embedder:
    wanted = embedder.embed(texts[::512])
    session.run_session = starved
    assert (embedder.embed(texts)[::512] == wanted).all()
    print(embedder._budget.tokens)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited as Linux does it")
@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_a_processor_without_memory_halves_its_batches(
    tiny_bundle: Path, tmp_path: Path, device: str
) -> None:
    """The real failure of each library, with half of the memory that a batch of all texts takes."""
    if device == "openvino":
        pytest.importorskip("openvino")

    def run(*more: str) -> int:
        command = [sys.executable, "-c", _STARVED, str(tiny_bundle), device, *more]
        environment = {**os.environ, "VCS_RUNTIME_HOME": str(tmp_path)}
        done = captured(command, env=environment)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    assert 1 <= run(str(run())) < 1 << 30  # tokens of a batch


def test_a_released_scorer_holds_no_session_and_scores_the_same_afterwards(
    tiny_bundle: Path, mixed_bundle: Path, machine: stand_in.Machine
) -> None:
    pairs = [(stripped(1, 3), stripped(2, 3)), (story(3), story(4))]
    with Scorer.open(tiny_bundle, "cuda:0", segmenter=mixed_bundle, cache_mb=0) as scorer:
        first = scorer.score_many(pairs)
        assert machine.open_sessions == 2
        scorer.release()
        scorer.release()
        gc.collect()
        assert machine.open_sessions == 0
        assert [result.scores for result in scorer.score_many(pairs)] == [r.scores for r in first]
        assert machine.open_sessions == 2
    gc.collect()
    assert machine.open_sessions == 0
    with pytest.raises(RuntimeError, match="the embedder is closed"):
        scorer.embedder.embed(["dog"])


@pytest.mark.slow
def test_release_on_the_cpu_gives_memory_back() -> None:
    """By resident memory, in a process of its own, of the default's 90 MB."""
    script = """
import sys
from vcs_runtime import Embedder
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
texts = ["a man opens a door"] + [f"a man {i} " * 9 for i in range(64)]
embedder = Embedder.open("default", "cpu")
vectors = embedder.embed(texts)
held = resident()
embedder.release()
print(held - resident())
assert (embedder.embed(texts) == vectors).all()
"""
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30e6


def test_a_session_may_be_released_while_threads_use_it(tiny_bundle: Path) -> None:
    with Embedder.open(tiny_bundle, "cpu") as embedder:
        wanted = embedder.embed(TEXTS)
        stop = threading.Event()

        def use(_: int) -> None:
            while not stop.is_set():
                assert np.array_equal(embedder.embed(TEXTS), wanted)

        with ThreadPoolExecutor(3) as pool:
            used = pool.map(use, range(3))
            for _ in range(20):
                embedder.release()
            stop.set()
            list(used)


def test_the_arena_gives_back_now_and_then_what_it_does_not_use(
    layout_bundle: Path, machine: stand_in.Machine
) -> None:
    with Embedder.open(layout_bundle, "cuda:0") as embedder:
        for text in TEXTS * 2:
            embedder.embed([text])
    entries = [options for _, options in machine.runs]
    assert entries[31] == {"memory.enable_memory_arena_shrinkage": "gpu:0"}
    assert [bool(options) for options in entries] == [run % 32 == 31 for run in range(len(entries))]


def test_fewer_tokens_are_run_where_little_memory_is_free(machine: stand_in.Machine) -> None:
    cuda = choose_device("cuda:0")
    assert Budget(cuda, 4096).tokens == 16384
    machine.free = 1 << 30
    budget = Budget(cuda, 4096)
    assert 512 < budget.tokens < 2000
    # Without places for padding.
    assert Budget(cuda, 4096, layout="varlen").tokens > 2 * budget.tokens
    machine.free = 0
    assert budget.tokens > 512  # asked once
    budget.forget()
    assert budget.tokens == 512
    # The weights were freed with the session, and take their place again before the run.
    machine.free = 2_000_000_000
    budget = Budget(cuda, 4096, weights=1_000_000_000)
    machine.free, before = 3_000_000_000, budget.tokens
    budget.forget()
    assert budget.tokens == before
    machine.libraries.discard("cudart")
    budget.forget()
    assert budget.tokens == 16384  # nobody knows
    machine.libraries.add("cudart")
    machine.free = 100 << 30
    assert 512 < Budget(choose_device("cuda:0", 3.0), 4096, weights=2_000_000_000).tokens < 2000


def test_of_several_gpus_the_fullest_one_limits_the_tokens_of_a_run(
    tiny_bundle: Path, machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.gpus = 2
    monkeypatch.setattr(nvidia, "free_memory", lambda index, major: (100 << 30, 4_000_000)[index])
    with Embedder.open(tiny_bundle, "cuda:all:fp32") as embedder:
        embedder.embed([f"{i} {text}" for i in range(20) for text in TEXTS])
    assert max(rows * width for (rows, width), _ in machine.runs) < 2048


def test_a_budget_that_was_halved_recovers_and_waits_longer_after_each_failure(
    machine: stand_in.Machine,
) -> None:
    budget = Budget(choose_device("cuda:0"), 4096)
    budget.shorten(16384)
    budget.shorten(8000)  # at once, which is the same shortage
    assert budget.tokens == 4000
    waited: list[int] = []
    for _ in range(3):
        tokens, runs = budget.tokens, 0
        while budget.tokens == tokens:
            budget.succeed()
            runs += 1
        waited.append(runs)
        assert budget.tokens == 2 * tokens
        budget.shorten(budget.tokens)
    assert waited == [64, 128, 256]
    for _ in range(10_000):
        budget.succeed()
    assert budget.tokens == 16384


def test_the_run_after_a_shortage_frees_what_the_arena_holds(
    layout_bundle: Path, machine: stand_in.Machine
) -> None:
    def fail(inputs: dict[str, Any]) -> None:
        machine.before = lambda inputs: None
        raise RuntimeError(NO_MEMORY)

    with Embedder.open(layout_bundle, "cuda:0") as embedder:
        machine.before = fail
        embedder.embed(TEXTS)
    shrunk = [bool(options) for _, options in machine.runs]
    assert shrunk[:3] == [False, True, False]


def test_a_model_that_does_not_fit_is_not_opened_again_and_again(
    tiny_bundle: Path, machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Smaller batches would not help there."""
    with Embedder.open(tiny_bundle, "cuda:0") as embedder:
        embedder.release()
        opened = len(machine.sessions)

        def fail(model: Path, options: dict[str, str]) -> None:
            raise RuntimeError(NO_MEMORY)

        machine.built = fail
        with pytest.raises(DeviceError, match="not enough memory for") as error:
            embedder.embed(TEXTS)
        assert not isinstance(error.value, DeviceMemoryError)
        assert "torch" not in str(error.value)
        assert len(machine.sessions) == opened + 1
        monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
        with pytest.raises(DeviceError, match=r"torch\.cuda\.empty_cache\(\) first"):
            embedder.embed(TEXTS)


class _FixedBudget(Budget):
    def __init__(self, tokens: int) -> None:
        super().__init__(Device("ort-cpu", "CPUExecutionProvider", "test"), 1)
        self._fixed = tokens

    def _fitting(self) -> int:
        return self._fixed


@pytest.mark.parametrize("capacity", [1, 3, 10, 64])
def test_every_row_is_run_once_however_little_fits(capacity: int) -> None:
    lengths = [1 + (7 * i) % 5 for i in range(30)]
    finished: list[int] = []

    def cut(rows: list[int], tokens: int) -> Iterator[tuple[list[int], None]]:
        size = max(1, tokens // 5)
        for start in range(0, len(rows), size):
            yield rows[start : start + size], None

    batches = FittingBatches(lengths, _FixedBudget(1000), cut)
    for rows, _ in batches:
        if len(rows) > capacity:
            batches.failed(rows, DeviceMemoryError("no memory"))
        else:
            finished.extend(rows)
    assert sorted(finished) == list(range(30))


def test_ahead_keeps_order_works_ahead_by_one_and_passes_errors_on() -> None:
    made: list[int] = []

    def items() -> Iterator[int]:
        for i in range(4):
            made.append(i)
            yield i
        raise KeyError("the end")

    stream = ahead(items())
    assert next(stream) == 0
    got = [0]
    for item in islice(stream, 3):
        got.append(item)
        assert len(made) <= item + 2
    with pytest.raises(KeyError, match="the end"):
        next(stream)
    assert got == [0, 1, 2, 3]


def test_the_next_batch_is_laid_out_while_a_gpu_works(
    layout_bundle: Path, machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of the first batch waits until the second one has been laid out."""
    from vcs_runtime.inference import batching

    laid_out = threading.Semaphore(0)
    made = batching.Batch
    monkeypatch.setattr(
        batching, "Batch", lambda *arguments: (laid_out.release(), made(*arguments))[1]
    )
    waited: list[bool] = []

    def wait(inputs: dict[str, Any]) -> None:
        if not waited:
            waited.append(
                laid_out.acquire(timeout=HANGS_AFTER_S) and laid_out.acquire(timeout=HANGS_AFTER_S)
            )

    with Embedder.open(layout_bundle, "cuda:0") as embedder:
        embedder._budget.shorten(24)
        machine.before = wait
        embedder.embed(TEXTS)
    assert waited == [True]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Pairs of three blocks, cut by rules or by a model; one of them cannot be scored."""
    # A GPU takes twice as many.
    monkeypatch.setattr("vcs_runtime.scoring.preparation.BLOCK_PAIRS", 2)
    cuts = [stripped if i % 2 else story for i in range(12)]
    return [(cut(i, 2 + i % 5), cut(40 + i, 2 + i % 4)) for i, cut in enumerate(cuts)] + [
        ("!", "a")
    ]


def test_on_a_gpu_the_next_block_is_cut_while_this_one_is_embedded(
    tiny_bundle: Path,
    mixed_bundle: Path,
    blocks: list[tuple[str, str]],
    machine: stand_in.Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = threading.Semaphore(0)
    real = Segmenter.split_learned

    def split(*given: Any) -> list[list[str]]:
        pieces = real(*given)
        cut.release()
        return pieces

    monkeypatch.setattr(Segmenter, "split_learned", split)
    waited: list[bool] = []

    def wait(inputs: dict[str, Any]) -> None:
        if "embedder" in threading.current_thread().name and not waited:
            waited.append(cut.acquire(timeout=HANGS_AFTER_S) and cut.acquire(timeout=HANGS_AFTER_S))

    def scored() -> list[dict[str, Any]]:
        with Scorer.open(tiny_bundle, "cuda:0", segmenter=mixed_bundle) as scorer:
            machine.before = wait
            return [result.to_dict() for result in scorer.score_many(blocks)]

    overlapped = scored()
    assert waited == [True]
    assert overlapped[-1]["error"]
    one_by_one = lambda function, items, _: (function(item) for item in items)  # noqa: E731
    monkeypatch.setattr("vcs_runtime.scoring.scorer.in_order", one_by_one)
    assert scored() == overlapped


def test_what_reading_pairs_raises_comes_behind_the_blocks_before_it(
    tiny_bundle: Path, blocks: list[tuple[str, str]], machine: stand_in.Machine
) -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield from blocks[0:8:2]
        raise OSError("the file is gone")

    with Scorer.open(tiny_bundle, "cuda:0") as scorer:
        stream = scorer.iter_scores(broken())
        assert len([next(stream) for _ in range(4)]) == 4
        with pytest.raises(OSError, match="the file is gone"):
            next(stream)
