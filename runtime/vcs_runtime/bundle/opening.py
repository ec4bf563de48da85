"""Bundles: folders that hold a model as this runtime loads it, described and hashed by one `bundle.json`.

`bundle.json` is the only entry point: a file that it does not list is never opened, and a listed file whose
size or sha256 differs is refused before anything reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec

from vcs_runtime.bundle.integrity import verify_files
from vcs_runtime.bundle.manifest import (
    MANIFEST,
    EmbedderSpec,
    LearnedSegmenterSpec,
    Manifest,
    read_manifest,
)
from vcs_runtime.bundle.onnx_check import check_engine_graph, check_onnx
from vcs_runtime.bundle.paths import bundle_folder, home


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """The absolute path of a listed file."""
        return self.root / relative

    def sizes_beside(self, relative: str) -> dict[str, int]:
        """The bytes, by name, of the listed files in the folder of the file `relative`."""
        folder = PurePosixPath(relative).parent
        files = ((PurePosixPath(entry.path), entry.size) for entry in self.manifest.files)
        return {path.name: size for path, size in files if path.parent == folder}

    def weights_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """sha256 of the engine's weights: of the one weights file, or of the files' hashes in order."""
        ours = self.digests(spec.weights)
        return ours[0] if len(ours) == 1 else hashlib.sha256("".join(ours).encode()).hexdigest()

    def engine_hash(self, spec: EmbedderSpec) -> str:
        """sha256 of all that makes an engine's results: its settings, graph, tokenizer and weights."""
        ours = self.digests((spec.model, spec.tokenizer, *spec.weights))
        identity = json.dumps([msgspec.to_builtins(spec), ours], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()

    def weights_size(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> int:
        """Bytes of the files that hold the engine's weights."""
        return sum(entry.size for entry in self.manifest.files if entry.path in spec.weights)

    def graph_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """sha256 of what a TensorRT engine is made of: graph and weights."""
        return hashlib.sha256("".join(self.digests((spec.model, *spec.weights))).encode()).hexdigest()

    def digests(self, paths: Iterable[str]) -> list[str]:
        """The sha256 of listed files."""
        known = {entry.path: entry.sha256 for entry in self.manifest.files}
        return [known[path] for path in paths]

    def part(self, part: str) -> EmbedderSpec | LearnedSegmenterSpec | None:
        """The model that is the "embedder" or the "segmenter"; None where the bundle has none."""
        if part == "embedder":
            return self.manifest.embedder
        return self.manifest.segmenter.model if self.manifest.segmenter else None


def open_bundle(bundle: str | os.PathLike[str], *, full: bool = False) -> Bundle:
    """Read and verify a bundle: the folder `bundle`, or the embedded default for "default".

    Every listed file is checked by size and sha256 (90 MB take about 0.1 s); files of a GB and more by sha256
    once per machine, or always if `full` (`bundle.integrity`). Graphs are checked for what they refer to
    (`bundle.onnx_check`). Nothing is downloaded.
    Raises BundleError: no bundle there, a manifest that is not one, a file missing, changed or unlisted, a
    graph that refers to what is not in the bundle.
    """
    root = bundle_folder(bundle)
    manifest = read_manifest(root / MANIFEST)
    verify_files(root, manifest, None if full else home() / "verified")
    opened = Bundle(root.resolve(), manifest)
    check_graphs(opened)
    return opened


def check_graphs(bundle: Bundle) -> None:
    """No graph refers to anything but files that the bundle lists in the graph's own folder. BundleError."""
    for spec in (bundle.part("embedder"), bundle.part("segmenter")):
        if spec:
            check_onnx(bundle.path(spec.model), bundle.sizes_beside(spec.model))
    for engine in bundle.manifest.engines or ():
        check_engine_graph(bundle.path(engine.model), engine.engine.rpartition("/")[2])
