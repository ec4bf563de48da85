"""Making a kit: packages, bundle, licences, bill of materials, checksums and an installer."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Callable, Sequence
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

    `wheel` is that of vcs-runtime, None to find it (`own_wheel`). Raises ValueError for an unknown
    extra, KitError if packages cannot be gathered, BundleError, InputError for the output, and
    OSError.
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
        named = choose_extras(extras, own)
        (folder / "wheels").mkdir()
        packages = gather(own, named, target, folder / "wheels", log)
        log(f"copying the bundle {opened.manifest.name}")
        copy_bundle(opened, folder / "bundle")
        log("writing licences, bill of materials and checksums")
        name = "default" if bundle == "default" else opened.manifest.name
        _describe(folder, packages, opened, named, target, name)
        lines = [
            f"{sha256_of(path)}  {path.relative_to(folder).as_posix()}" for path in _files(folder)
        ]
        _write(folder / SUMS, "\n".join(lines) + "\n")
        return sha256_of(folder / SUMS)


def choose_extras(named: Sequence[str], own: Path) -> list[str]:
    """Return the extras of a kit in order: `named`, `default`, and `cpu` unless gpu is named.

    Raises ValueError for an extra that the wheel `own` does not have.
    """
    extras = metadata_of(own).metadata.get_all("Provides-Extra", [])
    if unknown := [extra for extra in named if extra not in extras]:
        raise ValueError(f"unknown extra {unknown[0]!r}: choose from {', '.join(sorted(extras))}")
    return sorted({*named, "default", *(() if "gpu" in named else ("cpu",))})


def _describe(
    folder: Path,
    packages: Sequence[Package],
    bundle: Bundle,
    extras: Sequence[str],
    target: Target,
    name: str,
) -> None:
    """Write all files of a kit beside wheels and bundle, except for the checksums."""
    site, manifest = files("vcs_export.kit").joinpath("site"), bundle.manifest
    size = sum(unpacked_size(package.wheel) for package in packages)
    size += sum(entry.size for entry in manifest.files)
    [pip] = [package.wheel.name for package in packages if package.name == PIP]
    kit = {
        "vcs-runtime": __version__,
        "python": target.python,
        "platform": target.platform,
        "extras": list(extras),
        "bundle": name,
        "pip": f"wheels/{pip}",
        "bytes": size,
    }
    _write(folder / "kit.json", json.dumps(kit, indent=1) + "\n")
    for script in ("install.py", "install.sh"):
        _write(folder / script, site.joinpath(script).read_text("utf-8"))
    (folder / "install.sh").chmod(0o755)
    text = (
        site.joinpath("README.txt")
        .read_text("utf-8")
        .format(
            version=__version__,
            python=target.python,
            platform=target.platform,
            extras=", ".join(extras),
            bundle=manifest.name,
            licence=manifest.licence,
            megabytes=-(-size // 1_000_000),
            option=(
                "" if name == "default" else f" --bundle FOLDER/share/vcs-runtime/bundles/{name}"
            ),
        )
    )
    _write(folder / "README.txt", text)
    pinned = [
        f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
        for package in packages
    ]
    _write(folder / "requirements.txt", "".join(pinned))
    _write(folder / "sbom.cdx.json", bill_of_materials(packages, bundle))
    lines = []
    for package in packages:
        texts = copy_texts(package.wheel, folder / "licences" / f"{package.name}-{package.version}")
        lines.append(
            f"{package.name} {package.version}: {licence_of(package.wheel)}; licence texts:"
            f" {texts}\n"
        )
    lines.append(f"bundle {manifest.name}: {manifest.licence}; see the folder bundle\n")
    _write(folder / "licences" / "licences.txt", "".join(lines))
    story = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    _write(folder / "story" / "reference.txt", story["reference"] + "\n")
    _write(folder / "story" / "generated.txt", story["versions"][1]["text"] + "\n")


def _write(path: Path, text: str) -> None:
    """Write a text file with the same bytes on every system."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


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
    with zipfile.ZipFile(wheel) as archive:
        texts = [
            info for info in archive.infolist() if not info.is_dir() and _is_text(info.filename)
        ]
        for info in texts:
            archive.extract(info, folder)  # inside the folder, whatever its name says
    return len(texts)


def _is_text(name: str) -> bool:
    path = PurePosixPath(name)
    about = path.parts[0].endswith(".dist-info")
    within = (
        about and len(path.parts) > 2 and path.parts[1].lower() in ("licenses", "license_files")
    )
    return within or (path.name.upper().startswith(_TEXTS) and path.suffix != ".py")


def unpacked_size(wheel: Path) -> int:
    """Return the number of bytes that a wheel has when it is installed."""
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
    bom = Bom(
        components=[*(component for name, component in components.items() if name != NAME), model]
    )
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
