"""Bundles: folders that hold a model as this runtime loads it, described and hashed by one `bundle.json`.

`bundle.json` is the only entry point: a file that it does not list is never opened, and a listed file whose
size or sha256 differs is refused before anything reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from vcs_runtime.errors import BundleError
from vcs_runtime.manifest import (
    MANIFEST,
    BoundarySpec,
    EmbedderSpec,
    FileEntry,
    Loss,
    Manifest,
    RulesSpec,
    SegmenterSpec,
    read_manifest,
)

# Who opens bundles finds here what bundles are made of, too.
__all__ = [
    "MANIFEST",
    "BoundarySpec",
    "Bundle",
    "EmbedderSpec",
    "FileEntry",
    "Loss",
    "Manifest",
    "RulesSpec",
    "SegmenterSpec",
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

    def weights_hash(self, spec: EmbedderSpec | BoundarySpec) -> str:
        """sha256 of the engine's weights: of the one weights file, or of the files' hashes in order."""
        digests = {entry.path: entry.sha256 for entry in self.manifest.files}
        ours = [digests[path] for path in spec.weights]
        return ours[0] if len(ours) == 1 else hashlib.sha256("".join(ours).encode()).hexdigest()

    def engine_hash(self, spec: EmbedderSpec) -> str:
        """sha256 of all that makes an engine's results: its settings, graph, tokenizer and weights."""
        digests = {entry.path: entry.sha256 for entry in self.manifest.files}
        ours = [digests[path] for path in (spec.model, spec.tokenizer, *spec.weights)]
        return hashlib.sha256(json.dumps([asdict(spec), ours], sort_keys=True).encode()).hexdigest()


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


def open_bundle(bundle: str | os.PathLike[str]) -> Bundle:
    """Read and verify a bundle: the folder `bundle`, or the embedded default for "default".

    Every listed file is checked by size and sha256 (90 MB take about 0.1 s). Nothing is downloaded.
    Raises BundleError: no bundle there, a manifest that is not one, a file missing, changed or unlisted.
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
        if not (root / MANIFEST).is_file():
            raise BundleError(f"bundle {root}: no {MANIFEST} in it")
    manifest = read_manifest(root / MANIFEST)
    verify_files(root, manifest)
    return Bundle(root.resolve(), manifest)


def verify_files(root: Path, manifest: Manifest) -> None:
    """Check that the folder holds exactly the listed files, byte for byte. Raises BundleError."""
    listed = {entry.path for entry in manifest.files}
    for folder, folders, names in os.walk(root):
        for name in [*names, *(name for name in folders if os.path.islink(os.path.join(folder, name)))]:
            relative = Path(folder, name).relative_to(root).as_posix()
            if relative != MANIFEST and relative not in listed:
                raise BundleError(f"bundle {root}: {relative} is not listed in {MANIFEST}")
    for entry in manifest.files:
        path = root / entry.path
        if path.is_symlink() or not path.is_file():
            raise BundleError(f"bundle {root}: {entry.path} is missing or not a regular file")
        if (size := path.stat().st_size) != entry.size:
            raise BundleError(f"bundle {root}: {entry.path} has {size} bytes, {MANIFEST} says {entry.size}")
        if sha256_of(path) != entry.sha256:
            raise BundleError(
                f"bundle {root}: {entry.path} is damaged: its sha256 is not the one in {MANIFEST}"
            )


def sha256_of(path: Path) -> str:
    """The sha256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
