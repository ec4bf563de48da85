"""CLIP-CC-Bench: the published table, rank agreement of its judges and with them, and what the segmenter changes.

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

from vcs_experiments.clip_cc_bench import read_texts
from vcs_experiments.datasets.clip_cc import find_texts, read_published
from vcs_experiments.datasets.texts import Problems
from vcs_experiments.leaderboard import leaderboard
from vcs_runtime import Segmenter
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.tokenizer import load_tokenizer
from vcs_runtime.segmentation.custom import Punkt

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


def among_published() -> list[str]:
    """Give Kendall's tau of each two published judges, and of each with the ranking by the other four."""
    published, _, _ = read_published(None)
    means = {judge: {system: m.hm_cf for system, m in own.items()} for judge, own in published.items()}
    lines = ["published judge | " + " | ".join((*means, "ranking by the others"))]
    taus = []
    for judge, own in means.items():
        systems = list(own)
        cells = []
        for other in means:
            tau = kendalltau([own[s] for s in systems], [means[other][s] for s in systems]).statistic
            taus += [tau] if other < judge else []
            cells.append("" if other == judge else f"{tau:.2f}")
        others = leaderboard({other: published[other] for other in means if other != judge}, {})
        tau = kendalltau([own[place.system] for place in others], [-place.rank for place in others]).statistic
        lines.append(f"{judge} | " + " | ".join((*cells, f"{tau:.2f}")))
    return [*lines, f"of two published judges: {min(taus):.2f} to {max(taus):.2f}, mean {np.mean(taus):.2f}"]


def agreement(board: Path) -> list[str]:
    """Give Kendall's tau with each published judge and with their ranking, by score; with its interval."""
    rows = _tables(board)["published"]
    others = list(dict.fromkeys(row["published judge"] for row in rows))
    lines = ["score | " + " | ".join(others)]
    for score in dict.fromkeys(row["score"] for row in rows):
        own = {row["published judge"]: row for row in rows if row["score"] == score}
        cells = (
            f"{own[o]['Kendall tau-b']:.2f} [{own[o]['low']:.2f}, {own[o]['high']:.2f}] rho {own[o]['Spearman rho']:.2f}"
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


def sizes(checkout: Path) -> str:
    """Count texts, sentences and tokens: a text is embedded whole, by sentences, and by cleaned sentences."""
    every = _texts(checkout)
    bundle = open_bundle("default")
    tokenizer = load_tokenizer(bundle.path(bundle.manifest.embedder.tokenizer))  # type: ignore[union-attr]
    with Segmenter.open(bundle, "cpu", use="rules") as segmenter:
        sentences = [piece for text in every for piece in segmenter.split([text])[0] if piece.strip()]
    whole, parts = ([len(tokenizer.encode(text).ids) for text in side] for side in (every, sentences))
    return (
        f"{len(every)} texts, {len(sentences)} sentences; {(sum(whole) + 2 * sum(parts)) / 1e6:.1f} million tokens of "
        f"the default's tokenizer; the longest text has {max(whole)}; {sum(n > 256 for n in whole) / len(whole):.0%} have "
        f"more than 256, {sum(n > 512 for n in whole) / len(whole):.0%} more than 512"
    )


def sentences(checkout: Path) -> str:
    """Say how many texts Punkt splits as the rules do."""
    every = _texts(checkout)
    with Segmenter.open("default", "cpu", use="rules") as segmenter:
        sides = [
            [[piece.strip() for piece in pieces if piece.strip()] for pieces in split(every)]
            for split in (segmenter.split, Punkt().split)
        ]
    alike = [a == b for a, b in zip(*sides, strict=True)]
    references = len(read_texts(*find_texts(checkout), (), Problems())[0])  # they come first
    ours, theirs = (sum(map(len, side)) for side in sides)
    return (
        f"Punkt splits {sum(alike)} of {len(every)} texts as the rules do, and {sum(alike[:references])} of {references} "
        f"references: {theirs} sentences, where the rules find {ours}"
    )


def _texts(checkout: Path) -> list[str]:
    texts, systems = read_texts(*find_texts(checkout), (), Problems())
    return [*map(str, texts.values()), *(text for own in systems.values() for text in own.values())]


def _tables(board: Path) -> dict[str, list[dict[str, Any]]]:
    tables: dict[str, list[dict[str, Any]]] = json.loads((board / "results.json").read_text())["tables"]
    return tables


def _lines(path: Path) -> dict[str, dict[str, Any]]:
    rows = map(json.loads, path.read_text().splitlines())
    return {row["id"]: row for row in rows if "error" not in row}


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:]]
    print(equal_cells(folders[0]))
    print(sizes(folders[0]))
    print("\n".join(among_published()))
    for folder in folders[1:]:
        print(f"\n{folder}")
        print("\n".join(agreement(folder)))
        print(places(folder))
    if len(folders) > 2:
        print(difference(*folders[1:]))
        print(sentences(folders[0]))
