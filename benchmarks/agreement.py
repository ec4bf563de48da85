"""Print every figure of docs/benchmarks/agreement.md, in the order of the page.

    python benchmarks/pairs.py scenes DATA/vcs-eval -o pairs.jsonl
    vcs-runtime score pairs.jsonl -o scores.jsonl
    python benchmarks/agreement.py DATA scores.jsonl [CHECKOUT BOARD] [--keep]

DATA is the folder that experiments.py needs; its tables are in benchmarks/results. CHECKOUT is a
checkout of github.com/Multimodal-Intelligence-Lab/CLIP-CC-Bench. BOARD is the output of
`vcs-runtime experiment clip-cc-bench CHECKOUT --judge minilm=default -o BOARD`. Without these two,
the script prints the stored figures. --keep stores the figures for `tables.py`.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, FOLDER, keep, parser_of
from scipy.stats import kendalltau

from vcs_experiments.datasets.clip_cc import read_published
from vcs_experiments.leaderboard import leaderboard
from vcs_experiments.statistics import kendall, spearman

RESULTS = FOLDER.parent
METRICS = (
    "VCS_LCT0 VCS_LCT1 Cosine BERTScore-F1 METEOR CIDEr ROUGE-L ROUGE-1 BLEU-1 BLEU-4"
).split()
NAMES = {name: name.replace("_LCT", ", LCT ").replace("Cosine", "cosine") for name in METRICS}
# Table 3 of the papers' draft: BLEU-1, VCS at LCT 0, and VCS at LCT 1, in per cent.
PRINTED = {
    "A1-A2": (45.1, 76.3, 82.5),
    "A1-A3": (46.3, 77.9, 80.5),
    "A1-A4": (52.4, 74.9, 81.6),
    "A2-A3": (39.4, 75.2, 79.1),
    "A2-A4": (50.8, 76.7, 83.8),
    "A3-A4": (40.2, 76.5, 81.6),
}
# Columns of the authors' files for VATEX-EVAL; line ends in their names are removed.
PARTS = {"VCS_short": "GAS+LAS(S)+(NAS-D+NAS-L)(S)", "SAS": "GAS+LAS(S)", "GAS": "GAS"}
# Our fields by their names in the leaderboard.json of CLIP-CC-Bench.
SAME = ("borda", "mean_hm_cf", "mean_coarse", "mean_fine", "rank")
CELLS = {"slug": "system", "display": "name"} | dict(zip(SAME, SAME, strict=True))
POINTS = (
    "By the script `reading_scores` at 07564bf, of the two models by `vcs-runtime score`"
    " (2026-11-24 at 930dbb6), of retellings by `benchmarks/agreement.py`."
)

AUTHORS = re.compile("A[1-4]-A[1-4]")  # pairs of authors, among the names of rewrites

Row = dict[str, Any]


def short(value: float, digits: int = 3) -> str:
    """A figure between -1 and 1 without the zero before its point."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")


def results(name: str) -> Any:
    return json.loads((RESULTS / name / "results.json").read_text("utf-8"))


def shown(name: str, rows: Iterable[Row]) -> list[Row]:
    """Print rows, and return them."""
    rows = list(rows)
    print(f"\n{name}")
    for row in rows:
        cells = [f"{head} {cell};" for head, cell in row["cells"].items()]
        print(f"  {row['workload']:<42}", *cells)
    return rows


def origin(*experiments: str) -> tuple[Row, str]:
    """Return date, revision and signatures of kept tables, and a sentence about their origin."""
    found, came = [], []
    for name in experiments:
        found.append(results(name)["signature"])
        command = [
            "git",
            "log",
            "-1",
            "--abbrev=7",
            "--format=%as %h",
            "--",
            f"{name}/results.json",
        ]
        done = subprocess.run(command, cwd=RESULTS, capture_output=True, text=True, check=True)
        came.append(done.stdout.split())
    date, revision = max(came)
    names = ["ours default:cpu"]
    names += [f"ours default:cpu, {number}" for number in range(2, len(found) + 1)]
    signatures = dict(zip(names, dict.fromkeys(found), strict=False))
    files = [
        f"`benchmarks/results/{name}/results.json` ({' at '.join(at)})"
        for name, at in zip(experiments, came, strict=True)
    ]
    common = {"date": date, "revision": revision, "versions": {}, "signatures": signatures}
    return common, f"From {' and '.join(files)}, by `benchmarks/agreement.py`."


def figure(name: str, value: str, pairs: int, theirs: str = "") -> Row:
    cells = {"default bundle": value, "pairs": f"{pairs:,}", "published scores": theirs}
    return {"head": "figure", "workload": name, "cells": cells}


def correlation(scores: dict[str, Row], folder: Path) -> Iterator[Row]:
    """How far the scores of rewrites agree with the published ones, and what their kind alone
    gives."""
    published: dict[str, dict[str, str]] = {}
    by_kind: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, record in scores.items():
        scene, kind = name.split("/", 1)
        if AUTHORS.fullmatch(kind):
            continue
        if scene not in published:
            with (folder / f"{scene}.csv").open(encoding="utf-8", newline="") as file:
                rows = {row["Metric"]: row for row in csv.DictReader(file)}
            published[scene] = rows["VCS_LCT0"]
        by_kind[kind].append((record["vcs"], float(published[scene][kind])))
    kinds = {kind: np.array(pairs).T for kind, pairs in by_kind.items()}
    ours, theirs = np.concatenate(list(kinds.values()), axis=1)
    # If only the kind is known: the mean of the published scores of the other scenes.
    others = [(own.sum() - own) / (len(own) - 1) for _, own in kinds.values()]
    within = [rho for own, other in kinds.values() if not np.isnan(rho := spearman(own, other))]
    off = np.abs(ours - theirs)
    count = len(ours)
    yield figure("Spearman's rho of all pairs", f"{spearman(ours, theirs):.3f}", count)
    alone = spearman(np.concatenate(others), theirs)
    yield figure("the same, if only the kind of rewrite is known", f"{alone:.3f}", count)
    name = f"rho within a kind of rewrite, mean of {len(within)} kinds"
    yield figure(name, f"{np.mean(within):.3f}", count // len(kinds))
    yield figure(
        "rho within a kind of rewrite, median", f"{np.median(within):.3f}", count // len(kinds)
    )
    yield figure("mean absolute difference of VCS", f"{off.mean():.3f}", count)
    yield figure(
        "pairs whose VCS differs by more than .1", f"{100 * np.mean(off > 0.1):.0f} %", count
    )
    for kind, (own, other) in kinds.items():
        yield figure(f"mean VCS: {kind}", f"{own.mean():.3f}", len(own), f"{other.mean():.3f}")


def corruption() -> Iterator[Row]:
    tables = results("corruption")["tables"]
    table = {(row["cases"], row["metric"]): row for row in tables["classification"]}
    for what, cases, name in (
        ("AUC, 18 of the 20 kinds of the papers' Table 1", "of Table 1", "AUC"),
        ("AUC, all 26 kinds", "all", "AUC"),
        ("accuracy at a threshold of .5, all 26 kinds", "all", "accuracy"),
    ):
        cells = {title: short(table[cases, metric][name]) for metric, title in NAMES.items()}
        yield {"workload": what, "cells": cells}


def sentences() -> Iterator[str]:
    """The figures in the text of the page that come from kept tables."""
    tables = results("corruption")["tables"]
    invalid = [row["Cosine"] for row in tables["cases"] if row["valid"] == "invalid"]
    above = sum(mean > 0.8 for mean in invalid)
    yield f"mean cosine above .8: {above} of {len(invalid)} invalid kinds"
    means = results("authors")["tables"]["published_means"]
    for lct in ("LCT0", "LCT1"):
        least = min(row[f"VCS_{lct} published"] for row in means)
        yield f"published means of pairs of authors, {lct}: at least {least:.3f}"
        low = [printed[1 + int(lct[-1])] for printed in PRINTED.values()]
        below = 2 * sum(value < 80 for value in low)
        yield f"Table 3 of the draft, {lct}: {below} of 12 below 80, lowest {min(low)}"
    for row in results("parameters")["tables"]["settings"]:
        yield f"chunk size {row['chunk size']}, LCT {row['LCT']}: AUC {short(row['AUC'])}"


def authors() -> Iterator[Row]:
    table = {row["metric"]: row for row in results("authors")["tables"]["consistency"]}
    chosen = {
        metric: title
        for metric, title in NAMES.items()
        if metric not in ("ROUGE-L", "BLEU-4", "CIDEr")
    }
    for what in ("lowest mean", "highest mean"):
        cells = {title: short(table[metric][what]) for metric, title in chosen.items()}
        yield {"workload": f"{what} of two authors", "cells": cells}
    above = {metric: table[metric]["pairs"] - table[metric]["not above 0.8"] for metric in chosen}
    cells = {title: f"{above[metric]}" for metric, title in chosen.items()}
    yield {"workload": "pairs of authors above 80 %, of 12", "cells": cells}


def four_grams(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 4]) for i in range(len(words) - 3)}


def copies(path: Path) -> Iterator[Row]:
    """How much two authors share, beside what the draft prints for them.

    A near-copy shares over 80 % of the 4-grams of the text that has fewer.
    """
    scenes = json.loads(path.read_text("utf-8"))
    means = {row["authors"]: row for row in results("authors")["tables"]["published_means"]}
    for one, other in combinations(("A1", "A2", "A3", "A4"), 2):
        near = 0
        for texts in scenes.values():
            first, second = four_grams(texts[one]), four_grams(texts[other])
            near += len(first & second) > 0.8 * min(len(first), len(second))
        pair = f"{one}-{other}"
        row, (bleu, *printed) = means[pair], PRINTED[pair]
        cells = {
            f"near-copies, of {len(scenes)}": f"{near}",
            "BLEU-1, these files": short(row["BLEU-1"]),
            "BLEU-1, Table 3": short(bleu / 100),
        }
        for lct, value in zip(("LCT 0", "LCT 1"), printed, strict=True):
            column = f"VCS_{lct.replace(' ', '')}"
            cells[f"VCS, {lct}"] = short(row[column])
            cells["published file, " + lct] = short(row[f"{column} published"])
            cells["Table 3, " + lct] = short(value / 100)
        yield {"head": "authors", "workload": pair, "cells": cells}


def retellings(scores: dict[str, Row]) -> Iterator[Row]:
    """The reference point of a retelling: pairs with A2, which no author copied."""
    chosen = [record for name, record in scores.items() if re.search("/(A2-A|A[1-4]-A2$)", name)]
    cells = {"VCS is 0": f"{100 * np.mean([record['vcs'] <= 0 for record in chosen]):.0f} %"}
    for name in ("VCS", "margin", "GAS", "LAS", "NAS"):
        cells[name] = short(float(np.mean([record[name.lower()] for record in chosen])))
    workload = f"retold by another language model ({len(chosen)})"
    yield {"head": "text (pairs)", "workload": workload, "cells": cells}


def rated(folder: Path, references: str) -> dict[str, tuple[float, float]]:
    """Kendall's tau-b of the authors' scores of captions: the mean of three raters, and with the
    mean rating."""
    with (folder / f"published-{references}.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            {name.replace("\n", ""): cell for name, cell in row.items()}
            for row in csv.DictReader(file)
        ]
    ratings = np.array([[float(row[f"human_score_{i}"]) for i in (1, 2, 3)] for row in rows])
    found = {}
    for title, column in PARTS.items():
        values = np.array([float(row[column]) for row in rows])
        by_rater = [kendall(values, ratings[:, i]) for i in range(3)]
        found[title] = float(np.mean(by_rater)), kendall(values, ratings.mean(axis=1))
    return found


def vatex(folder: Path) -> Iterator[Row]:
    table = results("vatex")["tables"]["correlation"]
    found = {(row["metric"], row["references"]): row["Kendall tau-b"] for row in table}
    titles = {
        "VCS_LCT0": "VCS_short, LCT 0",
        "VCS_LCT1": "VCS_short, LCT 1",
        "margin_LCT0": "margin, LCT 0",
        "CIDEr": "CIDEr",
        "ROUGE-1": "ROUGE-1",
        "BERTScore-F1": "BERTScore, same encoder",
        "SAS": "SAS",
        "GAS": "cosine (GAS)",
    }
    for references in ("1ref", "9ref"):
        cells = {title: short(found[metric, references]) for metric, title in titles.items()}
        yield {"head": "references", "workload": references.removesuffix("ref"), "cells": cells}


def headlines(folder: Path) -> Iterator[Row]:
    """Kendall's tau of the authors' own scores, beside what the papers state."""
    stated = {"1ref": ".300", "9ref": ".415"}
    for references, headline in stated.items():
        cells = {"VCS_short in the papers": headline}
        for title, (mean, with_mean) in rated(folder, references).items():
            cells[f"{title} in the authors' files"] = f"{short(mean)} ({short(with_mean)})"
        yield {"head": "references", "workload": references.removesuffix("ref"), "cells": cells}


def presets() -> Iterator[Row]:
    """VCS by the settings of the papers' tables and of their text."""
    for title, folder, metric in (
        ("tables: chunk size 1, LCT 0", "", "VCS_LCT0"),
        ("tables: chunk size 1, LCT 1", "", "VCS_LCT1"),
        ("paper: chunk size 3, LCT .1", "-paper", "VCS_LCT0.1"),
    ):
        kinds = {
            (row["cases"], row["metric"]): row
            for row in results(f"corruption{folder}")["tables"]["classification"]
        }
        [pairs] = [
            row
            for row in results(f"authors{folder}")["tables"]["consistency"]
            if row["metric"] == metric
        ]
        found = {
            row["references"]: row["Kendall tau-b"]
            for row in results(f"vatex{folder}")["tables"]["correlation"]
            if row["metric"] == metric
        }
        cells = {
            "AUC, 26 kinds": short(kinds["all", metric]["AUC"]),
            "accuracy at .5": short(kinds["all", metric]["accuracy"]),
            "lowest mean of two authors": short(pairs["lowest mean"]),
            "pairs of authors above 80 %, of 12": f"{pairs['pairs'] - pairs['not above 0.8']}",
            "VATEX: tau-b, 1 reference": short(found["1ref"]),
            "VATEX: tau-b, 9 references": short(found["9ref"]),
        }
        yield {"head": "preset", "workload": title, "cells": cells}


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


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("scores", type=Path)
    parser.add_argument("board", type=Path, nargs="*", help="CHECKOUT and BOARD")
    options = parser.parse_args()
    records = map(json.loads, options.scores.read_text("utf-8").splitlines())
    scores = {record["id"]: record for record in records}
    own = {"signatures": {"ours default:cpu": next(iter(scores.values()))["signature"]}}
    vcs, ratings = options.data / "vcs-eval", options.data / "vatex-eval"
    of_scores = {
        "correlation": (correlation(scores, vcs / "comparison-published"), None),
        "reference_points": (retellings(scores), POINTS),
    }
    both = [
        f"{name}{kind}" for kind in ("", "-paper") for name in ("corruption", "authors", "vatex")
    ]
    of_results = {
        "corruption": (corruption(), ["corruption"]),
        "authors": (authors(), ["authors"]),
        "authors_copies": (copies(vcs / "authors/authors.json"), ["authors"]),
        "vatex": (vatex(ratings), ["vatex"]),
        "vatex_published": (headlines(ratings), []),
        "presets": (presets(), both),
    }
    for name, (rows, source) in of_scores.items():
        found = [row | own for row in shown(name, rows)]
        if options.keep:
            keep(name, found, place=ANY, source=source)
    for name, (rows, experiments) in of_results.items():
        found = shown(name, rows)
        if options.keep:
            common, source = origin(*experiments) if experiments else ({}, None)
            keep(name, [row | common for row in found], place=ANY, source=source)
    print("\nin the text", *sentences(), sep="\n  ")
    for name in ("usefulness", "clip_cc_judges", "clip_cc_published"):
        shown(name, json.loads((FOLDER / ANY / f"{name}.json").read_text("utf-8"))["rows"])
    if options.board:
        checkout, board = options.board
        print(equal_cells(checkout), *among_published(), *agreement(board), places(board), sep="\n")


if __name__ == "__main__":
    main()
