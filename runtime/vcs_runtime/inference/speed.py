"""How fast devices of this machine are: the same texts on each, in turns."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.resources import files

import numpy as np

from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.inference.embedder import Embedder

_ROUNDS = 5
_DOCUMENT_WORDS, _CHUNK_WORDS = 450, 20


def demo_texts() -> list[str]:
    """Return the descriptions of `vcs-runtime demo`.

    Speed is measured on these texts, unless a user provides others.
    """
    data = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    return [data["reference"], *(version["text"] for version in data["versions"])]


def job_texts(documents: int = 27, chunks: int = 630) -> list[str]:
    """Return texts as long as those of a job: documents of 450 words, and chunks of 20.

    No two are equal.
    """
    words = " ".join(demo_texts()).split()

    def text(number: int, length: int) -> str:
        start = 7 * number  # a number ends each text: the demo's texts repeat each other
        return " ".join(
            [*(words[(start + i) % len(words)] for i in range(length - 1)), str(number)]
        )

    lengths = [_DOCUMENT_WORDS] * documents + [_CHUNK_WORDS] * chunks
    return [text(number, length) for number, length in enumerate(lengths)]


def in_turns(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median seconds of each run. All have run before."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(_ROUNDS):
        for side, run in zip(seconds, runs, strict=True):
            started = time.perf_counter()
            run()
            side.append(time.perf_counter() - started)
    return [float(np.median(side)) for side in seconds]


def seconds_of(bundle: Bundle, devices: Sequence[str]) -> dict[str, float]:
    """Return the seconds that each device takes to embed two descriptions and their sentences."""
    texts = job_texts(2, 46)
    with ExitStack() as stack:
        runs = [
            partial(stack.enter_context(Embedder.open(bundle, device)).embed, texts)
            for device in devices
        ]
        for run in runs:
            run()
        return dict(zip(devices, in_turns(runs), strict=True))
