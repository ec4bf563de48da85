"""`vcs-runtime doctor`: the state of this machine, and commands that install what is missing."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import click

from vcs_runtime._version import __version__
from vcs_runtime.bundle.manifest import SegmenterSpec
from vcs_runtime.bundle.opening import Bundle, open_bundle, unproved
from vcs_runtime.bundle.paths import home
from vcs_runtime.cli.options import SectionedCommand, as_json, bundle
from vcs_runtime.cli.tables import console
from vcs_runtime.errors import BundleError, DeviceError, MissingExtraError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import available_providers, choose_device, import_onnxruntime
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.fitness import describe_unfit, fitness_lines, measure, with_fitness
from vcs_runtime.inference.onnx_session import old_release
from vcs_runtime.inference.openvino import best_precision, bf16_instructions, is_slow_in_bf16
from vcs_runtime.inference.speed import seconds_of
from vcs_runtime.inference.tensorrt import choose_for, fitting
from vcs_runtime.util.process import available_cores
from vcs_runtime.util.telemetry import early_reporters

_BASE = ("numpy", "numba", "tokenizers")
# The packages of each extra. Packages of `cpu`, `gpu` and `default` have a line in the report.
_MAIN = {"onnxruntime": "cpu", "onnxruntime-gpu": "gpu", "sentencex": "default"}
_EXTRAS = {
    "openvino": ("openvino",),
    "tensorrt": (
        "tensorrt-rtx-cu13-libs",
        "tensorrt-rtx-cu13-bindings",
        "cuda-core",
        "cuda-bindings",
    ),
    "default": ("onnx-ir", "safetensors"),
    "export": ("onnx", "onnx-ir", "safetensors"),
    "parquet": ("pyarrow",),
    "xlsx": ("python-calamine",),
    "report": ("matplotlib",),
    "experiments": ("nltk", "rouge-score", "scipy"),
    "serve": ("starlette", "uvicorn"),
    "ray": ("ray",),
    "visil": ("onnxruntime-genai",),
    "video": ("av",),
    "capi": ("cffi",),
    "kit": ("pip", "packaging", "cyclonedx-python-lib"),
}
_INSTRUCTIONS = {"amx": "AMX", "avx512": "AVX-512 BF16"}
_PROCESSORS_PAGE = "docs/guide/processors.md"
_CLEARLY = 1.1  # times as fast as cpu: less is within the noise of a few seconds


@click.command(cls=SectionedCommand)
@bundle
@click.option(
    "--measure",
    is_flag=True,
    help="Measure how fast cpu and openvino run the bundle's embedder, in some seconds.",
)
@as_json
def doctor(bundle: str, measure: bool, as_json: bool) -> None:
    """Check that this machine has everything for scoring.

    The report shows packages, devices, caches and the bundle, and names the command that installs
    what is missing. The exit code is 1 if anything that scoring needs is missing.

    \b
    Examples:
      vcs-runtime doctor
      vcs-runtime doctor --bundle authors
      vcs-runtime doctor --measure
    """
    report = _examine(bundle)
    if measure:
        report.facts |= _measured(bundle)
    if as_json:
        click.echo(json.dumps({**report.facts, "problems": report.problems}))
    else:
        out = console()
        for name, value in report.facts.items():
            out.print(f"{name:20} {value}", soft_wrap=True, markup=False)
        problems = [f"! {problem}" for problem in report.problems]
        verdict = "\n".join(problems) or "this machine has everything that scoring needs"
        out.print("\n" + verdict, soft_wrap=True, markup=False)
    click.get_current_context().exit(1 if report.problems else 0)


@dataclass
class _Report:
    """Facts about this machine by name, and problems that prevent scoring."""

    facts: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def _examine(name: str) -> _Report:
    report = _Report()
    facts, problems = report.facts, report.problems
    facts["vcs-runtime"] = __version__
    facts["python"] = f"{platform.python_version()} ({sys.executable})"
    facts["machine"] = f"{platform.platform()}, {available_cores()} cores"
    for package in (*_BASE, *_MAIN):
        facts[package] = _version(package) or f"not installed (vcs-runtime[{_MAIN.get(package)}])"
    for extra, packages in _EXTRAS.items():
        facts[f"extra {extra}"] = _describe_extra(extra, packages)
    if _version("onnxruntime") and _version("onnxruntime-gpu"):
        problems.append(
            "onnxruntime and onnxruntime-gpu overwrite each other: uninstall both, install one"
            " again"
        )
    early = " and ".join(early_reporters())
    facts["telemetry"] = (
        f"{early} was imported before vcs-runtime, with telemetry on" if early else "off"
    )
    try:
        facts["providers"] = ", ".join(available_providers())
        device = choose_device("auto")
        facts["device auto"] = f"{device.provider_name} ({device.reason})"
        if "CUDAExecutionProvider" in available_providers():
            _examine_gpu(report)
        elif nvidia.gpu_is_there():
            install = "pip uninstall onnxruntime, then pip install 'vcs-runtime[gpu]'"
            facts["GPU 0"] = f"{nvidia.gpu(0).name}, unused: {install}, then --device cuda:0"
        else:
            facts["GPU 0"] = "NVIDIA's driver shows no GPU: --device auto uses the CPU"
    except (DeviceError, MissingExtraError) as error:
        problems.append(str(error))
    facts["device openvino"] = _describe_openvino()
    try:
        facts["home"] = str(home())
        if os.environ.get("VCS_RUNTIME_HOME"):
            facts["home"] += " (VCS_RUNTIME_HOME)"
    except BundleError:
        facts["home"] = "none"
    facts["numba cache"] = (
        os.environ.get("NUMBA_CACHE_DIR") or "the package's folder, or else your cache folder"
    )
    rules = _examine_bundle(name, report)
    if rules and not _version("sentencex"):
        problems.append("the default segmenter is missing: pip install 'vcs-runtime[default]'")
    return report


def _examine_bundle(name: str, report: _Report) -> bool:
    """Add a bundle, and what TensorRT makes of it; return whether it needs rules."""
    facts = report.facts
    label = "default bundle" if name == "default" else "bundle"
    try:
        opened = open_bundle(name)
    except BundleError as error:
        facts[label] = "none"
        report.problems.append(str(error))
        return True
    facts[label] = _describe(opened)
    if lacking := " and ".join(unproved(opened)):
        facts["proof"] = (
            f"missing for its {lacking}: `vcs-runtime export verify {opened.root}` adds it"
        )
    for problem in _hindrances(opened):
        if problem not in report.problems:
            report.problems.append(problem)
    if opened.manifest.embedder and name != "default":
        _examine_fitness(opened, report)
    if nvidia.gpu_is_there():
        facts["TensorRT engine"] = fitting(opened, "embedder", 0).words
    return bool(opened.manifest.segmenter and opened.manifest.segmenter.rules)


def _examine_fitness(opened: Bundle, report: _Report) -> None:
    """Add the fitness of a bundle's embedder, which is measured unless the bundle records it."""
    spec = opened.manifest.embedder
    if spec and spec.fitness is None:
        try:
            with Embedder.open(opened) as embedder:
                opened = with_fitness(opened, measure(embedder.embed))
        except (BundleError, DeviceError, MissingExtraError) as error:
            report.facts["fitness"] = f"not measured: {error}"
            return
        spec = opened.manifest.embedder
    assert spec
    for line in fitness_lines(spec):
        name, _, figures = line.partition(": ")
        report.facts[name] = figures
    if problem := describe_unfit(opened):
        report.facts["WARNING"] = problem  # scoring works, so it is no problem of the machine


def _hindrances(bundle: Bundle) -> Iterator[str]:
    """Yield why the device that "auto" chooses cannot run the models of a bundle."""
    for part in ("embedder", "segmenter"):
        spec = bundle.part(part)
        if spec:
            try:
                choose_for(bundle, part, "auto")
                old = old_release(bundle.path(spec.model))
                if old:
                    yield old
            except DeviceError as error:
                yield str(error)
            except MissingExtraError:
                return  # ONNX Runtime is missing, which is reported elsewhere


def _examine_gpu(report: _Report) -> None:
    """Add the first GPU and NVIDIA's libraries."""
    facts, problems = report.facts, report.problems
    onnxruntime = import_onnxruntime()
    try:
        gpu = nvidia.gpu(0)
        facts["GPU 0"] = f"{gpu.name}, {gpu.architecture}, {gpu.memory / 1e9:.0f} GB"
        unfit = nvidia.unfit(onnxruntime, 0)
        if unfit:
            problems.append(f"cuda:0: {unfit}")
    except DeviceError as error:
        facts["GPU 0"] = "none"
        problems.append(str(error))
    for library in nvidia.libraries(onnxruntime):
        if library.version is None:
            facts[library.name] = f"missing ({library.package})"
        else:
            facts[library.name] = library.version or "found"
    if lacking := nvidia.missing(onnxruntime):
        problems.append(f"the CUDA provider of ONNX Runtime lacks {lacking}")


def _measured(name: str) -> dict[str, str]:
    """Measure the devices of the processor, and say which to take."""
    devices = ["cpu"]
    if _version("openvino"):
        devices.append("openvino")
        if best_precision()[0] == "bf16":
            devices.append("openvino:fp32")
    seconds = seconds_of(open_bundle(name), devices)
    facts = {
        f"speed of {device}": f"{each:.2f} s for two descriptions and their sentences"
        for device, each in seconds.items()
    }
    best = min(devices, key=lambda device: seconds[device])
    times = seconds["cpu"] / seconds[best]
    if len(devices) == 1:
        verdict = "only cpu was measured; pip install 'vcs-runtime[openvino]' adds another device"
    elif times < _CLEARLY:
        verdict = "cpu: no other device is clearly faster with this bundle"
    else:
        verdict = f"{best}: {times:.2f} times as fast as cpu, with slightly different scores"
    return {**facts, "fastest device": verdict}


def _describe_openvino() -> str:
    """Describe the precision of device openvino on this processor.

    If OpenVINO is not installed, describe what installing it would bring.
    """
    named = _INSTRUCTIONS.get(bf16_instructions(), "")
    try:
        precision, reason = best_precision()
    except MissingExtraError as error:
        if _version("openvino"):
            return str(error)
        if not named or is_slow_in_bf16():
            return "not installed"
        return (
            f"not installed; this processor has bf16 ({named}), which vcs-runtime[openvino] uses:"
            f" {_PROCESSORS_PAGE}"
        )
    if precision != "bf16":
        return f"{precision} ({reason}); hardly faster than device cpu"
    faster = "faster" if named == "AMX" else "perhaps faster (--measure)"
    if named:
        reason += f": {named}"
    return (
        f"bf16 ({reason}); {faster} than device cpu, with slightly different scores:"
        f" {_PROCESSORS_PAGE}"
    )


def _describe(bundle: Bundle) -> str:
    manifest = bundle.manifest
    size = sum(entry.size for entry in manifest.files)
    return (
        f"{bundle.root}: {manifest.name}, {size / 1e6:.1f} MB, {len(manifest.files)} files, hashes"
        f" match; segmenter: {_segmenters(manifest.segmenter)}"
    )


def _segmenters(spec: SegmenterSpec | None) -> str:
    parts = []
    if spec and spec.rules:
        parts.append(f"rules ({spec.rules.name}, {spec.rules.language})")
    if spec and spec.model:
        parts.append(f"learned segmenter ({spec.model.name}, {spec.model.precision})")
    return " and ".join(parts) or "none"


def _describe_extra(extra: str, packages: tuple[str, ...]) -> str:
    """Name the packages of an extra with their versions, or the packages that are missing."""
    versions = {package: _version(package) for package in packages}
    missing = [package for package, installed in versions.items() if not installed]
    if missing:
        return f"{', '.join(missing)} not installed (vcs-runtime[{extra}])"
    return ", ".join(f"{package} {installed}" for package, installed in versions.items())


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
