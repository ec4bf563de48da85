"""The Python and the platform that a kit is for: pip's options, tags of wheels, environment of markers."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from packaging import tags

_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Older names of manylinux platforms, by the minor version of glibc 2."""

_SYSTEMS = {"linux": ("linux", "Linux", "posix"), "macosx": ("darwin", "Darwin", "posix"),
            "win": ("win32", "Windows", "nt")}  # fmt: skip
"""Values of `sys_platform`, `platform_system` and `os_name` in markers, by the kind of a platform tag."""

EXAMPLES = "manylinux_2_28_x86_64, macosx_14_0_arm64 or win_amd64"


@dataclass(frozen=True)
class Target:
    """CPython of one version on one platform; raises ValueError for another form of them."""

    python: str  # "3.12"
    platform: str  # newest tag of wheels that it takes: manylinux_2_28_x86_64

    def __post_init__(self) -> None:
        if not re.fullmatch(r"3\.\d+", self.python):
            raise ValueError(f"--python must be a version such as 3.12, not {self.python!r}")
        if not any(_platforms(self.platform)):
            raise ValueError(f"--platform must be a tag of wheels such as {EXAMPLES}, not {self.platform!r}")

    @property
    def supported(self) -> frozenset[tags.Tag]:
        """The tags of wheels that can be installed there."""
        major, minor = map(int, self.python.split("."))
        interpreter, platforms = f"cp{major}{minor}", self._platforms()
        return frozenset(
            [
                *tags.cpython_tags((major, minor), [interpreter], platforms),
                *tags.compatible_tags((major, minor), interpreter, platforms),
            ]
        )

    @property
    def pip_options(self) -> list[str]:
        """The options that make pip choose wheels for the target."""
        options = ["--only-binary", ":all:", "--implementation", "cp", "--python-version", self.python]
        for name in self._platforms():
            options += ["--platform", name]
        return options

    @property
    def environment(self) -> dict[str, str]:
        """The values of the variables of markers there.

        Version numbers beyond the second are those of this process if it has the same Python, else 0.
        """
        running = platform.python_version()
        full = running if running.startswith(f"{self.python}.") else f"{self.python}.0"
        kind, machine = _split(self.platform)
        sys_platform, system, name = _SYSTEMS[kind]
        return {
            "implementation_name": "cpython", "implementation_version": full, "os_name": name,
            "platform_machine": {"amd64": "AMD64"}.get(machine, machine),
            "platform_python_implementation": "CPython", "platform_release": "", "platform_system": system,
            "platform_version": "", "python_full_version": full, "python_version": self.python,
            "sys_platform": sys_platform,
        }  # fmt: skip

    def _platforms(self) -> list[str]:
        """List the tags of the platform; only this machine's own takes what was compiled on this machine."""
        own = [f"linux_{_split(self.platform)[1]}"] if self.platform == this_machine().platform else []
        return [*_platforms(self.platform), *own]


def this_machine() -> Target:
    """Return the Python that runs, on this machine; a machine without portable wheels has a plain tag."""
    own = list(tags.platform_tags())
    portable = [name for name in own if any(_platforms(name))]
    return Target(f"{sys.version_info[0]}.{sys.version_info[1]}", (portable or own)[0])


def _split(platform_tag: str) -> tuple[str, str]:
    """Return the kind of system and the processor of a platform tag."""
    if match := re.fullmatch(r"(?:many|musl)linux_\d+_\d+_(\w+)", platform_tag):
        return "linux", match[1]
    if match := re.fullmatch(r"macosx_\d+_\d+_(\w+)", platform_tag):
        return "macosx", match[1]
    return "win", platform_tag.removeprefix("win_")


def _platforms(newest: str) -> Iterator[str]:
    """Yield a platform tag and the older ones that the platform takes as well; nothing for another word."""
    if match := re.fullmatch(r"manylinux_2_(\d+)_(\w+)", newest):
        for minor in range(int(match[1]), 4, -1):
            yield f"manylinux_2_{minor}_{match[2]}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{match[2]}"
    elif match := re.fullmatch(r"musllinux_1_(\d+)_(\w+)", newest):
        yield from (f"musllinux_1_{minor}_{match[2]}" for minor in range(int(match[1]), -1, -1))
    elif match := re.fullmatch(r"macosx_(\d+)_(\d+)_(x86_64|arm64)", newest):
        yield from tags.mac_platforms((int(match[1]), int(match[2])), match[3])
    elif newest in ("win_amd64", "win_arm64"):
        yield newest
