"""What the margin promises: its identity with VCS, the order of references, and the speed of the core.

    python benchmarks/margin.py identity scores.jsonl [...]   every line of score files, and 100,000 drawn matrices
    python benchmarks/margin.py references vatex-eval.jsonl   VATEX-EVAL captions against their references in three orders
    python benchmarks/margin.py speed OTHER                   this checkout beside another one, in turns

`identity`: VCS > 0 exactly where margin > 0, and VCS = margin / max(SAS, NAS) there. `references` uses the embedded
default, with whole captions and with their words. OTHER of `speed` is a checkout of an earlier commit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]


def identity(files: list[Path]) -> None:
    for path in files:
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        scored = [row for row in rows if "error" not in row]
        report(path.name, [[row[name] for row in scored] for name in ("vcs", "margin", "sas", "nas")])
    from vcs_numba import score_batch

    draw = np.random.default_rng(2)
    level = draw.uniform(0, 1, 100_000)
    similarities = [
        np.clip(k * np.eye(*shape) + draw.uniform(-0.3, 1 - 0.5 * k, shape), -1, 1)
        for k, shape in zip(level, draw.integers(1, 25, (len(level), 2)).tolist(), strict=True)
    ]
    scores = score_batch(similarities, np.clip(level + draw.uniform(-0.5, 0.5, len(level)), -1, 1))
    report("drawn matrices", [scores[name] for name in ("vcs", "margin", "sas", "nas")])


def report(name: str, columns: Iterable[Any]) -> None:
    vcs, margin, sas, nas = (np.asarray(column, np.float64) for column in columns)
    above = vcs > 0
    signs = int((above != (margin > 0)).sum())
    values = int((vcs[above] != margin[above] / np.maximum(sas, nas)[above]).sum())
    rounding = float(np.abs(margin - (sas + nas - 1)).max())
    print(f"{name}: {len(vcs)} pairs, VCS above 0 in {int(above.sum())}; the sign differs in {signs}, the value in "
          f"{values}; largest difference from SAS + NAS - 1: {rounding:.1e}")  # fmt: skip


def references(path: Path) -> None:
    from vcs_runtime import Options, Scorer

    draw = np.random.default_rng(3)
    pairs = []
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        texts = row["refs"][0] if isinstance(row["refs"][0], list) else row["refs"]
        pairs += [(texts, candidate) for candidate in row["cands"] if candidate.strip()]
    with Scorer.open() as scorer:
        for short in (False, True):
            for aggregate in ("max", "mean"):
                options = Options(aggregate=aggregate, short=short)
                tables = []
                for arrange in (list, reversed, draw.permutation):
                    turned = [(list(arrange(texts)), candidate) for texts, candidate in pairs]
                    results = scorer.iter_scores(turned, options)
                    tables.append(np.array([(*(r.scores or [np.nan] * 16), r.n_ref) for r in results]))
                apart = max(float(np.nanmax(np.abs(table - tables[0]))) for table in tables[1:])
                zeros = int((tables[0][:, 0] == 0).sum())
                form = "words" if short else "sentences"
                print(f"{form}, {aggregate}: {len(pairs)} captions, VCS 0 in {zeros}; largest difference of any "
                      f"number over three orders of the references: {apart}")  # fmt: skip


TIMED = """
import json, sys, time
import numpy as np
from vcs_numba import score_batch, score_similarity
draw = np.random.default_rng(0)
found = {}
for shape in ((20, 20), (200, 150), (2000, 1500)):
    matrix = np.clip(np.eye(*shape) + draw.uniform(-0.2, 0.5, shape), -1, 1)
    score_similarity(matrix, 0.7)
    count = max(3, int(4e6 / matrix.size) if matrix.size > 1000 else 20000)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            score_similarity(matrix, 0.7)
        times.append((time.perf_counter() - start) / count)
    found["%d x %d" % shape] = min(times)
many = [np.clip(draw.uniform(-0.2, 0.9, (20, 20)), -1, 1) for _ in range(20000)]
times = []
for _ in range(5):
    start = time.perf_counter()
    score_batch(many, np.full(len(many), 0.7))
    times.append((time.perf_counter() - start) / len(many))
found["batch of 20,000 at 20 x 20"] = min(times)
print(json.dumps(found))
"""


def speed(other: Path) -> None:
    times: dict[Path, list[dict[str, float]]] = {ROOT: [], other: []}
    for _ in range(5):
        for root, found in times.items():
            done = subprocess.run([sys.executable, "-c", TIMED], capture_output=True, text=True, check=True,
                                  cwd=root, env={**os.environ, "PYTHONPATH": str(root)})  # fmt: skip
            found.append(json.loads(done.stdout))
    for name in times[ROOT][0]:
        here, there = (min(found[name] for found in times[root]) for root in (ROOT, other))
        print(f"{name}: {here * 1e6:.2f} us here, {there * 1e6:.2f} us there, ratio {here / there:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("identity").add_argument("files", type=Path, nargs="*")
    commands.add_parser("references").add_argument("file", type=Path)
    commands.add_parser("speed").add_argument("other", type=lambda value: Path(value).resolve())
    arguments = parser.parse_args()
    if arguments.command == "identity":
        identity(arguments.files)
    elif arguments.command == "references":
        references(arguments.file)
    else:
        speed(arguments.other)


if __name__ == "__main__":
    main()
