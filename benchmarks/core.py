"""Speed of the alignment core against the reference package and against the memory floor, all in one run.

    python benchmarks/core.py [--seconds 2] [--sizes 20x20 200x150 2000x1500] [--keep]

Needs the `parity` extra. Each figure is the median (and the best) of repeated timings; both sides are timed in turns
so that a busy machine slows both. The floor is one numpy sum over the same matrix: what it takes to read it once,
on one core, or on all (each summing its share of the rows). The reference gets its matrix through stub embedders:
it multiplies by an identity, which costs it a few percent at most. Its torch runs on one thread, where it is fastest
at small sizes (with two it needs five to ten times as long when the machine has other work). `--keep` writes the
figures of float64 matrices into results/figures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import vcs
from records import keep
from rich.console import Console
from rich.table import Table

import vcs_numba
from vcs_numba.jit.threads import thread_count

KINDS = ("near", "random", "far")


def similarity_matrix(kind: str, n_ref: int, n_gen: int, dtype: str) -> np.ndarray[Any, Any]:
    """near: matches near the diagonal, as real texts have; random: uniform; far: every match far from its place."""
    draw = np.random.default_rng(n_ref + n_gen)
    if kind == "random":
        values = draw.random((n_ref, n_gen))
    elif kind == "far":
        values = draw.random((n_ref, n_gen)) * 0.3
        short = min(n_ref, n_gen)
        values[draw.permutation(n_ref)[:short], draw.permutation(n_gen)[:short]] = 0.9
    else:
        topic, ref = draw.standard_normal(64), draw.standard_normal((n_ref, 64))
        gen = ref[np.arange(n_gen) * n_ref // n_gen] + draw.standard_normal((n_gen, 64))
        ref, gen = ref + topic, gen + topic
        ref /= np.linalg.norm(ref, axis=1, keepdims=True)
        gen /= np.linalg.norm(gen, axis=1, keepdims=True)
        values = ref @ gen.T
    return np.ascontiguousarray(values, dtype=dtype)


def reference_call(similarity: np.ndarray[Any, Any]) -> Callable[[], object]:
    """The reference package on this matrix, in the matrix's own type, without its reports."""
    n_ref, n_gen = similarity.shape
    rows = torch.from_numpy(similarity)
    identity = torch.eye(n_gen, dtype=rows.dtype)
    chunks = {"r": [f"r{i}" for i in range(n_ref)], "g": [f"g{j}" for j in range(n_gen)]}
    texts = torch.tensor([[1.0, 0.0], [0.9, 0.19**0.5]], dtype=torch.float64)
    return lambda: vcs.compute_vcs_score(
        "r",
        "g",
        segmenter_fn=chunks.__getitem__,
        embedding_fn_las=lambda names: rows if names[0][0] == "r" else identity,
        embedding_fn_gas=lambda _: texts,
        return_all_metrics=True,
    )


def timed(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, tuple[float, float]]:
    """(median, best) seconds of each call; the calls take turns."""
    repeats, samples = {}, {name: [] for name in calls}  # type: ignore[var-annotated]
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        once = time.perf_counter() - start
        # A sample of at least a millisecond, so that the clock does not matter.
        repeats[name] = max(1, int(1e-3 / max(once, 1e-7)))
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or (time.perf_counter() < end and rounds < 1000):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            samples[name].append((time.perf_counter() - start) / repeats[name])
        rounds += 1
    return {name: (statistics.median(taken), min(taken)) for name, taken in samples.items()}


def shown(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def floor_calls(
    similarity: np.ndarray[Any, Any], pool: ThreadPoolExecutor
) -> dict[str, Callable[[], object]]:
    shares = np.array_split(similarity, thread_count())
    return {"floor, one core": similarity.sum, "floor, all cores": lambda: list(pool.map(np.sum, shares))}


def row_of(call: str, kind: str, reference: float, ours: float) -> dict[str, Any]:
    sides = {"reference": {"seconds": reference}, "vcs_numba": {"seconds": ours}}
    return {"workload": f"{call}, {kind}", "call": call, "kind": kind, "sides": sides}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each line of the table, about")
    parser.add_argument("--sizes", nargs="+", default=["20x20", "200x150", "2000x1500"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of 20 x 20 in the batch")
    parser.add_argument("--torch-threads", type=int, default=1, help="threads of the reference's torch")
    parser.add_argument("--output", type=Path, help="write the table here as text, too")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.torch_threads)

    table = Table(
        "call", "matrix", "type", "reference", "vcs_numba", "best", "times faster", "floor 1 core",
        "floor all", "of floor (all)",
        title=f"median times; {thread_count()} threads, torch {torch.get_num_threads()} threads",
    )  # fmt: skip
    rows = []
    with ThreadPoolExecutor(thread_count()) as pool:
        for size in arguments.sizes:
            n_ref, n_gen = map(int, size.split("x"))
            for kind in arguments.kinds:
                for dtype in ("float64", "float32"):
                    similarity = similarity_matrix(kind, n_ref, n_gen, dtype)
                    calls: dict[str, Callable[[], object]] = {
                        "reference": reference_call(similarity),
                        "ours": lambda similarity=similarity: vcs_numba.score_similarity(similarity, 0.9),  # type: ignore[misc]
                    }
                    times = timed(calls | floor_calls(similarity, pool), arguments.seconds)
                    reference, ours = times["reference"][0], times["ours"][0]
                    one, every = times["floor, one core"][0], times["floor, all cores"][0]
                    if dtype == "float64":
                        rows.append(row_of(f"`score_similarity`, {n_ref} x {n_gen}", kind, reference, ours))
                    table.add_row(
                        f"score_similarity, {kind}", size, dtype, shown(reference), shown(ours),
                        shown(times["ours"][1]), f"{reference / ours:.0f}", shown(one), shown(every),
                        f"{ours / min(one, every):.1f}",
                    )  # fmt: skip
        for kind in arguments.kinds:
            similarities = [similarity_matrix(kind, 20, 20, "float64") for _ in range(arguments.pairs)]
            draw = np.random.default_rng(0)
            for similarity in similarities:
                similarity += draw.uniform(-0.02, 0.02, similarity.shape)
            gas = np.full(arguments.pairs, 0.9)
            references = [reference_call(similarity) for similarity in similarities[:50]]
            calls = {
                "reference": lambda references=references: [call() for call in references],  # type: ignore[misc]
                "ours": lambda similarities=similarities, gas=gas: vcs_numba.score_batch(similarities, gas),  # type: ignore[misc]
                "floor": lambda similarities=similarities: [s.sum() for s in similarities],  # type: ignore[misc]
            }
            times = timed(calls, arguments.seconds)
            reference = times["reference"][0] / len(references)
            ours, best = (value / arguments.pairs for value in times["ours"])
            rows.append(row_of("`score_batch`, 20 x 20, one pair of many", kind, reference, ours))
            table.add_row(
                f"score_batch, {kind}, a pair", "20x20", "float64", shown(reference), shown(ours), shown(best),
                f"{reference / ours:.0f}", "", "", "",
            )  # fmt: skip
    Console(width=150).print(table)
    if arguments.output:
        with arguments.output.open("w", encoding="utf-8") as file:
            Console(width=150, file=file).print(table)
    if arguments.keep:
        print(keep("core", rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
