"""Scores in a training loop, without PyTorch: rewards, evaluations (docs/guide/training.md).

`reward_fn` and `compute_score` are rewards for TRL and verl with the embedded default.
`TrainingScorer` has the same functions as methods, with a bundle, device and deadline of your
choice. `TextMetric` computes the mean scores of an evaluation over all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import fields
from functools import cache
from typing import Any

from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.result import Reference, Result
from vcs_runtime.training import service
from vcs_runtime.training.metric import State, TextMetric
from vcs_runtime.training.scorer import TrainingScorer

__all__ = [
    "State",
    "TextMetric",
    "TrainingScorer",
    "close",
    "compute_score",
    "release",
    "reward_fn",
    "submit",
]

_CONFIG_OPTIONS = tuple(option.name for option in fields(ScorerConfig))


@cache  # and created by the first call, so that importing this module needs no bundle
def _scorer(**options: Any) -> TrainingScorer:
    of_config = {name: options.pop(name) for name in _CONFIG_OPTIONS if name in options}
    return TrainingScorer(ScorerConfig(**of_config), **options)


def _hashable(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with lists and weights as tuples: equal options share a scorer."""
    hashable = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            value = tuple(value.items())
        hashable[name] = tuple(value) if isinstance(value, list) else value
    return hashable


def reward_fn(
    prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
) -> list[float | None]:
    """Compute rewards for TRL with the default bundle, against the column `reference`.

    Parameters and errors as for `TrainingScorer.reward_fn`.
    """
    return _scorer().reward_fn(prompts, completions, **columns)


def compute_score(
    data_source: Any,
    solution_str: str,
    ground_truth: Any,
    extra_info: Any = None,
    *,
    reward_router_address: Any = None,
    reward_model_tokenizer: Any = None,
    **options: Any,
) -> float:
    """Compute a reward for verl.

    The first four parameters and the result are the same as in `TrainingScorer.compute_score`.

    `options` are verl's `reward_kwargs`: plain values for `ScorerConfig` and for `TrainingScorer`.
    The two arguments that verl passes for a reward model are ignored.
    """
    return _scorer(**_hashable(options)).compute_score(
        data_source, solution_str, ground_truth, extra_info
    )


def submit(
    reference: Reference, generated: str, *, deadline_s: float | None = None, **options: Any
) -> Future[Result]:
    """Score a pair in the background, as `TrainingScorer.submit` does.

    `options` are the same as for `compute_score`.
    """
    return _scorer(**_hashable(options)).submit(reference, generated, deadline_s=deadline_s)


def release() -> None:
    """Release the memory of all models that this module has opened in this process.

    Call this function between evaluations.

    Submitted pairs are scored first. Vectors stay in memory. The next pair opens the models again.
    """
    service.release()


def close() -> None:
    """Close all scorers that this module has opened in this process.

    A later call opens new ones.
    """
    service.close()
