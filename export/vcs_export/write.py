"""Writing a bundle completely, with the hashes of all files, or not at all.

All files go into a folder beside the target, which is renamed into place at the end. Two processes
that write the same bundle use two such folders. The first to rename wins, or if both replace, the
last.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from vcs_export.errors import ExportError, os_reason
from vcs_runtime.bundle.integrity import ends_of, link, unlink
from vcs_runtime.bundle.manifest import (
    MANIFEST,
    MAX_MANIFEST_BYTES,
    SCHEMA,
    EmbedderSpec,
    FileEntry,
    Manifest,
    SegmenterSpec,
)
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import InputError
from vcs_runtime.util.atomic import beside, lies_in, made_folder, refuse_input_as_output, stale

LICENCES = "LICENSES"
"""The folder of a bundle that holds licence texts and notices."""

Progress = Callable[[str, int, int], None]
"""A callback for long steps: the step's name, the bytes done so far, the bytes in total."""

_ATTEMPTS = 5
_HASHED_AT_ONCE = 4 << 20


def silent(*_: object) -> None:
    """Ignore progress, or a line about a step."""


class BundleExistsError(ExportError):
    """The target exists already, and the caller did not ask to replace it."""


@dataclass(frozen=True)
class BundleInfo:
    """Name, licence and source of a bundle, and its further files."""

    name: str  # as signatures print it
    licence: str  # SPDX identifier
    source: str  # origin of the weights
    extra_files: Mapping[str, bytes] = field(default_factory=dict)  # contents by relative path
    replace: bool = False  # whether an existing bundle is replaced

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.name):
            raise ExportError(f"name {self.name!r} must be letters, digits, '.', '_' and '-'")


def licence_file(licence: str, text: bytes | None) -> dict[str, bytes]:
    """Return the bundle file with a licence's text, by file name; empty if there is no text."""
    return {f"{LICENCES}/{licence}.txt": text} if text else {}


def named_after(folder: Path, replace: bool = False) -> BundleInfo:
    """Return the description of a bundle for a model of which only the folder's name is known."""
    # The folder may be "." or a link. `Path.resolve` raises RuntimeError for a link to itself.
    name = os.path.basename(os.path.realpath(folder))
    return BundleInfo(re.sub(r"[^A-Za-z0-9._-]+", "-", name), "NOASSERTION", name, replace=replace)


def check_target(target: Path, replace: bool, *sources: Path | None) -> None:
    """Check that a bundle may be written to a path, before the work begins.

    Raises InputError if it contains a source, BundleExistsError if it exists and is not to be
    replaced, and ExportError if it is no bundle.
    """
    for source in filter(None, sources):
        refuse_input_as_output(target, source)
        if lies_in(source, target):
            raise InputError(f"{target} contains the input {source}: choose another output")
    if os.path.lexists(target):
        if not replace:
            raise BundleExistsError(f"{target} exists already (--overwrite replaces it)")
        if (kind := _other_than_bundle(target)) is not None:
            raise ExportError(
                f"{target} is {kind} and is not replaced: move it, or choose another output"
            )


def _other_than_bundle(target: Path) -> str | None:
    """Describe anything else at a bundle's path; None for a bundle, or an empty folder."""
    manifest = target / MANIFEST
    try:
        names = os.listdir(target)
        if not names:
            return None
        if MANIFEST not in names or not stat.S_ISREG(manifest.lstat().st_mode):
            return f"a folder without {MANIFEST}"
        with manifest.open("rb") as file:
            content = file.read(MAX_MANIFEST_BYTES)
    except NotADirectoryError:
        return "not a folder"
    except FileNotFoundError:  # unless it is a link, another process has moved it
        return "a broken link" if target.is_symlink() else None
    # Damaged bundles, and bundles of other versions, may be replaced: field names are enough.
    if not all(f'"{name}"'.encode() in content for name in ("files", "licence", "schema")):
        return f"a folder whose {MANIFEST} is not of a bundle"
    for path in target.rglob("*"):
        name = path.relative_to(target).as_posix()
        if name == MANIFEST or (path.is_dir() and not path.is_symlink()):
            continue
        # A search in the bytes works even if the manifest is damaged.
        if f'"path": {json.dumps(name)}'.encode() not in content:
            return f"a bundle with a file that is not its own, {name}"
    return None


class BundleWriter:
    """A bundle that is being written.

    Use it in `with`, write below `folder`, and end with `commit`. Without `commit`, all written
    files are removed at the end, and an earlier bundle stays unchanged. An OSError becomes an
    ExportError that names the path.
    """

    def __init__(self, target: Path, info: BundleInfo) -> None:
        self.target = target
        self.info = info
        self.folder = beside(self.target)
        self._committed = False
        self._parents = ExitStack()

    def __enter__(self) -> BundleWriter:
        try:
            check_target(self.target, self.info.replace)
            with ExitStack() as stack:
                stack.enter_context(made_folder(self.target.parent))
                self._remove_stale()
                self.folder.mkdir()
                self._parents = stack.pop_all()
        except OSError as error:
            raise self._failed(error) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._committed:
            _remove(self.folder)
        self._parents.close()
        if isinstance(error, OSError):
            raise self._failed(error) from None

    def file(self, relative: str) -> Path:
        """Return the path to which a file of the bundle is written. Its folder exists."""
        path = self.folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def link(self, source: Path, relative: str) -> None:
        """Hard-link a file from another folder into the bundle, which takes no disk space."""
        # Readers refuse symbolic links, which could lead anywhere by the time they are followed.
        real = Path(os.path.realpath(source))
        try:
            link(real, self.file(relative))
        except OSError as error:
            raise ExportError(
                f"{real}: cannot be linked into {self.target} ({error.strerror}): copy the weights"
                " instead (--weights copy), or put the bundle on the same file system"
            ) from None

    def commit(
        self,
        *,
        embedder: EmbedderSpec | None = None,
        segmenter: SegmenterSpec | None = None,
        known: Mapping[str, str] | None = None,
        progress: Progress = silent,
        prove: Callable[[Bundle], Manifest] | None = None,
    ) -> Path:
        """Hash all files without `known` hashes, write `bundle.json`, flush, rename into place.

        `prove` returns the manifest with the proofs of the models.
        """
        for relative, content in self.info.extra_files.items():
            self.file(relative).write_bytes(content)
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        by_name = {path.relative_to(self.folder).as_posix(): path for path in paths}
        known = known or {}
        unknown = {name: path for name, path in by_name.items() if name not in known}
        digests = {**known, **hash_files(unknown, progress)}
        files = tuple(
            FileEntry(name, path.stat().st_size, digests[name], ends_of(path))
            for name, path in by_name.items()
        )
        info = self.info
        manifest = Manifest(
            name=info.name,
            licence=info.licence,
            source=info.source,
            files=files,
            embedder=embedder,
            segmenter=segmenter,
            schema=SCHEMA,
        )
        if prove:
            manifest = prove(Bundle(self.folder, manifest))
        self.file(MANIFEST).write_text(manifest.to_json(), encoding="utf-8", newline="\n")
        # The disk must have all files, and the folders that name them, before the rename.
        for path in [*paths, self.folder / MANIFEST, self.folder]:
            _sync(path)
        for path in self.folder.rglob("*"):
            if path.is_dir():
                _sync(path)
        self._rename()
        self._committed = True
        _sync(self.target.parent)
        return self.target

    def _rename(self) -> None:
        for attempt in range(_ATTEMPTS):
            # A folder cannot be renamed over one that has content: an old bundle steps aside first.
            aside = beside(self.target)
            if self.info.replace:
                with suppress(FileNotFoundError):
                    check_target(self.target, replace=True)  # something else may be there by now
                    self.target.rename(aside)
            try:
                self.folder.rename(self.target)
            except OSError as error:
                if not os.path.lexists(self.target):
                    if os.path.lexists(aside):
                        aside.rename(self.target)
                    raise
                if not self.info.replace:
                    raise BundleExistsError(
                        f"{self.target} was written by another process meanwhile"
                    ) from None
                if attempt == _ATTEMPTS - 1:
                    raise ExportError(
                        f"{self.target}: other processes keep replacing it: {error}"
                    ) from None
            else:
                return
            finally:
                _remove(aside)

    def _remove_stale(self) -> None:
        for path in stale(self.target):
            _remove(path)

    def _failed(self, error: OSError) -> ExportError:
        return ExportError(f"cannot write the bundle {self.target}: {os_reason(error)}")


def hash_files(files: Mapping[str, Path], progress: Progress = silent) -> dict[str, str]:
    """Return the sha256 of each file, 64 hex digits, under the keys of `files`. Raises OSError."""
    total = sum(path.stat().st_size for path in files.values())
    done = 0
    digests = {}
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
        for file in path.rglob("*"):
            with suppress(OSError):
                if file.is_file() and file.stat().st_nlink > 1:
                    unlink(file)  # other bundles still have it
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Flush a file or folder to the disk, so that no rename is on it before its content."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders, and flushes the rename with the parent
    # Linked weights may be read-only. Except on Windows, a file opened for reading can be flushed.
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
