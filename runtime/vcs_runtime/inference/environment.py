"""What may round a score otherwise: versions, the processor, and limits of instructions."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Final

import numpy as np

from vcs_runtime.bundle.manifest import EmbedderSpec, LearnedSegmenterSpec
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.inference.device import Device, import_onnxruntime
from vcs_runtime.inference.rtx_session import release
from vcs_runtime.inference.tensorrt import own_hash

# The variables that forbid OpenVINO instructions, after the names of their fields.
_LIMITS: Final = (
    ("onednn", "ONEDNN_MAX_CPU_ISA"),
    ("dnnl", "DNNL_MAX_CPU_ISA"),
    ("ovcpu", "OV_CPU_MAX_ISA"),
)


def environment(engines: Iterable[str]) -> list[str]:
    """Return the fields of the long form, where these engines run models."""
    versions = []
    engines = list(engines)
    if any(not re.search("openvino|tensorrt", engine) for engine in engines):
        versions.append(f"ort:{import_onnxruntime().__version__}")
    if any("tensorrt" in engine for engine in engines):
        versions.append(f"tensorrt:{release().split()[1]}")
    if any("openvino" in engine for engine in engines):
        versions.append(f"openvino:{version('openvino')}")
        for name, variable in _LIMITS:
            if limit := os.environ.get(variable):
                versions.append(f"{name}:{re.sub(r'[^A-Za-z0-9_]', '_', limit)}")
    if versions:
        versions.append(f"tokenizers:{version('tokenizers')}")
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    groups = [*simd.get("baseline", ()), *simd.get("found", ())]
    cpu = platform.machine().lower()
    if groups:
        cpu = f"{cpu}/{groups[-1]}"
    return [*versions, f"numpy:{np.__version__}", f"numba:{version('numba')}", f"cpu:{cpu}"]


def model_identity(
    bundle: Bundle, spec: EmbedderSpec | LearnedSegmenterSpec, device: Device, engine: str
) -> str:
    """Return everything besides its text on which the output of a model depends.

    `engine` is the name of what runs the model, as the signature has it.
    """
    identity = [bundle.model_hash(spec), own_hash(bundle, spec, device) or device.provider_name]
    if device.precision and not device.is_gpu:
        identity.append(device.precision_of(spec.precision, spec.cuda))
    return "|".join([*identity, *rounding_fields(device), *environment([engine])])


def rounding_fields(device: Device) -> list[str]:
    """Return the fields of the signature for settings of a device that change rounding."""
    fields: list[str] = []
    if device.instructions:
        fields.append(f"isa:{device.instructions}")
    if device.batch_invariant:
        fields.append("batch:invariant")
    return fields
