"""Packing bundles into one file, unpacking them, and copying them.

A packed bundle is a plain tar file: `bundle.json`, then the files in its order. Owners, times and
modes are fixed, and nothing is compressed, since weights hardly shrink. Equal bundles are therefore
equal files, and any `tar` can read them. `unpack` does not trust the headers in the file. It
compares each header with the header that `pack` writes, and each content with the hash in the
manifest.
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
from vcs_runtime.util.atomic import flush, new_folder, refuse_input_as_output, replaced

_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)


def pack(
    bundle: str | os.PathLike[str], output: Path, *, force: bool = False, advance: Advance
) -> None:
    """Write a bundle into one file, and check every byte; after an error there is no file.

    Raises BundleError or InputError.

    With `force` a packed bundle or an empty file is replaced. `advance` is called with the number
    of bytes since its last call.
    """
    root = bundle_folder(bundle)
    refuse_input_as_output(output, root)
    if os.path.lexists(output):
        _check_replaceable(output, force)
    manifest = read_manifest(root / MANIFEST)
    check_listing(root, manifest)
    check_graphs(Bundle(root, manifest))
    with replaced(output) as file:
        content = (root / MANIFEST).read_bytes()
        file.write(tar_header(MANIFEST, len(content)) + content + _padding(len(content)))
        for entry in manifest.files:
            file.write(tar_header(entry.path, entry.size))
            with (root / entry.path).open("rb") as source:
                copy_checked(source, file, entry, f"bundle {root}", advance)
            file.write(_padding(entry.size))
        file.write(_END)


def copy_bundle(bundle: Bundle, folder: Path) -> None:
    """Copy a bundle into a new folder, and check every file again.

    Raises BundleError or OSError.
    """
    folder.mkdir()
    (folder / MANIFEST).write_bytes(bundle.path(MANIFEST).read_bytes())
    for entry in bundle.manifest.files:
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with bundle.path(entry.path).open("rb") as source, path.open("xb") as copy:
            copy_checked(source, copy, entry, f"bundle {bundle.root}", lambda _: None)
            flush(copy)


def _check_replaceable(output: Path, force: bool) -> None:
    if not output.is_file() or (output.stat().st_size and not _is_packed(output)):
        raise InputError(
            f"{output} is not a packed bundle and is not replaced: choose another output"
        )
    if not force:
        raise InputError(f"{output} exists already (--overwrite replaces it)")


def _is_packed(path: Path) -> bool:
    """Return whether a file begins like a packed bundle; the bundle may be damaged."""
    name = f"{MANIFEST}\0".encode()
    with path.open("rb") as file:
        return file.read(len(name)) == name


def unpack(source: Path, target: Path, *, advance: Advance) -> None:
    """Unpack a packed bundle into a new folder; after an error there is no folder.

    Only files that the manifest lists are written. Raises BundleError if `pack` would have written
    other bytes, and InputError if `target` exists or the disk is too small.
    """
    name = os.fspath(source)
    refuse_input_as_output(target, source)
    with source.open("rb") as file, new_folder(target) as folder:
        try:
            _unpack(file, folder, name, advance)
        except BundleError as error:  # the message may name the folder, which is removed
            raise type(error)(str(error).replace(os.fspath(folder), name)) from None


def _unpack(file: BinaryIO, folder: Path, name: str, advance: Advance) -> None:
    manifest = _unpack_manifest(file, folder / MANIFEST, name)
    total = sum(entry.size for entry in manifest.files)
    free = shutil.disk_usage(folder).free
    if total > free:
        raise InputError(f"{name}: {total / 1e6:,.1f} MB are needed, {free / 1e6:,.1f} MB are free")
    for entry in manifest.files:
        _expect_header(file, entry.path, entry.size, name)
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as output:
            copy_checked(file, output, entry, name, advance)
            flush(output)
        _expect(file, _padding(entry.size), name)
    _expect(file, _END, name)
    if file.read(1):
        raise BundleError(f"{name}: the file goes on after the end of the bundle: copy it again")
    check_graphs(Bundle(folder, manifest))


def _unpack_manifest(file: BinaryIO, path: Path, name: str) -> Manifest:
    header = file.read(_BLOCK)
    try:
        size = tarfile.TarInfo.frombuf(header, "utf-8", "strict").size
    except (tarfile.HeaderError, ValueError):
        size = -1
    if not 0 <= size <= MAX_MANIFEST_BYTES or header != tar_header(MANIFEST, size):
        raise BundleError(f"{name} is not a packed bundle: it does not begin with {MANIFEST}")
    content = file.read(size)
    path.write_bytes(content)
    _expect(file, _padding(size), name)
    return read_manifest(path)


def _expect_header(file: BinaryIO, path: str, size: int, name: str) -> None:
    expected = tar_header(path, size)
    header = file.read(len(expected))
    if header != expected:
        raise BundleError(
            f"{name}: {path} of {size} bytes should come next, not {_described(header)}"
        )


def _described(header: bytes) -> str:
    """Describe an unexpected header in words."""
    try:
        info = tarfile.TarInfo.frombuf(header[:_BLOCK], "utf-8", "replace")
    except (tarfile.HeaderError, ValueError):
        return "the end" if not header.strip(b"\0") else "something else"
    kind = f"type {info.type!r}"
    if info.type == tarfile.REGTYPE:
        kind = "file"
    elif info.issym() or info.islnk():
        kind = "link"
    return f"{info.name!r} ({kind}, {info.size} bytes)"


def _expect(file: BinaryIO, content: bytes, name: str) -> None:
    if file.read(len(content)) != content:
        raise BundleError(f"{name} is cut short, or not a packed bundle: copy it again")


def tar_header(path: str, size: int) -> bytes:
    """Return the tar header of a file, which has 512 bytes for paths up to 100 characters."""
    info = tarfile.TarInfo(path)
    info.size = size
    info.mode = 0o644
    return info.tobuf(tarfile.GNU_FORMAT)  # not POSIX: 8 GB and more fit into its header


def _padding(size: int) -> bytes:
    """Return the zeros after a content of `size` bytes, up to the next block."""
    return bytes(-size % _BLOCK)
