"""Making a kit: packages, bundle, licences, bill of materials, checksums and an installer."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePosixPath

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from vcs_export.errors import KitError
from vcs_export.kit.packages import NAME, PIP, Package, Target, gather, metadata_of, own_wheel
from vcs_runtime._version import __version__
from vcs_runtime.bundle.archive import copy_bundle
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.util.atomic import new_folder, refuse_input_as_output

SUMS = "SHA256SUMS"


def make_kit(
    output: Path,
    *,
    extras: Sequence[str],
    bundle: str,
    target: Target,
    wheel: Path | None,
    log: Callable[[str], None],
) -> str:
    """Write a kit completely or not at all, and return the sha256 of its checksum file.

    `wheel` is the wheel of vcs-runtime, None to build or download it (`own_wheel`). Raises
    ValueError for an unknown extra, KitError if packages cannot be gathered, BundleError,
    InputError for the output, and OSError.
    """
    opened = open_bundle(bundle, full=True)
    for part in ("embedder", "segmenter"):
        if getattr(opened.manifest, part) is None:
            raise KitError(
                f"bundle {opened.root} has no {part}, so that nothing can be scored with it: "
                "`vcs-runtime bundle make` joins two bundles"
            )
    refuse_input_as_output(output, opened.root)
    with new_folder(output) as folder, tempfile.TemporaryDirectory(prefix="vcs-runtime-") as built:
        own = own_wheel(Path(built), wheel, log)
        chosen = choose_extras(extras, own)
        (folder / "wheels").mkdir()
        packages = gather(own, chosen, target, folder / "wheels", log)
        log(f"copying the bundle {opened.manifest.name}")
        copy_bundle(opened, folder / "bundle")
        log("writing licences, bill of materials and checksums")
        name = "default" if bundle == "default" else opened.manifest.name
        contents = _Contents(packages, opened, chosen, target, name)
        contents.write_installer(folder)
        contents.write_packages(folder)
        contents.write_licences(folder / "licences")
        _write_story(folder / "story")
        sums = [f"{sha256_of(path)}  {name}\n" for name, path in _files(folder).items()]
        _write(folder / SUMS, "".join(sums))
        return sha256_of(folder / SUMS)


def choose_extras(named: Sequence[str], own: Path) -> list[str]:
    """Return the extras of a kit in order: `named`, `default`, and `cpu` unless gpu is named.

    Raises ValueError for an extra that the wheel `own` does not have.
    """
    extras = metadata_of(own).metadata.get_all("Provides-Extra", [])
    for extra in named:
        if extra not in extras:
            known = ", ".join(sorted(extras))
            raise ValueError(f"unknown extra {extra!r}: choose from {known}")
    chosen = {*named, "default"}
    if "gpu" not in named:
        chosen.add("cpu")
    return sorted(chosen)


@dataclass(frozen=True)
class _Contents:
    """The contents of a kit, from which its descriptions are written."""

    packages: Sequence[Package]
    bundle: Bundle
    extras: Sequence[str]
    target: Target
    name: str  # of the bundle where the kit is installed

    def write_installer(self, folder: Path) -> None:
        """Write the installer, its settings and the README."""
        manifest, target = self.bundle.manifest, self.target
        size = sum(unpacked_size(package.wheel) for package in self.packages)
        size += sum(entry.size for entry in manifest.files)
        [pip] = [package.wheel.name for package in self.packages if package.name == PIP]
        settings = {
            "vcs-runtime": __version__,
            "python": target.python,
            "platform": target.platform,
            "extras": list(self.extras),
            "bundle": self.name,
            "pip": f"wheels/{pip}",
            "bytes": size,
        }
        _write(folder / "kit.json", json.dumps(settings, indent=1) + "\n")

        site = files("vcs_export.kit").joinpath("site")
        for script in ("install.py", "install.sh"):
            _write(folder / script, site.joinpath(script).read_text("utf-8"))
        (folder / "install.sh").chmod(0o755)

        option = ""
        if self.name != "default":
            option = f" --bundle FOLDER/share/vcs-runtime/bundles/{self.name}"
        template = site.joinpath("README.txt").read_text("utf-8")
        text = template.format(
            version=__version__,
            python=target.python,
            platform=target.platform,
            extras=", ".join(self.extras),
            bundle=manifest.name,
            licence=manifest.licence,
            megabytes=-(-size // 1_000_000),
            option=option,
        )
        _write(folder / "README.txt", text)

    def write_packages(self, folder: Path) -> None:
        """Write the pinned requirements and the bill of materials."""
        pinned = [
            f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
            for package in self.packages
        ]
        _write(folder / "requirements.txt", "".join(pinned))
        _write(folder / "sbom.cdx.json", bill_of_materials(self.packages, self.bundle))

    def write_licences(self, folder: Path) -> None:
        """Write the licence texts of all packages, and a list of licences."""
        lines = []
        for package in self.packages:
            texts = copy_texts(package.wheel, folder / f"{package.name}-{package.version}")
            licence = licence_of(package.wheel)
            lines.append(f"{package.name} {package.version}: {licence}; licence texts: {texts}\n")
        manifest = self.bundle.manifest
        lines.append(f"bundle {manifest.name}: {manifest.licence}; see the folder bundle\n")
        _write(folder / "licences.txt", "".join(lines))


def _write_story(folder: Path) -> None:
    """Write the two texts that the installer scores at the end."""
    story = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    _write(folder / "reference.txt", story["reference"] + "\n")
    _write(folder / "generated.txt", story["versions"][1]["text"] + "\n")


def _write(path: Path, text: str) -> None:
    """Write a text file with the same bytes on every system."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())


def _files(folder: Path) -> dict[str, Path]:
    """Return the files below a folder, by their names with slashes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in paths}


_TEXTS = (
    "LICENSE",
    "LICENCE",
    "NOTICE",
    "COPYING",
    "THIRDPARTYNOTICE",
    "THIRD_PARTY",
    "THIRD-PARTY",
)
_LONGEST_NAME = 80


def licence_of(wheel: Path) -> str:
    """Return a wheel's licence from its metadata, or "unknown".

    An SPDX expression is preferred.
    """
    metadata = metadata_of(wheel).metadata
    if expressions := metadata.get_all("License-Expression"):
        return str(expressions[0])
    for text in metadata.get_all("License", []):
        # Not the whole text.
        if text.strip() and len(text) <= _LONGEST_NAME and "\n" not in text.strip():
            return str(text).strip()
    names = [name for name in metadata.get_all("Classifier", []) if name.startswith("License ::")]
    return "; ".join(name.rpartition(" :: ")[2] for name in names) or "unknown"


def copy_texts(wheel: Path, folder: Path) -> int:
    """Copy the licences and notices in a wheel into a folder, and return how many there are."""
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            if not info.is_dir() and _is_legal_text(info.filename):
                archive.extract(info, folder)  # never outside the folder, whatever its name is
                count += 1
    return count


def _is_legal_text(name: str) -> bool:
    path = PurePosixPath(name)
    metadata = path.parts[0].endswith(".dist-info") and len(path.parts) > 2
    if metadata and path.parts[1].lower() in ("licenses", "license_files"):
        return True
    return path.name.upper().startswith(_TEXTS) and path.suffix != ".py"


def unpacked_size(wheel: Path) -> int:
    """Return the size in bytes of an installed wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sum(info.file_size for info in archive.infolist())


def bill_of_materials(packages: Sequence[Package], bundle: Bundle) -> str:
    """Describe a kit as a CycloneDX 1.6 document.

    The bundle's hash is the sha256 of its `bundle.json`.
    """
    components = {package.name: _component(package) for package in packages}
    manifest = bundle.manifest
    model = Component(
        name=manifest.name,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=f"bundle:{manifest.name}",
        description=manifest.source,
        hashes=[_sha256(sha256_of(bundle.root / MANIFEST))],
        licenses=[LicenseFactory().make_from_string(manifest.licence)],
    )
    dependencies = [component for name, component in components.items() if name != NAME]
    bom = Bom(components=[*dependencies, model])
    bom.metadata.component = components[NAME]
    bom.metadata.tools.components.add(Component(name=f"{NAME} kit", version=__version__))
    for package in packages:
        needed = [components[name] for name in package.needs]
        if package.name == NAME:
            needed.append(model)
        bom.register_dependency(components[package.name], needed)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(package: Package) -> Component:
    purl = PackageURL("pypi", None, package.name, package.version)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.APPLICATION if package.name == NAME else ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        description=package.metadata.get("summary"),
        hashes=[_sha256(package.sha256)],
        licenses=[LicenseFactory().make_from_string(licence_of(package.wheel))],
    )


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
