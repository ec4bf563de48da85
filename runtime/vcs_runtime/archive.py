"""Bundles as one file, and two bundles as one.

A packed bundle is a plain tar file: `bundle.json`, then the files in its order, with nothing of the machine
that packed it (owners, times and modes are fixed), uncompressed, since weights hardly shrink. So equal
bundles are equal files, any `tar` can read one, and `unpack` need not believe what a file says about itself:
it compares each header with the one that `pack` writes, and each content with the manifest's hash.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TypeVar

from vcs_runtime.bundle import Bundle, bundle_folder, check_graphs, open_bundle
from vcs_runtime.errors import BundleError, InputError
from vcs_runtime.integrity import check_listing, ends_of
from vcs_runtime.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    BoundarySpec,
    EmbedderSpec,
    FileEntry,
    Manifest,
    read_manifest,
)
from vcs_runtime.onnx_check import check_onnx

Advance = Callable[[int], None]
"""Told how many bytes have been dealt with since the last call."""

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
_AT_ONCE = 4 << 20
_LICENCES = "LICENSES"

_Spec = TypeVar("_Spec", EmbedderSpec, BoundarySpec)


def pack(bundle: str | os.PathLike[str], output: Path, *, force: bool = False, advance: Advance) -> None:
    """Write a bundle into the one file `output`; every byte is checked on the way.

    Raises BundleError; InputError if `output` exists and `force` is not given; OSError.
    """
    root = bundle_folder(bundle)
    manifest = read_manifest(root / MANIFEST)
    check_listing(root, manifest)
    check_graphs(Bundle(root, manifest))
    if output.exists() and not force:
        raise InputError(f"{output} exists already (--force replaces it)")
    partial = output.with_name(f".{output.name}.partial-{secrets.token_hex(8)}")
    try:
        with partial.open("xb") as file:
            content = (root / MANIFEST).read_bytes()
            file.write(_header(MANIFEST, len(content)) + content + _padding(len(content)))
            for entry in manifest.files:
                file.write(_header(entry.path, entry.size))
                with (root / entry.path).open("rb") as source:
                    _copy(source, file, entry, f"bundle {root}", advance)
                file.write(_padding(entry.size))
            file.write(_END)
            _flush(file)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)


def unpack(source: Path, target: Path, *, advance: Advance) -> None:
    """Unpack the file `source` into the new folder `target`, which is there whole, or not at all.

    Nothing is written but what the manifest in the file lists, and nothing is kept unless all of it is right.
    Raises BundleError for a file that is anything else than `pack` writes; InputError if `target` exists;
    OSError.
    """
    what = os.fspath(source)
    with source.open("rb") as file, _new_folder(target) as folder:
        try:
            _unpack(file, folder, what, advance)
        except BundleError as error:  # the folder that it may speak of will be gone
            raise type(error)(str(error).replace(os.fspath(folder), what)) from None


def _unpack(file: BinaryIO, folder: Path, what: str, advance: Advance) -> None:
    manifest = _unpack_manifest(file, folder / MANIFEST, what)
    total = sum(entry.size for entry in manifest.files)
    if total > (free := shutil.disk_usage(folder).free):
        raise InputError(f"{what}: {total / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")
    for entry in manifest.files:
        _expect_header(file, entry.path, entry.size, what)
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as output:
            _copy(file, output, entry, what, advance)
            _flush(output)
        _expect(file, _padding(entry.size), what)
    _expect(file, _END, what)
    if file.read(1):
        raise BundleError(f"{what}: something follows the end of the bundle")
    check_graphs(Bundle(folder, manifest))


def make(
    embedder: str | os.PathLike[str],
    segmenter: str | os.PathLike[str],
    target: Path,
    *,
    name: str | None = None,
) -> None:
    """Build the bundle `target` from the embedder of one bundle and the segmenter of another.

    Files are hard links where the file system allows, else copies. Files that belong to neither engine of
    their bundle, licences first of all, come along. `name`: of the new bundle, else both names.
    Raises BundleError; InputError if `target` exists; OSError.
    """
    first, second = open_bundle(embedder), open_bundle(segmenter)
    if first.manifest.embedder is None:
        raise BundleError(f"bundle {first.root}: it holds no embedder")
    if second.manifest.segmenter is None:
        raise BundleError(f"bundle {second.root}: it holds no segmenter")
    merged = _Merged()
    embedder_spec = merged.engine(first, first.manifest.embedder, "embedder")
    segmenter_spec = second.manifest.segmenter
    if segmenter_spec.model:
        model = merged.engine(second, segmenter_spec.model, "segmenter")
        segmenter_spec = replace(segmenter_spec, model=model)
    merged.others(first, "embedder")
    merged.others(second, "segmenter")
    both = first.manifest, second.manifest
    manifest = Manifest(
        name=name or "+".join(dict.fromkeys(m.name for m in both)),
        licence=" AND ".join(dict.fromkeys(m.licence for m in both)),
        source="; ".join(dict.fromkeys(m.source for m in both)),
        files=tuple(merged.files[path].entry for path in sorted(merged.files)),
        embedder=embedder_spec,
        segmenter=segmenter_spec,
    )
    with _new_folder(target) as folder:
        for path, item in merged.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(item.source, folder / path, item.entry)
        (folder / MANIFEST).write_text(manifest.to_json(), encoding="utf-8", newline="\n")
        read_manifest(folder / MANIFEST)


@dataclass(frozen=True)
class _Item:
    source: Path
    entry: FileEntry


class _Merged:
    """The files of a bundle that is made of others, by their new paths."""

    def __init__(self) -> None:
        self.files: dict[str, _Item] = {}

    def engine(self, bundle: Bundle, spec: _Spec, role: str) -> _Spec:
        """Take an engine's files into the folder `role`; returns its settings with the new paths."""
        paths = {path: f"{role}/{PurePosixPath(path).name}" for path in _files_of(bundle, spec)}
        for old, new in paths.items():
            if not self._add(bundle, old, new):
                raise BundleError(f"bundle {bundle.root}: two of its files would be {new}")
        return replace(
            spec,
            model=paths[spec.model],
            tokenizer=paths[spec.tokenizer],
            weights=tuple(paths[path] for path in spec.weights),
        )

    def others(self, bundle: Bundle, role: str) -> None:
        """Take the files that belong to no engine, under another name where there is another of theirs."""
        manifest = bundle.manifest
        engines = (manifest.embedder, manifest.segmenter and manifest.segmenter.model)
        taken = {path for spec in engines if spec for path in _files_of(bundle, spec)}
        # Engines of TensorRT are made anew: they are for one machine.
        taken |= {path for engine in manifest.engines or () for path in (engine.model, engine.engine)}
        for entry in manifest.files:
            if entry.path not in taken and not self._add(bundle, entry.path, entry.path):
                self._add(bundle, entry.path, f"{_LICENCES}/{role}/{PurePosixPath(entry.path).name}")

    def _add(self, bundle: Bundle, old: str, new: str) -> bool:
        """Add a file, unless another one has its new path."""
        [entry] = [entry for entry in bundle.manifest.files if entry.path == old]
        source = bundle.path(old)
        item = _Item(source, replace(entry, path=new, ends=ends_of(source)))
        return self.files.setdefault(new, item).entry.sha256 == entry.sha256


def _files_of(bundle: Bundle, spec: EmbedderSpec | BoundarySpec) -> list[str]:
    """The paths of an engine's files: those that the manifest names, and those that its graph refers to."""
    folder = PurePosixPath(spec.model).parent
    external = check_onnx(bundle.path(spec.model), bundle.sizes_beside(spec.model))
    return sorted({spec.model, spec.tokenizer, *spec.weights, *(str(folder / name) for name in external)})


def _link_or_copy(source: Path, target: Path, entry: FileEntry) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        with source.open("rb") as file, target.open("xb") as output:
            _copy(file, output, entry, os.fspath(source), lambda _: None)
            _flush(output)


def _unpack_manifest(file: BinaryIO, path: Path, what: str) -> Manifest:
    header = file.read(_BLOCK)
    try:
        size = tarfile.TarInfo.frombuf(header, "utf-8", "strict").size
    except (tarfile.HeaderError, ValueError):
        size = -1
    if not 0 <= size <= MAX_MANIFEST_BYTES or header != _header(MANIFEST, size):
        raise BundleError(f"{what}: this is no packed bundle: it does not begin with {MANIFEST}")
    content = file.read(size)
    path.write_bytes(content)
    _expect(file, _padding(size), what)
    return read_manifest(path)


def _expect_header(file: BinaryIO, path: str, size: int, what: str) -> None:
    wanted = _header(path, size)
    found = file.read(len(wanted))
    if found != wanted:
        raise BundleError(f"{what}: {path} of {size} bytes should come next, not {_described(found)}")


def _described(header: bytes) -> str:
    """What a header that was not expected says, for a person."""
    try:
        info = tarfile.TarInfo.frombuf(header[:_BLOCK], "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        return "the end" if not header.strip(b"\0") else "something else"
    kind = (
        "file"
        if info.type == tarfile.REGTYPE
        else "link"
        if info.issym() or info.islnk()
        else f"type {info.type!r}"
    )
    return f"{info.name!r} ({kind}, {info.size} bytes)"


def _expect(file: BinaryIO, wanted: bytes, what: str) -> None:
    if file.read(len(wanted)) != wanted:
        raise BundleError(f"{what}: it is cut short, or not what `vcs-runtime bundle pack` writes")


def _header(path: str, size: int) -> bytes:
    """The tar header of a file: the same on every machine, of 512 bytes for paths up to 100 characters."""
    info = tarfile.TarInfo(path)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.GNU_FORMAT)  # not POSIX: 8 GB and more fit into its header


def _padding(size: int) -> bytes:
    return bytes(-size % _BLOCK)


def _copy(source: BinaryIO, target: BinaryIO, entry: FileEntry, what: str, advance: Advance) -> None:
    """Copy one file's bytes and check them. Raises BundleError."""
    digest = hashlib.sha256()
    left = entry.size
    while left:
        if not (part := source.read(min(left, _AT_ONCE))):
            raise BundleError(f"{what}: it ends within {entry.path}")
        digest.update(part)
        target.write(part)
        left -= len(part)
        advance(len(part))
    if digest.hexdigest() != entry.sha256:
        raise BundleError(f"{what}: {entry.path} is damaged: its sha256 is not the one in {MANIFEST}")


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """A folder that becomes `target` if the block ends well, and vanishes if not."""
    if os.path.lexists(target):
        raise InputError(f"{target} exists already")
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.parent / f".{target.name}.partial-{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        yield folder
        folder.rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _flush(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
