"""Run every experiment on the authors' data with one bundle, and keep its tables, time and peak memory.

    python benchmarks/experiments.py DATA WORK [--only vatex] [--bundle B] [--resume]

DATA holds vcs-eval/, vatex-eval/ and clip-cc/ as docs/guide/experiments.md describes them. Everything goes to
WORK/NAME; the tables (figures and names of cases, no text) are copied to benchmarks/results/NAME, and a line
with the time, the peak memory of the largest process and what the experiment said of its steps to
benchmarks/results/runs.csv. --resume passes over what is finished in WORK and goes on with what is not; the
time of an experiment that was resumed is not kept. METEOR is among the metrics where NLTK finds its corpora.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
HEADER = ["experiment", "exit code", "seconds", "peak MB", "steps"]
CACHED = "parameters, vectors cached"
# CLIP-CC-Bench's ranking, best first, under the names of the prediction files.
RANKING = """videollama3 mplug llava_one_vision vilamp longvu Qwen2.5-72B Qwen2.5-32B videochatflash minicpm
video_xl sharegpt4 internvl timechat llava_next_video ts_llava oryx longva""".split()

GROUPS = {"strong": RANKING[:5], "weak": RANKING[-5:]}


def commands(data: Path, work: Path) -> dict[str, list[str]]:
    """The arguments of `vcs-runtime experiment`, without --output, by name."""
    vcs, clip = data / "vcs-eval", data / "clip-cc"
    ranking = work / "ranking.txt"
    ranking.write_text("\n".join(RANKING) + "\n")
    scenes = sorted((vcs / "comparison").glob("*.json"), key=lambda path: int(path.stem))
    rank = ["--references", f"{clip}/references.json", "--predictions", f"{clip}/predictions",
            "--ranking", f"{ranking}"]  # fmt: skip
    useful = ["--references", f"{clip}/references.json", "--cache", f"{work}/vectors"]
    # Every third scene is enough for the AUC of many settings.
    thirds = work / "thirds"
    (thirds / "comparison").mkdir(parents=True, exist_ok=True)
    for path in sorted((vcs / "comparison").glob("*.json"))[::3]:
        shutil.copyfile(path, thirds / "comparison" / path.name)
    for which, models in GROUPS.items():
        folder = work / which
        folder.mkdir(exist_ok=True)
        for model in models:
            shutil.copyfile(clip / "predictions" / f"{model}.json", folder / f"{model}.json")
    texts = work / "references.json"
    texts.write_text(
        json.dumps({p.stem: json.loads(p.read_text("utf-8"))["ground_truth"] for p in scenes[::10]})
    )
    vatex = ["vatex", "--data", f"{data}/vatex-eval/vatex-eval-300.jsonl", "--cache", f"{work}/vectors"]
    corruption = ["corruption", "--data", f"{vcs}", "--cache", f"{work}/vectors"]
    authors = ["authors", "--data", f"{vcs}/authors/authors.json", "--cache", f"{work}/vectors",
               "--published", f"{vcs}/authors-published/authors.csv"]  # fmt: skip
    paper = ["--preset", "paper"]
    return {
        "vatex": vatex,
        "authors": authors,
        "corruption": [*corruption, "--plots"],
        # The setting that the papers' text states; whole texts are embedded by then.
        "vatex-paper": [*vatex, *paper],
        "authors-paper": [*authors, *paper],
        "corruption-paper": [*corruption, *paper],
        "make-corruptions": ["make-corruptions", "--references", f"{texts}"],
        "parameters": ["parameters", "--data", f"{vcs}"],
        # Again, with the vectors that it left: what a further chunk size or LCT would cost.
        CACHED: ["parameters", "--data", f"{vcs}"],
        "rank": ["rank", *rank],
        "usefulness": ["usefulness", *rank, "--data", f"{thirds}", "--cache", f"{work}/vectors"],
        # The same for the models that the ranking has first and last, whose vectors are there by then.
        **{f"usefulness-{which}": ["usefulness", *useful, "--predictions", f"{work}/{which}"]
           for which in GROUPS},
        # As made by the third, of every tenth scene: 9 cases and 120 texts of graded series each.
        "series": ["corruption", "--data", f"{work}/make-corruptions", "--plots"],
    }  # fmt: skip


def run(arguments: list[str], out: Path, log: Path) -> tuple[int, float, float]:
    """Run one experiment; returns its exit code, seconds, and the peak MB of its largest process."""
    started = time.perf_counter()
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-m", "vcs_runtime", "experiment", *arguments, "-o", str(out)]
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    return os.waitstatus_to_exitcode(status), time.perf_counter() - started, usage.ru_maxrss / 1024


def steps(log: Path) -> str:
    """What an experiment said of the time its steps took."""
    lines = log.read_text("utf-8").splitlines()
    return next((line.partition(": ")[2] for line in lines if " aligned under " in line), "")


def keep(name: str, out: Path) -> None:
    """Copy the tables."""
    target = RESULTS / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for path in sorted(out.iterdir()):
        if path.suffix in {".md", ".png"} or path.name == "results.json":
            shutil.copy(path, target)


def note(row: list[object]) -> None:
    """Put a run's line in the place of the one before."""
    runs = RESULTS / "runs.csv"
    rows = list(csv.reader(runs.open(newline=""))) if runs.exists() else []
    kept = [old for old in rows[1:] if old[0] != row[0]]
    with runs.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *kept, row])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", action="append")
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    for name, arguments in commands(options.data, options.work).items():
        out, log = options.work / name.split(",")[0], options.work / f"{name}.log"
        wanted = {out.name, "series"} if name == "make-corruptions" else {out.name}
        if options.only and wanted.isdisjoint(options.only):
            continue
        done = options.work / f"{name}.done"
        if options.resume and done.exists():
            continue
        begun = name != CACHED and out.exists()
        resumed = ["--resume"] if options.resume and (out / "pairs.jsonl").exists() else []
        code, seconds, peak = run([*arguments, "--bundle", options.bundle, *resumed], out, log)
        print(f"{name:26} exit code {code}, {seconds:7.1f} s, peak {peak:.0f} MB {steps(log)}", flush=True)
        if code not in (0, 1):
            print(log.read_text("utf-8").splitlines()[-1])
            continue
        done.touch()
        if name == "make-corruptions":
            continue
        keep(out.name, out)
        if not begun:
            note([name, code, round(seconds, 1), round(peak), steps(log)])


if __name__ == "__main__":
    main()
