"""Short tables of the manual from the long ones of the experiments: `results/NAME/results.json`.

    python benchmarks/summaries.py VATEX_EVAL

`experiments.py` and `reading_scores.py` have made the results; this takes those cells that the manual shows, with the
signature, the date and the revision of the results, and keeps them for `tables.py`. VATEX_EVAL holds the published scores,
published-1ref.csv and published-9ref.csv, whose agreement with the ratings is computed here.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, FOLDER, keep

from vcs_experiments.statistics import kendall

RESULTS = FOLDER.parent
READING = RESULTS / "reading-scores.md"
NAMES = {
    "VCS_LCT0": "VCS, LCT 0", "VCS_LCT1": "VCS, LCT 1", "Cosine": "cosine", "BERTScore-F1": "BERTScore-F1", "METEOR": "METEOR",
    "CIDEr": "CIDEr", "ROUGE-L": "ROUGE-L", "ROUGE-1": "ROUGE-1", "BLEU-1": "BLEU-1", "BLEU-4": "BLEU-4",
}  # fmt: skip
SCORES = ("VCS", "margin", "GAS", "LAS", "NAS")
# Rows of the guide, by the kind in reading-scores.md or, for a model, by its name.
KINDS = {
    "valid: Synonym Substitution": "paraphrase by synonyms",
    "all valid rewrites": "all valid rewrites",
    "a second author": "a second human author",
    "corrupted: Scattered Segments Repetition (~50%)": "half of the sentences repeated",
    "corrupted: Addition (~50%)": "half of the text foreign",
    "corrupted: Deletion (~50%)": "half of the text deleted",
    "corrupted: Summarization": "summary",
    "corrupted: Deletion (~80%)": "four fifths deleted",
    "corrupted: Reverse Segments Order": "order reversed",
    "corrupted: Subject-Object Corruption": "wrong subjects and objects",
    "videollama3": "best video-language model by margin, videollama3",
    "oryx": "weakest one, oryx",
    "another film (CLIP-CC)": "another film, CLIP-CC",
    "another film (authors' scenes)": "another film, the authors' scenes",
    "corrupted: Action Corruption": "**wrong actions throughout**",
}

Row = dict[str, Any]


def short(value: float, digits: int = 3) -> str:
    """A figure between -1 and 1 without the zero before its point."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def results(name: str) -> Any:
    return json.loads((RESULTS / name / "results.json").read_text("utf-8"))


def write(name: str, rows: Iterable[Row], *sources: Path) -> None:
    """Keep rows with the signature, date and revision of the results that they are taken from."""
    texts = [path.read_text("utf-8") for path in sources]
    found = [
        json.loads(text)["signature"] if text.startswith("{") else re.search(r"`(vcs\|.*?)`", text)[1]
        for text in texts
    ]
    came = [
        subprocess.run(
            ["git", "log", "-1", "--abbrev=7", "--format=%as %h", "--", path],
            cwd=RESULTS, capture_output=True, text=True, check=True,
        ).stdout.split()
        for path in sources
    ]  # fmt: skip
    date, revision = max(came)
    own = {"date": date, "revision": revision, "versions": {}}
    names = ["ours default:cpu", *(f"ours default:cpu, {number}" for number in range(2, len(found) + 1))]
    signatures = dict(zip(names, dict.fromkeys(found), strict=False))
    files = " and ".join(
        f"`{path.relative_to(RESULTS.parents[1])}` ({' at '.join(at)})"
        for path, at in zip(sources, came, strict=True)
    )
    source = f"From {files}, by `benchmarks/summaries.py`."
    print(keep(name, [row | own | {"signatures": signatures} for row in rows], place=ANY, source=source))


def corruption() -> Iterable[Row]:
    table = {(row["cases"], row["metric"]): row for row in results("corruption")["tables"]["classification"]}
    for what, cases, figure in (
        ("18 of the 20 kinds of the papers' Table 1", "of Table 1", "AUC"),
        ("all 26 kinds", "all", "AUC"),
        ("accuracy at a threshold of .5, all kinds", "all", "accuracy"),
    ):
        cells = {title: short(table[cases, metric][figure]) for metric, title in NAMES.items()}
        yield {"workload": what, "cells": cells}


def authors() -> Iterable[Row]:
    table = {row["metric"]: row for row in results("authors")["tables"]["consistency"]}
    shown = {metric: title for metric, title in NAMES.items() if metric not in ("ROUGE-L", "BLEU-4", "CIDEr")}
    for what in ("lowest mean", "highest mean"):
        cells = {title: short(table[metric][what]) for metric, title in shown.items()}
        yield {"workload": f"{what} of a pair", "cells": cells}
    above = {metric: table[metric]["pairs"] - table[metric]["not above 0.8"] for metric in shown}
    yield {
        "workload": "pairs above 80 %, of 12",
        "cells": {title: f"{above[metric]}" for metric, title in shown.items()},
    }


def published(folder: Path, references: str) -> dict[str, float]:
    """Kendall's tau-b of the published scores, the mean of three raters."""
    with (folder / f"published-{references}.csv").open(encoding="utf-8", newline="") as file:
        rows = [{name.replace("\n", ""): cell for name, cell in row.items()} for row in csv.DictReader(file)]
    ratings = np.array([[float(row[f"human_score_{i}"]) for i in (1, 2, 3)] for row in rows])
    names = {"VCS_short, published": "GAS+LAS(S)+(NAS-D+NAS-L)(S)", "GAS, published": "GAS"}
    found = {title: np.array([float(row[name]) for row in rows]) for title, name in names.items()}
    return {
        title: float(np.mean([kendall(values, ratings[:, i]) for i in range(3)]))
        for title, values in found.items()
    }


def vatex(folder: Path) -> Iterable[Row]:
    table = results("vatex")["tables"]["correlation"]
    found = {(row["metric"], row["references"]): row["Kendall tau-b"] for row in table}
    shown = {
        "VCS_LCT0": "VCS_short, LCT 0", "VCS_LCT1": "VCS_short, LCT 1", "margin_LCT0": "margin, LCT 0", "CIDEr": "CIDEr",
        "ROUGE-1": "ROUGE-1",
        "BERTScore-F1": "BERTScore, same encoder", "GAS": "cosine (GAS)",
    }  # fmt: skip
    for references in ("1ref", "9ref"):
        cells = {title: short(found[metric, references]) for metric, title in shown.items()}
        cells |= {title: short(value) for title, value in published(folder, references).items()}
        yield {"head": "references", "workload": references.removesuffix("ref"), "cells": cells}


def presets() -> Iterable[Row]:
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
            row for row in results(f"authors{folder}")["tables"]["consistency"] if row["metric"] == metric
        ]
        rated = {
            row["references"]: row["Kendall tau-b"] for row in results(f"vatex{folder}")["tables"]["correlation"]
            if row["metric"] == metric
        }  # fmt: skip
        cells = {
            "AUC, 26 kinds": short(kinds["all", metric]["AUC"]),
            "accuracy at .5": short(kinds["all", metric]["accuracy"]),
            "authors: lowest mean of a pair": short(pairs["lowest mean"]),
            "authors above 80 %, of 12": f"{pairs['pairs'] - pairs['not above 0.8']}",
            "VATEX: tau-b, 1 reference": short(rated["1ref"]),
            "9 references": short(rated["9ref"]),
        }
        yield {"head": "preset", "workload": title, "cells": cells}


def usefulness() -> Iterable[Row]:
    for row in results("usefulness")["tables"]["scores"]:
        size, lct = (
            "all" if row[name] in (None, "all") else f"{row[name]:g}" for name in ("chunk size", "LCT")
        )
        judged = row["not judged"]
        cells = {
            "score": row["score"], "chunk size": size, "LCT": lct, "is 0": percent(row["zero"]),
            "not judged": "" if judged is None else percent(judged, 1), "told apart": f"{row['told apart']}",
            "Holm": f"{row['with Holm']}", "tau": short(row["Kendall tau-b"], 2), "AUC": short(row["AUC"], 2),
        }  # fmt: skip
        yield {"workload": f"{row['score']}, {size}, {lct}", "cells": cells, "head": None}


def reading(title: str) -> list[dict[str, str]]:
    """Rows of a table of reading-scores.md."""
    part = READING.read_text("utf-8").split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    heads, _, *rows = lines
    return [dict(zip(heads, row, strict=True)) for row in rows]


def points() -> Iterable[Row]:
    ranking = {row["model"]: row for row in results("rank")["tables"]["ranking"]}
    systems = {row["system"]: row for row in results("usefulness")["tables"]["systems"]}
    kinds = {
        row["kind"]: row for row in reading("Paragraphs") if (row["form"], row["LCT"]) == ("1 sentence", "0")
    }
    for kind, title in KINDS.items():
        if kind in kinds:
            row = kinds[kind]
            count, zero = row["pairs"], float(row["zero"])
            values = [float(row[f"mean {score}"]) for score in SCORES]
        else:
            model, system = ranking[kind], systems[kind]
            count, zero = "100", system["zeros"] / 100
            values = [
                system["mean VCS"], system["mean margin"], *(model[name] for name in ("Cosine", "LAS", "NAS_LCT0")),
            ]  # fmt: skip
        cells = {score: short(value) for score, value in zip(SCORES, values, strict=True)}
        yield {
            "head": "text (pairs)", "workload": f"{title} ({count})", "cells": {"VCS is 0": percent(zero)} | cells,
        }  # fmt: skip


def ratings() -> Iterable[Row]:
    found = {(row["form"], row["references"]): row for row in reading("Agreement with ratings of captions")}
    others = {(row["metric"], row["references"]): row for row in results("vatex")["tables"]["correlation"]}
    heads = {"1": "one reference", "9": "nine references"}
    for title, form, score in (
        ("GAS", "1 sentence", "GAS"), ("VCS", "1 sentence", "VCS"), ("margin, `--short`", "words", "margin"),
        ("VCS, `--short`", "words", "VCS"),
    ):  # fmt: skip
        cells = {head: short(float(found[form, count][score])) for count, head in heads.items()}
        yield {"head": "score", "workload": title, "cells": cells}
    for title, metric in (("BERTScore F1, same encoder", "BERTScore-F1"), ("ROUGE-1", "ROUGE-1")):
        cells = {head: short(others[metric, f"{count}ref"]["Kendall tau-b"]) for count, head in heads.items()}
        yield {"head": "score", "workload": title, "cells": cells}


def captions() -> Iterable[Row]:
    found = {(row["kind"], row["form"]): row for row in reading("Captions") if row["LCT"] == "0"}
    for title, kind in (
        ("of the same video, by a second person", "captions: a second person"),
        ("of another video", "captions: another video"),
    ):
        whole, words = (found[kind, form] for form in ("1 sentence", "words"))
        cells = {
            "pairs": f"{int(whole['pairs']):,}", "GAS": short(float(whole["mean GAS"]), 2), "LAS": short(float(whole["mean LAS"]), 2),
            "margin, `--short`": short(float(words["mean margin"]), 2), "VCS is 0, `--short`": percent(float(words["zero"])),
        }  # fmt: skip
        yield {"head": "caption", "workload": title, "cells": cells}


def main() -> None:
    def of(name: str) -> Path:
        return RESULTS / name / "results.json"

    write("corruption", corruption(), of("corruption"))
    write("authors", authors(), of("authors"))
    write("vatex", vatex(Path(sys.argv[1])), of("vatex"))
    experiments = [
        f"{name}{folder}" for folder in ("", "-paper") for name in ("corruption", "authors", "vatex")
    ]
    write("presets", presets(), *map(of, experiments))
    write("usefulness", usefulness(), of("usefulness"))
    write("reference_points", points(), READING, of("rank"), of("usefulness"))
    write("ratings", ratings(), READING, of("vatex"))
    write("captions", captions(), READING)


if __name__ == "__main__":
    main()
