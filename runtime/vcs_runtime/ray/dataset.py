"""Ray Data: a pool of actors scores a dataset of pairs, and the scores are written as files."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from vcs_runtime.errors import InputError
from vcs_runtime.inference.device import describe
from vcs_runtime.jobs.resumable import check_signature, check_texts, hash_texts
from vcs_runtime.jobs.run import record_of
from vcs_runtime.jobs.score_files import read_scores
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.ray.cluster import Needs, import_ray
from vcs_runtime.scoring.columns import Columns, pairs_of, scores_of, to_columns
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Pair, Result
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.atomic import file_errors, write_whole

if TYPE_CHECKING:
    from ray.data import Dataset


class ScoreBatch:
    """A scorer of batches for `Dataset.map_batches` with `batch_format="numpy"`, or for an actor.

    Parameters
    ----------
    config
        How the scorer is opened, or a bundle's folder. Every machine must have the bundle at the
        same path. `threads=None` means the CPUs that Ray has assigned to this actor.
    options
        How pairs are scored.
    reference
        Name of the column of references.
    generated
        Name of the column of generated texts.

    Raises
    ------
    BundleError, DeviceError, CacheError, ValueError
        As for `Scorer.open`.
    """

    def __init__(
        self,
        config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
        options: Options = Options(),
        *,
        reference: str = "reference",
        generated: str = "generated",
    ) -> None:
        config = ScorerConfig.of(config)
        self._scorer = Scorer.from_config(
            replace(config, threads=config.threads or _assigned_cpus())
        )
        self._options = options
        self._texts = (reference, generated)

    def __call__(self, batch: Mapping[str, npt.NDArray[Any]]) -> Columns:
        """Score a batch of columns.

        A row that cannot be scored has NaN and an `error` (otherwise ""). A failure of the machine
        raises an exception, so that a broken GPU does not turn a data set into errors.

        Parameters
        ----------
        batch
            Columns of equal length, which include the two columns of texts.

        Returns
        -------
        dict of arrays
            The columns of `batch`, then scores, counts, `flags`, `segmenter`, `error` and
            `signature`.

        Raises
        ------
        InputError
            A column of texts is missing.
        """
        return {**batch, **to_columns(self.score(self.pairs(batch)), self._options)}

    def pairs(self, batch: Mapping[str, npt.NDArray[Any]]) -> list[Pair]:
        """Return the pairs of a batch. Raises InputError if a column of texts is missing."""
        reference, generated = (column_of(batch, name) for name in self._texts)
        return list(pairs_of(reference, generated))

    def score(self, pairs: Sequence[Pair]) -> list[Result]:
        """Score pairs. A pair that cannot be scored has a Result with an `error`."""
        return list(self._scorer.iter_scores(pairs, self._options))

    def about(self) -> tuple[str, str, str]:
        """Return the signature of the scores, the host name, and the device with its reason."""
        signature = self._scorer.signature_for(self._options)
        return signature, platform.node(), describe(self._scorer.embedder.device)


def column_of(batch: Mapping[str, npt.NDArray[Any]], name: str) -> npt.NDArray[Any]:
    """Return a column of a batch. Raises InputError if it is missing."""
    if name not in batch:
        raise InputError(f"no column {name!r} (it has {', '.join(map(repr, batch)) or 'nothing'})")
    return batch[name]


def _assigned_cpus() -> int | None:
    """Return the CPUs that Ray has assigned to this worker, None outside of a worker.

    More threads would take the cores of other actors.
    """
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    if context.worker.mode != ray.WORKER_MODE:
        return None
    return max(1, int(context.get_assigned_resources().get("CPU", 1)))


def score_dataset(
    dataset: Dataset,
    config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
    options: Options = Options(),
    *,
    actors: int | None = None,
    batch_size: int = 64,
    reference: str = "reference",
    generated: str = "generated",
) -> Dataset:
    """Score a data set lazily and in order. Ray Data replaces an actor that dies.

    Parameters
    ----------
    dataset
        Pairs in two columns.
    config
        How each actor opens its scorer, as for `score_file`.
    options
        How pairs are scored.
    actors
        Number of actors. None: as many as fit the cluster.
    batch_size
        Rows that an actor scores together.
    reference
        Name of the column of references.
    generated
        Name of the column of generated texts.

    Returns
    -------
    Dataset
        The data set with the columns of `ScoreBatch`.

    Raises
    ------
    DeviceError
        The cluster can never run these actors.
    """
    arguments = {"reference": reference, "generated": generated}
    return through_actors(ScoreBatch, dataset, config, options, actors, batch_size, arguments)


@dataclass(frozen=True)
class PairColumns:
    """Names of the columns of pairs in a data set.

    Attributes
    ----------
    id
        Column of unique strings or integers.
    reference
        Column of references.
    generated
        Column of generated texts.
    """

    id: str = "id"
    reference: str = "reference"
    generated: str = "generated"


def score_shards(
    dataset: Dataset,
    folder: str | os.PathLike[str],
    config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
    options: Options = Options(),
    *,
    actors: int | None = None,
    batch_size: int = 1024,
    columns: PairColumns = PairColumns(),
) -> Summary:
    """Score a data set into a folder that all machines share: each actor writes its own files.

    Each batch becomes a JSONL file with the lines of `vcs-runtime score -o`, written as a whole or
    not at all. The files are in no order. Rows whose id is in a file are skipped, so that the same
    call continues an interrupted run. Every actor holds these ids and the hashes of their texts in
    memory.

    Parameters
    ----------
    dataset
        Pairs in two columns, with an id in a third.
    folder
        The folder, which is created if necessary.
    config
        How each actor opens its scorer, as for `score_file`.
    options
        How pairs are scored.
    actors
        Number of actors. None: as many as fit the cluster.
    batch_size
        Rows that an actor scores together.
    columns
        Names of the columns.

    Returns
    -------
    Summary
        The statistics of all rows, including the rows of earlier runs.

    Raises
    ------
    InputError
        The folder holds files with another signature, or was written from other texts under the
        same ids.
    DeviceError
        The cluster can never run these actors.
    """
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    summary = Summary("")
    started = monotonic()
    finished = _finished(folder, summary)
    arguments = {
        "columns": columns,
        "folder": folder,
        "finished": import_ray().put(finished),
        "expected": summary.signature,
    }
    scored = through_actors(_ShardWriter, dataset, config, options, actors, batch_size, arguments)
    names = (*scores_of(options), "n_ref", "n_gen", "segmenter", "flags")
    for batch in scored.iter_batches(batch_format="numpy", batch_size=None):
        for row, error in enumerate(batch["error"]):
            if error:
                summary.add({"error": error})
            else:
                summary.add({name: batch[name][row] for name in names})
            summary.signature = batch["signature"][row]
    summary.seconds = monotonic() - started
    return summary


def _finished(folder: Path, summary: Summary) -> dict[str | int, str]:
    """Add the scores of earlier runs to a summary, and return the hash of each id's texts."""
    finished: dict[str | int, str] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for place, record in read_scores(path):
            check_signature(place, record["signature"], summary.signature or record["signature"])
            if record["id"] not in finished:
                summary.add(record)
                finished[record["id"]] = record.get("texts", "")
                summary.signature = record["signature"]
    summary.resumed = len(finished)
    return finished


class _ShardWriter(ScoreBatch):
    """A batch scorer that scores and writes unfinished rows, and returns scores without texts."""

    def __init__(
        self, *arguments: Any, columns: PairColumns, folder: Path, finished: Any, expected: str
    ) -> None:
        super().__init__(*arguments, reference=columns.reference, generated=columns.generated)
        self._folder = folder
        self._id = columns.id
        self._finished = import_ray().get(finished)
        signature, _, _ = self.about()
        check_signature(folder, expected or signature, signature)

    def __call__(self, batch: Mapping[str, npt.NDArray[Any]]) -> Columns:
        batch_ids = column_of(batch, self._id).tolist()
        ids, pairs = [], []
        for id, pair in zip(batch_ids, self.pairs(batch), strict=True):
            if id in self._finished:
                finished = {"id": id, "texts": self._finished[id]}
                check_texts(self._folder, finished, hash_texts(*pair))
            else:
                ids.append(id)
                pairs.append(pair)
        results = self.score(pairs)
        if ids:
            self._write(ids, pairs, results)
        return to_columns(results, self._options)

    def _write(
        self, ids: Sequence[str | int], pairs: Sequence[Pair], results: Sequence[Result]
    ) -> None:
        # The name depends on the ids, so that a batch which is scored again replaces its file.
        digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
        path = self._folder / f"{digest[:16]}.jsonl"
        lines = []
        for id, pair, result in zip(ids, pairs, results, strict=True):
            lines.append(json.dumps(record_of(id, pair, result)) + "\n")
        with file_errors(path):
            # The temporary name is unique: two actors may have the same rows, if Ray took one of
            # them for dead.
            write_whole(path, "".join(lines))


def pool_config(config: ScorerConfig, needs: Needs) -> ScorerConfig:
    """Return how each actor of a pool opens its scorer."""
    return replace(config.absolute(), threads=needs.cpus)


def through_actors(
    actor: type[ScoreBatch],
    dataset: Dataset,
    config: ScorerConfig | str | os.PathLike[str],
    options: Options,
    actors: int | None,
    batch_size: int | None,
    arguments: dict[str, Any],
) -> Dataset:
    """Map a data set through a pool of actors, in order; Ray Data replaces an actor that dies."""
    from ray.data import ActorPoolStrategy

    config = ScorerConfig.of(config)
    needs = Needs.of(config.device, actors, config.threads)
    # Otherwise the fastest blocks come first.
    dataset.context.execution_options.preserve_order = True
    return dataset.map_batches(
        actor,
        batch_format="numpy",
        batch_size=batch_size,
        compute=ActorPoolStrategy(size=needs.actors),
        num_cpus=needs.cpus,
        num_gpus=needs.gpus,
        fn_constructor_args=(pool_config(config, needs), options),
        fn_constructor_kwargs=arguments,
    )
