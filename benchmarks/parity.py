"""How far the alignment core is from the reference package: the largest difference of any score.

    python benchmarks/parity.py [--live 500]

The recorded cases (`tests/core/golden.npz`) need nothing but the base install. `--live` compares as many more drawn cases,
intermediate results included, with the reference package itself; that needs the `parity` extra.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import vcs_numba

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/lib"))

from support.core_cases import drawn_case, flat_alignment, matrix, params  # noqa: E402


def recorded() -> tuple[int, float]:
    """The number of recorded cases, and the largest difference."""
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
    from support.core_oracle import flat_reference, reference_result

    largest = 0.0
    for seed in range(10**6, 10**6 + count):
        case = drawn_case(seed)
        chosen = params(case)
        theirs = reference_result(
            matrix(case), case.gas, lct=case.lct,
            context_cutoff=case.context_cutoff, context_window=case.context_window,
        )  # fmt: skip
        alignment = vcs_numba.align(matrix(case), chosen)
        for name, value in alignment.scores(theirs["GAS"]).to_reference_dict().items():
            largest = max(largest, abs(value - theirs[name]))
        ours, reference = flat_alignment(alignment), flat_reference(theirs)
        for key, numbers in reference.items():
            if np.size(numbers):
                largest = max(largest, float(np.nanmax(np.abs(np.subtract(ours[key], numbers, dtype=float)))))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--live", type=int, default=0)
    arguments = parser.parse_args()
    cases, largest = recorded()
    print(f"recorded: {cases} cases, largest difference {largest:.1e}")
    if arguments.live:
        print(f"live: {arguments.live} cases, largest difference {live(arguments.live):.1e}")


if __name__ == "__main__":
    main()
