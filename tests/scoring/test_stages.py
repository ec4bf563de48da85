"""A stream on a GPU works in three stages at the same time, and nobody notices: not by its results,
not by its end.

The GPU is the stand-in at the border of ONNX Runtime. `machine.before` is called in the thread of
the GPU.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, count
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import stand_in
from support.stories import story, write_pairs
from support.waiting import HANGS_AFTER_S, eventually
from vcs_runtime import Embedder, Options, Scorer
from vcs_runtime.errors import DeviceError, TextError
from vcs_runtime.inference.vector_store import VectorStore
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.run import score_file
from vcs_runtime.scoring import preparation
from vcs_runtime.util import stages as stages_module

BLOCK = 2  # pairs of a block
PAIRS = [(story(i, 2 + i % 5), story(40 + i, 2 + i % 4)) for i in range(8 * BLOCK)]
WAIT_S = HANGS_AFTER_S


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[stand_in.Machine]:
    """A GPU with small blocks, and no thread more after the test than before it."""
    monkeypatch.setattr(preparation, "BLOCK_PAIRS", BLOCK // preparation.GPU_BLOCKS)
    machine = stand_in.put_in(monkeypatch)
    before = stages()
    yield machine
    assert stages() == before


@pytest.fixture
def gpu(tiny_bundle: Path, machine: stand_in.Machine) -> Iterator[Scorer]:
    with Scorer.open(tiny_bundle, "cuda:0:fp32") as scorer:
        yield scorer


@pytest.fixture
def cpu(tiny_bundle: Path, machine: stand_in.Machine) -> Iterator[Scorer]:
    with Scorer.open(tiny_bundle, "cpu") as scorer:
        yield scorer


def stages() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("vcs-stage")]


def main_thread_waits_for_a_result() -> bool:
    stack = traceback.walk_stack(sys._current_frames()[threading.main_thread().ident or 0])
    return any(frame.f_code is Future.result.__code__ for frame, _ in stack)


def numbered(scorer: Scorer, pairs: Any = PAIRS) -> Iterator[list[tuple[int, Any]]]:
    """The numbers of the pairs of each block, with their scores or errors."""
    stream = scorer.stream(enumerate(pairs), itemgetter(1))
    try:
        for block in stream:
            yield [(number, result.scores or result.error) for (number, _), result, _ in block]
    finally:
        stream.close()  # type: ignore[attr-defined]


def test_results_are_the_cpus_in_the_order_of_the_items(gpu: Scorer, cpu: Scorer) -> None:
    pairs = [*PAIRS[:5], ("!", "a"), *PAIRS[3:9]]
    blocks = list(numbered(gpu, pairs))
    assert [len(block) for block in blocks] == [BLOCK] * 6
    assert list(chain.from_iterable(blocks)) == list(chain.from_iterable(numbered(cpu, pairs)))


def test_a_block_is_embedded_while_others_are_read_and_scored(
    gpu: Scorer, machine: stand_in.Machine
) -> None:
    """The second block runs after the third was read, and the caller has the first."""
    third_is_read, first_is_there = threading.Event(), threading.Event()
    runs: list[bool] = []

    def wait(inputs: dict[str, Any]) -> None:
        if threading.current_thread() is not threading.main_thread():
            runs.append(
                len(runs) == 0 or (third_is_read.wait(WAIT_S) and first_is_there.wait(WAIT_S))
            )

    def items() -> Iterator[tuple[str, str]]:
        for i, pair in enumerate(PAIRS[: 4 * BLOCK]):
            if i == 3 * BLOCK:
                third_is_read.set()
            yield pair

    machine.before = wait
    blocks = numbered(gpu, items())
    next(blocks)
    first_is_there.set()
    assert len(list(blocks)) == 3
    assert runs
    assert all(runs)


def test_no_more_than_three_blocks_are_in_work(gpu: Scorer) -> None:
    read: list[int] = []
    items = ((read.append(i), pair)[1] for i, pair in enumerate(PAIRS * 3))
    for number, _ in enumerate(numbered(gpu, items)):
        # One is scored, one embedded, one waits for the GPU, and one is being read.
        assert len(read) <= (number + 4) * BLOCK


def test_a_text_of_a_block_in_flight_is_not_embedded_again(
    tiny_bundle: Path, machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store without memory forgets vectors at once, but those on their way are known."""
    request = VectorStore.request
    shared = story(99, 6)
    requested = threading.Semaphore(0)

    def counted(*arguments: Any) -> Any:
        try:
            return request(*arguments)
        finally:
            requested.release()

    def wait(inputs: dict[str, Any]) -> None:
        if len(machine.runs) == 1:
            assert all(requested.acquire(timeout=WAIT_S) for _ in range(2))

    with Scorer.open(tiny_bundle, "cuda:0:fp32", cache_mb=0) as gpu:
        list(numbered(gpu, [(shared, shared)] * BLOCK))
        alone = sum(shape[0] for shape, _ in machine.runs)
        machine.runs.clear()
        monkeypatch.setattr(VectorStore, "request", counted)
        machine.before = wait
        two_blocks = list(numbered(gpu, [(shared, shared)] * 2 * BLOCK))
    assert sum(shape[0] for shape, _ in machine.runs) == alone
    assert len(two_blocks) == 2


def test_texts_that_the_embedder_refuses_are_the_errors_of_their_pairs(
    gpu: Scorer, cpu: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Embedder.prepare

    def squeamish(self: Embedder, texts: list[str]) -> Any:
        for text in texts:
            if "zzz" in text:
                raise TextError(f"no: {text[:3]}")
        return prepare(self, texts)

    monkeypatch.setattr(Embedder, "prepare", squeamish)
    pairs = [PAIRS[0], ("Zzz. One.", "Two."), (PAIRS[1][0], "A zzz sound."), *PAIRS[1:4]]
    pairs[1:3] = [(a.replace("Zzz", "Azzz"), b) for a, b in pairs[1:3]]
    results = list(chain.from_iterable(numbered(gpu, pairs)))
    assert [result for _, result in results][1:3] == ["no: Azz", "no: A z"]
    assert results == list(chain.from_iterable(numbered(cpu, pairs)))
    assert [number for number, result in results if isinstance(result, str)] == [1, 2]


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_stream_that_is_closed_early_leaves_no_thread(
    taken: int, gpu: Scorer, machine: stand_in.Machine
) -> None:
    blocks = numbered(gpu)
    for _ in range(taken):
        next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    assert stages() == []
    runs = len(machine.runs)
    assert runs <= 4 * (taken + 3)
    assert gpu.score(*PAIRS[0]).scores


def broken_items(machine: stand_in.Machine) -> Iterator[tuple[str, str]]:
    yield from PAIRS[: 4 * BLOCK]
    raise OSError("at the fifth block")


def broken_model(machine: stand_in.Machine) -> Iterator[tuple[str, str]]:
    def fail(inputs: dict[str, Any]) -> None:
        raise RuntimeError("at the fifth block")

    for i, pair in enumerate(PAIRS):
        if i == 4 * BLOCK:
            machine.before = fail  # blocks before it may be in flight
        yield pair


@pytest.mark.parametrize(
    ("items", "error", "least"), [(broken_items, OSError, 4), (broken_model, DeviceError, 1)]
)
def test_an_error_comes_after_the_blocks_before_it_and_ends_the_threads(
    items: Callable[[stand_in.Machine], Iterator[tuple[str, str]]],
    error: type[Exception],
    least: int,
    gpu: Scorer,
    machine: stand_in.Machine,
) -> None:
    done = []
    with pytest.raises(error, match="at the fifth block"):
        done.extend(numbered(gpu, items(machine)))
    assert least <= len(done) <= 4
    assert stages() == []
    machine.before = lambda inputs: None
    assert gpu.score(*PAIRS[0]).scores


def test_an_error_of_the_key_is_the_callers(gpu: Scorer) -> None:
    def key(number: int) -> tuple[str, str]:
        if number == 3 * BLOCK:
            raise KeyError("no such pair")
        return PAIRS[number]

    done: list[int] = []
    blocks = ([number for number, _, _ in block] for block in gpu.stream(range(len(PAIRS)), key))
    with pytest.raises(KeyError, match="no such pair"):
        done.extend(chain.from_iterable(blocks))
    assert done == list(range(3 * BLOCK))
    assert stages() == []


def test_an_interrupt_ends_the_threads_between_two_runs_of_a_block(
    gpu: Scorer, machine: stand_in.Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "BLOCK_PAIRS", len(PAIRS))
    gpu.embedder._budget.shorten(48)  # type: ignore[attr-defined]
    list(numbered(gpu))
    runs = len(machine.runs)
    assert runs > 20
    machine.runs.clear()

    told = threading.Event()
    ended: list[ThreadPoolExecutor] = []
    end = stages_module.ThreadPoolExecutor.shutdown

    def shutdown(pool: ThreadPoolExecutor, *arguments: Any, **options: Any) -> None:
        # The thread that reads ahead is told first, then the one that runs the model.
        if pool._thread_name_prefix == "vcs-stage":
            ended.append(pool)
        if len(ended) == 2:
            told.set()
        end(pool, *arguments, **options)

    monkeypatch.setattr(stages_module.ThreadPoolExecutor, "shutdown", shutdown)

    def interrupt(inputs: dict[str, Any]) -> None:
        if len(machine.runs) == 3:
            # An interrupt inside Thread.start() would leave a thread that no pool knows.
            eventually(main_thread_waits_for_a_result)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if len(machine.runs) >= 3:
            assert told.wait(WAIT_S)  # the main thread tells the others

    machine.before = interrupt
    # A shell starts what runs in the background without this signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(numbered(gpu, [(a + " Fresh.", b + " Fresh.") for a, b in PAIRS]))
    finally:
        signal.signal(signal.SIGINT, before)
    assert stages() == []
    assert len(machine.runs) <= 5


def test_what_was_written_before_the_disk_is_full_stays(
    gpu: Scorer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vcs_runtime.jobs.output import OutputFile

    append = OutputFile.append
    blocks: list[int] = []

    def full(self: OutputFile, records: Any) -> None:
        blocks.append(1)
        if len(blocks) == 3:
            raise OSError("disk full")
        append(self, records)

    monkeypatch.setattr(OutputFile, "append", full)
    rows = [{"id": i, "reference": a, "generated": b} for i, (a, b) in enumerate(PAIRS)]
    write_pairs(tmp_path / "pairs.jsonl", rows)
    with pytest.raises(OSError, match="disk full"):
        score_file(
            gpu,
            tmp_path / "pairs.jsonl",
            JobFiles(tmp_path / "scores.jsonl", progress=False),
            Options(),
        )
    assert (tmp_path / "scores.jsonl").read_bytes().count(b"\n") == 2 * BLOCK


def test_all_gpus_embed_at_the_same_time_and_the_order_stays(
    tiny_bundle: Path, machine: stand_in.Machine, cpu: Scorer
) -> None:
    machine.gpus = 3
    together = threading.Barrier(3, timeout=WAIT_S)
    met: list[int] = []
    runs = count()

    def meet(inputs: dict[str, Any]) -> None:
        if next(runs) < 3:
            met.append(together.wait())

    with Scorer.open(tiny_bundle, "cuda:all:fp32") as gpus:
        opened = [session.providers for session in machine.sessions[1:]]
        assert sorted(p["CUDAExecutionProvider"].get("device_id", "0") for p in opened) == [
            "0",
            "1",
            "2",
        ]
        assert gpus.embedder.device.reason == "named: 3 GPUs"
        machine.before = meet
        scored = list(numbered(gpus, PAIRS * 2))
        machine.before = lambda inputs: None
        assert gpus.signature == cpu.signature.replace("ort-cpu", "ort-cuda")
        texts = [text for pair in PAIRS for text in pair]
        np.testing.assert_array_equal(gpus.embedder.embed(texts), cpu.embedder.embed(texts))  # type: ignore[attr-defined]
        gpus.release()
        assert machine.open_sessions == 1  # the CPU's
    assert sorted(met) == [0, 1, 2]
    assert list(chain.from_iterable(scored)) == list(chain.from_iterable(numbered(cpu, PAIRS * 2)))


def test_a_gpu_that_fails_is_named_by_its_error(
    tiny_bundle: Path, machine: stand_in.Machine
) -> None:
    machine.gpus = 0
    with pytest.raises(DeviceError, match="cuda:0"):
        Scorer.open(tiny_bundle, "cuda:all:fp32")
    machine.gpus = 2

    def fail(inputs: dict[str, Any]) -> None:
        if len(machine.runs) >= 4:
            raise RuntimeError("a GPU has fallen off the bus")

    machine.before = fail
    with (
        Scorer.open(tiny_bundle, "cuda:all:fp32", proof=False) as gpus,
        pytest.raises(DeviceError, match=r"^cuda:[01]: .*a GPU has fallen off the bus"),
    ):
        list(numbered(gpus, PAIRS * 2))
    assert stages() == []
