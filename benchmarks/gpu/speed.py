"""Speed sections of `measure.py`: the machine, each graph of a bundle, jobs, and PyTorch.

PyTorch's profiler shows where the time goes. It records through CUPTI, which reports everything
that runs on the GPU in this process, so its trace contains ONNX Runtime's kernels too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from weights import english, pairs
from work import SHAPES, Row, Unmeasured, Work, error_of, free_torch, need

from vcs_export.errors import ExportError
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import choose_device, import_onnxruntime
from vcs_runtime.inference.onnx_session import provider_options

_PRODUCTS = 20  # of one run
_COPIED = 1 << 32  # bytes

# Groups of kernels by their names; the first pattern that matches decides.
_KINDS = (
    ("attention", r"flash|fmha|attention|softmax"),
    ("products", r"gemm|cutlass|xmma|nvjet|cublas|splitk|matmul|sm90_|sm80_"),
    ("norms", r"layer_?norm|rms|reduce"),
    ("rotation", r"rotary"),
    ("copies", r"memcpy|memset|gather|scatter|transpose|concat|expand|slice"),
    ("element-wise", r"elementwise|cast|binary|unary|quick|quantize|gelu|silu|sigmoid|triton"),
)


@dataclass(frozen=True)
class Kernel:
    """A kernel or copy that ran: its name, and when, in microseconds."""

    name: str
    start: float
    duration: float


def kind_of(name: str) -> str:
    """Return the kind of a kernel, by its name."""
    return next(
        (kind for kind, pattern in _KINDS if re.search(pattern, name, re.IGNORECASE)), "other"
    )


def kernels_of(run: Callable[[], object], folder: Path) -> list[Kernel]:
    """Return the kernels and copies of a run; raises Unmeasured where no profiler is."""
    need("torch", "PyTorch with its profiler")
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        raise Unmeasured("PyTorch sees no GPU")
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        trace = Path(work, "trace.json")
        profiler.export_chrome_trace(str(trace))
        return read_trace(trace)


def read_trace(path: Path) -> list[Kernel]:
    """Return the kernels and copies of a trace in Chrome's format, by their start."""
    events = json.loads(path.read_text("utf-8"))["traceEvents"]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    found = [
        Kernel(e["name"], float(e["ts"]), float(e["dur"])) for e in events if e.get("cat") in kinds
    ]
    return sorted(found, key=lambda kernel: kernel.start)


def busy(kernels: list[Kernel]) -> float:
    """Return the microseconds in which at least one kernel or copy ran."""
    total, until = 0.0, float("-inf")
    for kernel in kernels:
        stop = kernel.start + kernel.duration
        total += max(0.0, stop - max(until, kernel.start))
        until = max(until, stop)
    return total


def summary(kernels: list[Kernel]) -> Row:
    """Return milliseconds by kind of kernel, the share of the span that was busy, and the costliest
    kernels."""
    if not kernels:
        return {"not measured": "the profiler saw no kernel"}
    span = max(k.start + k.duration for k in kernels) - kernels[0].start
    kinds: dict[str, float] = {}
    names: dict[str, float] = {}
    for kernel in kernels:
        kinds[kind_of(kernel.name)] = kinds.get(kind_of(kernel.name), 0.0) + kernel.duration
        names[kernel.name] = names.get(kernel.name, 0.0) + kernel.duration
    costly = sorted(names, key=lambda name: -names[name])[:12]
    return {
        "kernels": len(kernels),
        "busy": busy(kernels) / span,
        **{
            f"{kind} ms": time / 1e3
            for kind, time in sorted(kinds.items(), key=lambda item: -item[1])
        },
        "costliest": [[name[:120], round(names[name] / 1e3, 3)] for name in costly],
    }


def machine(work: Work) -> Iterator[Row]:
    """GPU, driver and versions; the rates of bare matrix products and copies; the checkpoint."""
    onnxruntime = import_onnxruntime()
    yield {"what": "onnxruntime", "version": onnxruntime.__version__}
    if work.on_gpu:
        gpu = nvidia.gpu(choose_device(work.device).index)
        yield {
            "what": "GPU",
            "name": gpu.name,
            "architecture": gpu.architecture,
            "GB": gpu.memory / 1e9,
        }
        for library in nvidia.libraries(onnxruntime):
            yield {"what": library.name, "version": library.version}
    started = time.perf_counter()
    work.checkpoint()
    bytes_ = sum(path.stat().st_size for path in work.checkpoint().glob("*.safetensors"))
    yield {"what": "weights written", "GB": bytes_ / 1e9, "seconds": time.perf_counter() - started}
    work.prepare()
    need("torch", "PyTorch")
    import torch

    yield {"what": "torch", "version": torch.__version__}
    count = 64 if work.tiny else 8192
    for name in ("fp16", "bf16"):
        rate = 2 * count**3 / work.seconds(_product(work, count, name)) * _PRODUCTS / 1e12
        yield {"what": f"matrix product {name}", "TFLOP/s": rate}
    run, rounds, started = _product(work, count, "fp16"), 0, time.perf_counter()
    while (seconds := time.perf_counter() - started) < (0.1 if work.tiny else 10):
        run(rounds)
        rounds += 1
    rate = 2 * count**3 * _PRODUCTS * rounds / seconds / 1e12
    yield {"what": "matrix product fp16, over some seconds", "TFLOP/s": rate, "seconds": seconds}
    if work.on_gpu:
        yield {"what": "copy within the GPU", "TB/s": 2 * _COPIED / work.seconds(_copy()) / 1e12}
    free_torch()


def _product(work: Work, count: int, name: str) -> Callable[[int], None]:
    """Return a run of some products of square matrices; random ones, since zeros are faster."""
    import torch

    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}[name]
    a, b = (torch.randn(count, count, device=work.torch_device).to(kind) for _ in range(2))

    def run(_: int) -> None:
        for _ in range(_PRODUCTS):
            a @ b
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    return run


def _copy() -> Callable[[int], None]:
    import torch

    source = torch.empty(_COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def run(_: int) -> None:
        target.copy_(source)
        torch.cuda.synchronize()

    return run


def correctness(work: Work) -> Iterator[Row]:
    """Vectors of 64 texts of each graph, first layers, beside PyTorch's in float32, or the first
    graph's, text by text."""
    beside, exact = work.exact()
    bundle = work.bundle(shallow=True)
    for name, graph in work.graphs(bundle).items():
        with work.embedder(graph) as embedder:
            error = error_of(embedder.embed(work.some()), exact)
            yield {"what": f"{name}, {work.precision}", "beside": beside, **error}
    work.forget(bundle)


def residual(work: Work) -> Iterator[Row]:
    """Sums of a float32 and a half matrix, as in every layer: by the fused operator, and by Cast
    and Add."""
    from onnx.parser import parse_model

    ort, device = import_onnxruntime(), choose_device(work.device)
    place = ("cuda", device.index) if work.on_gpu else ("cpu", 0)
    tokens, width, sums = (64, 64, 4) if work.tiny else (16200, 4096, 50)
    numbers = np.random.default_rng(0).standard_normal((tokens, width), np.float32)
    inputs = {
        "x0": numbers,
        "half": numbers.astype(np.float16),
        "ones": np.ones((tokens, 1), np.float32),
    }
    ways = {
        "HyperConnectionPostMix": (
            "x{1} = com.microsoft.HyperConnectionPostMix <num_branches = {2}> (x{0}, ones, half)"
        ),
        "Cast and Add": "h{0} = Cast <to = 1> (half) x{1} = Add (x{0}, h{0})",
    }
    for name, way in ways.items():
        nodes = " ".join(way.format(i, i + 1, width) for i in range(sums))
        model = parse_model(
            '<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]> residual'
            f" (float[{tokens}, {width}] x0, float16[{tokens}, {width}] half, float[{tokens}, 1]"
            f" ones) => (float[1, {width}] y) {{ {nodes} first = Constant <value_ints = [0]> () y ="
            f" Gather (x{sums}, first) }}"
        )
        options = ort.SessionOptions()
        # The graph optimiser would cast only once.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        opened = ort.InferenceSession(model.SerializeToString(), options, provider_options(device))
        binding = opened.io_binding()
        for key, value in inputs.items():
            binding.bind_ortvalue_input(key, ort.OrtValue.ortvalue_from_numpy(value, *place))
        binding.bind_output("y", *place)

        def run(_: int, opened: Any = opened, binding: Any = binding) -> None:
            opened.run_with_iobinding(binding)

        yield {"what": f"{name}, {tokens} x {width}", "ms a sum": work.seconds(run) / sums * 1e3}


def packed(work: Work) -> Iterator[Row]:
    """The graph that every provider runs."""
    [(name, graph), *_] = work.graphs(work.bundle()).items()
    yield from _graph(work, name, graph)


def varlen(work: Work) -> Iterator[Row]:
    """The graph for CUDA alone, over the same weights."""
    [_, *own] = work.graphs(work.bundle()).items()
    if not own:
        raise Unmeasured(
            "the bundle has no graph of CUDA's own"
            if work.on_gpu
            else "a CPU has no kernels for it"
        )
    for name, graph in own:
        yield from _graph(work, name, graph)


def _graph(work: Work, name: str, graph: Any) -> Iterator[Row]:
    """Load time; tokens a second and kernels of each shape; latency of the texts of one pair."""
    started = time.perf_counter()
    with work.embedder(graph) as embedder:
        embedder.embed(["a"])
        yield {"what": f"{name}: loaded, and one run", "seconds": time.perf_counter() - started}
        yield from _shapes(work, name, embedder, work.size)


def _shapes(work: Work, name: str, embedder: Any, size: Any, batches: int = 4) -> Iterator[Row]:
    for shape in (*SHAPES, "block"):
        single = shape == "one pair"
        rounds = [work.texts(shape, seed, 1 if single else batches) for seed in range(4)]
        seconds = work.seconds(lambda i, rounds=rounds: embedder.embed(rounds[i]), len(rounds) - 1)
        lengths = [len(row) for row in work.ids(rounds[1])]
        flops = sum(map(size.flops, lengths)) / seconds / 1e12
        row: Row = {
            "what": f"{name}, {shape}",
            "tokens/s": sum(lengths) / seconds,
            "TFLOP/s": flops,
        }
        if single:
            row["ms"] = seconds * 1e3
        yield row
        yield from _kernels(
            work, f"{name}, {shape}", lambda rounds=rounds: embedder.embed(rounds[0])
        )


def _kernels(work: Work, what: str, run: Callable[[], object]) -> Iterator[Row]:
    """Where the time of a run goes, or why that is not known."""
    if not work.on_gpu or work.late:
        return
    try:
        yield {"what": f"{what}: kernels", **summary(kernels_of(run, work.folder))}
    except Exception as failure:  # the rates are right without it
        outcome = "not measured" if isinstance(failure, Unmeasured) else "failed"
        yield {"what": f"{what}: kernels", outcome: str(failure)[:500]}


def precisions(work: Work) -> Iterator[Row]:
    """Other precisions beside the checkpoint's own, on the first layers: speed, and error beside
    `correctness`'s."""
    beside, exact = work.exact()
    size = work.size.shallow()
    work.wait_for("bundles")
    for precision in (work.precision, *work.others):
        started = time.perf_counter()
        try:
            bundle = work.bundle(precision, shallow=True)
        except ExportError as why:
            yield {"what": f"{precision}: bundle", "not measured": str(why)[:500]}
            continue
        yield {"what": f"{precision}: bundle opened", "seconds": time.perf_counter() - started}
        for name, graph in work.graphs(bundle).items():
            what = f"{name}, {precision}, {size.decoder.num_hidden_layers} layers"
            try:
                with work.embedder(graph) as embedder:
                    error = error_of(embedder.embed(work.some()), exact)
                    yield {"what": f"{what}: error", "beside": beside, **error}
                    yield from _shapes(work, what, embedder, size)
            except DeviceError as why:
                yield {"what": what, "not measured": str(why)[:500]}
            except Exception as failure:
                # If a graph does not run on this GPU, the other graphs may still run.
                yield {"what": what, "failed": str(failure)[:500]}
        work.forget(bundle)


def peers(work: Work) -> Iterator[Row]:
    """The published model in PyTorch without padding, as it is and compiled."""
    need("torch", "PyTorch")
    import torch
    from original import Original

    kind = torch.float16 if work.on_gpu else torch.float32  # half precision is slow on a CPU
    for name, compiled in (("PyTorch unpadded", False), ("PyTorch unpadded and compiled", True)):
        if compiled and not work.on_gpu:
            yield {"what": name, "not measured": "compiled for GPUs alone"}
            continue
        model = Original(work.checkpoint(), work.size, kind, work.torch_device, compiled=compiled)
        for shape in (*SHAPES, "block"):
            single = shape == "one pair"
            rounds = [work.ids(work.texts(shape, seed, 1 if single else 4)) for seed in range(3)]
            try:
                seconds = work.seconds(
                    lambda i, rounds=rounds, model=model: model.embed(rounds[i]), 2
                )
            except Exception as failure:  # torch.compile needs a compiler, which may be missing
                yield {"what": f"{name}, {shape}", "failed": str(failure)[-500:]}
                break
            row: Row = {"what": f"{name}, {shape}", "tokens/s": sum(map(len, rounds[1])) / seconds}
            yield {**row, "ms": seconds * 1e3} if single else row
        del model
        free_torch()


def rate_of(scorer: Any, listed: list[tuple[str, str]]) -> float:
    """Return how many pairs are scored in a second."""
    started = time.perf_counter()
    scorer.score_many(listed)
    return len(listed) / (time.perf_counter() - started)


def profiled(work: Work, scorer: Any, made: list[tuple[str, str]]) -> Row:
    """Return pairs a second and the GPU's busy share of a job."""
    what = f"{len(made)} pairs, profiled"
    if not work.on_gpu:
        return {"what": what, "not measured": "no GPU"}
    rates: list[float] = []
    try:
        kernels = kernels_of(lambda: rates.append(rate_of(scorer, made)), work.folder)
    except Unmeasured as why:
        return {"what": what, "not measured": str(why)}
    share = busy(kernels) / 1e6 / (len(made) / rates[-1])
    return {"what": what, "busy": share, "pairs/s": rates[-1], "kernels": len(kernels)}


def _threshold(bundle: Path, device: str, texts: list[str]) -> float:
    """Return a threshold at which made-up weights find a sentence in a hundred characters.

    At a real model's threshold they would find one after nearly every character.
    """
    from vcs_runtime import Segmenter

    with Segmenter.open(bundle, device) as segmenter:
        probabilities = np.concatenate(segmenter.boundary_probabilities(texts))
    return float(np.quantile(probabilities, 0.99))


def jobs(work: Work) -> Iterator[Row]:
    """The default model in jobs, alone and behind SaT of 12 layers and real size."""
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    from segmenter import write_checkpoint, write_tokenizer

    from vcs_export.families.build import Build, Quantization
    from vcs_export.families.sat import SatOptions, build_sat_bundle
    from vcs_export.write import BundleInfo
    from vcs_runtime import Scorer

    hidden, layers, vocabulary = (64, 2, 3000) if work.tiny else (768, 12, 250002)
    folder, precision = work.folder / "sat", "fp16" if work.on_gpu else "fp32"
    source = folder / "checkpoint"
    if not (source / "model.safetensors").exists():
        source.mkdir(parents=True, exist_ok=True)
        write_tokenizer(source / "tokenizer.json", vocabulary)
        write_checkpoint(source, hidden, layers, vocabulary)
    bundle, count = work.default(), 6 if work.tiny else 1000
    made = pairs(work.size, count, count, seed=8, of=english())
    if not (folder / precision).exists():
        info = BundleInfo("random-sat", "CC0-1.0", "random numbers")
        untuned = Build(source, folder / "untuned", info, Quantization(precision))
        build_sat_bundle(untuned, SatOptions(threshold=0.25))
        tuned = Build(source, folder / precision, info, Quantization(precision))
        threshold = _threshold(folder / "untuned", work.device, [text for text, _ in made[:20]])
        build_sat_bundle(tuned, SatOptions(threshold=threshold))
    path = folder / "pairs.jsonl"
    lines = [json.dumps({"reference": a, "generated": b}) + "\n" for a, b in made]
    path.write_text("".join(lines), "utf-8")
    work.wait_for("alignment")
    segmenters = {
        "the default model": "rules",
        "SaT and the default model": str(folder / precision),
    }
    for what, segmenter in segmenters.items():
        with Scorer.open(bundle, work.device, segmenter=segmenter, cache_mb=0) as scorer:
            scorer.score_many(made[: count // 4])  # warms up
            yield {"what": f"{what}, one process", "pairs/s": rate_of(scorer, made)}
            row = profiled(work, scorer, made)
            yield {**row, "what": f"{what}: {row['what']}"}
        command = f"-m vcs_runtime score --overwrite --device {work.device} --segmenter".split()
        command = [sys.executable, *command, segmenter, str(path), "-o"]
        started = time.perf_counter()
        running = []
        for number in range(4):
            output = str(folder / f"{number}.jsonl")
            running.append(subprocess.Popen([*command, output], stdout=subprocess.DEVNULL))
        codes = [process.wait() for process in running]
        row = {"pairs/s": 4 * count / (time.perf_counter() - started), "exit codes": codes}
        yield {"what": f"{what}, four processes and their start", **row}
