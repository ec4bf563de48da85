"""What the sections of `measure.py` work with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Unmeasured(Exception):
    """What is missing for a figure; no failure."""


def error_of(found: Any, wanted: Any) -> Row:
    """How far unit vectors are from those that are wanted."""
    cosines = (found * wanted).sum(axis=1)
    return {
        "texts": len(wanted),
        "largest difference": float(abs(found - wanted).max()),
        "1 - cosine, mean": float(1 - cosines.mean()),
        "1 - cosine, worst": float(1 - cosines.min()),
    }


class Work:
    """What a section works with: the model's size, its folders, the device, the time it has."""

    def __init__(self, folder: Path, tiny: bool, precision: str, seconds: float) -> None:
        from random_model import size

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
        from vcs_export.families.nv_embed import Quantization, TextSettings, build_nv_embed_bundle
        from vcs_export.write import BundleInfo
        from vcs_runtime.bundle.manifest import RulesSpec, SegmenterSpec

        precision = precision or self.precision
        path = self.folder / f"{precision}-{target}"
        if not path.exists():
            # Of FP8, ranges and loss are measured on the CPU: on few texts, which do for random weights.
            few = self.texts("chunks")[:8]
            build_nv_embed_bundle(
                self.checkpoint, path, BundleInfo("random", "CC0-1.0", "random numbers"),
                Quantization(precision, texts=few, calibration=few, least_cosine=-1),
                text=TextSettings(max_tokens=4 * self.size.document), target_runtime=target,
                segmenter=SegmenterSpec(RulesSpec("sentencex", "en")),
            )  # fmt: skip
        return path

    def embedder(self, target: str = "ort", precision: str | None = None, device: str | None = None) -> Any:
        from vcs_runtime import Embedder

        return Embedder.open(self.bundle(target, precision), device or self.device)

    def exact(self) -> tuple[list[str], Any]:
        """Short texts of the mix, and their vectors by PyTorch in float32."""
        import torch
        from random_model import Original

        texts = self.texts("mix")[: 20 if self.tiny else 400]
        rows = self.ids(texts)
        short = sorted(range(len(rows)), key=lambda row: len(rows[row]))[: len(rows) // 2]
        torch.backends.cuda.matmul.allow_tf32 = False
        model = Original(self.checkpoint, self.size, torch.float32, self.torch_device, "sdpa")
        wanted = model.embed([rows[i] for i in short], 4096).numpy()
        del model
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        return [texts[i] for i in short], wanted

    def texts(self, kind: str, seed: int = 0) -> list[str]:
        from random_model import texts

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
