"""Background scoring: deadlines, batches, shared sessions, release, close, failing devices."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.gate import Gate
from support.stories import story
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.errors import DeviceError, DeviceMemoryError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.training import TextMetric, TrainingScorer, service

TEXT, OTHER = story(1), story(2)
#: Seconds of a deadline that no machine misses.
DAYS = 100_000.0


@pytest.fixture
def background(config: ScorerConfig) -> TrainingScorer:
    return TrainingScorer(config)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


@pytest.fixture
def pass_deadlines(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Puts the clock of deadlines forward by `DAYS`, which no machine is too slow for."""
    ahead = [0.0]

    def later() -> None:
        ahead[0] += DAYS
        clock = service._services._clock
        with clock._changed:
            clock._changed.notify()

    monkeypatch.setattr(
        service, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0])
    )
    return later


def test_a_deadline_is_kept_whatever_the_model_is_doing(
    background: TrainingScorer, gate: Gate, pass_deadlines: Callable[[], None]
) -> None:
    first = background.submit(TEXT, OTHER, deadline_s=DAYS)
    assert gate.reached.wait(HANGS_AFTER_S)
    second = background.submit(TEXT, story(3), deadline_s=DAYS)
    patient = background.submit(TEXT, story(4))
    pass_deadlines()
    for late in (first, second):
        result = late.result(HANGS_AFTER_S)
        assert result.error == "deadline: not scored within 100000 s"
        assert result.scores is None
    assert not patient.done()
    gate.open.set()
    assert patient.result(HANGS_AFTER_S).scores is not None
    assert gate.batches == [[], [story(4)]]  # what was late before its turn came costs nothing


def test_pairs_that_were_scored_before_the_deadline_keep_their_scores(
    background: TrainingScorer,
    pass_deadlines: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    scorer: Scorer,
) -> None:
    monkeypatch.setattr("vcs_runtime.scoring.background._TURN", 1)  # a pair in each turn
    reached, leave, turns = threading.Event(), threading.Event(), []
    stream = Scorer.stream

    def held(*arguments: Any) -> Any:
        turns.append(1)
        if len(turns) == 3:
            reached.set()
            assert leave.wait(HANGS_AFTER_S)
        return stream(*arguments)

    monkeypatch.setattr(Scorer, "stream", held)
    pairs = [(TEXT, story(number)) for number in range(2, 7)]
    future = background.submit_many(pairs, deadline_s=DAYS)
    assert reached.wait(HANGS_AFTER_S)
    pass_deadlines()
    results = future.result(HANGS_AFTER_S)
    leave.set()
    assert results[:2] == [scorer.score(*pair) for pair in pairs[:2]]
    assert [result.error for result in results[2:]] == ["deadline: not scored within 100000 s"] * 3


def test_a_reward_past_its_deadline_is_none(config: ScorerConfig, gate: Gate) -> None:
    rewards = TrainingScorer(config, deadline_s=0.05, unscorable=-1)
    assert rewards.reward_fn(["p"], [OTHER], reference=[TEXT]) == [None]
    assert rewards.compute_score("clips", OTHER, TEXT) == -1.0
    gate.open.set()


def test_an_endless_deadline_is_none_and_leaves_the_others_alone(
    background: TrainingScorer, gate: Gate
) -> None:
    for endless in (float("inf"), 1e300, 1e10):
        patient = background.submit(TEXT, OTHER, deadline_s=endless)
    assert gate.reached.wait(HANGS_AFTER_S)
    late = background.submit(TEXT, story(3), deadline_s=0.05).result(HANGS_AFTER_S)
    assert late.error == "deadline: not scored within 0.05 s"
    gate.open.set()
    assert patient.result(HANGS_AFTER_S).scores is not None


def test_a_deadline_that_is_met_changes_nothing(background: TrainingScorer, scorer: Scorer) -> None:
    assert background.submit(TEXT, OTHER, deadline_s=DAYS).result() == scorer.score(TEXT, OTHER)


def test_samples_of_many_threads_are_scored_together(
    background: TrainingScorer, gate: Gate, monkeypatch: pytest.MonkeyPatch, scorer: Scorer
) -> None:
    put = threading.Semaphore(0)
    submit = service.submit

    def counted(*arguments: Any) -> Any:
        future = submit(*arguments)
        put.release()
        return future

    monkeypatch.setattr(service, "submit", counted)
    texts = [story(i) for i in range(10, 18)]
    with ThreadPoolExecutor(8) as pool:
        running = [pool.submit(background.compute_score, "clips", texts[0], TEXT)]
        assert gate.reached.wait(HANGS_AFTER_S)
        running += [
            pool.submit(background.compute_score, "clips", text, TEXT) for text in texts[1:]
        ]
        for _ in texts:
            assert put.acquire(timeout=HANGS_AFTER_S)
        gate.open.set()
        rewards = [future.result(HANGS_AFTER_S) for future in running]
    assert [len(batch) for batch in gate.batches] == [1, 7]
    monkeypatch.undo()
    assert rewards == [scorer.score(TEXT, text).margin for text in texts]


def test_equal_scorers_share_one_session_and_others_do_not(
    config: ScorerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    really = Embedder.open

    def counted(*arguments: Any, **options: Any) -> Embedder:
        opened.append(arguments)
        return really(*arguments, **options)

    monkeypatch.setattr(Embedder, "open", counted)

    def work(number: int) -> float:
        # Options of scoring are no matter of the session.
        return TrainingScorer(config, chunk_size=1 + number % 2).compute_score("clips", OTHER, TEXT)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(work, range(16)))) <= 2
    assert len(opened) == 1
    TrainingScorer(replace(config, threads=1)).compute_score("clips", OTHER, TEXT)
    assert len(opened) == 2


def test_what_the_session_may_take_reaches_it(
    config: ScorerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[ScorerConfig] = []

    def record(config: ScorerConfig) -> Scorer:
        opened.append(config)
        raise RuntimeError("enough")

    monkeypatch.setattr(Scorer, "from_config", record)
    mine = replace(config, gpu_memory_gb=1.5, threads=3, cache_mb=7, segmenter="rules", cache="v")
    with pytest.raises(RuntimeError, match="enough"):
        TrainingScorer(mine).score_many([(TEXT, OTHER)])
    assert opened == [replace(mine, bundle=str(config.bundle), cache=str(Path("v").absolute()))]


def test_references_are_embedded_once_and_outlive_a_release(
    background: TrainingScorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded: list[str] = []
    released = []
    really, release = Embedder.prepare, Embedder.release
    monkeypatch.setattr(
        Embedder, "prepare", lambda self, texts: (embedded.extend(texts), really(self, texts))[1]
    )
    monkeypatch.setattr(Embedder, "release", lambda self: (released.append(1), release(self))[1])
    wrong = background.fill([TEXT, [TEXT, OTHER], "..."])
    assert wrong == ["reference: the text has only punctuation"]
    assert embedded.count(TEXT) == embedded.count(OTHER) == 1
    for step in range(3):
        background.reward_fn(["p"] * 4, [story(10 + step)] * 4, reference=[TEXT] * 4)
        background.release()
    assert embedded.count(TEXT) == 1
    assert len(embedded) == len(set(embedded))
    assert len(released) == 3


def test_release_waits_for_what_was_submitted(background: TrainingScorer) -> None:
    futures = [background.submit(TEXT, story(i)) for i in range(20)]
    background.release()
    assert all(future.done() for future in futures)
    assert futures[0].result().scores is not None


def test_close_answers_everybody_and_the_next_call_opens_anew(
    background: TrainingScorer, scorer: Scorer, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    joining = threading.Event()
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "vcs-scoring":  # `close` waits for it, and so has begun
            joining.set()
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    first = background.submit(TEXT, OTHER)
    assert gate.reached.wait(HANGS_AFTER_S)
    waiting = [background.submit(TEXT, story(i)) for i in range(3)]
    closing = threading.Thread(target=background.close)
    closing.start()
    assert joining.wait(HANGS_AFTER_S)
    gate.open.set()
    closing.join(HANGS_AFTER_S)
    assert all(
        "the scorer was closed" in str(future.result(HANGS_AFTER_S).error)
        for future in [first, *waiting]
    )
    background.close()  # twice does no harm
    assert background.score_many([(TEXT, OTHER)])[0].vcs == scorer.score(TEXT, OTHER).vcs


def test_a_device_that_fails_is_an_error_of_its_pairs_and_is_tried_again(
    background: TrainingScorer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*arguments: Any) -> Any:
        raise DeviceMemoryError("the embedder: out of memory")

    with caplog.at_level(logging.ERROR, "vcs_runtime.training"), monkeypatch.context() as patch:
        patch.setattr(Embedder, "prepare", full)
        for _ in range(2):
            assert background.reward_fn(["p"], [OTHER], reference=[TEXT]) == [None]
    logged = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [bool(record.exc_info) for record in logged] == [True, False]
    assert background.reward_fn(["p"], [OTHER], reference=[TEXT]) != [None]


def test_models_that_cannot_be_opened_the_first_time_stop_the_training(
    background: TrainingScorer, config: ScorerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any, **options: Any) -> Any:
        raise DeviceError("the embedder: memory does not suffice")

    with monkeypatch.context() as patch:
        patch.setattr(Embedder, "open", full)
        for call in (
            lambda: background.submit(TEXT, OTHER).result(HANGS_AFTER_S),
            lambda: background.reward_fn(["p"], [OTHER], reference=[TEXT]),
            lambda: background.compute_score("clips", OTHER, TEXT),
            lambda: TextMetric(config).update(OTHER, TEXT),
        ):
            with pytest.raises(DeviceError, match="the embedder: memory does not suffice"):
                call()
    # There is room again.
    assert background.submit(TEXT, OTHER).result(HANGS_AFTER_S).scores is not None


def test_results_of_requests_of_any_size_go_to_who_asked(
    background: TrainingScorer, scorer: Scorer
) -> None:
    sizes = [3, 0, 1, 4, 0, 2]
    pairs = [(story(i), story(i + 40)) for i in range(sum(sizes))]
    parts, at = [], 0
    for size in sizes:
        parts.append(pairs[at : at + size])
        at += size
    futures = [background.submit_many(part) for part in parts]
    for future, part in zip(futures, parts, strict=True):
        assert future.result(HANGS_AFTER_S) == [scorer.score(*pair) for pair in part]
        assert not future.cancel()
