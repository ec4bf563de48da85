"""Background scoring: a failing request harms no other, and answered requests may be asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.stories import story
from support.waiting import HANGS_AFTER_S, eventually
from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.errors import BundleError, DeviceMemoryError, VcsError
from vcs_runtime.inference import session
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.scoring.background import BackgroundScorer, Request
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence, Result

BIG = story(7)


@pytest.fixture
def reported() -> list[Exception]:
    return []


@pytest.fixture
def background(tiny_bundle: Path, reported: list[Exception]) -> Iterator[BackgroundScorer]:
    opened = BackgroundScorer(ScorerConfig(tiny_bundle, "cpu"), reported.append)
    yield opened
    opened.close()


def ask(*pairs: tuple[str, str], options: Options = Options()) -> Request[float]:
    return Request(pairs, options, lambda result, _: result.vcs)


def test_a_request_that_is_too_much_for_the_machine_fails_alone(
    background: BackgroundScorer,
    reported: list[Exception],
    scorer: Scorer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = Embedder.prepare

    def small(embedder: Embedder, texts: list[str]) -> Any:
        texts = list(texts)
        if BIG in texts:
            raise DeviceMemoryError("the embedder: out of memory")
        return really(embedder, texts)

    monkeypatch.setattr(Embedder, "prepare", small)
    requests = [ask((story(1), text)) for text in (story(2), BIG, story(3))]
    for request in requests:
        background.put(request)
    assert requests[0].future.result(HANGS_AFTER_S) == [scorer.score(story(1), story(2)).vcs]
    assert requests[2].future.result(HANGS_AFTER_S) == [scorer.score(story(1), story(3)).vcs]
    with pytest.raises(DeviceMemoryError, match="out of memory"):
        requests[1].future.result(HANGS_AFTER_S)
    assert [str(error) for error in reported] == ["the embedder: out of memory"]


LARGE = [(story(1), story(number) * 30) for number in range(2, 32)]  # of many turns


def test_a_request_that_was_given_up_costs_at_most_a_turn_and_is_held_until_then(
    background: BackgroundScorer,
) -> None:
    scored, held = [], []

    def convert(result: Result, evidence: Evidence | None) -> None:
        scored.append(result)
        large.future.cancel()
        held.append(background.held)

    large: Request[None] = Request(LARGE, Options(), convert)
    background.put(large)
    small = ask((story(1), story(2)))
    background.put(small)
    assert len(small.future.result(HANGS_AFTER_S)) == 1
    assert 0 < len(scored) < len(LARGE) / 2
    assert set(held) <= {1, 2}
    background.release().result(HANGS_AFTER_S)
    assert background.held == 0


def test_a_small_request_does_not_wait_for_a_large_one(
    background: BackgroundScorer, scorer: Scorer
) -> None:
    small, answered = ask((story(1), story(2))), []

    def convert(result: Result, evidence: Evidence | None) -> float:
        if not answered:
            background.put(small)
        answered.append(small.future.done())
        return result.vcs

    large = Request(LARGE, Options(), convert)
    background.put(large)
    assert large.future.result(HANGS_AFTER_S) == [result.vcs for result in scorer.score_many(LARGE)]
    assert answered.count(True) > len(LARGE) / 2


def test_the_evidence_reaches_the_conversion_and_its_failure_is_the_requests(
    background: BackgroundScorer, reported: list[Exception]
) -> None:
    def convert(result: Result, evidence: Evidence | None) -> int:
        assert evidence is not None
        return len(evidence.chunks[0])

    good: Request[int] = Request([(story(1, 4), story(2))], Options(), convert)
    bad: Request[int] = Request([(story(1), "...")], Options(), convert)
    background.put(good)
    background.put(bad)
    assert good.future.result(HANGS_AFTER_S) == [4]
    with pytest.raises(AssertionError):
        bad.future.result(HANGS_AFTER_S)
    assert len(reported) == 1


def test_a_bundle_that_cannot_be_opened_fails_every_request(tmp_path: Path) -> None:
    reported: list[Exception] = []
    background = BackgroundScorer(ScorerConfig(tmp_path, "cpu"), reported.append)
    requests = [ask((story(1), story(2))) for _ in range(2)]
    for request in requests:
        background.put(request)
    for request in requests:
        with pytest.raises(BundleError):
            request.future.result(HANGS_AFTER_S)
    assert background.scorer is None
    background.close()


def test_an_exception_that_is_no_exception_leaves_nobody_waiting(
    background: BackgroundScorer, reported: list[Exception]
) -> None:
    """A panic of the tokenizer derives from BaseException."""

    class Panic(BaseException):
        pass

    def convert(result: Result, evidence: Evidence | None) -> float:
        if result.n_gen == 1:
            raise Panic("index out of range")
        return result.vcs

    bad = Request([(story(1), story(1, 1))], Options(), convert)
    good = Request([(story(2), story(2))], Options(), convert)
    background.put(bad)
    background.put(good)
    with pytest.raises(VcsError, match="Panic: index out of range"):
        bad.future.result(HANGS_AFTER_S)
    assert good.future.result(HANGS_AFTER_S)[0] > 0.99
    assert [str(error) for error in reported] == ["Panic: index out of range"]


ENORMOUS = (story(1, 400), story(2, 400))  # more than four turns


@pytest.fixture
def beside(tiny_bundle: Path, reported: list[Exception]) -> Iterator[BackgroundScorer]:
    opened = BackgroundScorer(ScorerConfig(tiny_bundle, "cpu"), reported.append, beside=True)
    yield opened
    opened.close()


class Gate:
    """Holds the embedder at the second batch of a pair of many batches, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.batches: list[str] = []  # the threads that asked before a batch
        really = session.check_stopped

        def check() -> None:
            name = threading.current_thread().name
            self.batches.append(name)
            if name.startswith("vcs-scoring-large") and self.batches.count(name) == 2:
                self.reached.set()
                assert self.opened.wait(HANGS_AFTER_S)
            really()

        monkeypatch.setattr(session, "check_stopped", check)


def test_small_requests_are_scored_while_a_large_pair_is(
    beside: BackgroundScorer, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    pairs = [(story(1), story(2)), ENORMOUS, (story(3), story(4)), ENORMOUS]
    large = ask(*pairs)
    beside.put(large)
    assert gate.reached.wait(HANGS_AFTER_S)
    small = ask((story(5), story(6)))
    beside.put(small)
    assert small.future.result(HANGS_AFTER_S) == [scorer.score(story(5), story(6)).vcs]
    assert not large.future.done()
    released = beside.release()
    gate.opened.set()
    expected = [result.vcs for result in scorer.score_many(pairs)]
    assert large.future.result(HANGS_AFTER_S) == expected
    released.result(HANGS_AFTER_S)  # after the large request, which it was asked after
    assert beside.held == 0


def test_a_large_pair_that_nobody_waits_for_stops_before_its_next_batch(
    beside: BackgroundScorer, reported: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    converted: list[Result] = []
    large: Request[None] = Request(
        [ENORMOUS], Options(), lambda result, _: converted.append(result)
    )
    beside.put(large)
    assert gate.reached.wait(HANGS_AFTER_S)
    large.future.cancel()
    assert beside.held == 1  # it still takes time
    gate.opened.set()
    beside.release().result(HANGS_AFTER_S)
    in_large = [name for name in gate.batches if name.startswith("vcs-scoring-large")]
    assert len(in_large) == 2
    assert converted == reported == []
    assert beside.held == 0


def test_a_turn_that_nobody_waits_for_stops_before_its_next_batch(
    background: BackgroundScorer, reported: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [ask(ENORMOUS), ask(ENORMOUS[::-1])]
    really, batches = session.check_stopped, []

    def check() -> None:
        batches.append(1)
        if len(batches) == 2:
            for request in requests:
                request.future.cancel()
        really()

    monkeypatch.setattr(session, "check_stopped", check)
    released = None
    for request in requests:
        background.put(request)
    released = background.release()
    released.result(HANGS_AFTER_S)
    assert len(batches) == 2
    assert reported == []


def test_closing_gives_up_a_large_pair(
    tiny_bundle: Path, reported: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    opened = BackgroundScorer(ScorerConfig(tiny_bundle, "cpu"), reported.append, beside=True)
    large, queued = ask(ENORMOUS), ask(ENORMOUS)
    opened.put(large)
    assert gate.reached.wait(HANGS_AFTER_S)
    opened.put(queued)
    closing = threading.Thread(target=opened.close)
    closing.start()
    eventually(lambda: opened._closing)
    gate.opened.set()
    closing.join(HANGS_AFTER_S)
    assert not closing.is_alive()
    for request in (large, queued):
        with pytest.raises(VcsError, match="the scorer was closed"):
            request.future.result(0)
