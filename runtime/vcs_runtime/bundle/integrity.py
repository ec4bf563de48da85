"""Checks that a bundle has exactly the files in `bundle.json`, byte for byte.

Every file is hashed whenever a bundle is opened, except for large ones: hashing 16 GB takes longer
than loading them. A large file is hashed when this machine opens it for the first time. Later
openings check its size, its first and last MiB, and that the file system reports it unchanged:
device, inode, size, and times of change of content and inode.

These checks notice every change made through the file system, copies and restores included. If
other programs change the owner, the permissions or the number of hard links, the file is hashed
again. They do not notice bits that decay on the disk, nor someone who writes to the raw device,
sets back the clock, or writes into the folder with the records. `vcs-runtime bundle verify` hashes
everything.

A record is an empty marker file, so that writing it is atomic. Its name holds a hash of these facts
and the sha256 of the file. A new hard link also changes the time of the inode. `link` and `unlink`
therefore compare the file directly before and after the change. If nothing else differs, they
renew the records.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vcs_numba.jit.owners import make_folder
from vcs_runtime.bundle.manifest import MANIFEST, FileEntry, Manifest
from vcs_runtime.bundle.paths import own_folder
from vcs_runtime.errors import BundleError
from vcs_runtime.util.presence import is_regular_file

LARGE = 1 << 30
"""Files of at least this many bytes are hashed once per machine."""


def record_folder(name: str = "verified") -> Path | None:
    """Return the folder `name` of this user, which holds records, such as of verified files.

    The result is None without a home folder, or if other users can write to the folder.
    """
    with suppress(BundleError, PermissionError):
        return own_folder(name)
    return None


def record_name(path: Path, sha256: str) -> str:
    """Return the name of the record that a file in its present state has this sha256."""
    return _name(path.stat(), sha256)


def record(folder: Path, name: str) -> None:
    """Write a record, if possible: without it a later opening only takes longer."""
    with suppress(OSError):
        make_folder(folder, 0o700)
        (folder / name).touch()


def link(source: Path, target: Path) -> None:
    """Make a hard link, as `os.link`, and renew the records of the file."""
    with _keep_records(source):
        os.link(source, target)


def unlink(path: Path) -> None:
    """Remove a file, as `os.unlink`, and renew the records of its other links."""
    with _keep_records(path):
        os.unlink(path)


@contextmanager
def _keep_records(path: Path) -> Iterator[None]:
    """Renew the records of a file if the body changes only its links."""
    folder = record_folder()
    if folder is None or path.stat().st_size < LARGE:
        yield
        return
    with path.open("rb") as file:  # stays the same file while its links change
        before = os.fstat(file.fileno())
        hashes = _recorded(folder, before)
        yield
        after = os.fstat(file.fileno())
    if _content_facts(before) == _content_facts(after):
        for sha256 in hashes:
            record(folder, _name(after, sha256))


def _recorded(folder: Path, facts: os.stat_result) -> list[str]:
    """Return the hashes that are recorded for a file with these facts."""
    prefix = _name(facts, "")
    with suppress(OSError):
        names = os.listdir(folder)
        return [name.removeprefix(prefix) for name in names if name.startswith(prefix)]
    return []


def _name(facts: os.stat_result, sha256: str) -> str:
    state = (*_content_facts(facts), facts.st_ctime_ns)
    return f"{hashlib.sha256(repr(state).encode()).hexdigest()}-{sha256}"


def _content_facts(facts: os.stat_result) -> tuple[int, int, int, int]:
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


Advance = Callable[[int], None]
"""Called with the number of bytes that were read since the last call."""

_MIB = 1 << 20
_COPIED_AT_ONCE = 4 << 20


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file's bytes, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ends_of(path: Path) -> str | None:
    """Return the sha256 of the first and last MiB of a large file, for `FileEntry.ends`.

    The result is None for a file of less than 1 GiB.
    """
    size = path.stat().st_size
    if size < LARGE:
        return None
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(_MIB))
        file.seek(size - _MIB)
        digest.update(file.read(_MIB))
    return digest.hexdigest()


def verify_files(root: Path, manifest: Manifest, memory: Path | None = None) -> None:
    """Check that a folder holds exactly the listed files, byte for byte; raises BundleError.

    `memory` is the folder with the records of large files. None: all files are hashed.
    """
    check_listing(root, manifest)

    def is_whole(entry: FileEntry) -> bool:
        return _is_whole(root / entry.path, entry, memory if entry.size >= LARGE else None)

    # Hashing releases the interpreter's lock, so two files can be hashed at the same time.
    with ThreadPoolExecutor(max_workers=2) as pool:
        for entry, whole in zip(manifest.files, pool.map(is_whole, manifest.files), strict=True):
            if not whole:
                raise _damaged(f"bundle {root}", entry.path)


def check_listing(root: Path, manifest: Manifest) -> None:
    """Check that a folder holds exactly the listed files.

    Raises BundleError for an unlisted file, or for a listed file that is missing, not regular or of
    another size.
    """
    listed = {entry.path for entry in manifest.files}
    for folder, folders, names in os.walk(root):
        # A link to a folder counts as a file: `os.walk` does not enter it.
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        for name in names + links:
            relative = Path(folder, name).relative_to(root).as_posix()
            if relative != MANIFEST and relative not in listed:
                raise BundleError(f"bundle {root}: {relative} is not listed in {MANIFEST}")
    for entry in manifest.files:
        path = root / entry.path
        if path.is_symlink() or not is_regular_file(path):
            raise BundleError(
                f"bundle {root}: {entry.path} is missing or not a regular file: copy it again"
            )
        size = path.stat().st_size
        if size != entry.size:
            raise BundleError(
                f"bundle {root}: {entry.path} has {size} bytes, {MANIFEST} lists {entry.size}:"
                " copy it again"
            )


def _is_whole(path: Path, entry: FileEntry, memory: Path | None) -> bool:
    """Whether a file has the listed sha256, by its record in `memory` or by its bytes."""
    if entry.ends is not None and entry.size >= LARGE and ends_of(path) != entry.ends:
        return False
    name = record_name(path, entry.sha256)
    if memory and (memory / name).exists():
        return True
    if sha256_of(path) != entry.sha256:
        return False
    if memory and name == record_name(path, entry.sha256):  # not changed while it was read
        record(memory, name)
    return True


def copy_checked(
    source: BinaryIO, target: BinaryIO, entry: FileEntry, name: str, advance: Advance
) -> None:
    """Copy the bytes of one file, and check their number and sha256.

    Raises BundleError with a message that begins with `name`.
    """
    digest = hashlib.sha256()
    remaining = entry.size
    while remaining:
        part = source.read(min(remaining, _COPIED_AT_ONCE))
        if not part:
            raise BundleError(f"{name}: the file ends within {entry.path}: copy it again")
        digest.update(part)
        target.write(part)
        remaining -= len(part)
        advance(len(part))
    if digest.hexdigest() != entry.sha256:
        raise _damaged(name, entry.path)


def _damaged(name: str, path: str) -> BundleError:
    return BundleError(
        f"{name}: {path} is damaged: its sha256 is not the one in {MANIFEST}: copy it again"
    )
