"""Opening a bundle: a folder of models that its `bundle.json` describes and hashes.

`bundle.json` is the only entry point. A file that it does not list is never opened. A listed file
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
    EmbedderSpec,
    LearnedSegmenterSpec,
    Manifest,
    read_manifest,
)
from vcs_runtime.bundle.onnx_check import check_onnx
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.errors import BundleError

#: Number of hexadecimal digits of a hash in a signature.
DIGITS: Final = 4
# Settings that name a model, place its files or record how well it does: none changes a number.
_NOTES = frozenset(
    {"name", "model", "weights", "tokenizer", "cuda", "quantization_error", "agreement"}
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
        files = ((PurePosixPath(entry.path), entry.size) for entry in self.manifest.files)
        return {path.name: size for path, size in files if path.parent == folder}

    def model_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return the sha256 over a model's settings, graph, tokenizer and weights.

        Names, paths and notes leave it as it is, because files count by their bytes. So does what
        only one device runs, for which there is `device_hash`: the model has one hash on all
        devices.
        """
        settings = {
            field.encode_name: getattr(spec, field.name)
            for field in msgspec.structs.fields(spec)
            # A setting at its default is left out: a new one changes no hash of what exists.
            if field.name not in _NOTES and getattr(spec, field.name) != field.default
        }
        identity = [settings, self.digests((spec.model, spec.tokenizer, *spec.weights))]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def device_hash(
        self, spec: EmbedderSpec | LearnedSegmenterSpec, provider_name: str, engines: Iterable[str]
    ) -> str | None:
        """Return the hash of the files that only this execution provider runs.

        These files are the graph for CUDA, and engines with the given sha256s. The result is None
        if only the model's main graph runs.
        """
        own = list(engines)
        if provider_name == "ort-cuda" and spec.cuda:
            own += self.digests([spec.cuda.model])
        return hashlib.sha256("".join(own).encode()).hexdigest() if own else None

    def identity(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return a model's name and the first digits of its hash, as in the signature."""
        return f"{spec.name}@{self.model_hash(spec)[:DIGITS]}"

    def weights_size(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> int:
        """Return the size of a model's weights in bytes.

        If models share a file, only the bytes that this model reads count.
        """
        sizes = self.sizes_beside(spec.model)
        own = sizes[PurePosixPath(spec.model).name] if spec.model in spec.weights else 0
        return own + sum(check_onnx(self.path(spec.model), sizes).values())

    def graph_hash(self, spec: EmbedderSpec | LearnedSegmenterSpec) -> str:
        """Return the sha256 of what a TensorRT engine is built from: graph and weights."""
        return hashlib.sha256(
            "".join(self.digests((spec.model, *spec.weights))).encode()
        ).hexdigest()

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
    return (spec.model, spec.cuda.model) if spec.cuda else (spec.model,)


def open_bundle(bundle: str | os.PathLike[str], *, full: bool = False) -> Bundle:
    """Read and verify a bundle; nothing is downloaded.

    Every listed file is checked by size and sha256, which takes about 0.1 s for 90 MB. Files of 1
    GiB or more are hashed once per machine (`bundle.integrity`), with `full` each time. Graphs are
    checked for what they refer to (`bundle.onnx_check`). Raises BundleError.
    """
    root = bundle_folder(bundle)
    manifest = read_manifest(root / MANIFEST)
    verify_files(root, manifest, None if full else record_folder())
    opened = Bundle(root.resolve(), manifest)
    check_graphs(opened)
    return opened


def check_graphs(bundle: Bundle) -> None:
    """Check that graphs refer only to listed weights in their own folder; raises BundleError."""
    for spec in (bundle.part("embedder"), bundle.part("segmenter")):
        if spec:
            for model in models_of(spec):
                folder = PurePosixPath(model).parent
                named = check_onnx(bundle.path(model), bundle.sizes_beside(model))
                # The hash of a model covers these files: no other may hold numbers.
                if other := {f"{folder / name}" for name in named} - set(spec.weights):
                    raise BundleError(
                        f"{bundle.path(model)}: external data in {min(other)!r}, which {MANIFEST}"
                        " does not list as weights"
                    )
