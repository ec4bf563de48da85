"""Door: forks of a process whose other threads score, embed and write vectors. The children score the same, and end."""

from __future__ import annotations

import json
import os
import random
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import vcs_numba
from attack.cases import Attack, Door, Ground, UnavailableError
from attack.processes import Command, compile_kernels
from support.stories import story
from vcs_runtime import Embedder, Scorer, ScorerConfig
from vcs_runtime.training import TrainingScorer

_PROBES = [(story(i, 3), story(i + 50, 3)) for i in range(3)]
_LARGE = np.random.default_rng(0).random((600, 500))
# More than one thread takes a share of them.
_SMALL, _GAS = [_LARGE[:20, k : k + 20] for k in range(400)], np.full(400, 0.5)
# What must have happened in each thread of the parent, before a fork and after all.
_ROUNDS = 2


def _score(config: ScorerConfig) -> list[float]:
    with Scorer.from_config(config) as scorer:
        return [result.vcs for result in scorer.score_many(_PROBES)]


def _reward(config: ScorerConfig) -> list[float | None]:
    return TrainingScorer(config).reward_fn([], [b for _, b in _PROBES], reference=[a for a, _ in _PROBES])


def _embed(config: ScorerConfig) -> str:
    with Embedder.open(config.bundle, device="cpu") as embedder:
        return embedder.embed([text for pair in _PROBES for text in pair]).tobytes().hex()


def _align(config: ScorerConfig) -> list[Any]:
    batch = vcs_numba.score_batch(_SMALL, _GAS)
    return [vcs_numba.score_similarity(_LARGE, 0.5).vcs, batch["vcs"].tobytes().hex()]


#: What a child does, and its parent before and afterwards; the answer is the same everywhere.
_TASKS: dict[str, Callable[[ScorerConfig], Any]] = {
    "score": _score,
    "reward": _reward,
    "embed": _embed,
    "align": _align,
}


def _answers(names: list[str], config: ScorerConfig) -> str:
    return json.dumps([_TASKS[name](config) for name in names])


class _Busy:
    """Threads that go on with their work, each with texts that nobody has embedded before."""

    def __init__(self, kinds: list[str], config: ScorerConfig, first: int) -> None:
        self._texts = count(first)
        self._ended = threading.Event()
        self.errors: list[str] = []
        self._rounds = [0] * len(kinds)
        self._threads = [
            threading.Thread(target=self._work, args=(number, getattr(self, f"_{kind}"), config))
            for number, kind in enumerate(kinds)
        ]
        for thread in self._threads:
            thread.start()

    def _work(
        self, number: int, work: Callable[[ScorerConfig], Iterator[object]], config: ScorerConfig
    ) -> None:
        try:
            for _ in work(config):
                self._rounds[number] += 1
                if self._ended.is_set():
                    return
        except BaseException:
            self.errors.append(traceback.format_exc())

    def goes_on(self) -> None:
        """Wait until each thread has done something more, or has failed."""
        wanted = [rounds + _ROUNDS for rounds in self._rounds]
        while not self.errors and any(now < want for now, want in zip(self._rounds, wanted, strict=True)):
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
            yield _align(config)

    def _opens(self, config: ScorerConfig) -> Iterator[object]:
        while True:
            yield _score(config)


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    if not hasattr(os, "fork"):
        raise UnavailableError("this system has no fork")
    compile_kernels()
    plain = ScorerConfig(ground.bundle, "cpu", threads=1)
    right = {name: task(plain) for name, task in _TASKS.items()}
    TrainingScorer(plain).close()

    def attack(rng: random.Random, folder: Path) -> list[str]:
        config = ScorerConfig(ground.bundle, "cpu", threads=1, cache=folder / "cache")
        kinds = rng.choices(("scores", "scores", "rewards", "alignments", "opens"), k=rng.randint(1, 3))
        busy = _Busy(kinds, config, rng.randrange(1 << 20))
        try:
            return _fork(rng, folder, config, kinds, busy, right)
        finally:
            busy.end()
            TrainingScorer(config).close()

    with warnings.catch_warnings():
        # Python warns of a fork beside threads, which is what is tested.
        warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
        yield attack


def _fork(
    rng: random.Random,
    folder: Path,
    config: ScorerConfig,
    kinds: list[str],
    busy: _Busy,
    right: dict[str, Any],
) -> list[str]:
    found = []
    busy.goes_on()
    for _ in range(rng.randint(1, 3)):
        children = []
        for _ in range(rng.choice((1, 1, 2))):
            time.sleep(rng.random() * 0.01)
            names = rng.sample(list(_TASKS), rng.randint(1, 2))
            child = Command(
                folder, list(names), forked=True, work=lambda names: print(_answers(names, config))
            )
            children.append((names, child))
        for names, child in children:
            about = f"a child that does {names} beside {kinds}"
            try:
                done = child.wait()
            except TimeoutError as error:
                found.append(f"{about}: {error}")
                continue
            if done.code or done.stderr:
                found.append(f"{about}: exit code {done.code}: {done.stderr[-1500:]}")
            elif json.loads(done.stdout) != [right[name] for name in names]:
                found.append(f"{about}: other answers than before")
    busy.goes_on()
    names = list(_TASKS)
    if json.loads(_answers(names, config)) != [right[name] for name in names]:
        found.append(f"the parent has other answers than before, beside {kinds}")
    return found + [f"a thread of the parent failed: {error}" for error in busy.errors]


FORK = Door("fork", 5, "forks of a process whose other threads score and write vectors", _open)
