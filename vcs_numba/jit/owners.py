"""Whether only this user can write to a file or folder, so that its content can be trusted."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def is_own(path: str | os.PathLike[str], *owners: int, parents: bool = False) -> bool:
    """Return whether only this user, root and `owners` can write to a file or folder.

    With `parents` nobody else may be able to exchange it either: the folders above it must be
    sticky, or closed to others, and the path must not contain links. A missing file counts as safe.
    """
    if not hasattr(os, "getuid"):  # Windows
        return True
    allowed = {os.getuid(), 0, *owners}
    real = Path(path if parents else os.path.realpath(path))
    places = [real, *real.parents] if parents else [real]
    for place in places:
        try:
            facts = os.lstat(place)  # everybody may write to a link, so links are refused
        except OSError:  # it does not exist, or cannot be read
            continue
        private_group = facts.st_gid == facts.st_uid  # as many systems give every user
        others = stat.S_IWOTH | (0 if private_group else stat.S_IWGRP)
        sticky = place != real and facts.st_mode & stat.S_ISVTX
        if facts.st_uid not in allowed or (facts.st_mode & others and not sticky):
            return False
    return True


def make_folder(folder: Path, mode: int) -> None:
    """Create a folder and its missing parents with a mode, less the umask; raises OSError."""
    for path in [*reversed(folder.parents), folder]:
        if not path.exists():
            path.mkdir(mode, exist_ok=True)
