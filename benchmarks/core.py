"""The alignment core, compared with the reference package: differences and speed.

    python benchmarks/core.py parity [--live 500]
    python benchmarks/core.py speed [--seconds 2] [--sizes 20x20 200x150 2000x1500] [--keep]

`parity` prints the largest difference of any score in the recorded cases (`tests/core/golden.npz`),
for which the base install is enough. `--live N` compares N more random cases, including
intermediate results, with the reference package itself.

`speed` needs the `parity` extra. Each figure is the median of repeated timings. Both sides are
timed in turns, so that other work slows both. The reference package gets its matrix through stub
embedders: it multiplies by an identity matrix, which costs a few percent at most. Its torch uses
one thread, which is fastest at small sizes.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from records import keep, parser_of

import vcs_numba

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))
KINDS = ("near", "random", "far")


def recorded() -> tuple[int, float]:
    """The number of recorded cases, and the largest difference."""
    from support.core_cases import drawn_case, matrix, params

    with np.load(ROOT / "tests/core/golden.npz") as golden:
        gas, scores = golden["gas"], golden["scores"]
    differences = []
    for seed, theirs in enumerate(scores):
        case = drawn_case(seed)
        ours = vcs_numba.score_similarity(matrix(case), float(gas[seed]), params(case))
        differences.append(np.abs(np.array(list(ours.to_reference_dict().values())) - theirs).max())
    return len(scores), float(max(differences))


def live(count: int) -> float:
    """The largest difference in `count` cases that the reference package computes now."""
    from support.core_cases import drawn_case, flat_alignment, matrix, params
    from support.core_oracle import flat_reference, reference_result

    largest = 0.0
    for seed in range(10**6, 10**6 + count):
        case = drawn_case(seed)
        theirs = reference_result(
            matrix(case),
            case.gas,
            lct=case.lct,
            context_cutoff=case.context_cutoff,
            context_window=case.context_window,
        )
        alignment = vcs_numba.align(matrix(case), params(case))
        for name, value in alignment.scores(theirs["GAS"]).to_reference_dict().items():
            largest = max(largest, abs(value - theirs[name]))
        ours, reference = flat_alignment(alignment), flat_reference(theirs)
        for key, numbers in reference.items():
            if np.size(numbers):
                largest = max(
                    largest, float(np.nanmax(np.abs(np.subtract(ours[key], numbers, dtype=float))))
                )
    return largest


def similarity_matrix(kind: str, n_ref: int, n_gen: int) -> np.ndarray[Any, Any]:
    """near: matches near the diagonal, as real texts have; random: uniform; far: every match far
    from its place."""
    draw = np.random.default_rng(n_ref + n_gen)
    if kind == "random":
        return draw.random((n_ref, n_gen))
    if kind == "far":
        values = draw.random((n_ref, n_gen)) * 0.3
        short = min(n_ref, n_gen)
        values[draw.permutation(n_ref)[:short], draw.permutation(n_gen)[:short]] = 0.9
        return values
    topic, ref = draw.standard_normal(64), draw.standard_normal((n_ref, 64))
    gen = ref[np.arange(n_gen) * n_ref // n_gen] + draw.standard_normal((n_gen, 64))
    ref, gen = ref + topic, gen + topic
    ref /= np.linalg.norm(ref, axis=1, keepdims=True)
    gen /= np.linalg.norm(gen, axis=1, keepdims=True)
    return ref @ gen.T


def reference_call(similarity: np.ndarray[Any, Any]) -> Callable[[], object]:
    """The reference package on this matrix, without its reports."""
    import torch
    import vcs

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


def timed(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """Median seconds of each call; the calls take turns."""
    repeats, samples = {}, {name: [] for name in calls}  # type: ignore[var-annotated]
    for name, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        # A sample lasts at least a millisecond, so that the clock's resolution does not matter.
        repeats[name] = max(1, int(1e-3 / max(time.perf_counter() - start, 1e-7)))
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 5 or (time.perf_counter() < end and rounds < 1000):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            samples[name].append((time.perf_counter() - start) / repeats[name])
        rounds += 1
    return {name: statistics.median(taken) for name, taken in samples.items()}


def speed(sizes: list[str], seconds: float, pairs: int) -> list[dict[str, Any]]:
    """Print and return the times of both sides, for single matrices and for a batch."""
    rows = []

    def add(call: str, kind: str, reference: float, ours: float) -> None:
        sides = {"reference": {"seconds": reference}, "vcs_numba": {"seconds": ours}}
        rows.append({"workload": f"{call}, {kind}", "call": call, "kind": kind, "sides": sides})
        print(
            f"{call:42} {kind:7} {1e6 * reference:12.1f} us {1e6 * ours:10.1f} us"
            f" {reference / ours:6.0f}",
            flush=True,
        )

    for size in sizes:
        n_ref, n_gen = map(int, size.split("x"))
        for kind in KINDS:
            similarity = similarity_matrix(kind, n_ref, n_gen)
            times = timed(
                {
                    "reference": reference_call(similarity),
                    "ours": lambda similarity=similarity: vcs_numba.score_similarity(
                        similarity, 0.9
                    ),  # type: ignore[misc]
                },
                seconds,
            )
            add(f"`score_similarity`, {n_ref} x {n_gen}", kind, times["reference"], times["ours"])
    for kind in KINDS:
        draw = np.random.default_rng(0)
        similarities = [
            similarity_matrix(kind, 20, 20) + draw.uniform(-0.02, 0.02, (20, 20))
            for _ in range(pairs)
        ]
        gas = np.full(pairs, 0.9)
        references = [reference_call(similarity) for similarity in similarities[:50]]
        times = timed(
            {
                "reference": lambda references=references: [call() for call in references],  # type: ignore[misc]
                "ours": lambda similarities=similarities, gas=gas: vcs_numba.score_batch(
                    similarities, gas
                ),  # type: ignore[misc]
            },
            seconds,
        )
        add(
            "`score_batch`, 20 x 20, one pair of many",
            kind,
            times["reference"] / len(references),
            times["ours"] / pairs,
        )
    return rows


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["parity", "speed"])
    parser.add_argument(
        "--live", type=int, default=0, help="drawn cases that the reference package computes now"
    )
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="time for each line of the table, about"
    )
    parser.add_argument("--sizes", nargs="+", default=["20x20", "200x150", "2000x1500"])
    parser.add_argument("--pairs", type=int, default=2000, help="pairs of 20 x 20 in the batch")
    arguments = parser.parse_args()
    if arguments.what == "parity":
        cases, largest = recorded()
        print(f"recorded: {cases} cases, largest difference {largest:.1e}")
        if arguments.live:
            print(f"live: {arguments.live} cases, largest difference {live(arguments.live):.1e}")
        return
    import torch

    torch.set_num_threads(1)
    rows = speed(arguments.sizes, arguments.seconds, arguments.pairs)
    if arguments.keep:
        print(keep("core", rows))


if __name__ == "__main__":
    main()
