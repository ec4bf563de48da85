"""Sections of `measure.py`: the machine, tokens and pairs a second, beside PyTorch and wtpsplit."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import numpy as np
from work import Row, Unmeasured, Work

_SEGMENTER_LAYERS = 12


def machine(work: Work) -> Iterator[Row]:
    import onnxruntime
    import torch

    from vcs_runtime.inference import nvidia
    from vcs_runtime.inference.device import choose_device

    yield {"what": "versions", "torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    if not work.tiny:
        choose_device(work.device)
        found = nvidia.gpu(0)
        yield {
            "what": "GPU",
            "name": found.name,
            "architecture": found.architecture,
            "GB": found.memory / 1e9,
        }
        for library in nvidia.libraries(nvidia.cuda_major(onnxruntime), tensorrt=True):
            yield {"what": library.name, "version": library.version}
    count = 64 if work.tiny else 8192
    for name in ("bf16", "fp16"):
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[name]
        a, b = (torch.randn(count, count, device=work.torch_device).to(kind) for _ in range(2))
        yield {"what": f"matrix product {name}", "TFLOP/s": _products(work, lambda a=a, b=b: a @ b, count)}
    if not work.tiny:
        one = torch.ones((), device="cuda")
        a, b = (torch.randn(count, count, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
        run = lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)  # noqa: E731
        yield {"what": "matrix product fp8", "TFLOP/s": _products(work, run, count)}


def _products(work: Work, run: Callable[[], object], count: int) -> float:
    import torch

    def many() -> None:
        for _ in range(20):
            run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return 20 * 2 * count**3 / work.rate(many) / 1e12


def speed(work: Work) -> Iterator[Row]:
    for target, layout in (("ort", "packed"), ("tensorrt", "padded")):
        with work.embedder(target) as embedder:
            for kind in ("mix", "chunks", "documents"):
                texts = work.texts(kind)
                rows = work.ids(texts)
                seconds = work.rate(lambda texts=texts, embedder=embedder: embedder.embed(texts))
                flops = sum(work.size.flops(len(row)) for row in rows)
                yield {
                    "what": f"{kind}, {layout}, {work.precision}",
                    "tokens/s": sum(map(len, rows)) / seconds,
                    "TFLOP/s": flops / seconds / 1e12,
                }


def pytorch(work: Work) -> Iterator[Row]:
    """Of the other side's own work, which is more a token than ours; compared by tokens a second."""
    import torch
    from random_model import Original

    kind_of = torch.float32 if work.tiny else torch.bfloat16  # half precision is slow on a CPU
    for attention in ("eager", "sdpa", "unpadded"):
        model = Original(work.checkpoint, work.size, kind_of, work.torch_device, attention)
        for kind in ("mix", "chunks", "documents"):
            rows = work.ids(work.texts(kind))
            seconds = work.rate(lambda rows=rows, model=model: model.embed(rows), rounds=2)
            yield {"what": f"{kind}, PyTorch {attention}", "tokens/s": sum(map(len, rows)) / seconds}
        del model
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def pairs(work: Work) -> Iterator[Row]:
    from random_model import pairs as make

    from vcs_runtime import Scorer

    count = 6 if work.tiny else 200
    with Scorer.open(work.bundle(), work.device, memory_mb=0) as scorer:
        work_pairs = make(work.size, count, count)
        rate = count / work.rate(lambda: scorer.score_many(work_pairs), rounds=1)
        yield {"what": "pairs, every reference new", "pairs/s": rate}
    with Scorer.open(work.bundle(), work.device) as scorer:
        shared = make(work.size, 5 * count, 4)
        scorer.score_many(shared[:4])
        started = time.perf_counter()
        scorer.score_many(shared[4:])
        yield {
            "what": "pairs, references cached",
            "pairs/s": (5 * count - 4) / (time.perf_counter() - started),
        }
        for name, memory in (("new", False), ("cached", True)):
            seconds = []
            reference = shared[0][0]
            sides = shared[0][1:] if memory else shared[0]
            flops = sum(
                work.size.flops(len(row)) for text in sides for row in work.ids([text, *text.split(".")])
            )
            for i, (_, generated) in enumerate(make(work.size, 2 * count, 1)):
                mine = reference if memory else f"{reference} {generated[:9]} {i}."
                started = time.perf_counter()
                scorer.score(mine, f"{generated} {name}.")
                seconds.append(time.perf_counter() - started)
                if work.late and len(seconds) > 2:  # the first two warm up
                    break
            p50, p99 = np.quantile(seconds[2:], [0.5, 0.99]) * 1e3
            yield {
                "what": f"one warm pair, reference {name}", "p50 ms": p50, "p99 ms": p99, "TFLOP": flops / 1e12,
            }  # fmt: skip


def sat(work: Work) -> Iterator[Row]:
    from segmenter import made_up_words, open_side, write_checkpoint, write_tokenizer

    from vcs_export.families.sat import build_sat_bundle
    from vcs_export.write import BundleInfo
    from vcs_runtime import Segmenter

    hidden, layers, vocabulary = (64, 2, 3000) if work.tiny else (768, _SEGMENTER_LAYERS, 250002)
    source = work.folder / "sat/checkpoint"
    if not source.exists():
        source.mkdir(parents=True)
        write_checkpoint(source, hidden, layers, vocabulary)
        write_tokenizer(source / "tokenizer.json", vocabulary)
    rng = random.Random(0)
    common = made_up_words(500, rng)
    texts = [" ".join(rng.choices(common, k=400)) for _ in range(2 if work.tiny else 64)]
    for precision in ("fp32",) if work.tiny else ("fp16", "fp32"):
        bundle = work.folder / f"sat/{precision}"
        if not bundle.exists():
            build_sat_bundle(
                source, bundle, BundleInfo("random-sat", "CC0-1.0", "random numbers"), threshold=0.25,
                precision=precision,
            )  # fmt: skip
        with Segmenter.open(bundle, work.device) as segmenter:
            seconds = work.rate(lambda segmenter=segmenter: segmenter.split(texts))
        yield {"what": f"SaT, {layers} layers, {precision}", "texts of 400 words/s": len(texts) / seconds}
    try:
        split, _ = open_side("wtpsplit torch", work.folder / "sat", None if work.tiny else "cuda")
    except ImportError as failure:
        raise Unmeasured(f"wtpsplit is not installed ({failure})") from None
    name = "wtpsplit, " + ("fp32" if work.tiny else "fp16")
    yield {"what": name, "texts of 400 words/s": len(texts) / work.rate(lambda: split(texts))}
