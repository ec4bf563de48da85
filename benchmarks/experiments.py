"""Run every experiment on the authors' data with one bundle, keep its tables, and make the manual's
short tables of them.

    python benchmarks/experiments.py run DATA WORK [--only vatex] [--bundle B] [--resume]
    python benchmarks/experiments.py tables DATA

DATA holds vcs-eval/, vatex-eval/ and clip-cc/ as docs/guide/experiments.md describes them. `run`
puts everything into WORK/NAME; the tables (figures and names of cases, no text) are copied to
benchmarks/results/NAME. --resume passes over what is finished in WORK and goes on with what is not.
METEOR is among the metrics where NLTK finds its corpora.

`tables` takes those cells of the results that the manual shows, with the signature, the date and
the revision of the results, and keeps them for `tables.py`.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, FOLDER, keep, parser_of

from vcs_experiments.statistics import kendall

RESULTS = FOLDER.parent
# CLIP-CC-Bench's ranking, best first, under the names of the prediction files.
RANKING = """videollama3 mplug llava_one_vision vilamp longvu Qwen2.5-72B Qwen2.5-32B \
videochatflash minicpm
video_xl sharegpt4 internvl timechat llava_next_video ts_llava oryx longva""".split()
NAMES = {
    "VCS_LCT0": "VCS, LCT 0",
    "VCS_LCT1": "VCS, LCT 1",
    "Cosine": "cosine",
    "BERTScore-F1": "BERTScore-F1",
    "METEOR": "METEOR",
    "CIDEr": "CIDEr",
    "ROUGE-L": "ROUGE-L",
    "ROUGE-1": "ROUGE-1",
    "BLEU-1": "BLEU-1",
    "BLEU-4": "BLEU-4",
}

Row = dict[str, Any]


def commands(data: Path, work: Path) -> dict[str, list[str]]:
    """The arguments of `vcs-runtime experiment`, without --output, by name."""
    vcs, clip = data / "vcs-eval", data / "clip-cc"
    ranking = work / "ranking.txt"
    ranking.write_text("\n".join(RANKING) + "\n")
    rank = [
        "--references",
        f"{clip}/references.json",
        "--predictions",
        f"{clip}/predictions",
        "--ranking",
        f"{ranking}",
    ]
    vatex = [
        "vatex",
        "--data",
        f"{data}/vatex-eval/vatex-eval-300.jsonl",
        "--cache",
        f"{work}/vectors",
    ]
    corruption = ["corruption", "--data", f"{vcs}", "--cache", f"{work}/vectors"]
    authors = [
        "authors",
        "--data",
        f"{vcs}/authors/authors.json",
        "--cache",
        f"{work}/vectors",
        "--published",
        f"{vcs}/authors-published/authors.csv",
    ]
    paper = ["--preset", "paper"]
    return {
        "vatex": vatex,
        "authors": authors,
        "corruption": corruption,
        # The setting that the papers' text states; whole texts are embedded by then.
        "vatex-paper": [*vatex, *paper],
        "authors-paper": [*authors, *paper],
        "corruption-paper": [*corruption, *paper],
        "parameters": ["parameters", "--data", f"{vcs}"],
        "rank": ["rank", *rank],
    }


def run(arguments: list[str], out: Path, log: Path) -> int:
    """Run one experiment; returns its exit code."""
    command = [sys.executable, "-m", "vcs_runtime", "experiment", *arguments, "-o", str(out)]
    with log.open("w", encoding="utf-8") as file:
        return subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, check=False
        ).returncode


def run_all(data: Path, work: Path, only: list[str] | None, bundle: str, resume: bool) -> None:
    """Run the experiments, and copy the tables of each that is finished."""
    work.mkdir(parents=True, exist_ok=True)
    for name, arguments in commands(data, work).items():
        out, log, done = work / name, work / f"{name}.log", work / f"{name}.done"
        if (only and name not in only) or (resume and done.exists()):
            continue
        resumed = ["--resume"] if resume and (out / "pairs.jsonl").exists() else []
        code = run([*arguments, "--bundle", bundle, *resumed], out, log)
        print(f"{name:26} exit code {code}", flush=True)
        if code not in (0, 1):
            print(log.read_text("utf-8").splitlines()[-1])
            continue
        done.touch()
        target = RESULTS / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path in sorted(out.iterdir()):
            if path.suffix == ".md" or path.name == "results.json":
                shutil.copy(path, target)


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
        (
            json.loads(text)["signature"]
            if text.startswith("{")
            else re.search(r"`(vcs\|.*?)`", text)[1]
        )
        for text in texts
    ]
    came = [
        subprocess.run(
            ["git", "log", "-1", "--abbrev=7", "--format=%as %h", "--", path],
            cwd=RESULTS,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for path in sources
    ]
    date, revision = max(came)
    own = {"date": date, "revision": revision, "versions": {}}
    names = [
        "ours default:cpu",
        *(f"ours default:cpu, {number}" for number in range(2, len(found) + 1)),
    ]
    signatures = dict(zip(names, dict.fromkeys(found), strict=False))
    files = " and ".join(
        f"`{path.relative_to(RESULTS.parents[1])}` ({' at '.join(at)})"
        for path, at in zip(sources, came, strict=True)
    )
    source = f"From {files}, by `benchmarks/experiments.py`."
    print(
        keep(
            name, [row | own | {"signatures": signatures} for row in rows], place=ANY, source=source
        )
    )


def corruption() -> Iterable[Row]:
    table = {
        (row["cases"], row["metric"]): row
        for row in results("corruption")["tables"]["classification"]
    }
    for what, cases, figure in (
        ("18 of the 20 kinds of the papers' Table 1", "of Table 1", "AUC"),
        ("all 26 kinds", "all", "AUC"),
        ("accuracy at a threshold of .5, all kinds", "all", "accuracy"),
    ):
        cells = {title: short(table[cases, metric][figure]) for metric, title in NAMES.items()}
        yield {"workload": what, "cells": cells}


def authors() -> Iterable[Row]:
    table = {row["metric"]: row for row in results("authors")["tables"]["consistency"]}
    shown = {
        metric: title
        for metric, title in NAMES.items()
        if metric not in ("ROUGE-L", "BLEU-4", "CIDEr")
    }
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
        rows = [
            {name.replace("\n", ""): cell for name, cell in row.items()}
            for row in csv.DictReader(file)
        ]
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
        "VCS_LCT0": "VCS_short, LCT 0",
        "VCS_LCT1": "VCS_short, LCT 1",
        "margin_LCT0": "margin, LCT 0",
        "CIDEr": "CIDEr",
        "ROUGE-1": "ROUGE-1",
        "BERTScore-F1": "BERTScore, same encoder",
        "GAS": "cosine (GAS)",
    }
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
            row
            for row in results(f"authors{folder}")["tables"]["consistency"]
            if row["metric"] == metric
        ]
        rated = {
            row["references"]: row["Kendall tau-b"]
            for row in results(f"vatex{folder}")["tables"]["correlation"]
            if row["metric"] == metric
        }
        cells = {
            "AUC, 26 kinds": short(kinds["all", metric]["AUC"]),
            "accuracy at .5": short(kinds["all", metric]["accuracy"]),
            "authors: lowest mean of a pair": short(pairs["lowest mean"]),
            "authors above 80 %, of 12": f"{pairs['pairs'] - pairs['not above 0.8']}",
            "VATEX: tau-b, 1 reference": short(rated["1ref"]),
            "9 references": short(rated["9ref"]),
        }
        yield {"head": "preset", "workload": title, "cells": cells}


def keep_tables(data: Path) -> None:
    """Keep the cells that the manual shows, for `tables.py`."""

    def of(name: str) -> Path:
        return RESULTS / name / "results.json"

    write("corruption", corruption(), of("corruption"))
    write("authors", authors(), of("authors"))
    write("vatex", vatex(data / "vatex-eval"), of("vatex"))
    both = [
        f"{name}{folder}"
        for folder in ("", "-paper")
        for name in ("corruption", "authors", "vatex")
    ]
    write("presets", presets(), *map(of, both))


def main() -> None:
    parser = parser_of(__doc__, keeps=False)
    parser.add_argument("what", choices=["run", "tables"])
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path, nargs="?")
    parser.add_argument("--only", action="append")
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    if options.what == "tables":
        keep_tables(options.data)
    elif options.work is None:
        parser.error("run needs a folder to work in")
    else:
        run_all(options.data, options.work, options.only, options.bundle, options.resume)


if __name__ == "__main__":
    main()
