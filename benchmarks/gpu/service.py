"""Sections of `measure.py` on what users see: pairs a second, memory, the segmenter, and dependence on a batch."""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
from kernels import busy, kernels_of
from weights import pairs
from work import Row, Unmeasured, Work

_SEGMENTER_LAYERS = 12


def score(work: Work) -> Iterator[Row]:
    """Pairs a second of a job, the GPU's busy share in it, p50 and p99 of one warm pair; references new and cached."""
    from vcs_runtime import Scorer

    count = 6 if work.tiny else 400
    bundle = work.bundle()
    started = time.perf_counter()
    work.wait_for("alignment")
    yield {"what": "waited until the alignment was compiled", "seconds": time.perf_counter() - started}
    with Scorer.open(bundle, work.device, cache_mb=0) as scorer:
        list(scorer.score_many(pairs(work.size, 2 if work.tiny else 40, 40, seed=1)))  # warms up
        made = pairs(work.size, count, count, seed=2)
        started = time.perf_counter()
        scorer.score_many(made)
        yield {
            "what": f"{count} pairs, every reference new",
            "pairs/s": count / (time.perf_counter() - started),
        }
        if not work.late:
            yield _busy(work, scorer, pairs(work.size, count // 2, count // 2, seed=3))
        yield _single(work, "every reference new", scorer, pairs(work.size, 102, 102, seed=4))
    with Scorer.open(bundle, work.device) as scorer:
        made = pairs(work.size, count, 4, seed=5)
        scorer.score_many(made[:4])
        started = time.perf_counter()
        scorer.score_many(made[4:])
        rate = (count - 4) / (time.perf_counter() - started)
        yield {"what": f"{count} pairs, references cached", "pairs/s": rate}
        reference = made[0][0]
        sides = [(reference, generated) for _, generated in pairs(work.size, 102, 102, seed=6)]
        yield _single(work, "reference cached", scorer, sides)


def _single(work: Work, what: str, scorer: Any, made: list[tuple[str, str]]) -> Row:
    seconds = []
    for reference, generated in made[:6] if work.tiny else made:
        started = time.perf_counter()
        scorer.score(reference, generated)
        seconds.append(time.perf_counter() - started)
        if work.late and len(seconds) > 12:
            break
    p50, p99 = np.quantile(seconds[2:], [0.5, 0.99]) * 1e3  # the first two warm up
    return {
        "what": f"one pair, {what}",
        "p50 ms": float(p50),
        "p99 ms": float(p99),
        "pairs": len(seconds) - 2,
    }


def _busy(work: Work, scorer: Any, made: list[tuple[str, str]]) -> Row:
    what = f"{len(made)} pairs, profiled"
    if not work.on_gpu:
        return {"what": what, "not measured": "no GPU"}
    taken = 0.0

    def run() -> None:
        nonlocal taken
        started = time.perf_counter()
        scorer.score_many(made)
        taken = time.perf_counter() - started

    try:
        kernels = kernels_of(run, work.folder)
    except Unmeasured as why:
        return {"what": what, "not measured": str(why)}
    return {
        "what": what,
        "busy": busy(kernels) / 1e6 / taken,
        "pairs/s": len(made) / taken,
        "kernels": len(kernels),
    }


def memory(work: Work) -> Iterator[Row]:
    """GPU memory with and without a limit, for both ways in which the arena grows; after release()."""
    import onnxruntime

    from vcs_runtime.inference import nvidia, onnx_session

    if not work.on_gpu:
        raise Unmeasured("no GPU")
    major = nvidia.cuda_major(onnxruntime)
    bundle = work.bundle(shallow=True)
    files = sum(entry.size for entry in bundle.manifest.files)
    rng = random.Random(0)
    batches = [
        work.of_lengths([rng.randint(10, 600) for _ in range(rng.randint(1, 60))], seed) for seed in range(60)
    ]

    def used() -> int:
        free = nvidia.free_memory(0, major)
        return nvidia.gpu(0).memory - (free or 0)

    options = onnx_session.provider_options
    for strategy in ("kNextPowerOfTwo", "kSameAsRequested"):

        def chosen(of: Any, strategy: str = strategy) -> list[tuple[str, dict[str, str]]]:
            return [
                (name, {**values, "arena_extend_strategy": strategy} if name.startswith("CUDA") else values)
                for name, values in options(of)
            ]

        for limit in (None, files / 1e9 + 6):
            before = used()
            with (
                mock.patch.object(onnx_session, "provider_options", chosen),
                work.embedder(bundle, gpu_memory_gb=limit) as embedder,
            ):
                embedder.embed(["a"])
                loaded, peak = used() - before, 0
                started = time.perf_counter()
                for texts in batches:
                    embedder.embed(texts)
                    peak = max(peak, used() - before)
                seconds = time.perf_counter() - started
                tokens = embedder._budget.tokens
                embedder.release()
                released = used() - before
            yield {
                "what": f"{strategy}, {'no limit' if limit is None else f'limit {limit:.1f} GB'}",
                "files GB": files / 1e9, "loaded GB": loaded / 1e9, "peak GB": peak / 1e9,
                "tokens of a batch at the end": tokens, "released GB": released / 1e9,
                "batches/s": len(batches) / seconds,
            }  # fmt: skip
    work.forget(bundle)


def segmenter(work: Work) -> Iterator[Row]:
    """SaT of 12 layers and real size, against wtpsplit where it is installed."""
    from segmenter import made_up_words, open_side, write_checkpoint, write_tokenizer

    from vcs_export.families.sat import build_sat_bundle
    from vcs_export.write import BundleInfo
    from vcs_runtime import Segmenter

    hidden, layers, vocabulary = (64, 2, 3000) if work.tiny else (768, _SEGMENTER_LAYERS, 250002)
    source = work.folder / "sat/checkpoint"
    if not (source / "model.safetensors").exists():
        source.mkdir(parents=True, exist_ok=True)
        write_tokenizer(source / "tokenizer.json", vocabulary)
        write_checkpoint(source, hidden, layers, vocabulary)
    rng = random.Random(0)
    common = made_up_words(500, rng)
    rounds = [[" ".join(rng.choices(common, k=400)) for _ in range(2 if work.tiny else 64)] for _ in range(4)]
    for precision in ("fp16",) if work.on_gpu else ("fp32",):
        bundle = work.folder / f"sat/{precision}"
        if not bundle.exists():
            build_sat_bundle(
                source, bundle, BundleInfo("random-sat", "CC0-1.0", "random numbers"), threshold=0.25,
                precision=precision,
            )  # fmt: skip
        with Segmenter.open(bundle, work.device) as mine:
            seconds = work.seconds(lambda i, mine=mine: mine.split(rounds[i]))
        yield {"what": f"SaT, {layers} layers, {precision}", "texts of 400 words/s": len(rounds[0]) / seconds}
    try:
        split, _ = open_side(
            "wtpsplit torch", work.folder / "sat", work.torch_device if work.on_gpu else None
        )
    except ImportError as failure:
        yield {"what": "wtpsplit", "not measured": f"wtpsplit is not installed ({failure})"}
        return
    seconds = work.seconds(lambda i: split(rounds[i]))
    name = f"wtpsplit, {layers} layers, {'fp16' if work.on_gpu else 'fp32'}"
    yield {"what": name, "texts of 400 words/s": len(rounds[0]) / seconds}


def batches(work: Work) -> Iterator[Row]:
    """How far a text's vector depends on the texts beside it, without and with `batch_invariant`."""
    from vcs_runtime import Embedder

    texts = work.some()
    bundle = work.bundle(shallow=True)
    ways: list[Row] = [{}]
    if "batch_invariant" in inspect.signature(Embedder.open).parameters:
        ways.append({"batch_invariant": True})
    else:
        yield {"what": "batch_invariant", "not measured": "this version has no such option"}
    for name, graph in work.graphs(bundle).items():
        for options in ways:
            what = f"{name}, alone and among others{', batch_invariant' if options else ''}"
            with work.embedder(graph, **options) as embedder:
                together = embedder.embed(texts)
                alone = np.concatenate([embedder.embed([text]) for text in texts])
                seconds = work.seconds(lambda i, embedder=embedder: embedder.embed(work.texts("block", i)), 2)
            tokens = sum(map(len, work.ids(work.texts("block", 1))))
            yield {
                "what": what,
                "largest difference": float(np.abs(together - alone).max()),
                "equal to the bit": int(np.all(together == alone, axis=1).sum()),
                "texts": len(texts),
                "tokens/s": tokens / seconds,
            }
    work.forget(bundle)
