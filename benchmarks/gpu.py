"""What this runtime does on a GPU, of one size: builds what it needs, checks it, times it, in one call.

    python benchmarks/gpu.py [--work DIR] [--minutes 9] [--only SECTION ...] [--precision fp16 bf16]
    python benchmarks/gpu.py --tiny        # the same script on a CPU and a small model: that it runs, no figures

Needs PyTorch and `vcs-runtime[gpu,export]`. Weights are random, in NV-Embed-v2's published layout and size (15.7 GB),
made there; nothing is downloaded. The other side is the published forward pass in PyTorch (`gpu_model.py`).

Each section runs in a process of its own, so that its memory is its own, with a share of the time that is left.
One that fails, or for which something is missing, is a line that says so; the rest goes on. Sections:

    machine     GPU, driver, versions, the rate of bare matrix products (bf16, fp16, fp8)
    speed       tokens a second, and share of that rate, on chunks, documents and a mix, packed and padded
    pytorch     the same texts through the published model: eager, fused attention, without padding
    pairs       pairs a second without and with cached references; p50 and p99 of one warm pair
    memory      peak against the weights, after release(), growth over 2,000 batches, each way to keep the arena
    error       against PyTorch in float32; how far a text's vector depends on its batch, and without mixing
    attention   which attention ONNX Runtime took
    fp8         ONNX Runtime's matrix product with FP8 weights, by size of the product, against fp16
    sat         12 layers at real size, against wtpsplit where it is installed
    engines     TensorRT: build, load, parity, speed, where its libraries are

A table goes to standard output, JSON to benchmarks/results/ (of --tiny: to the work folder).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]
_KEEP = 60.0  # seconds that a section gets at least
_SEGMENTER_LAYERS = 12


class Unmeasured(Exception):
    """What is missing for a figure; no failure."""


class Work:
    """What a section works with: the model's size, its folders, the device, the time it has."""

    def __init__(self, folder: Path, tiny: bool, precision: str, seconds: float) -> None:
        from gpu_model import size

        self.folder, self.tiny, self.precision = folder, tiny, precision
        self.size = size(tiny)
        self.until = time.monotonic() + seconds
        self.device = "cpu" if tiny else "cuda:0"
        self.torch_device = "cpu" if tiny else "cuda"
        self.checkpoint = folder / "checkpoint"

    @property
    def late(self) -> bool:
        return time.monotonic() > self.until

    def bundle(self, target: str = "ort", precision: str | None = None) -> Path:
        """A bundle of the checkpoint, made when it is asked for first."""
        from vcs_export.nv_embed import build_nv_embed_bundle
        from vcs_runtime.bundle import RulesSpec, SegmenterSpec

        precision = precision or self.precision
        path = self.folder / f"{precision}-{target}"
        if not path.exists():
            build_nv_embed_bundle(
                self.checkpoint, path, name="random", licence="CC0-1.0", source="random numbers",
                precision=precision, target_runtime=target, segmenter=SegmenterSpec(RulesSpec("sentencex", "en")),
                max_tokens=4 * self.size.document,
            )  # fmt: skip
        return path

    def embedder(self, target: str = "ort", precision: str | None = None) -> Any:
        from vcs_runtime import Embedder

        return Embedder.open(self.bundle(target, precision), self.device)

    def texts(self, kind: str, seed: int = 0) -> list[str]:
        from gpu_model import texts

        return texts(self.size, kind, 600 if self.tiny else 200_000, seed)

    def ids(self, texts: list[str]) -> list[list[int]]:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(self.checkpoint / "tokenizer.json"))
        return [[1, *encoding.ids, 2] for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]

    def rate(self, run: Callable[[], object], rounds: int = 3) -> float:
        """Median seconds of a run, after one that warms up; fewer rounds where time runs out."""
        run()
        seconds = []
        for _ in range(rounds):
            started = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - started)
            if self.late:
                break
        return statistics.median(seconds)


def machine(work: Work) -> Iterator[Row]:
    import onnxruntime
    import torch

    from vcs_runtime import nvidia
    from vcs_runtime.device import choose_device

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
    from gpu_model import Original

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
    from gpu_model import pairs as make

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
            for i, (_, generated) in enumerate(make(work.size, 2 * count, 1)):
                mine = reference if memory else f"{reference} {generated[:9]} {i}."
                started = time.perf_counter()
                scorer.score(mine, f"{generated} {name}.")
                seconds.append(time.perf_counter() - started)
                if work.late:
                    break
            p50, p99 = np.quantile(seconds[2:], [0.5, 0.99]) * 1e3
            yield {"what": f"one warm pair, reference {name}", "p50 ms": p50, "p99 ms": p99}


class _Used:
    """Memory of the GPU that is in use, by whomever, watched while it is in `with`."""

    def __init__(self) -> None:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @staticmethod
    def now() -> int:
        import torch

        free, total = torch.cuda.mem_get_info()
        return int(total - free)

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.peak = max(self.peak, self.now())

    def __enter__(self) -> _Used:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()


def memory(work: Work) -> Iterator[Row]:
    from gpu_model import texts

    from vcs_runtime import device, session

    if work.tiny:
        raise Unmeasured("memory of a GPU")
    weights = sum(path.stat().st_size for path in work.checkpoint.glob("*.safetensors"))
    before = _Used.now()
    options = device.provider_options
    for strategy, every in (
        ("kSameAsRequested", 32),
        ("kSameAsRequested", 1),
        ("kSameAsRequested", 0),
        ("kNextPowerOfTwo", 0),
    ):
        session._SHRINK_EVERY = every or 1 << 60
        device.provider_options = lambda chosen, strategy=strategy: [
            (name, {**given, "arena_extend_strategy": strategy}) for name, given in options(chosen)
        ]
        with work.embedder() as embedder, _Used() as used:
            loaded = _Used.now() - before
            embedder.embed(work.texts("mix"))
            first = _Used.now() - before
            started = time.perf_counter()
            for batch in range(2000):
                embedder.embed(texts(work.size, "mix", 200 + 37 * batch % 3000, batch))
                if work.late:
                    break
            seconds = time.perf_counter() - started
            after = _Used.now() - before
            embedder.release()
            released = _Used.now() - before
        yield {
            "what": f"arena {strategy}, shrunk every {every or 'never'}", "batches": batch + 1,
            "batches/s": (batch + 1) / seconds, "weights GB": weights / 1e9, "loaded GB": loaded / 1e9,
            "peak GB": (used.peak - before) / 1e9, "grown GB": (after - first) / 1e9, "released GB": released / 1e9,
        }  # fmt: skip


def error(work: Work) -> Iterator[Row]:
    import torch
    from gpu_model import Original

    from vcs_runtime import embedder as module
    from vcs_runtime.packing import batches

    texts = work.texts("mix")[: 20 if work.tiny else 400]
    rows = work.ids(texts)
    short = sorted(range(len(rows)), key=lambda row: len(rows[row]))[: len(rows) // 2]
    texts, rows = [texts[i] for i in short], [rows[i] for i in short]
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Original(work.checkpoint, work.size, torch.float32, work.torch_device, "sdpa")
    wanted = model.embed(rows, 4096).numpy()
    del model
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    with work.embedder() as embedder:
        found = embedder.embed(texts)
        cosines = np.sum(found * wanted, axis=1)
        yield {
            "what": f"{work.precision} against float32 in PyTorch", "texts": len(texts),
            "largest difference": float(np.abs(found - wanted).max()),
            "1 - cosine, mean": float(1 - cosines.mean()), "1 - cosine, worst": float(1 - cosines.min()),
        }  # fmt: skip
        some = slice(0, 16)
        for name, mixed in (("as it is run", True), ("texts of one length in a batch", False)):
            module.batches = lambda *a, mixed=mixed, **k: batches(*a, **{**k, "mixed": mixed and k["mixed"]})
            together = embedder.embed(texts)[some]
            alone = np.concatenate([embedder.embed([text]) for text in texts[some]])
            module.batches = batches
            yield {
                "what": f"alone against in a batch, {name}",
                "largest difference": float(np.abs(together - alone).max()),
                "equal to the bit": f"{np.all(together == alone, axis=1).sum()} of {len(alone)}",
            }


def attention(work: Work) -> Iterator[Row]:
    """By ONNX Runtime's own word, printed where this variable is set."""
    script = "import sys; from vcs_runtime import Embedder; Embedder.open(*sys.argv[1:3]).embed(['ba be bi', 'bo'])"
    done = subprocess.run(
        [sys.executable, "-c", script, str(work.bundle()), work.device], capture_output=True, text=True, check=True,
        env={**os.environ, "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO": "1"},
    )  # fmt: skip
    lines = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if "SdpaKernel" in line or "ATTENTION" in line
    ]
    if not lines:
        raise Unmeasured("ONNX Runtime printed nothing of its attention")
    for line in dict.fromkeys(lines):
        yield {"what": line.strip(), "times": lines.count(line)}


def fp8(work: Work) -> Iterator[Row]:
    """`com.microsoft.MatMulBlockQuantizedFp8Weight`: CUDA alone has it, from ONNX Runtime 1.31 on at the latest."""
    import onnx_ir as ir
    import onnxruntime as ort

    if work.tiny:
        raise Unmeasured("ONNX Runtime has no FP8 product on a CPU")
    rng = np.random.default_rng(0)
    half = ir.DataType.FLOAT16
    for rows, out, inputs in ((960, 14336, 4096), (16384, 14336, 4096), (16384, 4096, 14336)):
        numbers = rng.standard_normal((out, inputs), np.float32) * np.float32(0.02)
        scales = np.abs(numbers.reshape(out, -1, 128)).max(2) / np.float32(448)
        levels = (numbers.reshape(out, -1, 128) / scales[:, :, None]).reshape(out, inputs)
        stored = levels.astype(ir.DataType.FLOAT8E4M3FN.numpy())
        x = rng.standard_normal((rows, inputs), np.float32).astype(np.float16)
        wanted = x[:64].astype(np.float32) @ numbers.T
        for name in ("fp16", "fp8 weights", "fp8 weights and inputs"):
            value = ir.Value(name="x", shape=ir.Shape(("rows", inputs)), type=ir.TensorType(half))
            held = {"w": numbers.astype(np.float16)} if name == "fp16" else {"w": stored, "scales": scales}
            if name.endswith("inputs"):
                held["x_scale"] = np.array(6 / 448, np.float32)
            values = [
                ir.Value(name=key, const_value=ir.tensor(array, name=key), shape=ir.Shape(array.shape),
                         type=ir.TensorType(ir.tensor(array).dtype)) for key, array in held.items()
            ]  # fmt: skip
            y = ir.Value(name="y", shape=ir.Shape(("rows", out)), type=ir.TensorType(half))
            if name == "fp16":
                node = ir.node("Gemm", [value, *values], {"transB": 1}, outputs=[y])
            else:
                node = ir.node(
                    "MatMulBlockQuantizedFp8Weight", [value, *values], {"block_size": 128},
                    domain="com.microsoft", outputs=[y],
                )  # fmt: skip
            graph = ir.Graph(
                [value], [y], nodes=[node], initializers=values, opset_imports={"": 21, "com.microsoft": 1}
            )
            row: Row = {"what": f"{rows} x {inputs} x {out}, {name}"}
            try:
                model = ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString()
                session = ort.InferenceSession(model, providers=[("CUDAExecutionProvider", {})])
                binding = session.io_binding()
                binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x, "cuda", 0))
                binding.bind_output("y", "cuda", 0)

                def run(session: Any = session, binding: Any = binding) -> None:
                    for _ in range(20):
                        session.run_with_iobinding(binding)
                    binding.synchronize_outputs()

                seconds = work.rate(run) / 20
                found = binding.copy_outputs_to_cpu()[0][:64].astype(np.float32)
                row["TFLOP/s"] = 2 * rows * out * inputs / seconds / 1e12
                row["error"] = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
            except Exception as failure:  # one form that is not there says nothing of the others
                row["failed"] = str(failure)[:200]
            yield row


def sat(work: Work) -> Iterator[Row]:
    from segmenter import made_up_words, open_side, write_checkpoint, write_tokenizer

    from vcs_export.sat import build_sat_bundle
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
                source, bundle, name="random-sat", threshold=0.25, licence="CC0-1.0", source="random numbers",
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


def engines(work: Work) -> Iterator[Row]:
    from vcs_export.engines import check_engines
    from vcs_runtime.bundle import open_bundle
    from vcs_runtime.errors import DeviceError

    bundle = open_bundle(work.bundle("tensorrt"))
    try:
        for check in check_engines(bundle):
            yield {"what": check.name, "holds": check.holds, "detail": check.detail}
    except DeviceError as failure:
        raise Unmeasured(str(failure)) from None


SECTIONS: dict[str, Callable[[Work], Iterator[Row]]] = {
    section.__name__: section
    for section in (machine, speed, pytorch, pairs, error, memory, attention, fp8, sat, engines)
}


def child(path: Path) -> None:
    """Run one section; a line of JSON a row, at once, so that what was measured before a failure stays."""
    told = json.loads(path.read_text("utf-8"))
    work = Work(Path(told["folder"]), told["tiny"], told["precision"], told["seconds"])
    rows = SECTIONS[told["section"]](work)
    try:
        for row in rows:
            print("row " + json.dumps(row), flush=True)
    except Unmeasured as why:
        print("row " + json.dumps({"what": "not measured", "why": str(why)}), flush=True)


def run_section(name: str, folder: Path, tiny: bool, precision: str, seconds: float) -> list[Row]:
    path = folder / "work.json"
    path.write_text(
        json.dumps(
            {"section": name, "folder": str(folder), "tiny": tiny, "precision": precision, "seconds": seconds}
        )
    )
    started = time.monotonic()
    command = [sys.executable, __file__, "--child", str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=2 * seconds + _KEEP
        )
        out, failure = done.stdout, done.stderr if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        out, failure = (late.stdout or b"").decode(), f"stopped after {late.timeout:.0f} s"
    rows = [json.loads(line[4:]) for line in out.splitlines() if line.startswith("row ")]
    if failure:
        rows.append({"what": "failed", "error": failure.strip()[-1500:]})
    return [{"section": name, "precision": precision, **row} for row in rows] + [
        {"section": name, "precision": precision, "what": "seconds", "value": time.monotonic() - started}
    ]


def show(rows: list[Row]) -> None:
    for row in rows:
        figures = [
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in row.items()
            if key not in ("section", "what", "precision")
        ]
        print(f"{row['section']:10} {row['what']:46} {'; '.join(figures)}", flush=True)


def _shares(rows: list[Row]) -> list[Row]:
    """Shares of the machine's matrix rate, and ratios to PyTorch, of what was measured of both."""
    peaks = {
        row["what"].split()[-1]: row["TFLOP/s"] for row in rows if row["what"].startswith("matrix product")
    }
    theirs = {
        row["what"]: row["tokens/s"] for row in rows if row["section"] == "pytorch" and "tokens/s" in row
    }
    found = []
    for row in rows:
        if row["section"] != "speed" or "tokens/s" not in row:
            continue
        ratios = {
            f"times PyTorch {attention}": row["tokens/s"] / theirs[key]
            for attention in ("eager", "sdpa", "unpadded")
            if (key := f"{row['what'].split(',')[0]}, PyTorch {attention}") in theirs
        }
        if peak := peaks.get(row["precision"]):
            ratios["share of the matrix rate"] = row["TFLOP/s"] / peak
        found.append({"section": "ratios", "what": row["what"], "precision": row["precision"], **ratios})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    parser.add_argument("--work", type=Path, help="folder for weights and bundles (50 GB); kept if given")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all sections; what is left is shared")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--precision", nargs="+", choices=["fp16", "bf16"], default=["fp16"])
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    from gpu_model import size, write_checkpoint

    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = arguments.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        rows: list[Row] = []
        if not (folder / "checkpoint/tokenizer.json").exists():
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
            (folder / "checkpoint").mkdir()
            write_checkpoint(folder / "checkpoint", size(arguments.tiny))
            rows.append({"section": "weights", "what": "seconds", "value": time.monotonic() - started})
            show(rows)
        precisions = ["fp32"] if arguments.tiny else arguments.precision
        jobs = [(name, precision) for precision in precisions for name in arguments.only]
        # What does not depend on the precision of our graph is run once.
        jobs = [
            job
            for job in jobs
            if job[1] == precisions[0] or job[0] in ("speed", "pairs", "error", "attention")
        ]
        for done, (name, precision) in enumerate(jobs):
            left = 60 * arguments.minutes - (time.monotonic() - started)
            seconds = max(left / (len(jobs) - done), 5.0)
            fresh = (
                run_section(name, folder, arguments.tiny, precision, seconds)
                if left > 0
                else [
                    {"section": name, "precision": precision, "what": "not measured", "why": "no time left"}
                ]
            )
            show(fresh)
            rows += fresh
        shares = [] if arguments.tiny else _shares(rows)
        show(shares)
        stamp = time.strftime("%Y-%m-%dT%H-%M")
        target = arguments.json or (folder if arguments.tiny else RESULTS) / f"gpu-{stamp}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(
            json.dumps({"date": stamp, "tiny": arguments.tiny, "rows": rows + shares}, indent=1) + "\n"
        )
        print(target)


if __name__ == "__main__":
    main()
