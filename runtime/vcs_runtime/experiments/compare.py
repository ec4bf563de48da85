"""Compares two score files of the same pairs, and tests whether the difference is chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vcs_runtime.errors import InputError, unknown_choice
from vcs_runtime.experiments.statistics import RESAMPLES, Difference, paired_difference
from vcs_runtime.jobs.bootstrap import SEED
from vcs_runtime.jobs.score_files import read_scores
from vcs_runtime.scoring import score_table


@dataclass(frozen=True)
class Comparison:
    """A comparison of two score files, A and B.

    Attributes
    ----------
    score
        The score that was compared.
    reason
        Why this score was chosen; "" if the caller named it.
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
    reason: str
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
            "score": self.score, "reason": self.reason, "pairs": self.pairs,
            "mean_a": self.mean_a, "mean_b": self.mean_b,
            **{name: _plain(value) for name, value in numbers.items()},
            "moved": [{"id": name, "a": a, "b": b} for name, a, b in self.moved], "left_out": self.left_out,
            "signature_a": self.signatures[0], "signature_b": self.signatures[1],
            "resamples": self.resamples, "seed": self.seed,
        }  # fmt: skip


def compare(
    a: Path, b: Path, *, score: str | None = None, moved: int = 10, force: bool = False,
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
        The score to compare: one of `score_table.NAMES`. None: VCS, or the margin if VCS is 0 for most of the
        pairs.
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
    if score is not None and score not in score_table.NAMES:
        raise unknown_choice("score", score, score_table.NAMES)
    names = (score,) if score else ("vcs", "margin")
    (rows_a, signature_a, bad_a), (rows_b, signature_b, bad_b) = _read(a, names), _read(b, names)
    if signature_a != signature_b and not force:
        raise InputError(
            f"{a} and {b} were scored differently: {signature_a} and {signature_b}; "
            "--ignore-signatures compares them all the same"
        )
    common = [name for name in rows_a if name in rows_b]
    if not common:
        raise InputError(f"{a} and {b}: no id that both have scored")
    values = np.array([[rows[name] for name in common] for rows in (rows_a, rows_b)])  # (2, pairs, names)
    reason = ""
    if score is None:
        zeros = int((values[:, :, 0] <= 0).sum())
        score = "margin" if zeros > len(common) and np.isfinite(values).all() else "vcs"
        reason = f"VCS is 0 for {zeros} of {2 * len(common)} scores" if score == "margin" else ""
    first, second = values[:, :, names.index(score)]
    order = np.argsort(-np.abs(second - first), kind="stable")[:moved]
    rest = dict.fromkeys([*rows_a, *rows_b, *bad_a, *bad_b])
    return Comparison(
        score, reason, len(common), float(first.mean()), float(second.mean()),
        paired_difference(second, first, resamples=resamples, seed=seed),
        [(common[i], float(first[i]), float(second[i])) for i in order],
        [name for name in rest if name not in rows_a or name not in rows_b], (signature_a, signature_b),
        resamples, seed,
    )  # fmt: skip


def _read(path: Path, names: Sequence[str]) -> tuple[dict[str, list[float]], str, list[str]]:
    """Read some scores by id, the file's signature, and the ids that could not be scored."""
    scores: dict[str, list[float]] = {}
    failed: list[str] = []
    signature = ""
    for place, row in read_scores(path, names[:1]):
        name, signature = str(row["id"]), str(row["signature"])
        if name in scores or name in failed:
            raise InputError(f"{place}: id {name} is there twice")
        if "error" in row:
            failed.append(name)
        else:
            scores[name] = [float(row.get(score, np.nan)) for score in names]
    return scores, signature, failed


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
