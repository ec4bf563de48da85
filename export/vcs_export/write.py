"""Writing a bundle so that it is either there, whole and hashed, or not there at all.

Everything goes into a folder beside the target and is renamed into place at the end. Two processes that
write the same bundle use two such folders; the first to rename wins, or, when replacing, the last.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from vcs_export.checkpoint.safetensors_reader import Progress, silent
from vcs_export.errors import ExportError, os_reason
from vcs_runtime.bundle.integrity import ends_of
from vcs_runtime.bundle.manifest import (
    MANIFEST,
    SCHEMA,
    EmbedderSpec,
    FileEntry,
    Manifest,
    SegmenterSpec,
)

LICENCES = "LICENSES"
"""The folder of a bundle that holds licence texts and notices."""

# A partial folder that no living export can still be writing: left by a process that was killed.
_STALE_SECONDS = 24 * 3600.0
_ATTEMPTS = 5
_HASHED_AT_ONCE = 4 << 20


class BundleExistsError(ExportError):
    """The target is there already and replacing it was not asked for."""


class BundleWriter:
    """A bundle being written; use it in `with`, write below `folder`, and end with `commit`.

    with BundleWriter(target) as bundle:
        bundle.file("embedder/model.onnx").write_bytes(...)
        bundle.commit(name=..., licence=..., source=..., embedder=...)

    Leaving the context without `commit`, by whatever exception, removes all that was written and, if there
    is an earlier bundle, leaves that as it was. An OSError becomes an ExportError that names the path.
    """

    def __init__(self, target: Path, replace: bool = False) -> None:
        self.target = target
        self.replace = replace
        self.folder = target.parent / f"{self._prefix}{secrets.token_hex(8)}"
        self._committed = False

    def __enter__(self) -> BundleWriter:
        if not self.replace and os.path.lexists(self.target):
            raise BundleExistsError(f"{self.target} exists already; it is replaced only when asked to")
        try:
            self.target.parent.mkdir(parents=True, exist_ok=True)
            self._remove_stale()
            self.folder.mkdir()
        except OSError as error:
            raise self._failed(error) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._committed:
            shutil.rmtree(self.folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise self._failed(error) from None

    def file(self, relative: str) -> Path:
        """Where to write a file of the bundle; its folder is there."""
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def link(self, source: Path, relative: str) -> None:
        """Put a file of another folder into the bundle as a hard link: the same bytes, no more disk.

        Raises ExportError where the file system cannot: the two are on different ones, or it has no links.
        """
        # Not a symbolic link, which readers refuse: it could lead anywhere by the time it is followed.
        real = Path(os.path.realpath(source))
        try:
            os.link(real, self.file(relative))
        except OSError as error:
            raise ExportError(
                f"{real}: cannot be linked into {self.target} ({error.strerror}): "
                "copy the weights instead (--weights copy), or put the bundle on the same file system"
            ) from None

    def commit(
        self,
        *,
        name: str,
        licence: str,
        source: str,
        embedder: EmbedderSpec | None = None,
        segmenter: SegmenterSpec | None = None,
        known: Mapping[str, str] | None = None,
        progress: Progress = silent,
    ) -> Path:
        """Hash all files, write `bundle.json`, flush to disk and rename into place. Returns the target.

        known     sha256 of files by their path in the bundle, where it is known already
        progress  told how far hashing is

        Raises BundleExistsError (another process was faster), ExportError (the disk).
        """
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        sizes = {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in paths}
        digests = {name: digest for name, digest in (known or {}).items() if name in sizes}
        unknown = {name: self.folder / name for name in sizes if name not in digests}
        digests |= hash_files(unknown, progress)
        files = tuple(
            FileEntry(name, size, digests[name], ends_of(self.folder / name)) for name, size in sizes.items()
        )
        manifest = Manifest(
            name=name,
            licence=licence,
            source=source,
            files=files,
            embedder=embedder,
            segmenter=segmenter,
            schema=SCHEMA,
        )
        self.file(MANIFEST).write_text(manifest.to_json(), encoding="utf-8", newline="\n")
        for path in [*paths, self.folder / MANIFEST]:
            _sync(path)
        for folder in [self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())]:
            _sync(folder)
        self._rename()
        self._committed = True
        _sync(self.target.parent)
        return self.target

    def _rename(self) -> None:
        for attempt in range(_ATTEMPTS):
            # A folder cannot be renamed over one that has content: an old bundle steps aside first.
            aside = self.target.parent / f"{self._prefix}{secrets.token_hex(8)}"
            if self.replace:
                with suppress(FileNotFoundError):
                    self.target.rename(aside)
            try:
                self.folder.rename(self.target)
            except OSError as error:
                if not os.path.lexists(self.target):
                    if os.path.lexists(aside):
                        aside.rename(self.target)
                    raise
                if not self.replace:
                    raise BundleExistsError(
                        f"{self.target} was written by another process meanwhile"
                    ) from None
                if attempt == _ATTEMPTS - 1:
                    raise ExportError(f"{self.target}: other processes keep replacing it: {error}") from None
            else:
                return
            finally:
                _remove(aside)

    def _remove_stale(self) -> None:
        for path in self.target.parent.glob(f"{self._prefix}*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    _remove(path)

    @property
    def _prefix(self) -> str:
        return f".{self.target.name}.partial-"

    def _failed(self, error: OSError) -> ExportError:
        return ExportError(f"cannot write the bundle {self.target}: {os_reason(error)}")


def hash_files(files: Mapping[str, Path], progress: Progress = silent) -> dict[str, str]:
    """The sha256 of each file, 64 hex digits, under the keys of `files`. Raises OSError."""
    total, done, digests = sum(path.stat().st_size for path in files.values()), 0, {}
    buffer = memoryview(bytearray(_HASHED_AT_ONCE))
    for name, path in files.items():
        digest = hashlib.sha256()
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
                done += count
                progress("hashing", done, total)
        digests[name] = digest.hexdigest()
    return digests


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that a rename never outlives what it names."""
    if path.is_dir() and os.name == "nt":
        return  # folders cannot be opened there, and the rename is flushed with its parent
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
