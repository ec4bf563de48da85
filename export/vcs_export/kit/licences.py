"""Licences of the packages of a kit: what their metadata name, and the texts in their wheels."""

from __future__ import annotations

import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path, PurePosixPath

from vcs_export.errors import KitError

_TEXTS = ("LICENSE", "LICENCE", "NOTICE", "COPYING", "THIRDPARTYNOTICE", "THIRD_PARTY", "THIRD-PARTY")
_LARGEST = 8 << 20
_LONGEST_NAME = 80


def licence_of(wheel: Path) -> str:
    """Return the licence that a wheel's metadata name: an SPDX expression if there is one, or "unknown"."""
    metadata = _metadata(wheel)
    if expression := metadata["License-Expression"]:
        return str(expression)
    # Some packages have the whole text here.
    text = str(metadata["License"] or "").strip()
    if text and len(text) <= _LONGEST_NAME and "\n" not in text:
        return text
    names = [str(name) for name in metadata.get_all("Classifier", []) if str(name).startswith("License ::")]
    return "; ".join(name.rpartition(" :: ")[2] for name in names) or "unknown"


def _metadata(wheel: Path) -> Message:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.count("/") == 1 and name.endswith(".dist-info/METADATA"):
                    return message_from_string(archive.read(name).decode("utf-8", "replace"))
    except zipfile.BadZipFile as error:
        raise KitError(f"{wheel.name}: it is damaged: {error}") from None
    raise KitError(f"{wheel.name}: it is damaged: it has no metadata")


def copy_texts(wheel: Path, folder: Path) -> int:
    """Copy the licences and notices in a wheel into a folder, which is made if there are any."""
    count = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                path = PurePosixPath(info.filename)
                if info.is_dir() or not _is_text(path):
                    continue
                if path.is_absolute() or ".." in path.parts or "\\" in info.filename or ":" in info.filename:
                    raise KitError(f"{wheel.name}: it holds the unsafe name {info.filename!r}")
                if info.file_size > _LARGEST:
                    raise KitError(f"{wheel.name}: {info.filename} is larger than {_LARGEST} bytes")
                target = folder.joinpath(*path.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(archive.read(info))
                count += 1
    except zipfile.BadZipFile as error:
        raise KitError(f"{wheel.name}: it is damaged: {error}") from None
    return count


def _is_text(path: PurePosixPath) -> bool:
    about = path.parts[0].endswith(".dist-info")
    within = about and len(path.parts) > 2 and path.parts[1].lower() in ("licenses", "license_files")
    return within or (path.name.upper().startswith(_TEXTS) and path.suffix != ".py")


def unpacked_size(wheel: Path) -> int:
    """Return the number of bytes that a wheel has when it is installed."""
    with zipfile.ZipFile(wheel) as archive:
        return sum(info.file_size for info in archive.infolist())
