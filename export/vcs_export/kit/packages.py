"""A kit's packages: chosen by pip for its Python and platform, checked to be complete, downloaded.

pip can choose wheels for another Python or platform, but it evaluates markers for the machine on
which it runs. The requirements are therefore followed again with the target's values, and pip is
asked again for missing packages. Packages without a suitable wheel are built here.
"""

from __future__ import annotations

import csv
import json
import platform
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from packaging import tags
from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from vcs_export.errors import KitError
from vcs_export.installer import installer_reason, run_pip
from vcs_runtime._version import __version__
from vcs_runtime.bundle.integrity import sha256_of

_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Older names of manylinux platforms, by the minor version of glibc 2."""

_SYSTEMS = {
    "linux": ("linux", "Linux", "posix"),
    "macosx": ("darwin", "Darwin", "posix"),
    "win": ("win32", "Windows", "nt"),
}
"""`sys_platform`, `platform_system` and `os_name` in markers, by the kind of platform tag."""

EXAMPLES = "manylinux_2_28_x86_64, macosx_14_0_arm64 or win_amd64"


@dataclass(frozen=True)
class Target:
    """CPython of one version on one platform; raises ValueError if either has another form."""

    python: str  # "3.12"
    platform: str  # newest platform tag of wheels that it accepts: manylinux_2_28_x86_64

    def __post_init__(self) -> None:
        if not re.fullmatch(r"3\.\d+", self.python):
            raise ValueError(f"--python must be a version such as 3.12, not {self.python!r}")
        if not any(_platforms(self.platform)):
            raise ValueError(
                f"--platform must be a tag of wheels such as {EXAMPLES}, not {self.platform!r}"
            )

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
        options = [
            "--only-binary",
            ":all:",
            "--implementation",
            "cp",
            "--python-version",
            self.python,
        ]
        for name in self._platforms():
            options += ["--platform", name]
        return options

    @property
    def environment(self) -> dict[str, str]:
        """The values of the variables of markers there.

        Further version numbers are taken from this process if it runs the same Python, or else 0.
        """
        running = platform.python_version()
        full = running if running.startswith(f"{self.python}.") else f"{self.python}.0"
        kind, machine = _split(self.platform)
        sys_platform, system, name = _SYSTEMS[kind]
        return {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": name,
            "platform_machine": {"amd64": "AMD64"}.get(machine, machine),
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": system,
            "platform_version": "",
            "python_full_version": full,
            "python_version": self.python,
            "sys_platform": sys_platform,
        }

    def _platforms(self) -> list[str]:
        """List the platform's tags.

        The tag of locally compiled wheels is included only if this machine has that platform.
        """
        platforms = list(_platforms(self.platform))
        if self.platform == this_machine().platform:
            platforms.append(f"linux_{_split(self.platform)[1]}")
        return platforms


def this_machine() -> Target:
    """Return the running Python and this machine's platform as a target.

    A machine without portable wheels gets a plain platform tag.
    """
    names = list(tags.platform_tags())
    portable = [name for name in names if any(_platforms(name))]
    newest = portable[0] if portable else names[0]
    return Target(f"{sys.version_info[0]}.{sys.version_info[1]}", newest)


def _split(platform_tag: str) -> tuple[str, str]:
    """Return the kind of system and the processor of a platform tag."""
    if match := re.fullmatch(r"(?:many|musl)linux_\d+_\d+_(\w+)", platform_tag):
        return "linux", match[1]
    if match := re.fullmatch(r"macosx_\d+_\d+_(\w+)", platform_tag):
        return "macosx", match[1]
    return "win", platform_tag.removeprefix("win_")


def _platforms(newest: str) -> Iterator[str]:
    """Yield a platform tag and the older tags that the platform accepts.

    An unknown tag yields nothing.
    """
    if match := re.fullmatch(r"manylinux_2_(\d+)_(\w+)", newest):
        for minor in range(int(match[1]), 4, -1):
            yield f"manylinux_2_{minor}_{match[2]}"
            if minor in _LEGACY:
                yield f"{_LEGACY[minor]}_{match[2]}"
    elif match := re.fullmatch(r"musllinux_1_(\d+)_(\w+)", newest):
        for minor in range(int(match[1]), -1, -1):
            yield f"musllinux_1_{minor}_{match[2]}"
    elif match := re.fullmatch(r"macosx_(\d+)_(\d+)_(x86_64|arm64)", newest):
        yield from tags.mac_platforms((int(match[1]), int(match[2])), match[3])
    elif newest in ("win_amd64", "win_arm64"):
        yield newest


NAME = "vcs-runtime"
_HERE = Path(__file__).resolve()


def own_wheel(folder: Path, named: Path | None, log: Callable[[str], None]) -> Path:
    """Put the wheel of this very version into a folder; raises KitError.

    Without a `named` wheel, a wheel is built from the running checkout. Without a checkout, pip
    gets it from the file or package index from which this version was installed. Its files must
    then equal the installed ones.
    """
    if named is not None:
        _check_version(named)
        return Path(shutil.copy2(named, folder))
    root = _HERE.parents[3]
    settings = root / "pyproject.toml"
    if settings.is_file() and tomllib.loads(settings.read_text("utf-8"))["project"]["name"] == NAME:
        log(f"building {NAME} {__version__} from the checkout {root}")
        return _wheel(str(root), folder)
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        raise KitError(
            f"{NAME} is not installed: make a wheel with `pip wheel --no-deps .`, and give --wheel"
        ) from None
    file = _installed_file(installed)
    origin = file or "the package index"
    log(f"getting {NAME} {__version__} from {origin}")
    wheel = _wheel(str(file or f"{NAME}=={__version__}"), folder)
    installed_hashes = _hashes(installed)
    for name, digest in _hashes(metadata_of(wheel)).items():
        if installed_hashes.get(name) != digest:
            raise KitError(
                f"{wheel.name} from {origin} is not the installed {NAME}, because {name} differs:"
                " give the right wheel with --wheel"
            )
    return wheel


def metadata_of(wheel: Path) -> Distribution:
    """Return a wheel's metadata; raises KitError if it is damaged."""
    for described in distributions(path=[str(wheel)]):
        return described
    raise KitError(f"{wheel.name} is damaged, because it has no metadata")


def _wheel(source: str, folder: Path) -> Path:
    done = run_pip("wheel", ["--quiet", "--no-deps", "--wheel-dir", str(folder), source])
    if done.returncode:
        raise KitError(
            f"there is no wheel of {source}: {installer_reason(done.stderr or done.stdout)} "
            "(name one with --wheel)"
        )
    [wheel] = folder.glob("*.whl")
    _check_version(wheel)
    return wheel


def _check_version(wheel: Path) -> None:
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename:
        raise KitError(f"{wheel}: this is not the name of a wheel") from None
    if (name, str(version)) != (NAME, __version__):
        raise KitError(f"{wheel}: a kit holds the version that makes it, {NAME} {__version__}")


def _installed_file(installed: Distribution) -> Path | None:
    """Return the wheel or source archive that was installed, if pip recorded it and it exists."""
    recorded = json.loads(installed.read_text("direct_url.json") or "{}")
    origin = urlsplit(recorded.get("url", ""))
    path = Path(url2pathname(origin.path))
    return path if origin.scheme == "file" and path.is_file() else None


def _hashes(described: Distribution) -> dict[str, str]:
    """Return the hashes of a package's files, without its metadata, which vary between builders."""
    rows = csv.reader((described.read_text("RECORD") or "").splitlines())
    return {name: digest for name, digest, _ in rows if ".dist-info/" not in name}


_ENGINES = ("onnxruntime", "onnxruntime-gpu")
PIP = "pip"
_UNWANTED = "torch"
_ROUNDS = 10


@dataclass(frozen=True)
class Package:
    """A package of the kit."""

    name: str  # normalised
    metadata: Mapping[str, Any]  # of pip's report: "version", "summary", ...
    wheel: Path
    sha256: str
    needs: tuple[str, ...]  # names of the packages that it requires on the target

    @property
    def version(self) -> str:
        """Its version."""
        return str(self.metadata["version"])


def gather(
    own: Path, extras: Sequence[str], target: Target, folder: Path, log: Callable[[str], None]
) -> list[Package]:
    """Download all packages that a kit needs into a folder, with pip itself, and list them by name.

    Packages without a wheel are built into the folder of the wheel `own`. Raises KitError.
    """
    log(f"choosing packages for CPython {target.python} on {target.platform}")
    resolved, needs = _choose(own, extras, target, log)
    _check_names(needs)
    log(f"downloading {len(needs)} packages")
    sources = [_source(resolved[name]) for name in needs]
    options = ["--quiet", "--progress-bar", "off", "--no-deps", "--dest", str(folder)]
    done = run_pip("download", [*options, *target.pip_options, *sources])
    if done.returncode:
        raise KitError(f"the download failed: {installer_reason(done.stderr or done.stdout)}")
    wheels: dict[str, Path] = {}
    for path in folder.glob("*.whl"):
        wheels[canonicalize_name(parse_wheel_filename(path.name)[0])] = path
    if wheels.keys() != needs.keys():
        raise KitError(
            f"pip downloaded other packages: {', '.join(sorted(wheels.keys() ^ needs.keys()))}"
        )
    return [
        Package(
            name,
            resolved[name]["metadata"],
            wheels[name],
            sha256_of(wheels[name]),
            tuple(sorted(needs[name])),
        )
        for name in sorted(needs)
    ]


def _choose(
    own: Path, extras: Sequence[str], target: Target, log: Callable[[str], None]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, set[str]]]:
    """Return pip's report on each package of a kit, and the packages that each package requires."""
    names = ",".join(extras)
    roots = [f"{own}[{names}]", PIP]
    wanted = [Requirement(f"{NAME}[{names}]"), Requirement(PIP)]
    missing: list[Requirement] = []
    for _ in range(_ROUNDS):
        roots += [str(requirement) for requirement in missing]
        resolved = _resolve(roots, target, own.parent, log)
        needs, missing = _follow(wanted, resolved, target)
        if not missing:
            return resolved, needs
    raise KitError(f"the downloaded packages do not fit together: {missing[0]} is missing")


def _resolve(
    roots: Sequence[str], target: Target, built: Path, log: Callable[[str], None]
) -> dict[str, Mapping[str, Any]]:
    """Return pip's report on each package; build packages without a wheel into `built` first."""
    report = built / "report.json"
    options = ["--quiet", "--dry-run", "--ignore-installed", "--target", str(built / "unused")]
    options += ["--report", str(report), "--find-links", str(built), *target.pip_options]
    done = run_pip("install", [*options, *roots])
    while done.returncode:
        # pip stops at the first package without a wheel: build it, and try again.
        requirement = _without_wheel(done.stderr)
        if requirement is None or _wheels_of(requirement.name, built):
            raise KitError(
                f"no packages for this kit: {installer_reason(done.stderr or done.stdout)}"
            )
        _build(requirement, target, built, log)
        done = run_pip("install", [*options, *roots])
    items = json.loads(report.read_text("utf-8"))["install"]
    return {canonicalize_name(item["metadata"]["name"]): item for item in items}


def _without_wheel(output: str) -> Requirement | None:
    """Return the requirement for which pip has no wheel, by its output."""
    match = re.search(r"^ERROR: No matching distribution found for ([^;(\n]+)", output, re.M)
    return Requirement(match[1]) if match else None


def _build(
    requirement: Requirement, target: Target, built: Path, log: Callable[[str], None]
) -> None:
    name = requirement.name
    log(f"building {name} from source, as it has no wheel for this Python and platform")
    plain = f"{name}{requirement.specifier}"
    options = ["--quiet", "--no-deps", "--no-binary", name, "--wheel-dir", str(built)]
    done = run_pip("wheel", [*options, plain])
    if done.returncode:
        raise KitError(f"{name} cannot be built: {installer_reason(done.stderr or done.stdout)}")
    [wheel] = _wheels_of(name, built)
    if not parse_wheel_filename(wheel.name)[3] & target.supported:
        raise KitError(
            f"{name} has no wheel for CPython {target.python} on {target.platform}, but this"
            f" machine builds {wheel.name}: make the kit on a machine of that kind"
        )


def _wheels_of(name: str, folder: Path) -> list[Path]:
    normal = canonicalize_name(name)
    wheels = folder.glob("*.whl")
    return [path for path in wheels if parse_wheel_filename(path.name)[0] == normal]


def _follow(
    wanted: Iterable[Requirement], resolved: Mapping[str, Mapping[str, Any]], target: Target
) -> tuple[dict[str, set[str]], list[Requirement]]:
    """Follow requirements on the target; return each package's needs and what is missing."""
    needs: dict[str, set[str]] = {}
    missing: list[Requirement] = []
    seen: set[tuple[str, str]] = set()
    todo = list(wanted)
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        metadata = resolved[name]["metadata"] if name in resolved else None
        if metadata is None or not _accepts(requirement, metadata["version"]):
            missing.append(requirement)
            continue
        needs.setdefault(name, set())
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for further in _requirements(metadata, extra, target):
                needs[name].add(canonicalize_name(further.name))
                todo.append(further)
    return needs, missing


def _accepts(requirement: Requirement, version: str) -> bool:
    return requirement.specifier.contains(version, prereleases=True)


def _requirements(metadata: Mapping[str, Any], extra: str, target: Target) -> Iterator[Requirement]:
    """Yield a package's requirements on the target, for one of its extras or for none ("")."""
    environment = {**target.environment, "extra": extra}
    for text in metadata.get("requires_dist", []):
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            requirement.marker = None
            yield requirement


def _check_names(needs: Mapping[str, set[str]]) -> None:
    """Refuse PyTorch, and a kit with two ONNX Runtimes; raises KitError."""
    if _UNWANTED in needs:
        users = ", ".join(sorted(name for name, names in needs.items() if _UNWANTED in names))
        raise KitError(
            f"{users} would install PyTorch, which a kit never contains: leave out this extra"
        )
    engines = [name for name in _ENGINES if name in needs]
    if len(engines) > 1:
        raise KitError(
            f"the extras install {' and '.join(engines)}, which overwrite each other: leave one out"
        )


def _source(item: Mapping[str, Any]) -> str:
    """Return pip's argument for a package: a file of this machine, or a version at the index."""
    url = urlsplit(item["download_info"]["url"])
    if url.scheme == "file":
        return url2pathname(url.path)
    return f"{item['metadata']['name']}=={item['metadata']['version']}"
