"""`TextMetric`: the mean scores of an evaluation, from sums and counts that add up over ranks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from fractions import Fraction
from typing import Any, Final, Literal, TypedDict

from vcs_runtime.scoring import score_table
from vcs_runtime.scoring.flags import judged
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.result import Reference, Result
from vcs_runtime.training.scorer import TrainingScorer


class State(TypedDict):
    """The sums and counts of a `TextMetric`, as plain values for `all_gather_object`.

    Attributes
    ----------
    sums
        The exact sum of every score by name. A mean therefore does not depend on the order of
        the pairs, or on their distribution over ranks.
    count
        Number of pairs that were scored.
    zeros
        Number of pairs whose VCS is 0.
    not_judged
        Number of pairs whose order could not be judged (docs/reference/vcs.md, section 9).
    unscorable
        Number of pairs that could not be scored.
    signature
        Signature of the scores; "" while there are no scores.
    """

    sums: dict[str, Fraction]
    count: int
    zeros: int
    not_judged: int
    unscorable: int
    signature: str


#: The names of the counts of a `State`.
COUNTS: Final[tuple[Literal["count", "zeros", "not_judged", "unscorable"], ...]] = (
    "count",
    "zeros",
    "not_judged",
    "unscorable",
)


class TextMetric:
    """Mean scores over an evaluation.

    No method is a collective operation: the training itself exchanges `state()` between ranks
    (docs/guide/training.md). Several threads must not use one metric at the same time.

    Parameters
    ----------
    config
        How the scorer is opened, or a bundle's folder.
    asynchronous
        Whether `update` returns at once; `compute` then waits for the remaining scores.
    **options
        Further arguments of `TrainingScorer`.

    Attributes
    ----------
    scorer
        The `TrainingScorer` of this metric.

    Raises
    ------
    BundleError, DeviceError, ValueError
        As for `TrainingScorer`.
    """

    def __init__(
        self,
        config: ScorerConfig | str | os.PathLike[str] = ScorerConfig(),
        *,
        asynchronous: bool = False,
        **options: Any,
    ) -> None:
        self.scorer = TrainingScorer(config, **options)
        self._asynchronous = asynchronous
        self.reset()

    def reset(self) -> None:
        """Forget all scores. Pairs that are still being scored will not count."""
        self._pending: list[Future[list[Result]]] = []
        self._state = _empty(score_table.names_with(self.scorer.also))

    def update(self, preds: str | Sequence[str], target: Reference | Sequence[Reference]) -> None:
        """Add generated texts and their references, in torchmetrics' order: generated texts first.

        A pair that cannot be scored counts as `unscorable`.

        Parameters
        ----------
        preds
            One generated text, or n.
        target
            The reference of one text, or n references. Each reference is a text, or several of
            which the best counts.

        Raises
        ------
        ValueError
            `preds` and `target` differ in length.
        """
        generated: Sequence[str] = [preds] if isinstance(preds, str) else preds
        references: Sequence[Any] = [target] if isinstance(preds, str) else target
        if isinstance(references, str) or len(generated) != len(references):
            count = "one text" if isinstance(references, str) else str(len(references))
            raise ValueError(
                f"target must have a reference for each of {len(generated)} preds, not {count}"
            )
        self._pending.append(self.scorer.submit_many(list(zip(references, generated, strict=True))))
        if self._asynchronous:
            self._collect(only_done=True)  # results take less memory than texts
        else:
            self._collect()

    def compute(self) -> dict[str, float]:
        """Return the mean of every score by name, and the counts of `State`.

        The means are NaN if no pair was scored.
        """
        state = self.state()
        count = state["count"]
        means = {
            name: float(total / count) if count else math.nan
            for name, total in state["sums"].items()
        }
        return means | {name: state[name] for name in COUNTS}

    def state(self) -> State:
        """Return the sums and counts so far, for `merge_state` elsewhere.

        Waits for the remaining scores.
        """
        self._collect()
        return {**self._state, "sums": dict(self._state["sums"])}

    def merge_state(self, others: TextMetric | State | Iterable[TextMetric | State]) -> TextMetric:
        """Add the sums and counts of other metrics.

        Parameters
        ----------
        others
            One or several: metrics, or their states.

        Returns
        -------
        TextMetric
            This metric.

        Raises
        ------
        ValueError
            The scores have different signatures, so that their mean would mean nothing. Nothing is
            added.
        """
        several: Iterable[Any] = [others] if isinstance(others, (TextMetric, dict)) else others
        total = self.state()
        for other in several:
            _add(total, other.state() if isinstance(other, TextMetric) else other)
        self._state = total
        return self

    @property
    def signature(self) -> str:
        """The signature of the scores so far; "" before the first score."""
        return self.state()["signature"]

    def release(self) -> None:
        """Release the models' memory until the next evaluation. Sums, counts and vectors stay."""
        self.scorer.release()

    def close(self) -> None:
        """Close the session. Sums and counts stay; the next `update` opens a new session."""
        self._collect()
        self.scorer.close()

    def __getstate__(self) -> dict[str, Any]:
        self._collect()
        return self.__dict__

    def _collect(self, *, only_done: bool = False) -> None:
        while self._pending and (self._pending[0].done() or not only_done):
            for result in self._pending[0].result():
                _add(self._state, _state_of(result))
            del self._pending[0]


def _empty(names: Iterable[str] = ()) -> State:
    sums = dict.fromkeys(names, Fraction())
    return {"sums": sums, "count": 0, "zeros": 0, "not_judged": 0, "unscorable": 0, "signature": ""}


def _state_of(result: Result) -> State:
    if result.scores is None:
        return {**_empty(), "unscorable": 1}
    sums = {name: Fraction(getattr(result, name)) for name in score_table.names_with(result.also)}
    return {
        "sums": sums,
        "count": 1,
        "zeros": int(result.vcs == 0),
        "not_judged": int(not judged(result.flags)),
        "unscorable": 0,
        "signature": result.signature,
    }


def _add(total: State, more: State) -> None:
    signatures = {total["signature"], more["signature"]} - {""}
    if len(signatures) > 1:
        raise ValueError(
            f"merge_state: scores with different signatures: {' and '.join(sorted(signatures))}"
        )
    total["signature"] = "".join(signatures)
    for count in COUNTS:
        total[count] += more[count]
    for name, value in more["sums"].items():
        total["sums"][name] += value
