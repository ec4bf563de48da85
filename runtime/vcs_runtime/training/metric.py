"""`TextMetric`: the mean scores of an evaluation, as sums and counts that add up over ranks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from fractions import Fraction
from typing import Any, TypedDict

from vcs_numba import Scores
from vcs_runtime.scoring.result import Reference, Result
from vcs_runtime.training.scorer import TrainingScorer


class State(TypedDict):
    """What a `TextMetric` has seen. Plain values, for `all_gather_object`.

    sums        of every score of `vcs_numba.Scores`. Exact, so that a mean does not depend on how pairs are
                shared out among ranks, or in which order they come
    count       of pairs that were scored;  unscorable  of those that could not be
    signature   of the scores; "" while there are none
    """

    sums: dict[str, Fraction]
    count: int
    unscorable: int
    signature: str


class TextMetric:
    """Mean scores over an evaluation. Arguments as for `TrainingScorer`, and:

    asynchronous  `update` returns at once, and `compute` waits for what is not scored yet

    Nothing in here is a collective operation: ranks exchange `state()` where and when the training does
    (docs/training.md). Not for use by several threads at once.
    """

    def __init__(
        self,
        bundle: str | os.PathLike[str] = "default",
        device: str = "auto",
        *,
        asynchronous: bool = False,
        **options: Any,
    ) -> None:
        self.scorer = TrainingScorer(bundle, device, **options)
        self._asynchronous = asynchronous
        self.reset()

    def reset(self) -> None:
        """Forget what was seen. What is still being scored will not count."""
        self._pending: list[Future[list[Result]]] = []
        self._state = _empty()

    def update(self, preds: str | Sequence[str], target: Reference | Sequence[Reference]) -> None:
        """Add generated texts and their references, in torchmetrics' order: generated first.

        preds   n generated texts, or one
        target  n references, each a text or several of which the best counts; or one, to one text

        Raises ValueError if they are not of one length. A pair that cannot be scored counts as `unscorable`.
        """
        generated: Sequence[str] = [preds] if isinstance(preds, str) else preds
        references: Sequence[Any] = [target] if isinstance(preds, str) else target
        if isinstance(references, str) or len(generated) != len(references):
            what = "one text" if isinstance(references, str) else str(len(references))
            raise ValueError(f"target must hold a reference for each of {len(generated)} preds, not {what}")
        self._pending.append(self.scorer.submit_many(list(zip(references, generated, strict=True))))
        if self._asynchronous:
            self._collect(only_done=True)  # results in place of texts: memory stays flat
        else:
            self._collect()

    def compute(self) -> dict[str, float]:
        """The mean of every score by its name (NaN if nothing was scored), `count` and `unscorable`."""
        state = self.state()
        count = state["count"]
        means = {name: float(total / count) if count else math.nan for name, total in state["sums"].items()}
        return {**means, "count": count, "unscorable": state["unscorable"]}

    def state(self) -> State:
        """What was seen so far, for `merge_state` elsewhere. Waits for what is not scored yet."""
        self._collect()
        return {**self._state, "sums": dict(self._state["sums"])}

    def merge_state(self, others: TextMetric | State | Iterable[TextMetric | State]) -> TextMetric:
        """Add what other metrics have seen: themselves, or their states, one or several. Returns this one.

        Raises ValueError, having added nothing, if scores with another signature are among them: their mean
        would mean nothing.
        """
        several: Iterable[Any] = [others] if isinstance(others, (TextMetric, dict)) else others
        total = self.state()
        for other in several:
            _add(total, other.state() if isinstance(other, TextMetric) else other)
        self._state = total
        return self

    @property
    def signature(self) -> str:
        """Of the scores that were seen; "" if there are none so far."""
        return self.state()["signature"]

    def release(self) -> None:
        """Give the models' memory back until the next evaluation; what was seen and all vectors stay."""
        self.scorer.release()

    def close(self) -> None:
        """Give everything back but what was seen; the next `update` opens anew."""
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


def _empty() -> State:
    return {"sums": dict.fromkeys(Scores._fields, Fraction()), "count": 0, "unscorable": 0, "signature": ""}


def _state_of(result: Result) -> State:
    if result.scores is None:
        return {**_empty(), "unscorable": 1}
    sums = {name: Fraction(value) for name, value in result.scores._asdict().items()}
    return {"sums": sums, "count": 1, "unscorable": 0, "signature": result.signature}


def _add(total: State, more: State) -> None:
    known = {total["signature"], more["signature"]} - {""}
    if len(known) > 1:
        raise ValueError(f"merge_state: scores with different signatures: {' and '.join(sorted(known))}")
    total["signature"] = "".join(known)
    total["count"] += more["count"]
    total["unscorable"] += more["unscorable"]
    for name, value in more["sums"].items():
        total["sums"][name] += value
