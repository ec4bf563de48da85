"""Whether only this user can write to a file or folder, whose content is then believed."""

from __future__ import annotations

import os
import stat
from itertools import chain
from pathlib import Path


def is_own(path: str | os.PathLike[str], *owners: int, parents: bool = False) -> bool:
    """Return whether only this user, root and `owners` can write to a file or folder.

    With `parents` they must not be able to exchange it either, which takes writing to a folder
    above it that is not sticky, and the path must hold no links. What is missing is nobody's.
    """
    if not hasattr(os, "getuid"):  # Windows
        return True
    allowed = {os.getuid(), 0, *owners}
    real = Path(path if parents else os.path.realpath(path))
    for place in chain([real], real.parents if parents else ()):
        try:
            facts = os.lstat(place)  # a link counts as a place to which all can write
        except OSError:  # nothing to be read, and perhaps it will be made
            continue
        private_group = facts.st_gid == facts.st_uid  # as many systems give every user
        others = stat.S_IWOTH | (0 if private_group else stat.S_IWGRP)
        sticky = place != real and facts.st_mode & stat.S_ISVTX
        if facts.st_uid not in allowed or (facts.st_mode & others and not sticky):
            return False
    return True


def make_folder(folder: Path, mode: int) -> None:
    """Make a folder and its missing parents with a mode, whatever more the umask allows.

    Raises OSError.
    """
    for path in [*reversed(folder.parents), folder]:
        if not path.exists():
            path.mkdir(mode, exist_ok=True)
