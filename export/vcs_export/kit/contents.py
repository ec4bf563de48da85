"""What is in a kit, for those who must approve it: licences, and a bill of materials as CycloneDX in JSON."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from vcs_export.kit.own import NAME, metadata_of
from vcs_export.kit.packages import Package
from vcs_runtime._version import __version__
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.opening import Bundle

_TEXTS = ("LICENSE", "LICENCE", "NOTICE", "COPYING", "THIRDPARTYNOTICE", "THIRD_PARTY", "THIRD-PARTY")
_LONGEST_NAME = 80


def licence_of(wheel: Path) -> str:
    """Return the licence that a wheel's metadata name, an SPDX expression if there is one; or "unknown"."""
    metadata = metadata_of(wheel).metadata
    if expressions := metadata.get_all("License-Expression"):
        return str(expressions[0])
    for text in metadata.get_all("License", []):
        if text.strip() and len(text) <= _LONGEST_NAME and "\n" not in text.strip():  # not the whole text
            return str(text).strip()
    names = [name for name in metadata.get_all("Classifier", []) if name.startswith("License ::")]
    return "; ".join(name.rpartition(" :: ")[2] for name in names) or "unknown"


def copy_texts(wheel: Path, folder: Path) -> int:
    """Copy the licences and notices in a wheel into a folder, and return how many there are."""
    with zipfile.ZipFile(wheel) as archive:
        texts = [info for info in archive.infolist() if not info.is_dir() and _is_text(info.filename)]
        for info in texts:
            archive.extract(info, folder)  # inside the folder, whatever its name says
    return len(texts)


def _is_text(name: str) -> bool:
    path = PurePosixPath(name)
    about = path.parts[0].endswith(".dist-info")
    within = about and len(path.parts) > 2 and path.parts[1].lower() in ("licenses", "license_files")
    return within or (path.name.upper().startswith(_TEXTS) and path.suffix != ".py")


def unpacked_size(wheel: Path) -> int:
    """Return the number of bytes that a wheel has when it is installed."""
    with zipfile.ZipFile(wheel) as archive:
        return sum(info.file_size for info in archive.infolist())


def bill_of_materials(packages: Sequence[Package], bundle: Bundle) -> str:
    """Describe a kit as a CycloneDX 1.6 document; the hash of the bundle is that of its `bundle.json`."""
    components = {package.name: _component(package) for package in packages}
    manifest = bundle.manifest
    model = Component(
        name=manifest.name, type=ComponentType.MACHINE_LEARNING_MODEL, bom_ref=f"bundle:{manifest.name}",
        description=manifest.source, hashes=[_sha256(sha256_of(bundle.root / MANIFEST))],
        licenses=[LicenseFactory().make_from_string(manifest.licence)],
    )  # fmt: skip
    bom = Bom(components=[*(component for name, component in components.items() if name != NAME), model])
    bom.metadata.component = components[NAME]
    bom.metadata.tools.components.add(Component(name=f"{NAME} kit", version=__version__))
    for package in packages:
        needed = [components[name] for name in package.needs]
        bom.register_dependency(
            components[package.name], [*needed, model] if package.name == NAME else needed
        )
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(package: Package) -> Component:
    purl = PackageURL("pypi", None, package.name, package.version)
    return Component(
        name=package.name, version=package.version,
        type=ComponentType.APPLICATION if package.name == NAME else ComponentType.LIBRARY,
        bom_ref=purl.to_string(), purl=purl, description=package.metadata.get("summary"),
        hashes=[_sha256(package.sha256)],
        licenses=[LicenseFactory().make_from_string(licence_of(package.wheel))],
    )  # fmt: skip


def _sha256(digest: str) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=digest)
