"""Merging two bundles: the embedder of one and the segmenter of the other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from msgspec.structs import replace

from vcs_runtime.bundle.integrity import copy_checked, ends_of, link
from vcs_runtime.bundle.manifest import (
    MANIFEST,
    SCHEMA,
    EmbedderSpec,
    FileEntry,
    LearnedSegmenterSpec,
    Manifest,
    read_manifest,
)
from vcs_runtime.bundle.onnx_check import check_onnx
from vcs_runtime.bundle.opening import Bundle, models_of, open_bundle
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.errors import BundleError
from vcs_runtime.util.atomic import flush, new_folder, refuse_input_as_output

_LICENCES = "LICENSES"

_Spec = TypeVar("_Spec", EmbedderSpec, LearnedSegmenterSpec)


def merge(
    embedder: str | os.PathLike[str],
    segmenter: str | os.PathLike[str],
    target: Path,
    *,
    name: str | None = None,
) -> None:
    """Build a bundle from the embedder of one bundle and the segmenter of another.

    Files are hard links where the file system allows, otherwise copies. Files that belong to no
    model, such as licences, are included from both bundles.
    """
    refuse_input_as_output(target, bundle_folder(embedder), bundle_folder(segmenter))
    first, second = open_bundle(embedder), open_bundle(segmenter)
    if first.manifest.embedder is None:
        raise BundleError(f"bundle {first.root}: it holds no embedder")
    if second.manifest.segmenter is None:
        raise BundleError(f"bundle {second.root}: it holds no segmenter")
    merged = _Merged()
    embedder_spec = merged.model(first, first.manifest.embedder, "embedder")
    segmenter_spec = second.manifest.segmenter
    if segmenter_spec.model:
        role = "embedder" if merged.has_weights_of(second, segmenter_spec.model) else "segmenter"
        model = merged.model(second, segmenter_spec.model, role)
        segmenter_spec = replace(segmenter_spec, model=model)
    merged.others(first, "embedder")
    merged.others(second, "segmenter")
    manifest = Manifest(
        name=name or _joined("+", first.manifest.name, second.manifest.name),
        licence=_joined(" AND ", first.manifest.licence, second.manifest.licence),
        source=_joined("; ", first.manifest.source, second.manifest.source),
        files=tuple(merged.files[path].entry for path in sorted(merged.files)),
        embedder=embedder_spec,
        segmenter=segmenter_spec,
        schema=SCHEMA,
    )
    with new_folder(target) as folder:
        for path, item in merged.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(item.source, folder / path, item.entry)
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8", newline="\n")
        read_manifest(folder / MANIFEST)


def _joined(separator: str, first: str, second: str) -> str:
    """Return both texts, or one if they are equal."""
    return first if first == second else first + separator + second


@dataclass(frozen=True)
class _Item:
    """A file of a merged bundle: its source on disk, and its entry in the new manifest."""

    source: Path
    entry: FileEntry


class _Merged:
    """The files of a merged bundle, by their new paths."""

    def __init__(self) -> None:
        self.files: dict[str, _Item] = {}

    def model(self, bundle: Bundle, spec: _Spec, role: str) -> _Spec:
        """Add a model's files to the folder `role`, and return its settings with the new paths."""
        paths = {path: f"{role}/{PurePosixPath(path).name}" for path in _files_of(bundle, spec)}
        for old, new in paths.items():
            if not self._add(bundle, old, new):
                raise BundleError(f"bundle {bundle.root}: two of its files would be called {new}")
        if spec.cuda:
            spec = replace(spec, cuda=replace(spec.cuda, model=paths[spec.cuda.model]))
        return replace(
            spec,
            model=paths[spec.model],
            tokenizer=paths[spec.tokenizer],
            weights=tuple(paths[path] for path in spec.weights),
        )

    def has_weights_of(self, bundle: Bundle, spec: LearnedSegmenterSpec) -> bool:
        """Return whether the embedder's folder has weights of a segmenter, and no conflicting file.

        A conflicting file has the name of a segmenter's file, but other content.

        Such a segmenter is put into the embedder's folder, because graphs refer only to files in
        their folder. The shared weights are then stored once.
        """
        has_weights = False
        for path in _files_of(bundle, spec):
            item = self.files.get(f"embedder/{PurePosixPath(path).name}")
            if item is None:
                continue
            if [item.entry.sha256] != bundle.digests([path]):
                return False
            if path in spec.weights:
                has_weights = True
        return has_weights

    def others(self, bundle: Bundle, role: str) -> None:
        """Add the files that belong to no model, under another name if theirs is taken."""
        of_models: set[str] = set()
        for spec in (bundle.part("embedder"), bundle.part("segmenter")):
            if spec:
                of_models.update(_files_of(bundle, spec))
        for entry in bundle.manifest.files:
            if entry.path in of_models or self._add(bundle, entry.path, entry.path):
                continue
            other_path = f"{_LICENCES}/{role}/{PurePosixPath(entry.path).name}"
            self._add(bundle, entry.path, other_path)

    def _add(self, bundle: Bundle, old: str, new: str) -> bool:
        """Add a file and return True, unless another file has its new path."""
        [entry] = [entry for entry in bundle.manifest.files if entry.path == old]
        source = bundle.path(old)
        item = _Item(source, replace(entry, path=new, ends=ends_of(source)))
        return self.files.setdefault(new, item).entry.sha256 == entry.sha256


def _files_of(bundle: Bundle, spec: EmbedderSpec | LearnedSegmenterSpec) -> list[str]:
    """Return the paths of a model's files, in its settings and in the graphs' external data."""
    files = {spec.tokenizer, *spec.weights}
    for model in models_of(spec):
        files.add(model)
        folder = PurePosixPath(model).parent
        for name in check_onnx(bundle.path(model), bundle.sizes_beside(model)):
            files.add(str(folder / name))
    return sorted(files)


def _link_or_copy(source: Path, target: Path, entry: FileEntry) -> None:
    try:
        link(source, target)
    except OSError:  # another file system, or one without links
        with source.open("rb") as file, target.open("xb") as output:
            copy_checked(file, output, entry, os.fspath(source), lambda _: None)
            flush(output)
