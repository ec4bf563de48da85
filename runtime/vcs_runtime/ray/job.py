"""A file of pairs scored by many actors, with the output of one process: the same lines in the same order.

The file is read here and nowhere else; what goes to an actor is a shard, the pairs that a scorer takes at a
time. The output grows in the order of the input. A shard that is finished before its turn is kept as a file
in the folder OUTPUT.shards until then: so nothing that is finished is lost, whatever ends the job.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_runtime.errors import DeviceError
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.jobs.run import Block, record_of, run_blocks
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.ray.batch import ScoreBatch
from vcs_runtime.ray.cluster import Needs, import_ray
from vcs_runtime.ray.shards import Kept
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Pair, Result

_IN_FLIGHT = 2  # shards that an actor has: the next one is there when one is done
_AHEAD = 1000  # shards that may be finished before their turn, held in memory
_ATTEMPTS = 3  # deaths of actors, of one shard or while they start
_LOOK_S = 30  # after so long without a word from anyone, look at the cluster


def score_file(
    source: Path,
    output: Path | None,
    options: Options = Options(),
    *,
    actors: int | None = None,
    threads: int | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    report_failure: Callable[[str], None] = lambda message: None,
    report_engine: Callable[[str], None] = lambda message: None,
    progress: bool = True,
    **engine: Any,
) -> Summary:
    """`jobs.run.score_file` by a pool of Ray's actors; Ray must be connected (`connected`).

    actors         how many; default: as many as the cluster has room for
    threads        CPUs of an actor, and threads of its model; default: 1
    device         as for `Scorer.open`; where it names a GPU, each actor has one of its own
    report_engine  is called with what ran the model, once it is known
    engine         further arguments of `ScoreBatch`

    An actor that dies is replaced, and its shards are given to others. Raises DeviceError for what the
    cluster cannot run, for machines that would score differently, and for pairs that kill three actors.
    """
    needs = Needs.of(device, actors, threads)
    pool = _Pool(needs, {"options": options, "device": device, "threads": needs.cpus, **engine})
    try:
        line = pool.open(report_engine)
        with Kept(output, line, resume=resume, overwrite=overwrite) as kept:
            return run_blocks(
                lambda pairs: pool.score(kept, pairs), source, output, line,
                resume=resume, overwrite=overwrite, report_failure=report_failure, progress=progress,
            )  # fmt: skip
    except pool.errors as error:
        raise DeviceError(
            f"Ray: {_first_line(error)}; what was finished is kept, go on with --resume"
        ) from None
    finally:
        pool.close()


class _Actor:
    """A `ScoreBatch` that is opened by a call: what goes wrong then comes back as the error that it is."""

    def __init__(self, engine: dict[str, Any]) -> None:
        self._engine = engine

    def open(self) -> tuple[str, str, str]:
        """The signature of what this actor scores, its host, and how its device came about."""
        self._batch = ScoreBatch(**self._engine)
        return self._batch.about()

    def score(self, pairs: list[Pair]) -> list[Result]:
        return self._batch.score(pairs)


@dataclass
class _Shard:
    """Pairs that are scored together, their turn in the order of all, and how many actors died of them."""

    turn: int
    pairs: list[InputPair]
    deaths: int = 0


class _Pool:
    """Actors, and what each of them has to do."""

    def __init__(self, needs: Needs, engine: dict[str, Any]) -> None:
        self._ray = import_ray()
        self.errors: type[Exception] = self._ray.exceptions.RayError
        self._class = self._ray.remote(_Actor).options(num_cpus=needs.cpus, num_gpus=needs.gpus)
        self._needs = needs
        self._engine = engine
        self._signature = ""
        self._failed_starts = 0
        self._starting: dict[Any, Any] = {}  # the promise of `open`, and its actor
        self._free: list[Any] = []  # actors, as often as each may be given a shard
        self._running: dict[Any, tuple[_Shard, Any]] = {}  # the promise of results; an actor's in its order
        self._again: deque[_Shard] = deque()  # whose actor died
        for _ in range(needs.actors):
            self._start()

    def open(self, report_engine: Callable[[str], None]) -> str:
        """Wait for the first actor; the signature of what the pool scores."""
        while not self._free:
            self._join(self._wait(), report_engine)
        return self._signature

    def score(self, kept: Kept, pairs: Iterator[InputPair]) -> Iterator[Block]:
        """Score the pairs but for the kept ones; yield all, in order."""
        todo = enumerate(kept.cut(pairs))
        more = True
        done: dict[int, Block] = {}
        turn = 0
        while more or done or self._again or self._running:
            while self._free and self._again:
                self._give(self._again.popleft())
            while more and self._free and len(done) < _AHEAD:
                number, part = next(todo, (0, None))
                if part is None:
                    more = False
                elif part.records is None:
                    self._give(_Shard(number, part.pairs))
                else:
                    done[number] = list(zip(part.pairs, part.records, strict=True))
            if turn in done:
                yield done[turn]
                kept.drop(done.pop(turn))
                turn += 1
            elif more or self._running or self._again:
                ready = self._wait()
                if ready in self._starting:
                    self._join(ready)
                elif finished := self._finish(ready):
                    shard, block = finished
                    done[shard.turn] = block
                    if shard.turn != turn:
                        kept.keep(block)

    def close(self) -> None:
        """End the actors."""
        actors = [*self._starting.values(), *self._free, *(actor for _, actor in self._running.values())]
        for actor in {id(actor): actor for actor in actors}.values():
            self._ray.kill(actor)

    def _start(self) -> None:
        actor = self._class.remote(self._engine)
        self._starting[actor.open.remote()] = actor

    def _wait(self) -> Any:
        """The promise of one actor, kept or broken."""
        while True:
            ready, _ = self._ray.wait([*self._running, *self._starting], timeout=_LOOK_S)
            if ready:
                return ready[0]
            if not self._running:
                self._needs.check(1)  # the machine of the last actor may be gone for good

    def _join(self, ready: Any, report_engine: Callable[[str], None] = lambda message: None) -> None:
        """An actor is there. It must score as the others do, whatever its machine has."""
        actor = self._starting.pop(ready)
        try:
            line, host, device = self._get(ready)
        except self._ray.exceptions.RayActorError as error:
            self._failed_starts += 1
            if self._failed_starts == _ATTEMPTS:
                raise DeviceError(f"Ray's actors die while they start: {_first_line(error)}") from None
            self._start()
            return
        if not self._signature:
            report_engine(device)
            self._signature = line
        if line != self._signature:
            raise DeviceError(
                f"{host} would score as {line}, another machine as {self._signature}: install the same "
                "version and bundle everywhere, and name a device"
            )
        self._failed_starts = 0
        self._free += [actor] * _IN_FLIGHT

    def _give(self, shard: _Shard) -> None:
        # From the front: an actor that has nothing to do comes before the second place of another.
        actor = self._free.pop(0)
        self._running[actor.score.remote([pair.texts for pair in shard.pairs])] = (shard, actor)

    def _finish(self, ready: Any) -> tuple[_Shard, Block] | None:
        """A shard with its block; None if its actor died."""
        shard, actor = self._running[ready]
        try:
            results = self._get(ready)
        except self._ray.exceptions.RayActorError as error:
            self._bury(actor, error)
            return None
        del self._running[ready]
        self._free.append(actor)
        block = [(pair, record_of(pair, result)) for pair, result in zip(shard.pairs, results, strict=True)]
        return shard, block

    def _bury(self, dead: Any, error: Exception) -> None:
        """Give a dead actor's shards to others, and have another start. It died of the first of them."""
        mine = [promise for promise, (_, actor) in self._running.items() if actor is dead]
        shards = [self._running.pop(promise)[0] for promise in mine]
        self._free = [actor for actor in self._free if actor is not dead]
        shards[0].deaths += 1
        if shards[0].deaths == _ATTEMPTS:
            places = [shards[0].pairs[i].place for i in (0, -1)]
            raise DeviceError(
                f"{_ATTEMPTS} actors died of the pairs from {places[0]} to {places[1]}: {_first_line(error)}"
            )
        self._again.extend(shards)
        self._start()

    def _get(self, promise: Any) -> Any:
        try:
            return self._ray.get(promise)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause or error from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
