"""Bundles: folders that hold a model as this runtime loads it, described and hashed by one `bundle.json`.

`bundle.json` is the only entry point: a file that it does not list is never opened, and a listed file whose
size or sha256 differs is refused before anything reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from vcs_runtime.errors import BundleError
from vcs_runtime.integrity import sha256_of, verify_files
from vcs_runtime.manifest import (
    MANIFEST,
    BoundarySpec,
    EmbedderSpec,
    EngineSpec,
    FileEntry,
    Loss,
    Manifest,
    RulesSpec,
    SegmenterSpec,
    read_manifest,
)
from vcs_runtime.onnx_check import check_engine_graph, check_onnx

# Who opens bundles finds here what bundles are made of, too.
__all__ = [
    "MANIFEST",
    "BoundarySpec",
    "Bundle",
    "EmbedderSpec",
    "EngineSpec",
    "FileEntry",
    "Loss",
    "Manifest",
    "RulesSpec",
    "SegmenterSpec",
    "bundle_folder",
    "check_graphs",
    "default_bundle_path",
    "home",
    "open_bundle",
    "read_manifest",
    "sha256_of",
    "verify_files",
]


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

    def weights_hash(self, spec: EmbedderSpec | BoundarySpec) -> str:
        """sha256 of the engine's weights: of the one weights file, or of the files' hashes in order."""
        ours = self.digests(spec.weights)
        return ours[0] if len(ours) == 1 else hashlib.sha256("".join(ours).encode()).hexdigest()

    def engine_hash(self, spec: EmbedderSpec) -> str:
        """sha256 of all that makes an engine's results: its settings, graph, tokenizer and weights."""
        ours = self.digests((spec.model, spec.tokenizer, *spec.weights))
        return hashlib.sha256(json.dumps([asdict(spec), ours], sort_keys=True).encode()).hexdigest()

    def weights_size(self, spec: EmbedderSpec | BoundarySpec) -> int:
        """Bytes of the files that hold the engine's weights."""
        return sum(entry.size for entry in self.manifest.files if entry.path in spec.weights)

    def graph_hash(self, spec: EmbedderSpec | BoundarySpec) -> str:
        """sha256 of what a TensorRT engine is made of: graph and weights."""
        return hashlib.sha256("".join(self.digests((spec.model, *spec.weights))).encode()).hexdigest()

    def digests(self, paths: Iterable[str]) -> list[str]:
        """The sha256 of listed files."""
        known = {entry.path: entry.sha256 for entry in self.manifest.files}
        return [known[path] for path in paths]

    def part(self, part: str) -> EmbedderSpec | BoundarySpec | None:
        """The model that is the "embedder" or the "segmenter"; None where the bundle has none."""
        if part == "embedder":
            return self.manifest.embedder
        return self.manifest.segmenter.model if self.manifest.segmenter else None


def home() -> Path:
    """Where bundles are kept: `$VCS_RUNTIME_HOME`, else `vcs-runtime` in the user's cache folder."""
    if override := os.environ.get("VCS_RUNTIME_HOME"):
        return Path(override).expanduser()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "vcs-runtime"


def default_bundle_path() -> Path:
    """Where `vcs-runtime fetch default` puts the embedded default."""
    return home() / "bundles" / "default"


def bundle_folder(bundle: str | os.PathLike[str]) -> Path:
    """The folder of a bundle: `bundle` itself, or that of the embedded default for "default".

    Raises BundleError if there is none, or no `bundle.json` in it.
    """
    if os.fspath(bundle) == "default":
        root = default_bundle_path()
        if not (root / MANIFEST).is_file():
            raise BundleError(
                f"the default bundle is not installed in {root}: run `vcs-runtime fetch default` "
                "(or, without a network, `vcs-runtime fetch default --from WHEEL_OR_FOLDER`)"
            )
    else:
        root = Path(bundle)
        if not root.is_dir():
            raise BundleError(f"bundle {root}: no such folder")
        if not (root / MANIFEST).is_file() or (root / MANIFEST).is_symlink():
            raise BundleError(f"bundle {root}: no {MANIFEST} in it")
    return root


def open_bundle(bundle: str | os.PathLike[str], *, full: bool = False) -> Bundle:
    """Read and verify a bundle: the folder `bundle`, or the embedded default for "default".

    Every listed file is checked by size and sha256 (90 MB take about 0.1 s); files of a GB and more by sha256
    once per machine, or always if `full` (`vcs_runtime.integrity`). Graphs are checked for what they refer to
    (`vcs_runtime.onnx_check`). Nothing is downloaded.
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
