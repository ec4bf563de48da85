"""What large jobs take: the processor's part of a pair is measured here, the GPU's is calculated.

    python benchmarks/plan.py pairs.jsonl [--pairs 100] [--tokens-per-second 56000] [--width 4096] [--keep]

Measured, in seconds of one core a pair (CPU time, so that other work on the machine does not count), on real pairs:
reading, cutting by rules, tokenising (with the embedded default's tokenizer), cosines and alignment (random vectors of
`--width` numbers, as many as the pair has chunks), writing. Each text is fresh: nothing is remembered. Calculated: the
tokens of a pair, as document and again as chunks, by the rate that a GPU would do at its best.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from records import keep
from rich.console import Console
from rich.table import Table

from vcs_numba import score_batch
from vcs_numba.embeddings import cosine_similarity
from vcs_runtime import Scorer
from vcs_runtime.text.cleaning import clean_segments
from vcs_runtime.text.contractions import expand_contractions

SIZES = (27_800, 10_000_000)
GPUS = (1, 8, 64)


def timed(costs: dict[str, float], step: str, count: int, call: Callable[[], Any]) -> Any:
    begun = time.thread_time()
    found = call()
    costs[step] = (time.thread_time() - begun) / count
    return found


def measure(lines: list[str], width: int) -> tuple[dict[str, float], float, float]:
    """Core seconds a pair by step; tokens a pair, and chunks."""
    costs: dict[str, float] = {}
    count = len(lines)
    rows = timed(costs, "reading", count, lambda: [json.loads(line) for line in lines])
    pairs = [(row["reference"], row["generated"]) for row in rows]
    draw = np.random.default_rng(0)
    with Scorer.open("default", "cpu", threads=1, segmenter="rules") as scorer:

        def cut(text: str) -> list[str]:
            return clean_segments(scorer.segmenter.sentences(expand_contractions(text), "text"))

        cut("A man opens a door.")
        chunks = timed(costs, "cutting", count, lambda: [(cut(a), cut(b)) for a, b in pairs])
        texts = [
            text for pair, parts in zip(pairs, chunks, strict=True) for text in (*pair, *parts[0], *parts[1])
        ]
        tokenizer = scorer.embedder._tokenizer
        tokens = timed(
            costs, "tokenising", count, lambda: sum(map(len, tokenizer.sequences(texts, "", 256).ids))
        )
        signature = scorer.signature
    vectors = [
        tuple(draw.standard_normal((len(side), width)).astype(np.float32) for side in pair) for pair in chunks
    ]

    def align() -> Any:
        return score_batch([np.clip(cosine_similarity(a, b), -1, 1) for a, b in vectors], np.full(count, 0.5))

    align()
    found = timed(costs, "cosines and alignment", count, align)
    timed(costs, "writing", count, lambda: [json.dumps(dict(zip(found.dtype.names, map(float, row), strict=True)) | {"signature": signature}) for row in found])  # fmt: skip
    return costs, tokens / count, sum(len(a) + len(b) for a, b in chunks) / count


def span(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs_file", type=Path)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--tokens-per-second", type=float, default=56_000.0, help="of a GPU")
    parser.add_argument("--width", type=int, default=4096, help="numbers of a vector")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    lines = arguments.pairs_file.read_text("utf-8").splitlines()
    lines = lines[:: max(1, len(lines) // arguments.pairs)][: arguments.pairs]
    costs, tokens, chunks = measure(lines, arguments.width)
    print(f"{len(lines)} pairs: {tokens:.0f} tokens and {chunks:.1f} chunks a pair")
    for step, seconds in costs.items():
        print(f"{step:22} {1e3 * seconds:7.3f} ms of one core a pair")
    core, gpu = sum(costs.values()), tokens / arguments.tokens_per_second
    print(
        f"{'together':22} {1e3 * core:7.3f} ms; a GPU, calculated: {1e3 * gpu:.1f} ms; cores a GPU: {core / gpu:.2f}\n"
    )
    table = Table("pairs", *(f"{number} GPU" for number in GPUS), "one core, its part", box=None)
    heads = [*(f"{number} GPU{'s'[: number > 1]}" for number in GPUS), "the processors' part, on one core"]
    rows = []
    for size in SIZES:
        cells = [*(span(size * gpu / number) for number in GPUS), span(size * core)]
        table.add_row(f"{size:,}", *cells)
        rows.append({"head": "pairs", "workload": f"{size:,}", "cells": dict(zip(heads, cells, strict=True))})
    Console(width=110).print(table)
    if arguments.keep:
        steps = {"tokens": f"{tokens:.0f}", "chunks": f"{chunks:.1f}"} | {
            f"{step}, ms": f"{1e3 * seconds:.2f}" for step, seconds in (costs | {"together": core}).items()
        }
        print(keep("plan_core", [{"head": None, "workload": "a pair", "cells": steps}]))
        print(keep("plan", rows))


if __name__ == "__main__":
    main()
