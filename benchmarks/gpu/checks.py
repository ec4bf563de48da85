"""Sections of `measure.py`: memory, error, attention, engines."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
from work import Row, Unmeasured, Work, error_of


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
    from random_model import texts

    from vcs_runtime.inference import device, session

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
    from vcs_runtime.inference import embedder as module
    from vcs_runtime.inference.batching import batches

    texts, wanted = work.exact()
    with work.embedder() as embedder:
        found = embedder.embed(texts)
        yield {"what": f"{work.precision} against float32 in PyTorch", **error_of(found, wanted)}
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


def engines(work: Work) -> Iterator[Row]:
    from vcs_export.checks.tensorrt_checks import check_engines
    from vcs_runtime.bundle.opening import open_bundle
    from vcs_runtime.errors import DeviceError

    bundle = open_bundle(work.bundle("tensorrt"))
    try:
        for check in check_engines(bundle):
            yield {"what": check.name, "holds": check.holds, "detail": check.detail}
        for device in (work.device, "tensorrt:0"):
            started = time.perf_counter()
            with work.embedder("tensorrt", device=device) as embedder:
                embedder.embed(["a"])
            yield {"what": f"loaded, and one run, {device}", "seconds": time.perf_counter() - started}
    except DeviceError as failure:
        raise Unmeasured(str(failure)) from None
