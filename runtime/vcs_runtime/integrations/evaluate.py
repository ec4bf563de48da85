"""`VideoComprehensionScore` for Hugging Face evaluate: imported, not loaded from a hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from vcs_numba import Params
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.result import Reference
from vcs_runtime.training.metric import TextMetric
from vcs_runtime.util.extras import base_class, require

_PURPOSE = "the metric for evaluate"
_Metric: Any = base_class("evaluate", "Metric", _PURPOSE)


class VideoComprehensionScore(_Metric):  # type: ignore[misc]  # not there when types are checked
    """A metric of evaluate.

    Use `compute(predictions=..., references=...)`, `add`, `add_batch` and `combine`, as with other
    metrics.

    A prediction is a text. A reference is a text, or a list of texts, whose best score counts.
    `compute` returns the mean of every score by name, and the counts of `training.State`.

    The arguments are the same as for `training.TrainingScorer` and for evaluate's `Metric`.
    `deadline_s` limits a `compute`; late pairs count as unscorable. Metrics of a process with equal
    configs share a session. Texts stay in memory, except with `keep_in_memory=False` or several
    processes. Raises MissingExtraError if evaluate is not installed, and the errors of
    `training.TrainingScorer`.
    """

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
        kwargs.setdefault("keep_in_memory", kwargs.get("num_process", 1) == 1)
        super().__init__(**kwargs)
        self._texts = TextMetric(
            config,
            chunk_size=chunk_size,
            params=params,
            aggregate=aggregate,
            short=short,
            deadline_s=deadline_s,
        )

    @property
    def signature(self) -> str:
        """The signature of the scores of the last `compute`; "" before it."""
        return self._texts.signature

    def _info(self) -> Any:
        datasets = require("datasets", (), _PURPOSE)
        text = datasets.Value("string")
        return require("evaluate", (), _PURPOSE).MetricInfo(
            description=(
                "The Video Comprehension Score: theme, content and order of a text about a video."
            ),
            citation="",
            inputs_description=(
                " predictions: generated texts; references: one text, or several, for each"
                " prediction."
            ),
            features=[
                datasets.Features({"predictions": text, "references": datasets.Sequence(text)}),
                datasets.Features({"predictions": text, "references": text}),
            ],
        )

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Reference]
    ) -> dict[str, float]:
        self._texts.reset()
        self._texts.update(predictions, references)
        return self._texts.compute()
