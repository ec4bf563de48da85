"""Time and size of reports; the PDF of a pair beside the reference package's, in one run.

    python benchmarks/report.py [--pairs 2000] [--rounds 3] [--keep]

Needs the extras `parity` and `report`. Similarity matrices are drawn (benchmarks/core.py), so no model's time is in
any figure. Both PDFs hold the same views of the same 20 x 20 pair, alignment not counted; they take turns, and the
median is shown. The many-pair report runs in a process of its own; memory is its growth from pair 100 to the last.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from core import similarity_matrix
from records import keep
from sides import measure, peak_mb

from vcs_numba import Params, align
from vcs_runtime import Result
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.report import HtmlReport, Systems, write_pdf
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.result import Evidence

SENTENCE = "The camera follows a man in a white shirt who walks along the street, number {}"


def explanation(n_ref: int, n_gen: int) -> Explanation:
    matrix = similarity_matrix("near", n_ref, n_gen, "float64")
    chunks = ([SENTENCE.format(i) for i in range(n_ref)], [SENTENCE.format(-j) for j in range(n_gen)])
    result = Result(align(matrix).scores(0.8), n_ref, n_gen, "vcs|drawn")
    return explain(result, Evidence(chunks, matrix, 0.8), Params())


def whole(e: Explanation) -> InputPair:
    """The pair as it would have been read: its texts with their punctuation."""
    texts = [". ".join(chunk.text for chunk in side) + "." for side in (e.reference, e.generated)]
    return InputPair("line 1", None, *texts)


def html(folder: Path, e: Explanation) -> Path:
    with HtmlReport(folder / "pair.html", "pair") as report:
        report.add(e, pair=whole(e))
        report.finish()
    return report.path


def reference_pdf(e: Explanation, folder: Path) -> Callable[[], object]:
    import torch
    import vcs

    n_gen = e.similarity.shape[1]
    rows, identity = torch.from_numpy(e.similarity), torch.eye(n_gen, dtype=torch.float64)
    chunks = {"r": [c.text for c in e.reference], "g": [c.text for c in e.generated]}
    texts = torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64)
    found = vcs.compute_vcs_score(
        "r", "g", segmenter_fn=chunks.__getitem__, embedding_fn_gas=lambda _: texts, return_internals=True,
        embedding_fn_las=lambda names: rows if names[0] == chunks["r"][0] else identity,
    )  # fmt: skip
    return lambda: vcs.create_vcs_pdf_report(found["internals"], str(folder / "theirs.pdf"))


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def many(work: dict[str, int]) -> None:
    """The child: explain and write pairs of 20 x 20."""
    systems = Systems()
    systems.begin("drawn", "vcs|drawn")
    start, early = time.perf_counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.html"
        with HtmlReport(path, "many") as report:
            for number in range(work["pairs"]):
                e = explanation(20, 20)
                systems.add(number, e.result.to_dict(), report.add(e, str(number), pair=whole(e)))
                if number == 100:
                    early = peak_mb()
            before = peak_mb()
            report.finish(systems)
        size = path.stat().st_size
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - start,
                "bytes": size,
                "growth": before - early,
                "peak": peak_mb(),
            }
        )
    )


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--child":
        many(json.loads(Path(sys.argv[2]).read_text("utf-8")))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows: list[dict[str, Any]] = []
        for shape in ((20, 20), (50, 50), (200, 150), (400, 400)):
            e = explanation(*shape)
            html(folder, e)
            seconds = statistics.median(timed(lambda: html(folder, e)) for _ in range(5))  # noqa: B023
            size = (folder / "pair.html").stat().st_size
            cells = {"to write": f"{seconds * 1e3:.0f} ms", "size": f"{size / 1e3:.0f} kB"}
            chunks = " chunks" if not rows else ""
            rows.append(
                {"head": "HTML of a pair", "workload": f"{shape[0]} x {shape[1]}{chunks}", "cells": cells}
            )
            print(f"HTML, {shape[0]} x {shape[1]}: {seconds * 1e3:.0f} ms, {size / 1e3:.0f} kB")
        if arguments.keep:
            print(keep("report", rows))
        e = explanation(20, 20)
        sides = {"ours": lambda: write_pdf(e, folder / "ours.pdf"), "theirs": reference_pdf(e, folder)}
        for call in sides.values():
            call()
        taken = {side: [] for side in sides}  # type: ignore[var-annotated]
        for _ in range(arguments.rounds):
            for side, call in sides.items():
                taken[side].append(timed(call))
        median = {side: float(np.median(values)) for side, values in taken.items()}
        print(f"PDF, 20 x 20: {median['ours']:.2f} s, theirs {median['theirs']:.2f} s: {median['theirs'] / median['ours']:.1f} times; "
              + ", ".join(f"{side} {(folder / f'{side}.pdf').stat().st_size / 1e3:.0f} kB" for side in sides))  # fmt: skip
        found = measure(__file__, folder, pairs=arguments.pairs)
        print(f"{arguments.pairs} pairs of 20 x 20: {found['seconds']:.1f} s, {found['bytes'] / 1e6:.1f} MB; memory grew by "
              f"{found['growth']:.1f} MB from pair 100 to the last, peak {found['peak']:.0f} MB")  # fmt: skip


if __name__ == "__main__":
    main()
