"""Where a GPU's time goes, by PyTorch's profiler: it sees the kernels of every library in the process.

    python benchmarks/gpu/kernels.py TRACE.json      # the summary of a trace

The profiler records through CUPTI, which reports whatever runs on the GPU in this process, so ONNX Runtime's kernels
stand in the trace like PyTorch's own.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from work import Row, Unmeasured, need

# By the names of kernels; the first that fits.
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
    return next((kind for kind, pattern in _KINDS if re.search(pattern, name, re.IGNORECASE)), "other")


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
    found = [Kernel(e["name"], float(e["ts"]), float(e["dur"])) for e in events if e.get("cat") in kinds]
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
    """Return milliseconds by kind of kernel, the share of the span that was busy, and the costliest kernels."""
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
        **{f"{kind} ms": time / 1e3 for kind, time in sorted(kinds.items(), key=lambda item: -item[1])},
        "costliest": [[name[:120], round(names[name] / 1e3, 3)] for name in costly],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "trace", type=Path, help="a trace in Chrome's format, as PyTorch's profiler exports it"
    )
    print(json.dumps(summary(read_trace(parser.parse_args().trace)), indent=1))


if __name__ == "__main__":
    main()
