"""A file of pairs scored by many Ray actors, with the output of one process: equal lines in equal order.

Only this process reads the input and writes the output. An actor receives a shard, as many pairs as a scorer
takes at a time. The output grows in the order of the input. A shard that is finished before its turn is kept
as a file in the folder OUTPUT.shards until then, so that no finished shard is lost if the job is stopped.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vcs_runtime.errors import DeviceError
from vcs_runtime.jobs.pairs import InputPair, PairSource, as_source
from vcs_runtime.jobs.run import Block, line_of, run_blocks
from vcs_runtime.jobs.summary import SKIP, Summary
from vcs_runtime.ray.batch import ScoreBatch
from vcs_runtime.ray.cluster import Needs, import_ray
from vcs_runtime.ray.shards import ShardFolder
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Pair, Result

_IN_FLIGHT = 2  # shards of an actor: the next one is there when one is done
_AHEAD = 1000  # shards in memory that may be finished before their turn
_ATTEMPTS = 3  # deaths of actors over one shard, or while they start
_LOOK_S = 30  # seconds without an answer after which the cluster is checked


def score_file(
    source: Path | PairSource,
    output: Path | None,
    config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
    options: Options = Options(),
    *,
    actors: int | None = None,
    failed: str = SKIP,
    resume: bool = False,
    overwrite: bool = False,
    report_failure: Callable[[str], None] = lambda message: None,
    report_device: Callable[[str], None] = lambda message: None,
    progress: bool = True,
) -> Summary:
    """Score the pairs of a file with a pool of Ray actors. Ray must be connected (`connected`).

    An actor that dies is replaced, and other actors score its shards.

    Parameters
    ----------
    source
        The path of a file of pairs, or an object that reads pairs.
    output
        The output, as JSONL; None: only the summary is computed.
    config
        How each actor opens its scorer, or a bundle's folder. Paths become absolute and must be valid on
        every machine. `threads` is the number of CPUs of an actor (None: 1). If `device` names a GPU, each
        actor has its own GPU.
    options
        How pairs are scored.
    actors
        Number of actors. None: as many as fit the cluster.
    failed
        What a pair does that cannot be scored: `skip` leaves it out of the means, `zero` counts it as a text
        that says nothing, `error` ends the job.
    resume
        Continue the output after its last whole line.
    overwrite
        Replace an existing output.
    report_failure
        Is called with a message for every pair that cannot be scored.
    report_device
        Is called once with the device of the first actor, and the reason for it.
    progress
        Whether a terminal shows a progress bar.

    Returns
    -------
    Summary
        The statistics of all pairs, those of earlier runs included.

    Raises
    ------
    DeviceError
        The cluster can never run these actors, machines would score differently, or the same pairs have
        killed three actors.
    InputError, BundleError, CacheError
        The input or the output cannot be used, or as for `Scorer.open`.
    """
    config = ScorerConfig.of(config).absolute()
    source = as_source(source)
    needs = Needs.of(config.device, actors, config.threads)
    pool = _Pool(needs, replace(config, threads=needs.cpus), options)
    try:
        signature = pool.open(report_device)
        with ShardFolder(output, signature, resume=resume, overwrite=overwrite) as folder:
            return run_blocks(
                lambda pairs: pool.score(folder, pairs), source, output, signature,
                failed=failed, resume=resume, overwrite=overwrite, report_failure=report_failure,
                progress=progress,
            )  # fmt: skip
    except pool.errors as error:
        raise DeviceError(
            f"Ray: {_first_line(error)}; what was finished is kept, continue with --resume"
        ) from None
    finally:
        pool.close()


class ShardScorer:
    """The actor: a `ScoreBatch` that is opened by a call, so that Ray returns the exception of a failure."""

    def __init__(self, config: ScorerConfig, options: Options) -> None:
        self._config = config
        self._options = options

    def open(self) -> tuple[str, str, str]:
        """Open the scorer. Returns what `ScoreBatch.about` does."""
        self._batch = ScoreBatch(self._config, self._options)
        return self._batch.about()

    def score(self, pairs: list[Pair]) -> list[Result]:
        """Score the pairs of a shard."""
        return self._batch.score(pairs)


@dataclass
class _Shard:
    """Pairs that are scored together, with their position in the order of all shards."""

    turn: int
    pairs: list[InputPair]
    deaths: int = 0  # of actors that had this shard first


class _Pool:
    """The actors and their shards."""

    def __init__(self, needs: Needs, config: ScorerConfig, options: Options) -> None:
        self._ray = import_ray()
        self.errors: type[Exception] = self._ray.exceptions.RayError
        self._class = self._ray.remote(ShardScorer).options(num_cpus=needs.cpus, num_gpus=needs.gpus)
        self._needs = needs
        self._arguments = (config, options)
        self._signature = ""
        self._failed_starts = 0
        self._starting: dict[Any, Any] = {}  # the future of `open`, and its actor
        self._free: list[Any] = []  # an actor as often as it may receive a shard
        self._running: dict[Any, tuple[_Shard, Any]] = {}  # the future of results; in order for each actor
        self._again: deque[_Shard] = deque()  # shards whose actor died
        for _ in range(needs.actors):
            self._start()

    def open(self, report_device: Callable[[str], None]) -> str:
        """Wait for the first actor. Returns the signature of the pool's scores."""
        while not self._free:
            self._join(self._wait(), report_device)
        return self._signature

    def score(self, folder: ShardFolder, pairs: Iterator[InputPair]) -> Iterator[Block]:
        """Score the pairs that `folder` does not hold. Yields the blocks of all pairs in order."""
        parts = enumerate(folder.cut(pairs))
        more = True
        done: dict[int, Block] = {}
        turn = 0
        while more or done or self._again or self._running:
            while self._free and self._again:
                self._send(self._again.popleft())
            while more and self._free and len(done) < _AHEAD:
                number, part = next(parts, (0, None))
                if part is None:
                    more = False
                elif part.records is None:
                    self._send(_Shard(number, part.pairs))
                else:
                    done[number] = list(zip(part.pairs, part.records, strict=True))
            if turn in done:
                yield done[turn]
                folder.drop(done.pop(turn))
                turn += 1
            elif more or self._running or self._again:
                ready = self._wait()
                if ready in self._starting:
                    self._join(ready)
                elif finished := self._finish(ready):
                    shard, block = finished
                    done[shard.turn] = block
                    if shard.turn != turn:
                        folder.keep(block)

    def close(self) -> None:
        """End the actors."""
        actors = [*self._starting.values(), *self._free, *(actor for _, actor in self._running.values())]
        for actor in {id(actor): actor for actor in actors}.values():
            self._ray.kill(actor)

    def _start(self) -> None:
        actor = self._class.remote(*self._arguments)
        self._starting[actor.open.remote()] = actor

    def _wait(self) -> Any:
        """Wait for a future of any actor."""
        while True:
            ready, _ = self._ray.wait([*self._running, *self._starting], timeout=_LOOK_S)
            if ready:
                return ready[0]
            if not self._running:
                self._needs.check(1)  # the machine of the last actor may be gone for good

    def _join(self, ready: Any, report_device: Callable[[str], None] = lambda message: None) -> None:
        """Add an actor that has started. Its signature must be equal to the signature of the others."""
        actor = self._starting.pop(ready)
        try:
            signature, host, device = self._get(ready)
        except self._ray.exceptions.RayActorError as error:
            self._failed_starts += 1
            if self._failed_starts == _ATTEMPTS:
                raise DeviceError(f"Ray's actors die while they start: {_first_line(error)}") from None
            self._start()
            return
        if not self._signature:
            report_device(device)
            self._signature = signature
        if signature != self._signature:
            raise DeviceError(
                f"{host} would score as {signature}, another machine as {self._signature}: install the same "
                "version and bundle everywhere, and name a device"
            )
        self._failed_starts = 0
        self._free += [actor] * _IN_FLIGHT

    def _send(self, shard: _Shard) -> None:
        # The front of the list: an idle actor comes before the second place of a busy one.
        actor = self._free.pop(0)
        self._running[actor.score.remote([pair.texts for pair in shard.pairs])] = (shard, actor)

    def _finish(self, ready: Any) -> tuple[_Shard, Block] | None:
        """Return a shard with its block; None if its actor died."""
        shard, actor = self._running[ready]
        try:
            results = self._get(ready)
        except self._ray.exceptions.RayActorError as error:
            self._replace(actor, error)
            return None
        del self._running[ready]
        self._free.append(actor)
        scored = zip(shard.pairs, results, strict=True)
        block = [(pair, line_of(pair, result)) for pair, result in scored]
        return shard, block

    def _replace(self, dead: Any, error: Exception) -> None:
        """Start a new actor for a dead one, and queue its shards again. The first one counts the death."""
        futures = [future for future, (_, actor) in self._running.items() if actor is dead]
        shards = [self._running.pop(future)[0] for future in futures]
        self._free = [actor for actor in self._free if actor is not dead]
        shards[0].deaths += 1
        if shards[0].deaths == _ATTEMPTS:
            places = [shards[0].pairs[i].place for i in (0, -1)]
            raise DeviceError(
                f"{_ATTEMPTS} actors died of the pairs from {places[0]} to {places[1]}: {_first_line(error)}"
            )
        self._again.extend(shards)
        self._start()

    def _get(self, future: Any) -> Any:
        try:
            return self._ray.get(future)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause or error from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
