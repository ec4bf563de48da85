"""The actor: a scorer in a process of Ray's."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from vcs_runtime.errors import InputError
from vcs_runtime.scoring.columns import Columns, pairs_of, to_columns
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Pair, Result
from vcs_runtime.scoring.scorer import Scorer


class ScoreBatch:
    """Scores batches of pairs: for `Dataset.map_batches` with `batch_format="numpy"`, or as an actor.

    bundle     a folder that every machine has at this path, or "default"
    options    how pairs are scored
    threads    CPU threads of the model; default: the CPUs that Ray gave this actor
    reference, generated  the columns that hold the texts

    `device`, `segmenter`, `gpu_mem_gb`, `cache` and `memory_mb` as for `Scorer.open`, which is called here: a
    session cannot be sent to another process, so what travels are these arguments.
    Raises BundleError, DeviceError, CacheError, ValueError.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] = "default",
        options: Options = Options(),
        *,
        device: str = "auto",
        threads: int | None = None,
        segmenter: str | os.PathLike[str] = "auto",
        gpu_mem_gb: float | None = None,
        cache: str | os.PathLike[str] | None = None,
        memory_mb: int = 256,
        reference: str = "reference",
        generated: str = "generated",
    ) -> None:
        self._scorer = Scorer.open(
            bundle, device, threads=threads or _assigned_cpus(), segmenter=segmenter, gpu_mem_gb=gpu_mem_gb,
            cache=cache, memory_mb=memory_mb,
        )  # fmt: skip
        self._options = options
        self._texts = (reference, generated)

    def __call__(self, batch: Mapping[str, npt.NDArray[Any]]) -> Columns:
        """The columns of `batch` and those of `columns.NAMES`: scores, counts, `error`, `signature`.

        A row that cannot be scored has an `error` (else "") and NaN. A fault of the machine is raised: a
        broken GPU must not turn a data set into errors. Raises InputError for a batch without the texts.
        """
        return {**batch, **to_columns(self.score(self.pairs(batch)))}

    def pairs(self, batch: Mapping[str, npt.NDArray[Any]]) -> list[Pair]:
        """The pairs of a batch. Raises InputError for one without the columns of texts."""
        for name in self._texts:
            if name not in batch:
                raise InputError(f"no column {name!r} (there is {', '.join(map(repr, batch)) or 'nothing'})")
        return list(pairs_of(*(batch[name] for name in self._texts)))

    def score(self, pairs: Sequence[Pair]) -> list[Result]:
        """Score pairs; one that cannot be has a Result with an `error`."""
        return list(self._scorer.iter_scores(pairs, self._options))

    def about(self) -> tuple[str, str, str]:
        """The signature of what this actor scores, its host, and how its device came about."""
        embedder = self._scorer.embedder
        line = self._scorer.signature_for(self._options)
        return line, platform.node(), f"{embedder.device.engine} ({embedder.device.reason})"


def _assigned_cpus() -> int | None:
    """What Ray gave this worker: more threads would take other actors' cores. None in no worker of Ray's."""
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return None
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
