"""Bundles as one file.

A packed bundle is a plain tar file: `bundle.json`, then the files in its order, with nothing of the machine
that packed it (owners, times and modes are fixed), uncompressed, since weights hardly shrink. So equal
bundles are equal files, any `tar` can read one, and `unpack` need not believe what a file says about itself:
it compares each header with the one that `pack` writes, and each content with the manifest's hash.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path
from typing import BinaryIO

from vcs_runtime.bundle.integrity import Advance, check_listing, copy_checked
from vcs_runtime.bundle.manifest import MANIFEST, MAX_MANIFEST_BYTES, Manifest, read_manifest
from vcs_runtime.bundle.opening import Bundle, check_graphs
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.errors import BundleError, InputError
from vcs_runtime.util.atomic import flush, new_folder, replaced

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


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
    with replaced(output) as file:
        content = (root / MANIFEST).read_bytes()
        file.write(_header(MANIFEST, len(content)) + content + _padding(len(content)))
        for entry in manifest.files:
            file.write(_header(entry.path, entry.size))
            with (root / entry.path).open("rb") as source:
                copy_checked(source, file, entry, f"bundle {root}", advance)
            file.write(_padding(entry.size))
        file.write(_END)


def unpack(source: Path, target: Path, *, advance: Advance) -> None:
    """Unpack the file `source` into the new folder `target`, which is there whole, or not at all.

    Nothing is written but what the manifest in the file lists, and nothing is kept unless all of it is right.
    Raises BundleError for a file that is anything else than `pack` writes; InputError if `target` exists;
    OSError.
    """
    what = os.fspath(source)
    with source.open("rb") as file, new_folder(target) as folder:
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
            copy_checked(file, output, entry, what, advance)
            flush(output)
        _expect(file, _padding(entry.size), what)
    _expect(file, _END, what)
    if file.read(1):
        raise BundleError(f"{what}: something follows the end of the bundle")
    check_graphs(Bundle(folder, manifest))


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
