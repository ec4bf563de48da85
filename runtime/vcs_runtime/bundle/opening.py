"""Opening a bundle: a folder of models as this runtime loads them, described and hashed by its `bundle.json`.

`bundle.json` is the only entry point. A file that it does not list is never opened. A listed file whose size
or sha256 differs is refused before anything reads it.
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
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.bundle.records import record_folder


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on disk: its folder and the contents of its `bundle.json`."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """Return the absolute path of a listed file."""
        return self.root / relative

    def sizes_beside(self, relative: str) -> dict[str, int]:
        """Return the sizes in bytes, by name, of the listed files in the folder of the file `relative`."""
        folder = PurePosixPath(relative).parent
        files = ((PurePosixPath(entry.path), entry.size) for entry in self.manifest.files)
        return {path.name: size for path, size in files if path.parent == folder}

    def weights_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return the sha256 of a model's weights file, or of the hashes of several weights files in order."""
        ours = self.digests(spec.weights)
        return ours[0] if len(ours) == 1 else hashlib.sha256("".join(ours).encode()).hexdigest()

    def engine_hash(self, spec: EmbedderSpec, model: str) -> str:
        """Return the sha256 of what decides an embedder's vectors: settings, tokenizer, weights, and a graph.

        `model` is the path of the graph that runs, of those that `spec` names.
        """
        ours = self.digests((model, spec.tokenizer, *spec.weights))
        settings = {key: value for key, value in msgspec.to_builtins(spec).items() if key != "cuda"}
        identity = json.dumps([settings, ours], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()

    def weights_size(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> int:
        """Return the bytes of a model's weights: of a file that models share, what this one reads of it."""
        sizes = self.sizes_beside(spec.model)
        own = sizes[PurePosixPath(spec.model).name] if spec.model in spec.weights else 0
        return own + sum(check_onnx(self.path(spec.model), sizes).values())

    def graph_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return the sha256 of what a TensorRT engine is built from: graph and weights."""
        return hashlib.sha256("".join(self.digests((spec.model, *spec.weights))).encode()).hexdigest()

    def digests(self, paths: Iterable[str]) -> list[str]:
        """Return the sha256 of listed files, in the order of `paths`."""
        known = {entry.path: entry.sha256 for entry in self.manifest.files}
        return [known[path] for path in paths]

    def part(self, part: str) -> EmbedderSpec | LearnedSegmenterSpec | None:
        """Return the settings of the "embedder" or the "segmenter"; None if the bundle lacks it."""
        if part == "embedder":
            return self.manifest.embedder
        return self.manifest.segmenter.model if self.manifest.segmenter else None


def models_of(spec: EmbedderSpec | LearnedSegmenterSpec) -> tuple[str, ...]:
    """Return the paths of a model's graphs: its own, and the one for CUDA if there is one."""
    cuda = spec.cuda if isinstance(spec, EmbedderSpec) else None
    return (spec.model, cuda.model) if cuda else (spec.model,)


def open_bundle(bundle: str | os.PathLike[str], *, full: bool = False) -> Bundle:
    """Read and verify a bundle; nothing is downloaded.

    Every listed file is checked by size and sha256, which takes about 0.1 s for 90 MB. Files of 1 GiB or more
    are hashed once per machine (`bundle.integrity`). Graphs are checked for what they refer to
    (`bundle.onnx_check`).

    Parameters
    ----------
    bundle
        Folder of the bundle, or "default" for the embedded default.
    full
        Hash large files too, even if this machine has hashed them before.

    Returns
    -------
    Bundle
        The verified bundle.

    Raises
    ------
    BundleError
        The bundle or a file is missing, damaged or not listed; `bundle.json` breaks a rule; or a graph refers
        to files outside the bundle.
    """
    root = bundle_folder(bundle)
    manifest = read_manifest(root / MANIFEST)
    verify_files(root, manifest, None if full else record_folder())
    opened = Bundle(root.resolve(), manifest)
    check_graphs(opened)
    return opened


def check_graphs(bundle: Bundle) -> None:
    """Check that graphs refer only to listed files in their own folder; raises BundleError."""
    for spec in (bundle.part("embedder"), bundle.part("segmenter")):
        if spec:
            for model in models_of(spec):
                check_onnx(bundle.path(model), bundle.sizes_beside(model))
    for engine in bundle.manifest.engines or ():
        check_engine_graph(bundle.path(engine.model), engine.engine.rpartition("/")[2])
