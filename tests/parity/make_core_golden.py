"""Writes tests/core/golden.npz from the reference package.

Run from the repository root, in the parity environment:

python tests/parity/make_core_golden.py
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))

from support.core_cases import drawn_case, matrix  # noqa: E402
from support.core_oracle import divides_by_zero, flat_reference, reference_result  # noqa: E402
from vcs_numba import REFERENCE_NAMES  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=4000, help="cases whose scores are kept")
    parser.add_argument(
        "--detailed", type=int, default=400, help="of these, cases with all intermediates"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "tests/core/golden.npz")
    arguments = parser.parse_args()

    scores, gas, breakdown, flat = [], [], [], []
    for seed in range(arguments.cases):
        case = drawn_case(seed)
        result = reference_result(
            matrix(case),
            case.gas,
            lct=case.lct,
            context_cutoff=case.context_cutoff,
            context_window=case.context_window,
        )
        scores.append([result[name] for name in REFERENCE_NAMES.values()])
        gas.append(result["GAS"])
        breakdown.append(divides_by_zero(result))
        if seed < arguments.detailed:
            flat.append(flat_reference(result))
    kept = {"scores": np.array(scores), "gas": np.array(gas), "breakdown": np.array(breakdown)}
    for key in flat[0]:
        kept[f"{key}:values"] = np.concatenate([np.atleast_1d(one[key]) for one in flat])
        kept[f"{key}:counts"] = np.array(
            [np.atleast_1d(one[key]).size for one in flat], dtype=np.int32
        )
    for key, values in kept.items():
        whole = values.dtype == np.float64 and np.array_equal(values, np.round(values))
        if whole and np.abs(values).max(initial=0) < 2**15:
            kept[key] = values.astype(np.int16)
    np.savez_compressed(arguments.output, **kept)
    print(
        f"{arguments.output}: {len(scores)} cases, {arguments.output.stat().st_size / 1024:.0f} KiB"
    )


if __name__ == "__main__":
    main()
