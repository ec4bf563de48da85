"""`VCSMetric` for DeepEval: the score of a test case, whose reason is the explanation of the score.

Nothing here needs a language model, a key or a network. DeepEval's own telemetry: docs/guide/integrations.md.
"""

from __future__ import annotations

import asyncio
import os
from threading import Lock
from typing import Any

from vcs_numba import Params
from vcs_runtime.errors import TextError, unknown_choice
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.score_table import NAMES, SCORES, SMALLER_IS_BETTER
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.extras import base_class, require
from vcs_runtime.util.numbers import checked_number

_PURPOSE = "the metric for DeepEval"
_SCORES = tuple(name for name in NAMES if name not in SMALLER_IS_BETTER)  # what a threshold can be for
_BaseMetric: Any = base_class("deepeval.metrics", "BaseMetric", _PURPOSE)
_scorers: dict[ScorerConfig, Scorer] = {}
_lock = Lock()


class VCSMetric(_BaseMetric):  # type: ignore[misc]  # DeepEval is not there when types are checked
    """Scores `actual_output` of a test case against its `expected_output`.

    The score is VCS by default. DeepEval's scores lie between 0 and 1, as VCS does and the margin does not.
    For texts below the gate, `score_name="margin"` tells a better text from a worse one.

    Parameters
    ----------
    config
        How the scorer is opened, or a bundle's folder. Metrics of a process with equal configs share a
        scorer.
    threshold
        The smallest score of a successful test case.
    score_name
        Name of a score (docs/reference/vcs.md, section 12).
    chunk_size
        Segments joined to one chunk, as for `Scorer.score`.
    params
        Parameters of the alignment.
    short
        Compare words instead of sentences, as `Scorer.score_short` does.

    Attributes
    ----------
    score
        The score of the last test case. An output that cannot be scored, such as an empty one, has the
        lowest value of the score: a model must not gain by silence.
    reason
        The sentences of `Explanation.sentences`, or why the output has no scores.
    score_breakdown
        All scores of the last test case by name; None if its output has no scores.
    success
        Whether the score reaches the threshold.
    error
        Why the last test case could not be judged at all: its expected output.

    Raises
    ------
    MissingExtraError
        DeepEval is not installed.
    ValueError
        An argument is out of range; the message names it.
    """

    include_reason = True
    score: float | None
    reason: str | None
    score_breakdown: dict[str, float] | None
    success: bool | None
    error: str | None

    # DeepEval copies a metric by calling its class with the attributes that are named as arguments.
    def __init__(
        self, config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(), *, threshold: float = 0.5,
        score_name: str = "vcs", chunk_size: int = 1, params: Params = Params(), short: bool = False,
    ) -> None:  # fmt: skip
        if score_name not in _SCORES:
            raise unknown_choice("score_name", score_name, _SCORES)
        Options(chunk_size, params, short=short)
        self.config = ScorerConfig.of(config).absolute()
        self.threshold = checked_number("threshold", threshold, "a finite number", lambda score: True)
        self.score_name = score_name
        self.chunk_size = chunk_size
        self.params = params
        self.short = short

    def measure(self, test_case: Any, *args: Any, **kwargs: Any) -> float:
        """Score a test case, and set `score`, `reason`, `score_breakdown` and `success`.

        Parameters
        ----------
        test_case
            An `LLMTestCase` with `actual_output` and `expected_output`.
        *args
            Ignored.
        **kwargs
            Ignored: how DeepEval shows its progress.

        Returns
        -------
        float
            The score.

        Raises
        ------
        MissingTestCaseParamsError
            The test case has no `actual_output`, or no `expected_output`; an error of DeepEval.
        TextError
            The expected output cannot be scored.
        """
        missing_params = require("deepeval.errors", (), _PURPOSE).MissingTestCaseParamsError
        self.score = self.reason = self.score_breakdown = self.success = self.error = None
        texts = {name: getattr(test_case, name) for name in ("actual_output", "expected_output")}
        try:
            if missing := [name for name, text in texts.items() if text is None]:
                raise missing_params(f"{self.__name__} needs {' and '.join(missing)} of the test case")
            explanation = _scorer(self.config).explain(
                texts["expected_output"], texts["actual_output"], chunk_size=self.chunk_size,
                params=self.params, short=self.short,
            )  # fmt: skip
        except (missing_params, TextError) as error:
            if not str(error).startswith("generated:"):
                self.error = str(error)
                raise
            self.score, self.reason = float(SCORES[self.score_name].low), str(error)
        else:
            self.score_breakdown = explanation.scores.to_dict()
            self.score = float(getattr(explanation.scores, self.score_name))
            self.reason = " ".join(explanation.sentences.values())
        self.is_successful()
        return self.score

    async def a_measure(self, test_case: Any, *args: Any, **kwargs: Any) -> float:
        """Score a test case in a thread; as `measure`."""
        return await asyncio.to_thread(self.measure, test_case)

    def is_successful(self) -> bool:
        """Whether the last score reaches the threshold; False if there is none."""
        self.success = self.error is None and self.score is not None and self.score >= self.threshold
        return self.success

    @property
    def __name__(self) -> str:
        """The name in DeepEval's tables."""
        return SCORES[self.score_name].label


def _scorer(config: ScorerConfig) -> Scorer:
    """Return the scorer for this config, which the first test case opens."""
    with _lock:
        if config not in _scorers:
            _scorers[config] = Scorer.from_config(config)
        return _scorers[config]
