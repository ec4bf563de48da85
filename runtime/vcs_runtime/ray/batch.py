"""`ScoreBatch`: a scorer in a Ray process."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from vcs_runtime.errors import InputError
from vcs_runtime.inference.device import describe
from vcs_runtime.scoring.columns import Columns, pairs_of, to_columns
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.result import Pair, Result
from vcs_runtime.scoring.scorer import Scorer


class ScoreBatch:
    """Scores batches of pairs, for `Dataset.map_batches` with `batch_format="numpy"`, or as an actor.

    Parameters
    ----------
    config
        How the scorer is opened, or a bundle's folder. Every machine must have the bundle at the same path.
        `threads=None` means the CPUs that Ray has assigned to this actor.
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
        self, config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(), options: Options = Options(),
        *, reference: str = "reference", generated: str = "generated",
    ) -> None:  # fmt: skip
        config = ScorerConfig.of(config)
        self._scorer = Scorer.from_config(replace(config, threads=config.threads or _assigned_cpus()))
        self._options = options
        self._texts = (reference, generated)

    def __call__(self, batch: Mapping[str, npt.NDArray[Any]]) -> Columns:
        """Score a batch of columns.

        A row that cannot be scored has NaN and an `error` (otherwise ""). A failure of the machine raises an
        exception, so that a broken GPU does not turn a data set into errors.

        Parameters
        ----------
        batch
            Columns of equal length, which include the two columns of texts.

        Returns
        -------
        dict of arrays
            The columns of `batch`, then scores, counts, `flags`, `segmenter`, `error` and `signature`.

        Raises
        ------
        InputError
            A column of texts is missing.
        """
        return {**batch, **to_columns(self.score(self.pairs(batch)), self._options)}

    def pairs(self, batch: Mapping[str, npt.NDArray[Any]]) -> list[Pair]:
        """Return the pairs of a batch. Raises InputError if a column of texts is missing."""
        for name in self._texts:
            if name not in batch:
                raise InputError(f"no column {name!r} (there is {', '.join(map(repr, batch)) or 'nothing'})")
        return list(pairs_of(*(batch[name] for name in self._texts)))

    def score(self, pairs: Sequence[Pair]) -> list[Result]:
        """Score pairs. A pair that cannot be scored has a Result with an `error`."""
        return list(self._scorer.iter_scores(pairs, self._options))

    def about(self) -> tuple[str, str, str]:
        """Return the signature of the scores, the name of the host, and the device with its reason."""
        signature = self._scorer.signature_for(self._options)
        return signature, platform.node(), describe(self._scorer.embedder.device)


def _assigned_cpus() -> int | None:
    """Return the CPUs that Ray has assigned to this worker, None outside of a worker.

    More threads would take the cores of other actors.
    """
    ray: Any = sys.modules.get("ray")
    if ray is None or not ray.is_initialized() or ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return None
    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))
