"""`vcs-runtime doctor`: what this machine has, and what is missing with the command that brings it."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import click

from vcs_runtime._version import __version__
from vcs_runtime.bundle.manifest import SegmenterSpec
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.bundle.paths import default_bundle_path, home
from vcs_runtime.cli.tables import console
from vcs_runtime.errors import BundleError, DeviceError, MissingExtraError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import (
    available_cores,
    available_providers,
    choose_device,
    import_onnxruntime,
)
from vcs_runtime.inference.tensorrt import fitting

# Distribution, and the extra that brings it (None: the base install).
_PACKAGES = {
    "numpy": None,
    "numba": None,
    "tokenizers": None,
    "onnxruntime": "cpu",
    "onnxruntime-gpu": "gpu",
    "sentencex": "default",
    "onnx-ir": "default",
    "safetensors": "default",
    "pyarrow": "parquet",
}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor(as_json: bool) -> None:
    """Say which versions, providers, caches and bundles there are, and what is missing.

    The exit code is 1 when something that scoring needs is missing.
    """
    problems: list[str] = []
    report = dict(_report(problems))
    if as_json:
        click.echo(json.dumps({**report, "problems": problems}))
    else:
        out = console()
        for name, value in report.items():
            out.print(f"{name:20} {value}", soft_wrap=True, markup=False)
        verdict = "\n".join(f"! {problem}" for problem in problems) or "nothing is missing"
        out.print("\n" + verdict, soft_wrap=True, markup=False)
    click.get_current_context().exit(1 if problems else 0)


def _report(problems: list[str]) -> Iterator[tuple[str, str]]:
    yield "vcs-runtime", __version__
    yield "python", f"{platform.python_version()} ({sys.executable})"
    yield (
        "machine",
        f"{platform.platform()}, {available_cores()} cores",
    )
    found = {name: _version(name) for name in _PACKAGES}
    for name, extra in _PACKAGES.items():
        yield name, found[name] or f"not installed (vcs-runtime[{extra}])"
    if found["onnxruntime"] and found["onnxruntime-gpu"]:
        problems.append(
            "onnxruntime and onnxruntime-gpu overwrite each other: uninstall both, install one again"
        )
    if not found["sentencex"]:
        problems.append("the default segmenter is missing: pip install 'vcs-runtime[default]'")
    try:
        yield "providers", ", ".join(available_providers())
        device = choose_device("auto")
        yield "device auto", f"{device.provider_name} ({device.reason})"
        yield from _gpu(problems)
    except (DeviceError, MissingExtraError) as error:
        problems.append(str(error))
    yield "home", f"{home()}{' (VCS_RUNTIME_HOME)' if os.environ.get('VCS_RUNTIME_HOME') else ''}"
    yield (
        "numba cache",
        os.environ.get("NUMBA_CACHE_DIR") or "beside the package, else the user's cache folder",
    )
    try:
        bundle = open_bundle("default")
        yield "default bundle", _describe(bundle)
        if bundle.manifest.engines:
            engines, why = fitting(bundle, "embedder", 0)
            yield "TensorRT engine", engines[0].model if engines else why
    except BundleError as error:
        yield "default bundle", f"none in {default_bundle_path()}"
        problems.append(str(error))


def _gpu(problems: list[str]) -> Iterator[tuple[str, str]]:
    """The first GPU and what ONNX Runtime needs of NVIDIA's libraries, where it was built for a GPU.

    TensorRT is a matter of choice: what it lacks is said, and is no problem.
    """
    if "CUDAExecutionProvider" not in available_providers():
        return
    major = nvidia.cuda_major(import_onnxruntime())
    try:
        found = nvidia.gpu(0)
        fp8 = "FP8" if found.has_fp8 else "no FP8 (from sm89 on)"
        yield "GPU 0", f"{found.name}, {found.architecture}, {found.memory / 1e9:.0f} GB, {fp8}"
    except DeviceError as error:
        yield "GPU 0", "none"
        problems.append(str(error))
    for item in nvidia.libraries(major):
        yield item.name, f"missing ({item.package})" if item.version is None else item.version or "found"
    if lacking := nvidia.missing(major):
        problems.append(f"the CUDA provider of ONNX Runtime lacks {lacking}")
    if "TensorrtExecutionProvider" in available_providers():
        version = nvidia.tensorrt_version()
        lacking = nvidia.missing(major, tensorrt=True)
        yield "TensorRT", f"device tensorrt:N lacks {lacking}" if lacking else f"{version}"


def _describe(bundle: Bundle) -> str:
    manifest = bundle.manifest
    size = sum(entry.size for entry in manifest.files)
    return (
        f"{bundle.root}: {manifest.name}, {size / 1e6:.1f} MB, {len(manifest.files)} files, hashes right; "
        f"segmenter: {_segmenters(manifest.segmenter)}"
    )


def _segmenters(spec: SegmenterSpec | None) -> str:
    rules = f"rules ({spec.rules.name}, {spec.rules.language})" if spec and spec.rules else None
    model = f"model ({spec.model.name}, {spec.model.precision})" if spec and spec.model else None
    return " and ".join(filter(None, (rules, model))) or "none"


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
