"""With `batch_invariant` the CUDA provider launches the same for a text in every batch."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints.decoder import FAMILIES
from support.cuda_stand_ins import (
    DryGpu,
    Kernel,
    Log,
    Product,
    WatchedSession,
    mark,
    watch_sessions,
)
from support.gpu_bundles import GpuBundles, texts_of
from vcs_runtime.bundle.opening import open_bundle

ALONE = [9, 26, 64, 65, 240]
OTHERS = [*range(70, 250, 9), *(5 + (7 * i) % 60 for i in range(300))]
Launches = list[Kernel | Product]


def runs(bundle: str, part: str) -> list[list[tuple[str, Any]]]:
    """Run each text alone, and then all of them among others: with `batch_invariant`, and without.

    Each run is a section of the log. Return the names of the sections and the shapes of their
    inputs.
    """
    sessions = watch_sessions()
    return [_runs(sessions, bundle, part, invariant) for invariant in (True, False)]


def _runs(
    sessions: list[WatchedSession], bundle: str, part: str, invariant: bool
) -> list[tuple[str, Any]]:
    from vcs_runtime import Embedder, Segmenter

    texts, others = texts_of(ALONE), texts_of(OTHERS)
    if part == "embedder":
        embedder = Embedder.open(bundle, "cuda:0", batch_invariant=invariant)
        session, compute = embedder._session, embedder.embed
    else:
        segmenter = Segmenter.open(bundle, "cuda:0", use="learned", batch_invariant=invariant)
        session, compute = segmenter._boundary_model()._session, segmenter.split
    watched = sessions[-1]
    sections: list[tuple[str, Any]] = []
    run = session.run
    label = ""

    def marked(inputs: Any, *shown: Any) -> Any:
        mark(name := f"{label}, invariant {invariant}, run {len(sections)}")
        output = run(inputs, *shown)
        mark(f"after {name}")
        sections.append((name, tuple(sorted(watched.runs[-1].items()))))
        return output

    session.run = marked
    for text in texts:
        label = "alone"
        compute([text])
    label = "among others"
    compute([*others, *texts])
    return sections


def launches(log: Log, sections: list[tuple[str, Any]]) -> dict[str, dict[Any, list[Launches]]]:
    """Return the launches of each run, by where it was and by the shapes of its inputs."""
    found: dict[str, dict[Any, list[Launches]]] = {
        "alone": defaultdict(list),
        "among others": defaultdict(list),
    }
    for name, shapes in sections:
        assert log[name].launches
        found[name.split(",")[0]][shapes].append(log[name].launches)
    return found


@pytest.fixture(scope="session")
def default_bundle() -> Path:
    return open_bundle("default").root


KINDS = [
    *("varlen fp16", "varlen int8", "packed bf16", "padded", "SaT fp16"),
    *("qwen3 fp16", "embedding-gemma bf16", "nemotron fp16"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_meets_the_same_launches_alone_and_among_others(
    dry_gpu: DryGpu, bundles: GpuBundles, default_bundle: Path, kind: str
) -> None:
    name, _, precision = kind.partition(" ")
    part = "segmenter" if name == "SaT" else "embedder"
    if name == "padded":
        bundle = default_bundle
    elif name == "SaT":
        bundle = bundles.sat(precision)
    elif name in FAMILIES:
        bundle = bundles.decoder(name, precision)
    else:
        bundle = bundles.nv_embed(precision)
    done = dry_gpu.call(runs, str(bundle), part)
    found, plain = (launches(done.log, sections) for sections in done.value)
    alone, among = found["alone"], found["among others"]
    assert alone.keys() <= among.keys()
    for shapes, each in alone.items():
        assert all(run == each[0] for run in each + among[shapes])
    # Without it no text meets the shapes that it meets alone.
    assert not plain["alone"].keys() & plain["among others"].keys()
