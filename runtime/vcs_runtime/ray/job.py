"""Scoring a file of pairs through Ray Data, with the same output lines in order as one process.

Only this process reads the input and writes the output. The pairs are cut into shards, as many
pairs as a scorer takes at a time. They wait in Ray's object store, which spills to the disk.
"""

from __future__ import annotations

import logging
import os
import pickle
import platform
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vcs_runtime.errors import DeviceError
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.pairs import InputPair, PairSource, as_source
from vcs_runtime.jobs.run import Block, line_of, run_blocks
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.ray.cluster import Needs, import_ray
from vcs_runtime.ray.dataset import ScoreBatch, pool_config, through_actors
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.preparation import BLOCK_CHARACTERS, BLOCK_PAIRS
from vcs_runtime.scoring.result import Result

_ATTEMPTS = 3  # actors that may start a shard, in case they die of it


def score_file(
    source: Path | PairSource,
    files: JobFiles | Path | None,
    config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
    options: Options = Options(),
    *,
    actors: int | None = None,
    report_device: Callable[[str], None] = lambda message: None,
) -> Summary:
    """Score the pairs of a file with a pool of Ray actors. Ray must be connected (`connected`).

    An actor that dies is replaced, and its shards are scored again.

    Parameters
    ----------
    source
        The path of a file of pairs, or an object that reads pairs.
    files
        The output and how it is written, or the path of a new output.
    config
        How each actor opens its scorer, or a bundle's folder. Paths become absolute and must be
        valid on every machine. `threads` is the number of CPUs of an actor (None: 1). If `device`
        names a GPU, each actor has its own GPU.
    options
        How pairs are scored.
    actors
        Number of actors. None: as many as fit the cluster.
    report_device
        Called once with the device of an actor, and the reason for it.

    Returns
    -------
    Summary
        The statistics of all pairs, including the pairs of earlier runs.

    Raises
    ------
    DeviceError
        The cluster can never run these actors, machines would score differently, or the same pairs
        have killed three actors.
    InputError, BundleError, CacheError
        The input or the output cannot be used, or as for `Scorer.open`.
    """
    ray = import_ray()
    config = ScorerConfig.of(config).absolute()
    needs = Needs.of(config.device, actors, config.threads)
    about = ray.remote(_about).options(num_cpus=needs.cpus, num_gpus=needs.gpus, max_retries=2)
    try:
        signature, _, device = ray.get(about.remote(pool_config(config, needs), options))
        report_device(device)
        score = partial(_score_shards, config, options, needs.actors, signature)
        return run_blocks(score, as_source(source), JobFiles.of(files), signature)
    except ray.exceptions.RayTaskError as error:
        raise error.cause or DeviceError(_message(error)) from None
    except ray.exceptions.RayError as error:
        raise DeviceError(_message(error)) from None


class ShardScorer(ScoreBatch):
    """The actor: scores shards, which it takes from Ray's object store by their numbers."""

    def __init__(self, config: ScorerConfig, options: Options, *, shards: Any) -> None:
        super().__init__(config, options)
        self._shards = shards

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Add a column of pickled tuples `(host name, results)`.

        The results are None if too many actors died of the shard.
        """
        ray = import_ray()
        column = np.empty(len(batch["shard"]), object)
        for row, number in enumerate(batch["shard"].tolist()):
            references = ray.get(self._shards.begin.remote(number))
            results = None
            if references:
                [pairs] = ray.get(references)
                results = self.score([pair.texts for pair in pairs])
            column[row] = pickle.dumps((platform.node(), results))
        return {"shard": batch["shard"], "results": column}


class _Shards:
    """The shards in the object store, and the number of times each shard was started.

    The shards belong to a separate process, which outlives the actors that score them.
    """

    def __init__(self, references: list[Any]) -> None:
        self._references = references
        self._starts = Counter[int]()

    def begin(self, number: int) -> list[Any]:
        """Return the reference of a shard in a list, or [] after three starts.

        The list keeps Ray from replacing the reference by the shard.
        """
        self._starts[number] += 1
        if self._starts[number] > _ATTEMPTS:
            return []
        return [self._references[number]]


def _about(config: ScorerConfig, options: Options) -> tuple[str, str, str]:
    """Open a scorer as an actor does, and return its signature, host and device.

    Errors and the signature are therefore known before the job starts.
    """
    return ScoreBatch(config, options).about()


def _score_shards(
    config: ScorerConfig, options: Options, actors: int, signature: str, pairs: Iterator[InputPair]
) -> Iterator[Block]:
    ray = import_ray()
    from ray import data

    shards = [ray.put(shard) for shard in _cut(pairs)]
    if not shards:
        return
    with _quiet():
        numbers = data.from_items(
            [{"shard": i} for i in range(len(shards))], override_num_blocks=len(shards)
        )
        numbers.context.enable_progress_bars = False
        arguments = {"shards": ray.remote(_Shards).options(num_cpus=0).remote(shards)}
        count = min(actors, len(shards))
        scored = through_actors(ShardScorer, numbers, config, options, count, None, arguments)
        for batch in scored.iter_batches(batch_format="numpy", batch_size=None):
            for number, pickled in zip(batch["shard"], batch["results"], strict=True):
                host, results = pickle.loads(pickled)
                yield _block(ray.get(shards[number]), host, results, signature)


def _block(
    pairs: list[InputPair], host: str, results: list[Result] | None, signature: str
) -> Block:
    """Return the lines of a shard.

    Raises DeviceError if it has no results, or another signature.
    """
    if results is None:
        raise DeviceError(
            f"{_ATTEMPTS} actors died while scoring {pairs[0].place} to {pairs[-1].place};"
            " finished output is kept: continue with --resume"
        )
    block = []
    for pair, result in zip(pairs, results, strict=True):
        if result.signature != signature:
            raise DeviceError(
                f"{host} would score as {result.signature}, but another machine as {signature}:"
                " install the same version and bundle everywhere, and choose a --device"
            )
        block.append((pair, line_of(pair, result)))
    return block


def _cut(pairs: Iterator[InputPair]) -> Iterator[list[InputPair]]:
    """Split the pairs into shards as large as a scorer's blocks, so that batches are as full."""
    shard: list[InputPair] = []
    characters = 0
    for pair in pairs:
        if shard and (characters >= BLOCK_CHARACTERS or len(shard) >= BLOCK_PAIRS):
            yield shard
            shard, characters = [], 0
        shard.append(pair)
        characters += _size(pair.reference) + _size(pair.generated)
    if shard:
        yield shard


def _size(texts: Any) -> int:
    """Return the characters of one text or a list of texts; 0 for anything else."""
    if isinstance(texts, str):
        return len(texts)
    if isinstance(texts, list):
        return sum(map(_size, texts))
    return 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's log off standard error. Its errors are also raised."""
    logger = logging.getLogger("ray.data")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def _message(error: Exception) -> str:
    return f"Ray: {str(error).splitlines()[0]}; finished output is kept: continue with --resume"
