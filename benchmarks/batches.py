"""Whether the vector of a text depends on its batch: bits of the default embedder's vectors on this processor.

    python benchmarks/batches.py [--bundle default] [--batches 100] [--keep]

ONNX Runtime runs the model as the runtime opens it, on batches of drawn texts of 2 to 32 rows and 1 to 256 tokens. Each
row is compared with the same text alone: padded to the length of the batch, to other multiples of the step of padding, and
not at all. One, two and four threads take turns. The first must be the same to the bit, and so must the second.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

import numpy as np
from records import keep

from vcs_runtime import Scorer
from vcs_runtime.bundle.layouts import PADDING_STEP
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.device import choose_device
from vcs_runtime.inference.session import Session

THREADS = (1, 2, 4)
FIRST, LAST = 1000, 20000  # ids of ordinary words
CLS, SEP = 101, 102


def padded(rows: list[list[int]], width: int) -> dict[str, np.ndarray]:
    """Return the inputs of a batch."""
    ids = np.zeros((len(rows), width), np.int64)
    mask = np.zeros_like(ids)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
    return {"input_ids": ids, "attention_mask": mask}


def step_up(length: int) -> int:
    return -(-length // PADDING_STEP) * PADDING_STEP


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--batches", type=int, default=100, help="for each number of threads")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    bundle = open_bundle(arguments.bundle)
    spec = bundle.manifest.embedder
    assert spec
    sessions = {
        threads: Session(bundle.path(spec.model), choose_device("cpu"), threads, what="the embedder")
        for threads in THREADS
    }
    draw = random.Random(0)
    names = ("in a batch, padded to its length", "padded to another multiple of the step", "not padded")
    compared, differing, largest = (dict.fromkeys(names, value) for value in (0, 0, 0.0))
    for _ in range(arguments.batches):
        most = draw.choice((8, 32, 64, 128, 256))
        rows = [
            [CLS, *(draw.randrange(FIRST, LAST) for _ in range(draw.randrange(0, most - 1))), SEP]
            for _ in range(draw.choice((2, 3, 5, 8, 16, 32)))
        ]
        width = step_up(max(map(len, rows)))
        row = draw.randrange(len(rows))
        alone = rows[row]
        expected = sessions[1].run(padded([alone], width))[0][0]
        other = draw.randrange(step_up(len(alone)), spec.max_tokens + 1, PADDING_STEP)
        for session in sessions.values():
            for name, vector in zip(
                names,
                (
                    session.run(padded(rows, width))[0][row],
                    session.run(padded([alone], other))[0][0],
                    session.run(padded([alone], len(alone)))[0][0],
                ),
                strict=True,
            ):
                compared[name] += 1
                apart = float(np.abs(vector - expected).max())
                differing[name] += bool((vector != expected).any())
                largest[name] = max(largest[name], apart)
    with Scorer.open(arguments.bundle, "cpu") as scorer:
        signature = scorer.signature
    table: list[dict[str, Any]] = [
        {
            "head": "the text", "workload": name,
            "cells": {
                "vectors compared": f"{compared[name]:,}", "of other bits": f"{differing[name]:,}",
                "largest difference": f"{largest[name]:.1g}",
            },
            "signatures": {"ours default:cpu": signature},
        }
        for name in names
    ]  # fmt: skip
    for row_ in table:
        print(row_["workload"], row_["cells"])
    if arguments.keep:
        print(keep("batches", table))
    return int(any(differing[name] for name in names[:2]))


if __name__ == "__main__":
    sys.exit(main())
