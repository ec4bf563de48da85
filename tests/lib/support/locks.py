"""Versions in tests/locks; `python locks.py LOCK` prints how the installed ones differ."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def locked(path: Path) -> dict[str, str]:
    """Return the version of each package that a lock holds for this Python and system."""
    versions = {}
    for line in path.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate():
            versions[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix(
                "=="
            )
    return versions


def differing(path: Path, installed: dict[str, str]) -> list[str]:
    """Return a line for each installed package whose version is not that in the lock."""
    versions = locked(path)
    return [
        f"{name} {version} (the lock has {versions.get(name, 'none')})"
        for name, version in sorted(installed.items())
        if versions.get(name) != version
    ]


def main() -> None:
    """Print how the installed packages differ from the lock that the command line names."""
    path = Path(sys.argv[1])
    installed = {
        canonicalize_name(distribution.metadata["Name"]): distribution.version
        for distribution in distributions()
    }
    installed.pop("vcs-runtime", None)
    lines = differing(path, installed)
    print(
        f"{len(lines)} packages differ from {path.name}, whose versions pass:", *lines, sep="\n  "
    )


if __name__ == "__main__":
    main()
