"""Scores in a training loop (docs/training.md): rewards, evaluations, background scoring. No PyTorch here.

reward_fn, compute_score   with the embedded default, for TRL and verl
TrainingScorer             the same as methods, with a bundle, device, deadline of one's own
TextMetric                 mean scores of an evaluation, over ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any

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

# Made when first needed: importing this module asks for no bundle.
_scorer = cache(TrainingScorer)


def reward_fn(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """`TrainingScorer().reward_fn`: a reward for TRL, against the column `reference`."""
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
    """`TrainingScorer(**options).compute_score`: a reward for verl, whose `reward_kwargs` are the options.

    verl passes the two named arguments where it serves a reward model; they mean nothing here.
    """
    return _scorer(**options).compute_score(data_source, solution_str, ground_truth, extra_info)


def submit(
    reference: Reference, generated: str, *, deadline_s: float | None = None, **options: Any
) -> Future[Result]:
    """`TrainingScorer(**options).submit`: score a pair in the background."""
    return _scorer(**options).submit(reference, generated, deadline_s=deadline_s)


def release() -> None:
    """Give back the memory of every model that this module has opened in this process, between evaluations.

    Waits for what was submitted. Vectors are kept, those of references first of all; the next pair opens the
    models again.
    """
    service.release()


def close() -> None:
    """Give everything back that this module holds in this process. Whoever asks later opens anew."""
    service.close()
