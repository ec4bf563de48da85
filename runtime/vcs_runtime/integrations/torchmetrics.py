"""`VideoComprehensionScore` for torchmetrics: sums and counts as tensors, which add up over ranks.

Only importing this module imports torchmetrics, and so PyTorch, if they are installed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from vcs_numba import Params
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.result import Reference
from vcs_runtime.scoring.score_table import NAMES
from vcs_runtime.training.metric import COUNTS, TextMetric
from vcs_runtime.util.extras import base_class, require

_PURPOSE = "the metric for torchmetrics"
_Metric: Any = base_class("torchmetrics", "Metric", _PURPOSE)


# torchmetrics is not there when types are checked.
class VideoComprehensionScore(_Metric):  # type: ignore[misc]
    """Mean scores of an evaluation, over all ranks.

    The arguments are the same as for `training.TrainingScorer` and for torchmetrics' `Metric`.
    `deadline_s` limits an update; late pairs count as unscorable. Metrics of a process with equal
    configs share a session. `sums`, float64 (16,), has the sum of every score in the order of files
    (docs/reference/vcs.md, section 12). `counts`, int64 (4,), has the counts of `training.State`.
    Raises MissingExtraError if torchmetrics or PyTorch is not installed, and the errors of
    `training.TrainingScorer`.
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False
    sums: Any
    counts: Any

    def __init__(
        self,
        config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
        *,
        chunk_size: int = 1,
        params: Params = Params(),
        aggregate: str = "max",
        short: bool = False,
        deadline_s: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._texts = TextMetric(
            config,
            chunk_size=chunk_size,
            params=params,
            aggregate=aggregate,
            short=short,
            deadline_s=deadline_s,
        )
        torch = require("torch", (), _PURPOSE)
        self.add_state("sums", torch.zeros(len(NAMES), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(len(COUNTS), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: str | Sequence[str], target: Reference | Sequence[Reference]) -> None:
        """Add generated texts and their references.

        Parameters and errors are the same as for `TextMetric.update`.
        """
        self._texts.reset()
        self._texts.update(preds, target)
        state = self._texts.state()
        self.sums = self.sums + self.sums.new_tensor([float(state["sums"][name]) for name in NAMES])
        self.counts = self.counts + self.counts.new_tensor([state[name] for name in COUNTS])

    def compute(self) -> dict[str, Any]:
        """Return the mean of every score, and the counts, as tensors by name.

        The means are NaN if there are no scores.
        """
        means = self.sums / self.counts[COUNTS.index("count")]
        return dict(zip(NAMES + COUNTS, (*means, *self.counts), strict=True))

    def release(self) -> None:
        """Release the models' memory until the next evaluation. Sums, counts and vectors stay."""
        self._texts.release()
