"""Two score files over the same pairs: what the difference is, and whether it is one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcs_numba import Scores
from vcs_runtime.errors import InputError, unknown_choice
from vcs_runtime.experiments.statistics import RESAMPLES, SEED, Difference, paired_difference
from vcs_runtime.jobs.score_files import read_scores


@dataclass(frozen=True)
class Comparison:
    """`difference` is B minus A. `moved`: the pairs that moved most, `(id, a, b)`, the largest move first.

    left_out  ids that one of the files lacks, or could not score
    """

    score: str
    pairs: int
    mean_a: float
    mean_b: float
    difference: Difference
    moved: list[tuple[str, float, float]]
    left_out: list[str]
    signatures: tuple[str, str]
    resamples: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """For machines; what is undefined (of one pair) is null."""
        d = self.difference
        numbers = {"difference": d.mean, "ci95": [d.low, d.high], "p_bootstrap": d.p_bootstrap,
                   "p_permutation": d.p_permutation}  # fmt: skip
        return {
            "score": self.score, "pairs": self.pairs, "mean_a": self.mean_a, "mean_b": self.mean_b,
            **{name: _plain(value) for name, value in numbers.items()},
            "moved": [{"id": name, "a": a, "b": b} for name, a, b in self.moved], "left_out": self.left_out,
            "signature_a": self.signatures[0], "signature_b": self.signatures[1],
            "resamples": self.resamples, "seed": self.seed,
        }  # fmt: skip


def compare(
    a: Path, b: Path, *, score: str = "vcs", moved: int = 10, force: bool = False,
    resamples: int = RESAMPLES, seed: int = SEED,
) -> Comparison:  # fmt: skip
    """Compare two outputs of `vcs-runtime score` by `score`, over the ids that both have scored.

    Raises InputError: unreadable files, an id that is there twice, no common id, other signatures (these
    unless `force`).
    """
    if score not in Scores._fields:
        raise unknown_choice("score", score, Scores._fields)
    (left, line_a, bad_a), (right, line_b, bad_b) = _read(a, score), _read(b, score)
    if line_a != line_b and not force:
        raise InputError(
            f"{a} and {b} were scored differently: {line_a} and {line_b}; --force compares them anyhow"
        )
    common = [name for name in left if name in right]
    if not common:
        raise InputError(f"{a} and {b}: no id that both have scored")
    first, second = (np.array([side[name] for name in common]) for side in (left, right))
    order = np.argsort(-np.abs(second - first), kind="stable")[:moved]
    rest = {**left, **right, **dict.fromkeys([*bad_a, *bad_b], 0.0)}
    return Comparison(
        score, len(common), float(first.mean()), float(second.mean()),
        paired_difference(second, first, resamples=resamples, seed=seed),
        [(common[i], float(first[i]), float(second[i])) for i in order],
        [name for name in rest if name not in left or name not in right], (line_a, line_b), resamples, seed,
    )  # fmt: skip


def _read(path: Path, score: str) -> tuple[dict[str, float], str, list[str]]:
    """The scores by id, the file's signature, and the ids that could not be scored."""
    scores: dict[str, float] = {}
    failed: list[str] = []
    signature = ""
    for place, row in read_scores(path, (score,)):
        name, signature = str(row["id"]), str(row["signature"])
        if name in scores or name in failed:
            raise InputError(f"{place}: id {name} is there twice")
        if "error" in row:
            failed.append(name)
        else:
            scores[name] = float(row[score])
    return scores, signature, failed


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
