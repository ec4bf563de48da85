"""Run every experiment on the authors' data with one bundle, and store the tables.

    python benchmarks/experiments.py DATA WORK [--only vatex] [--bundle B] [--resume]

DATA contains vcs-eval/, vatex-eval/ and clip-cc/, as docs/guide/experiments.md describes them. Each
experiment writes to WORK/NAME. Its tables (figures and names of cases, without texts) are copied to
benchmarks/results/NAME. --resume skips finished experiments in WORK and continues the others.
METEOR is computed if NLTK finds its corpora. `agreement.py` makes the manual's tables.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from records import FOLDER, parser_of

RESULTS = FOLDER.parent
# CLIP-CC-Bench's ranking, the best model first, with the names of the prediction files.
RANKING = """videollama3 mplug llava_one_vision vilamp longvu Qwen2.5-72B Qwen2.5-32B \
videochatflash minicpm
video_xl sharegpt4 internvl timechat llava_next_video ts_llava oryx longva""".split()


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
        # The setting of the papers' text. The vectors of whole texts are stored by then.
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


def main() -> None:
    parser = parser_of(__doc__, keeps=False)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", action="append")
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    run_all(options.data, options.work, options.only, options.bundle, options.resume)


if __name__ == "__main__":
    main()
