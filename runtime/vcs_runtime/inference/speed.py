"""Comparing the speed of this machine's devices: the same texts on each, in turns."""

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
    """Return distinct texts with lengths as in a job: documents of 450 words, and chunks of 20."""
    words = " ".join(demo_texts()).split()
    lengths = [_DOCUMENT_WORDS] * documents + [_CHUNK_WORDS] * chunks
    texts = []
    for number, length in enumerate(lengths):
        start = 7 * number
        text = [words[(start + i) % len(words)] for i in range(length - 1)]
        text.append(str(number))  # makes texts distinct: the demo's texts repeat each other
        texts.append(" ".join(text))
    return texts


def in_turns(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Return the median seconds of each run. The caller has called every run once before."""
    seconds = np.empty((_ROUNDS, len(runs)))
    for turn in range(_ROUNDS):
        for column, run in enumerate(runs):
            started = time.perf_counter()
            run()
            seconds[turn, column] = time.perf_counter() - started
    medians: list[float] = np.median(seconds, axis=0).tolist()
    return medians


def seconds_of(bundle: Bundle, devices: Sequence[str]) -> dict[str, float]:
    """Return the seconds that each device takes to embed two descriptions and their sentences."""
    texts = job_texts(2, 46)
    with ExitStack() as stack:
        runs = []
        for device in devices:
            embedder = stack.enter_context(Embedder.open(bundle, device))
            runs.append(partial(embedder.embed, texts))
        for run in runs:
            run()
        return dict(zip(devices, in_turns(runs), strict=True))
