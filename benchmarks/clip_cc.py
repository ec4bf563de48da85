"""CLIP-CC-Bench: the published table, rank agreement with its judges, and what the segmenter changes.

    vcs-runtime experiment clip-cc-bench CHECKOUT --judge minilm=default -o BOARD
    vcs-runtime experiment clip-cc-bench CHECKOUT --judge minilm=default --segmenter punkt -o PUNKT
    python benchmarks/clip_cc.py CHECKOUT BOARD [PUNKT]

CHECKOUT is a checkout of github.com/Multimodal-Intelligence-Lab/CLIP-CC-Bench. BOARD and PUNKT are outputs of
these commands with one judge; PUNKT needs NLTK's data.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from vcs_runtime.experiments.datasets.clip_cc import read_published
from vcs_runtime.experiments.leaderboard import leaderboard

#: Our names of the cells, by those of the benchmark's leaderboard.json.
CELLS = {"slug": "system", "display": "name", "borda": "borda", "mean_hm_cf": "mean_hm_cf",
         "mean_coarse": "mean_coarse", "mean_fine": "mean_fine", "rank": "rank"}  # fmt: skip


def equal_cells(checkout: Path) -> str:
    """Count the cells of the published table that are equal, for both sources of its judges' means."""
    theirs = json.loads((checkout / "results/leaderboard/leaderboard.json").read_text())["rows"]
    counts = []
    for folder in (None, checkout):
        means, names, _ = read_published(folder)
        ours = leaderboard(means, names)
        pairs = [
            (getattr(a, own), b[name])
            for a, b in zip(ours, theirs, strict=True)
            for name, own in CELLS.items()
        ]
        counts.append(f"{sum(a == b for a, b in pairs)} of {len(pairs)}")
    return f"cells equal: {counts[0]} from the package, {counts[1]} from the checkout"


def agreement(board: Path) -> list[str]:
    """Give Kendall's tau with each published judge and with their ranking, by score."""
    published, names, _ = read_published(None)
    own = {place.system: -place.rank for place in leaderboard(published, names)}
    [judge] = (board / "scores").iterdir()
    rows = json.loads((board / "results.json").read_text())["tables"]["published"]
    lines = ["score | " + " | ".join((*published, "their ranking"))]
    means = {path.stem: _lines(path) for path in judge.glob("*.jsonl")}
    for score, name in (("HM-CF", "hm_cf"), ("coarse", "coarse"), ("fine F1", "fine_f1"), ("LAS", "las"),
                        ("margin", "margin"), ("VCS", "vcs")):  # fmt: skip
        by_judge = {row["published judge"]: row["Kendall tau-b"] for row in rows if row["score"] == score}
        systems = [system for system in means if system in own]
        values = [np.mean([row[name] for row in means[system].values()]) for system in systems]
        ranking = kendalltau(values, [own[system] for system in systems]).statistic
        taus = [*(by_judge[other] for other in published), ranking]
        lines.append(f"{score} | " + " | ".join(f"{tau:.2f}" for tau in taus))
    return lines


def difference(board: Path, other: Path) -> str:
    """Say how far HM-CF is from the one of another segmenter, pair by pair and in the ranking."""
    [judge] = (board / "scores").iterdir()
    differences, means = [], []
    for path in sorted(judge.glob("*.jsonl")):
        a, b = _lines(path), _lines(other / "scores" / judge.name / path.name)
        common = [name for name in a if name in b]
        values = np.array([[side[name]["hm_cf"] for name in common] for side in (a, b)])
        differences.append(values[0] - values[1])
        means.append(values.mean(axis=1))
    off, systems = np.abs(np.concatenate(differences)), np.array(means).T
    return (
        f"segmenter: {len(off)} pairs, HM-CF equal in {(off < 1e-9).mean():.1%}, off by {off.mean():.4f} on "
        f"average and {off.max():.4f} at most; means of systems off by {np.abs(systems[0] - systems[1]).max():.4f} "
        f"at most; Kendall's tau of the rankings {kendalltau(*systems).statistic:.3f}"
    )


def _lines(path: Path) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, path.read_text().splitlines())
    return {row["id"]: row for row in rows if "error" not in row}


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:]]
    print(equal_cells(folders[0]))
    print("\n".join(agreement(folders[1])))
    if len(folders) > 2:
        print(difference(*folders[1:]))
