"""Forks of a process with busy threads: the children score the same, and end."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import vcs_numba
from attack import processes
from attack.checks import case_folder
from attack.drawn import cases
from attack.processes import Command
from support.stories import story
from vcs_runtime import Embedder, Scorer, ScorerConfig
from vcs_runtime.training import TrainingScorer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # Python warns of a fork beside threads, which is what is tested.
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
PROBES = [(story(i, 3), story(i + 50, 3)) for i in range(3)]
LARGE = np.random.default_rng(0).random((600, 500))
# More than one thread takes a share of them.
SMALL, GAS = [LARGE[:20, k : k + 20] for k in range(400)], np.full(400, 0.5)
# What must have happened in each thread of the parent, before a fork and after all.
ROUNDS = 2


def score(config: ScorerConfig) -> list[float]:
    with Scorer.from_config(config) as scorer:
        return [result.vcs for result in scorer.score_many(PROBES)]


def reward(config: ScorerConfig) -> list[float | None]:
    return TrainingScorer(config).reward_fn(
        [], [b for _, b in PROBES], reference=[a for a, _ in PROBES]
    )


def embed(config: ScorerConfig) -> str:
    with Embedder.open(config.bundle, device="cpu") as embedder:
        return embedder.embed([text for pair in PROBES for text in pair]).tobytes().hex()


def align(config: ScorerConfig) -> list[Any]:
    batch = vcs_numba.score_batch(SMALL, GAS)
    return [vcs_numba.score_similarity(LARGE, 0.5).vcs, batch["vcs"].tobytes().hex()]


#: What a child does, and its parent before and afterwards; the answer is the same everywhere.
TASKS: dict[str, Callable[[ScorerConfig], Any]] = {
    "score": score,
    "reward": reward,
    "embed": embed,
    "align": align,
}


def answers(names: list[str], config: ScorerConfig) -> str:
    return json.dumps([TASKS[name](config) for name in names])


class Busy:
    """Threads that go on with their work, each with texts that nobody has embedded before."""

    def __init__(self, kinds: list[str], config: ScorerConfig, first: int) -> None:
        self.errors: list[str] = []
        self._texts = count(first)
        self._ended = threading.Event()
        self._rounds = [0] * len(kinds)
        self._threads = [
            threading.Thread(target=self._work, args=(*each, config)) for each in enumerate(kinds)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self, number: int, kind: str, config: ScorerConfig) -> None:
        try:
            for _ in getattr(self, f"_{kind}")(config):
                self._rounds[number] += 1
                if self._ended.is_set():
                    return
        except BaseException:
            self.errors.append(traceback.format_exc())

    def goes_on(self) -> None:
        """Wait until each thread has done something more, or has failed."""
        wanted = [rounds + ROUNDS for rounds in self._rounds]
        while not self.errors and any(
            now < want for now, want in zip(self._rounds, wanted, strict=True)
        ):
            time.sleep(0.001)

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _pair(self) -> tuple[str, str]:
        return story(1000 + next(self._texts), 2), story(1000 + next(self._texts), 2)

    def _scores(self, config: ScorerConfig) -> Iterator[object]:
        with Scorer.from_config(config) as scorer:
            while True:
                yield scorer.score(*self._pair())

    def _rewards(self, config: ScorerConfig) -> Iterator[object]:
        scorer = TrainingScorer(config)
        while True:
            results = scorer.score_many([self._pair() for _ in range(5)])
            assert not any(result.error for result in results), results
            yield results

    def _alignments(self, config: ScorerConfig) -> Iterator[object]:
        while True:
            yield align(config)

    def _opens(self, config: ScorerConfig) -> Iterator[object]:
        while True:
            yield score(config)


@pytest.fixture(scope="module")
def right(tiny_bundle: Path) -> dict[str, Any]:
    """The answers of an undisturbed process."""
    config = ScorerConfig(tiny_bundle, "cpu", threads=1)
    found = {name: task(config) for name, task in TASKS.items()}
    TrainingScorer(config).close()
    return found


def fork(bundle: Path, right: dict[str, Any], kinds: list[str], rng: random.Random) -> None:
    """Fork a busy process a few times; every process has the right answers, and children end."""
    with case_folder() as folder:
        config = ScorerConfig(bundle, "cpu", threads=1, cache=folder / "cache")
        busy = Busy(kinds, config, rng.randrange(1 << 20))
        try:
            busy.goes_on()
            for _ in range(rng.randint(1, 3)):
                children = []
                for _ in range(rng.choice((1, 1, 2))):
                    time.sleep(rng.random() * 0.01)
                    names = rng.sample(list(TASKS), rng.randint(1, 2))
                    children.append(
                        (
                            names,
                            Command(
                                folder, *names, work=lambda names: print(answers(names, config))
                            ),
                        )
                    )
                for names, child in children:
                    done = child.wait()
                    about = (
                        f"a child that does {names} beside {kinds}: exit code {done.code}:"
                        f" {done.stderr[-1500:]}"
                    )
                    assert not done.code, about
                    assert not done.stderr, about
                    assert json.loads(done.stdout) == [right[name] for name in names], about
            busy.goes_on()
            assert json.loads(answers(list(TASKS), config)) == list(right.values()), (
                "the parent has other answers"
            )
            assert not busy.errors
        finally:
            busy.end()
            TrainingScorer(config).close()


KINDS = st.lists(
    st.sampled_from(("scores", "scores", "rewards", "alignments", "opens")), min_size=1, max_size=3
)


@cases(3, repeatable=False)
@given(kinds=KINDS, rng=st.randoms(use_true_random=True))
def test_children_of_a_busy_process_score_the_same_and_end(
    tiny_bundle: Path, right: dict[str, Any], kinds: list[str], rng: random.Random
) -> None:
    fork(tiny_bundle, right, kinds, rng)


def test_a_cache_that_stays_open_through_a_fork_is_seen(
    tiny_bundle: Path, right: dict[str, Any], plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forgetful(set[Any]):
        def add(self, _: object) -> None:
            pass

    def attack() -> None:
        for number in range(100):
            fork(tiny_bundle, right, ["scores", "scores"], random.Random(number))

    plant("vcs_runtime.inference.vector_cache._forks.caches", lambda _: Forgetful())
    monkeypatch.setattr(processes, "HANGS_AFTER_S", 20)
    with pytest.raises(AssertionError, match="hangs|exit code"):
        attack()
