"""The bill of materials of a kit, as CycloneDX in JSON: packages, their hashes, licences and dependencies."""

from __future__ import annotations

from collections.abc import Sequence

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from vcs_export.kit.licences import licence_of
from vcs_export.kit.own import NAME
from vcs_export.kit.packages import Package
from vcs_runtime._version import __version__
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.opening import Bundle


def bill_of_materials(packages: Sequence[Package], bundle: Bundle) -> str:
    """Describe a kit as a CycloneDX 1.6 document."""
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
