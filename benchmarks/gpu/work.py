"""What the sections of `measure.py` share: checkpoints, bundles, embedders, texts and remaining time."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from numpy.typing import NDArray
from weights import pairs, size, texts, write_checkpoint, write_shallow

from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import BundleError

Row = dict[str, Any]
Shape = list[int]
SHAPES = {"27x600": [600] * 27, "630x26": [26] * 630, "one pair": [600] * 2 + [26] * 46}
"""Numbers of tokens of texts: two full batches, and a pair's documents and sentences."""


class Unmeasured(Exception):
    """Something is missing for a figure; this is no failure."""


def need(package: str, name: str) -> None:
    """Raise Unmeasured if a package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise Unmeasured(f"{name} is not installed")


def error_of(vectors: NDArray[np.float32], exact: NDArray[np.float32]) -> Row:
    """How far unit vectors are from the exact ones."""
    cosines = (vectors.astype(np.float64) * exact).sum(axis=1)
    worst, mean = float(1 - cosines.min()), float(1 - cosines.mean())
    far = float(np.abs(vectors - exact).max())
    return {
        "texts": len(exact),
        "largest difference": far,
        "1 - cosine, mean": mean,
        "1 - cosine, worst": worst,
    }


class Work:
    """The model's size, its folders, the device, and the time of the section.

    Whatever is written lies below `folder`. Bundles are neither hashed nor flushed, since nobody
    keeps them.
    """

    def __init__(self, folder: Path, tiny: bool, device: str, real: Path | None = None) -> None:
        self.folder, self.tiny, self.device, self.real = folder, tiny, device, real
        self.on_gpu = device != "cpu"
        self.size = size(tiny)
        self.until = 0.0
        self.torch_device = device
        self.ahead = False
        """Whether bundles of other precisions are asked for later on, so that building them ahead
        pays."""
        self._exact: tuple[str, NDArray[np.float32]] | None = None
        self._folded: Any = None
        self._beside: dict[str, subprocess.Popen[bytes]] = {}
        self.precision = "fp16" if self.on_gpu else "fp32"
        """Precision of the whole model: the checkpoint's own, or what a CPU computes in."""
        self.others = ("bf16", "int8") if self.on_gpu else ("int8",)
        """Precisions that are compared with it on the first layers."""

    @property
    def late(self) -> bool:
        """Whether the time of the section is over."""
        return time.monotonic() > self.until

    def checkpoint(self, shallow: bool = False) -> Path:
        """Return the checkpoint, or one of its first layers alone; written when it is first asked
        for."""
        path = self.folder / ("shallow" if shallow else "whole")
        if not (path / "tokenizer.json").exists():  # written last
            whole = self.checkpoint() if shallow else None
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
            if whole:
                write_shallow(path, whole, self.size)
            else:
                write_checkpoint(path, self.size)
        return path

    def bundle(self, precision: str | None = None, shallow: bool = False) -> Any:
        """Return an opened bundle of the checkpoint; made when it is first asked for."""
        from vcs_runtime.bundle.manifest import MANIFEST, read_manifest
        from vcs_runtime.bundle.opening import Bundle

        precision = precision or self.precision
        path = self.folder / f"{precision}-{'shallow' if shallow else 'whole'}"
        if not (path / MANIFEST).exists():
            self._export(self.checkpoint(shallow), path, precision)
        return Bundle(path, read_manifest(path / MANIFEST))

    def default(self) -> Any:
        """Return the default bundle; raises Unmeasured."""
        try:
            return open_bundle("default")
        except BundleError as why:
            raise Unmeasured(str(why)) from None

    def real_pairs(self) -> list[tuple[str, str]]:
        """Return the references and generated texts of the file of real pairs, if one was named."""
        if self.real is None:
            return []
        rows = [json.loads(line) for line in self.real.read_text("utf-8").splitlines()]
        return [(row["reference"], row["generated"]) for row in rows]

    def state(self) -> Row:
        """Return the clock, power and temperature of the GPUs that NVIDIA's command shows, one
        after the other."""
        names = {"SM MHz": "clocks.sm", "W": "power.draw", "°C": "temperature.gpu"}
        command = [
            "nvidia-smi",
            f"--query-gpu={','.join(names.values())}",
            "--format=csv,noheader,nounits",
        ]
        try:
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as why:
            return {"not measured": f"nvidia-smi: {why}"[:200]}
        columns = zip(*(line.split(", ") for line in said.splitlines()), strict=True)
        return {name: " ".join(column) for name, column in zip(names, columns, strict=True)}

    def prepare(self) -> None:
        """Begin, in processes beside this one, what later sections need: a GPU leaves the processor
        idle."""
        build = [__file__, str(self.folder), "tiny" if self.tiny else "whole", self.device]
        commands = {"alignment": ["-m", "vcs_runtime", "warm-up"]} | (
            {"bundles": build} if self.ahead else {}
        )
        for name, command in commands.items():
            self._beside[name] = subprocess.Popen(
                ["nice", "-n", "19", sys.executable, *command],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def wait_for(self, name: str) -> None:
        """Wait for what `prepare` began; whatever failed there fails, with words, where it is
        used."""
        if process := self._beside.get(name):
            process.wait()

    def stop(self) -> None:
        """End the processes that `prepare` began."""
        for process in self._beside.values():
            process.kill()
            process.wait()

    def forget(self, bundle: Any) -> None:
        """Delete a bundle, so that the next has room."""
        shutil.rmtree(bundle.root)

    def _export(self, checkpoint: Path, path: Path, precision: str) -> None:
        from vcs_export import write
        from vcs_export.families.build import Build, Quantization
        from vcs_export.families.decoder import TextSettings, build_nv_embed_bundle
        from vcs_export.graph import nv_embed
        from vcs_runtime.bundle.manifest import RulesSpec

        fold = nv_embed.fold

        def unhashed(files: dict[str, Path], *_: object) -> dict[str, str]:
            return dict.fromkeys(files, "0" * 64)

        def folded(*arguments: Any) -> Any:
            self._folded = self._folded or fold(*arguments)  # the same for every bundle
            return self._folded

        # The error of a quantised bundle is measured on a CPU, not on a GPU.
        few = self.of_lengths([20] * 4)
        with (
            mock.patch.object(write, "hash_files", unhashed),
            mock.patch.object(write, "_sync"),
            mock.patch.object(nv_embed, "fold", folded),
        ):
            info = write.BundleInfo("random", "CC0-1.0", "random numbers")
            quantization = Quantization(precision, few, least_cosine=-1, most_change=1)
            build_nv_embed_bundle(
                Build(checkpoint, path, info, quantization, rules=RulesSpec("sentencex", "en")),
                TextSettings(max_tokens=4 * self.size.document if self.tiny else 4096),
            )

    def graphs(self, bundle: Any) -> dict[str, Any]:
        """Return the bundle with each of its graphs alone, by input layout: the common one, and
        CUDA's own."""
        spec = bundle.manifest.embedder
        own = getattr(spec, "cuda", None)
        if own is None:
            return {spec.layout: bundle}
        common = msgspec.structs.replace(spec, cuda=None)
        manifest = msgspec.structs.replace(bundle.manifest, embedder=common)
        found = {spec.layout: type(bundle)(bundle.root, manifest)}
        if self.on_gpu:  # a CPU has no kernels for it
            found[own.layout if own.layout != spec.layout else f"{own.layout} for CUDA"] = bundle
        return found

    @contextlib.contextmanager
    def embedder(self, bundle: Any, **options: Any) -> Iterator[Any]:
        """Open the embedder of a bundle on the device."""
        from vcs_runtime import Embedder

        with Embedder.open(bundle, self.device, **options) as embedder:
            yield embedder

    def texts(self, shape: str, seed: int = 0, batches: int = 1) -> list[str]:
        """Return the texts of a shape: "27x600" (of `batches` batches), "one pair", or the "block"
        of 40 pairs."""
        if shape == "block":
            count = 2 if self.tiny else 40
            documents = [text for pair in pairs(self.size, count, count, seed) for text in pair]
            return documents + [
                f"{part.strip()}." for text in documents for part in text.split(".") if part.strip()
            ]
        return self.of_lengths(SHAPES[shape] * batches, seed)

    def of_lengths(self, lengths: Shape, seed: int = 0) -> list[str]:
        """Return texts of these numbers of tokens; of a tiny model a tenth, and at most a dozen
        texts."""
        return texts(
            self.size, [4 + length // 10 for length in lengths[:12]] if self.tiny else lengths, seed
        )

    def some(self) -> list[str]:
        """Return 64 texts of 10 to 600 tokens, on which errors are measured."""
        return texts(
            self.size, [10 + (self.size.document - 10) * i * i // 63**2 for i in range(64)], seed=1
        )

    def ids(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of texts, as the embedder makes them."""
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [[1, *encoding.ids, 2] for encoding in encodings]

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.checkpoint() / "tokenizer.json"))

    def exact(self) -> tuple[str, NDArray[np.float32]]:
        """Return vectors of `some` by the shallow checkpoint, and their source: PyTorch in float32,
        or our first graph."""
        if self._exact:
            return self._exact
        shallow = self.size.shallow()
        if importlib.util.find_spec("torch"):
            import torch
            from original import Original

            torch.backends.cuda.matmul.allow_tf32 = False
            model = Original(self.checkpoint(True), shallow, torch.float32, self.torch_device)
            self._exact = "PyTorch in float32", model.embed(self.ids(self.some()), 4096).numpy()
            del model
            free_torch()
        else:
            [(name, graph), *_] = self.graphs(self.bundle(shallow=True)).items()
            with self.embedder(graph) as embedder:
                vectors = np.concatenate([embedder.embed([text]) for text in self.some()])
            self._exact = f"{name}, {self.precision}, text by text", vectors
        return self._exact

    def seconds(self, run: Callable[[int], object], rounds: int = 3) -> float:
        """Return the median seconds of a run, after one that warms up; fewer rounds if the time is
        over.

        `run` gets the number of the round, so that no two rounds embed the same texts.
        """
        run(0)
        seconds = []
        for number in range(1, rounds + 1):
            started = time.perf_counter()
            run(number)
            seconds.append(time.perf_counter() - started)
            if self.late:
                break
        return statistics.median(seconds)


def free_torch() -> None:
    """Give PyTorch's unused GPU memory back."""
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()


def main() -> None:
    """Build the bundles that `Work.prepare` asks for."""
    folder, model, device = sys.argv[1:]
    work = Work(Path(folder), model == "tiny", device)
    for precision in work.others:
        with contextlib.suppress(Exception):  # the section that asks for the bundle says why
            work.bundle(precision, shallow=True)


if __name__ == "__main__":
    main()
