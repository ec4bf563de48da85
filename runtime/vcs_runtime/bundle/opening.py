"""Opening a bundle: a folder of models with a `bundle.json` that describes and hashes them.

`bundle.json` is the only entry point. Files that it does not list are never opened. A listed file
whose size or sha256 differs is refused before anything reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from vcs_runtime.bundle.integrity import record_folder, verify_files
from vcs_runtime.bundle.manifest import (
    MANIFEST,
    PARTS,
    EmbedderSpec,
    LearnedSegmenterSpec,
    Manifest,
    Part,
    read_manifest,
)
from vcs_runtime.bundle.onnx_check import check_onnx
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.errors import BundleError

#: Number of hexadecimal digits of a hash in a signature.
DIGITS: Final = 4
# Settings that name a model, place its files or record its quality. They change no vector.
_NOTES = frozenset(
    {
        "name",
        "model",
        "weights",
        "tokenizer",
        "cuda",
        "quantization_error",
        "agreement",
        "fitness",
        "calibration",
        "proof",
    }
)


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk: its folder and the contents of its `bundle.json`."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """Return the absolute path of a listed file."""
        return self.root / relative

    def sizes_beside(self, relative: str) -> dict[str, int]:
        """Return the size in bytes of each listed file in the folder of `relative`, by name."""
        folder = PurePosixPath(relative).parent
        sizes: dict[str, int] = {}
        for entry in self.manifest.files:
            path = PurePosixPath(entry.path)
            if path.parent == folder:
                sizes[path.name] = entry.size
        return sizes

    def model_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return the sha256 over a model's settings, graph, tokenizer and weights.

        The hash does not depend on names, paths and notes: files count by their bytes. It is the
        same on all devices. `cuda_hash` covers the graph that only CUDA runs.
        """
        settings = {}
        for field in msgspec.structs.fields(spec):
            value = getattr(spec, field.name)
            # Settings at their default are left out, so that a new setting changes no hash of an
            # existing bundle.
            if field.name not in _NOTES and value != field.default:
                settings[field.encode_name] = value
        identity = [settings, self.digests((spec.model, spec.tokenizer, *spec.weights))]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def cuda_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str | None:
        """Return the hash of a model's graph for CUDA; None if it has none."""
        if spec.cuda is None:
            return None
        [digest] = self.digests([spec.cuda.model])
        return hashlib.sha256(digest.encode()).hexdigest()

    def identity(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return a model's name and the first digits of its hash, as in the signature."""
        return f"{spec.name}@{self.model_hash(spec)[:DIGITS]}"

    def weights_size(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> int:
        """Return the size of a model's weights in bytes.

        If models share a file, only the bytes that this model reads count.
        """
        sizes = self.sizes_beside(spec.model)
        external = sum(check_onnx(self.path(spec.model), sizes).values())
        if spec.model in spec.weights:  # the graph contains weights
            return external + sizes[PurePosixPath(spec.model).name]
        return external

    def graph_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return the sha256 of graph and weights, from which a TensorRT engine is built."""
        digests = self.digests((spec.model, *spec.weights))
        return hashlib.sha256("".join(digests).encode()).hexdigest()

    def digests(self, paths: Iterable[str]) -> list[str]:
        """Return the sha256 of listed files, in the order of `paths`."""
        sha256_of = {entry.path: entry.sha256 for entry in self.manifest.files}
        return [sha256_of[path] for path in paths]

    def part(self, part: str) -> EmbedderSpec | LearnedSegmenterSpec | None:
        """Return the settings of the "embedder" or the "segmenter"; None if the bundle lacks it."""
        if part == "embedder":
            return self.manifest.embedder
        if self.manifest.segmenter:
            return self.manifest.segmenter.model
        return None


def models_of(spec: EmbedderSpec | LearnedSegmenterSpec) -> tuple[str, ...]:
    """Return the paths of a model's graphs: the main graph, then a graph for CUDA if it exists."""
    if spec.cuda:
        return spec.model, spec.cuda.model
    return (spec.model,)


def unproved(bundle: Bundle) -> list[Part]:
    """Return the parts of a bundle that have no proof by the built-in texts of this version."""
    return [
        part
        for part in PARTS
        if (spec := bundle.part(part)) and not (spec.proof and spec.proof.is_current)
    ]


def open_bundle(bundle: str | os.PathLike[str], *, full: bool = False) -> Bundle:
    """Read and verify a bundle; nothing is downloaded.

    Every listed file is checked by size and sha256, which takes about 0.1 s for 90 MB. Files of 1
    GiB or more are hashed once per machine (`bundle.integrity`), and each time with `full`. Graphs
    may refer only to listed files (`bundle.onnx_check`). Raises BundleError.
    """
    root = bundle_folder(bundle)
    manifest = read_manifest(root / MANIFEST)
    verify_files(root, manifest, None if full else record_folder())
    opened = Bundle(root.resolve(), manifest)
    check_graphs(opened)
    return opened


def check_graphs(bundle: Bundle) -> None:
    """Check that graphs refer only to listed weights in their folder; raises BundleError."""
    for spec in (bundle.part("embedder"), bundle.part("segmenter")):
        if spec:
            for model in models_of(spec):
                _check_graph(bundle, model, spec.weights)


def _check_graph(bundle: Bundle, model: str, weights: Iterable[str]) -> None:
    folder = PurePosixPath(model).parent
    external = check_onnx(bundle.path(model), bundle.sizes_beside(model))
    # The hash of a model covers the listed weights: no other file may hold numbers.
    unlisted = {f"{folder / name}" for name in external} - set(weights)
    if unlisted:
        raise BundleError(
            f"{bundle.path(model)}: external data in {min(unlisted)!r}, which {MANIFEST}"
            " does not list as weights"
        )
