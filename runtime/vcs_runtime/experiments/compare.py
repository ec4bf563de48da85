"""Compares two score files of the same pairs, and tests whether the difference is chance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcs_numba import Scores
from vcs_runtime.errors import InputError, unknown_choice
from vcs_runtime.experiments.statistics import RESAMPLES, Difference, paired_difference
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.jobs.score_files import read_scores


@dataclass(frozen=True)
class Comparison:
    """A comparison of two score files, A and B.

    Attributes
    ----------
    score
        The score that was compared.
    pairs
        Number of pairs that both files have scored.
    mean_a, mean_b
        The means over these pairs.
    difference
        B minus A.
    moved
        The pairs that differ most, as `(id, a, b)`, the largest difference first.
    left_out
        Ids that one of the files lacks, or could not score.
    signatures
        The signatures of both files.
    resamples, seed
        Of the tests.
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
        """Return the comparison as a JSON object; numbers that are undefined for a single pair are null."""
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
    """Compare two outputs of `vcs-runtime score`, over the ids that both have scored.

    Parameters
    ----------
    a
        The first score file.
    b
        The second score file.
    score
        The score to compare: a field of `vcs_numba.Scores`.
    moved
        How many of the pairs that differ most are listed.
    force
        Compare files of different signatures.
    resamples
        Number of resamples of the tests.
    seed
        Seed of the draws.

    Returns
    -------
    Comparison
        The difference, B minus A.

    Raises
    ------
    InputError
        A file cannot be read, has an id twice, or has another signature; or no id is common.
    ValueError
        There is no such score.
    """
    if score not in Scores._fields:
        raise unknown_choice("score", score, Scores._fields)
    (left, signature_a, bad_a), (right, signature_b, bad_b) = _read(a, score), _read(b, score)
    if signature_a != signature_b and not force:
        raise InputError(
            f"{a} and {b} were scored differently: {signature_a} and {signature_b}; "
            "--ignore-signatures compares them all the same"
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
        [name for name in rest if name not in left or name not in right], (signature_a, signature_b),
        resamples, seed,
    )  # fmt: skip


def _read(path: Path, score: str) -> tuple[dict[str, float], str, list[str]]:
    """Read the scores by id, the file's signature, and the ids that could not be scored."""
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
