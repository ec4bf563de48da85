"""What vectors of tokens cost beside those of texts: time and memory of the embedder, sides in turns.

    python benchmarks/token_vectors.py [--bundle default] [--texts 2000] [--rounds 7] [--threads 1] [--runs]

Drawn sentences are embedded by one embedder as it is opened, and by one that shows the tokens of the last layer: without
asking for them, and asking for those of all texts or of half of them. Each round runs all sides, in turns; the figures are
medians of the rounds' ratios. With `--runs`, the model alone is timed, without tokenizers. Then each side runs once more in
a process of its own, whose memory is read. Vectors of texts must have the same bits on all sides.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sides import measure, own_mb, peak_mb, work_folder

from vcs_runtime import Embedder
from vcs_runtime.inference.token_vectors import TokenRequest

WORDS = (
    "a the man woman child dog horse opens slams carries cuts throws watches red heavy wooden door box onion river "
    "kitchen garden street quickly slowly then while behind beside into and she he it"
).split()
SIDES = ("as it is opened", "tokens not asked for", "tokens of half the texts", "tokens of all texts")


def drawn(count: int) -> list[str]:
    draw = random.Random(0)
    return [f"{i} {' '.join(draw.choices(WORDS, k=draw.randrange(4, 40)))}." for i in range(count)]


def embedded(embedder: Embedder, texts: list[str], side: str, *, runs: bool) -> tuple[float, Any, int]:
    """Return seconds, the vectors of texts, and the bytes of the tokens' vectors."""
    wanted = {SIDES[2]: texts[::2], SIDES[3]: texts}.get(side)
    start = time.perf_counter()
    prepared = embedder.prepare(texts, TokenRequest(embedder.show_tokens(), wanted) if wanted else None)
    if runs:
        start = time.perf_counter()
    prepared.run()
    vectors, tokens = prepared.vectors(), prepared.tokens()
    return time.perf_counter() - start, vectors, sum(own.nbytes for own in tokens.values())


def child(work: dict[str, Any]) -> None:
    """Measure one side's memory."""
    with Embedder.open(work["bundle"], "cpu", work["threads"]) as embedder:
        if work["side"] != SIDES[0]:
            embedder.show_tokens()
        before = own_mb()
        _, _, size = embedded(embedder, drawn(work["texts"]), work["side"], runs=False)
        print(json.dumps({"open": before, "peak": peak_mb(), "tokens": size / 2**20}))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", action="store_true", help="time the model alone")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(json.loads(arguments.child.read_text("utf-8")))
        return 0
    texts = drawn(arguments.texts)
    differing = 0
    ratios: dict[str, list[float]] = {side: [] for side in SIDES}
    with (
        Embedder.open(arguments.bundle, "cpu", arguments.threads) as plain,
        Embedder.open(arguments.bundle, "cpu", arguments.threads) as shows,
    ):
        shows.show_tokens()
        sides = {side: plain if side == SIDES[0] else shows for side in SIDES}
        expected = plain.embed(texts)
        for turn in range(arguments.rounds):
            seconds = {}
            for side in SIDES[turn % len(SIDES) :] + SIDES[: turn % len(SIDES)]:
                seconds[side], vectors, _ = embedded(sides[side], texts, side, runs=arguments.runs)
                differing += int(np.any(vectors != expected, axis=1).sum())
            for side in SIDES:
                ratios[side].append(seconds[side] / seconds[SIDES[0]])
    print(f"{'side':26} {'time':>7} {'peak MB':>8} {'of it tokens':>13}")
    with work_folder(None) as folder:
        for side in SIDES:
            work = {"bundle": arguments.bundle, "threads": arguments.threads, "texts": arguments.texts}
            found = measure(__file__, folder, side=side, **work)
            time_ = f"{statistics.median(ratios[side]):.3f}"
            print(f"{side:26} {time_:>7} {found['peak']:>8.0f} {found['tokens']:>13.1f}")
    print(f"vectors of texts with other bits: {differing} of {len(SIDES) * arguments.rounds * len(texts)}")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
