"""CLIP-CC-Bench: the published table, and rank agreement of its judges and with them.

    vcs-runtime experiment clip-cc-bench CHECKOUT --judge minilm=default -o BOARD
    python benchmarks/clip_cc.py CHECKOUT BOARD

CHECKOUT is a checkout of github.com/Multimodal-Intelligence-Lab/CLIP-CC-Bench. BOARD is the output
of that command with one judge.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from vcs_experiments.datasets.clip_cc import read_published
from vcs_experiments.leaderboard import leaderboard

#: Our names of the cells, by those of the benchmark's leaderboard.json.
CELLS = {
    "slug": "system",
    "display": "name",
    "borda": "borda",
    "mean_hm_cf": "mean_hm_cf",
    "mean_coarse": "mean_coarse",
    "mean_fine": "mean_fine",
    "rank": "rank",
}


def equal_cells(checkout: Path) -> str:
    """Count the cells of the published table that are equal, for both sources of its judges'
    means."""
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


def among_published() -> list[str]:
    """Give Kendall's tau of each two published judges, and of each with the ranking by the other
    four."""
    published, _, _ = read_published(None)
    means = {
        judge: {system: m.hm_cf for system, m in own.items()} for judge, own in published.items()
    }
    lines = ["published judge | " + " | ".join((*means, "ranking by the others"))]
    taus = []
    for judge, own in means.items():
        systems = list(own)
        cells = []
        for other in means:
            tau = kendalltau(
                [own[s] for s in systems], [means[other][s] for s in systems]
            ).statistic
            taus += [tau] if other < judge else []
            cells.append("" if other == judge else f"{tau:.2f}")
        others = leaderboard({other: published[other] for other in means if other != judge}, {})
        tau = kendalltau(
            [own[place.system] for place in others], [-place.rank for place in others]
        ).statistic
        lines.append(f"{judge} | " + " | ".join((*cells, f"{tau:.2f}")))
    return [
        *lines,
        f"of two published judges: {min(taus):.2f} to {max(taus):.2f}, mean {np.mean(taus):.2f}",
    ]


def agreement(board: Path) -> list[str]:
    """Give Kendall's tau with each published judge and with their ranking, by score; with its
    interval."""
    rows = _tables(board)["published"]
    others = list(dict.fromkeys(row["published judge"] for row in rows))
    lines = ["score | " + " | ".join(others)]
    for score in dict.fromkeys(row["score"] for row in rows):
        own = {row["published judge"]: row for row in rows if row["score"] == score}
        cells = (
            f"{own[o]['Kendall tau-b']:.2f} [{own[o]['low']:.2f}, {own[o]['high']:.2f}] rho"
            f" {own[o]['Spearman rho']:.2f}"
            for o in others
        )
        lines.append(f"{score} | " + " | ".join(cells))
    return lines


def places(board: Path) -> str:
    """Say how the ranking differs from the published one."""
    published, names, _ = read_published(None)
    theirs = {place.name: place.rank for place in leaderboard(published, names)}
    rows = _tables(board)["leaderboard"]
    moved = {row["system"]: (row["rank"], theirs[row["system"]]) for row in rows}
    far = sorted(moved.items(), key=lambda item: -abs(item[1][0] - item[1][1]))[:4]
    close = sum(row["p permutation"] is not None and row["p permutation"] > 0.05 for row in rows)
    return (
        f"places: {sum(a == b for a, b in moved.values())} of {len(moved)} equal, "
        f"{sum(abs(a - b) <= 1 for a, b in moved.values())} within one; furthest "
        + ", ".join(f"{name} {a} (paper {b})" for name, (a, b) in far)
        + f"; {close} of {len(rows) - 1} neighbours without a significant difference\n"
        + ", ".join(f"{row['rank']} {row['system']}" for row in rows)
    )


def _tables(board: Path) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = json.loads((board / "results.json").read_text())[
        "tables"
    ]
    return tables


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:]]
    print(equal_cells(folders[0]))
    print("\n".join(among_published()))
    for folder in folders[1:]:
        print(f"\n{folder}")
        print("\n".join(agreement(folder)))
        print(places(folder))
