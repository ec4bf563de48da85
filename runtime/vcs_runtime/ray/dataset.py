"""Ray Data: a data set of pairs through a pool of scorers, and its scores as files."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from vcs_numba import Scores
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import check_signature
from vcs_runtime.jobs.score_files import read_scores
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.ray.batch import ScoreBatch
from vcs_runtime.ray.cluster import Needs, import_ray
from vcs_runtime.ray.shards import write_shard
from vcs_runtime.scoring.columns import Columns, to_columns
from vcs_runtime.scoring.options import Options

if TYPE_CHECKING:
    from ray.data import Dataset


def score_dataset(
    dataset: Dataset,
    options: Options = Options(),
    *,
    actors: int | None = None,
    threads: int | None = None,
    device: str = "auto",
    batch_size: int = 64,
    **engine: Any,
) -> Dataset:
    """The data set with the columns of `ScoreBatch`, in the same order; lazy, as all of Ray Data.

    actors, threads, device  as for `score_file`;  batch_size  rows that an actor takes at a time
    engine                   further arguments of `ScoreBatch`

    Raises DeviceError for what the cluster can never run. An actor that dies is replaced by Ray Data.
    """
    return _through(ScoreBatch, dataset, actors, threads, device, batch_size, {"options": options, **engine})


def score_shards(
    dataset: Dataset,
    folder: str | os.PathLike[str],
    options: Options = Options(),
    *,
    id: str = "id",
    actors: int | None = None,
    threads: int | None = None,
    device: str = "auto",
    batch_size: int = 1024,
    **engine: Any,
) -> Summary:
    """Score a data set; each actor writes what it has scored to `folder`, which all machines share.

    id  the column, of strings or whole numbers, that tells rows apart

    A file a batch, of JSONL with the lines of `vcs-runtime score -o`; it is there as a whole or not at all.
    Rows whose id is in one are passed over: after whatever stopped a run, the same call goes on. These ids
    are in memory, once an actor. The files are in no order. Returns what all runs came to.

    Else as for `score_dataset`. Raises InputError for files that were scored otherwise.
    """
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    summary = Summary("")
    started = monotonic()
    finished: set[str | int] = set()
    for path in sorted(folder.glob("*.jsonl")):
        for place, record in read_scores(path):
            check_signature(place, record["signature"], summary.signature or record["signature"])
            if record["id"] not in finished:
                summary.add(record)
                finished.add(record["id"])
                summary.signature = record["signature"]
    summary.resumed = len(finished)
    shards = {
        "folder": folder,
        "id": id,
        "finished": import_ray().put(finished),
        "expected": summary.signature,
    }
    scored = _through(
        _WriteShard,
        dataset,
        actors,
        threads,
        device,
        batch_size,
        {"options": options, "shards": shards, **engine},
    )
    for batch in scored.iter_batches(batch_format="numpy", batch_size=None):
        for row in range(len(batch["error"])):
            record = {name: batch[name][row] for name in (*Scores._fields, "segmenter")}
            summary.add({"error": batch["error"][row]} if batch["error"][row] else record)
            summary.signature = batch["signature"][row]
    summary.seconds = monotonic() - started
    return summary


class _WriteShard(ScoreBatch):
    """Scores what is not finished, writes it, and gives back its scores alone."""

    def __init__(self, *arguments: Any, shards: Mapping[str, Any], **engine: Any) -> None:
        super().__init__(*arguments, **engine)
        self._folder = shards["folder"]
        self._id = shards["id"]
        self._finished = import_ray().get(shards["finished"])
        line, _, _ = self.about()
        check_signature(self._folder, shards["expected"] or line, line)

    def __call__(self, batch: Mapping[str, npt.NDArray[Any]]) -> Columns:
        if self._id not in batch:
            raise InputError(f"no column {self._id!r} (there is {', '.join(map(repr, batch)) or 'nothing'})")
        ids = batch[self._id].tolist()
        todo = [row for row, id in enumerate(ids) if id not in self._finished]
        results = self.score(self.pairs({name: column[todo] for name, column in batch.items()}))
        if todo:
            # Named by what it holds: a batch that is scored again, its actor having died, is written again.
            digest = hashlib.sha256(json.dumps([ids[row] for row in todo]).encode()).hexdigest()[:16]
            write_shard(
                self._folder / f"{digest}.jsonl",
                ({"id": ids[row], **result.to_dict()} for row, result in zip(todo, results, strict=True)),
            )
        return to_columns(results)


def _through(
    actor: type[ScoreBatch], dataset: Dataset, actors: int | None, threads: int | None, device: str,
    batch_size: int, arguments: dict[str, Any],
) -> Dataset:  # fmt: skip
    from ray.data import ActorPoolStrategy

    needs = Needs.of(device, actors, threads)
    dataset.context.execution_options.preserve_order = True  # else blocks come as they are finished
    return dataset.map_batches(
        actor,
        batch_format="numpy",
        batch_size=batch_size,
        compute=ActorPoolStrategy(size=needs.actors),
        num_cpus=needs.cpus,
        num_gpus=needs.gpus,
        fn_constructor_kwargs={"device": device, "threads": needs.cpus, **arguments},
    )
