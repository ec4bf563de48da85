"""What onnxruntime-gpu 1.31.1 refuses, and how: seen with its real providers over stand-ins of
NVIDIA's libraries (`support.cuda_stand_ins`), and kept here for tests whose ONNX Runtime has no
GPU."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx

_DEFAULTS = {
    "device_id": "0",
    "arena_extend_strategy": "kNextPowerOfTwo",
    "gpu_mem_limit": str(2**64 - 1),
    "use_tf32": "1",
    "sdpa_kernel": "0",
    "do_copy_in_default_stream": "1",
    "enable_cuda_graph": "0",
    "cudnn_conv_algo_search": "EXHAUSTIVE",
}
_FLAGS = ("use_tf32", "do_copy_in_default_stream", "enable_cuda_graph")
_NUMBERS = ("device_id", "gpu_mem_limit", "sdpa_kernel")
_STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")
# Entries that are silently off unless they are "1".
_SESSION_ENTRIES = (
    "session.use_device_allocator_for_initializers",
    "session.record_ep_graph_assignment_info",
)
_ON_THE_CPU = ("DynamicQuantizeLinear", "MatMulInteger")


def cuda_options(options: Mapping[str, Any], gpus: int) -> dict[str, str]:
    """All options of the CUDA provider, as a session reports them, by their `str`."""
    taken = dict(_DEFAULTS)
    for name, value in options.items():
        text = str(value)
        if name not in _DEFAULTS:
            raise RuntimeError(
                f'[ONNXRuntimeError] : 1 : FAIL : Unknown provider option: "{name}".'
            )
        if name in _FLAGS and text.lower() in ("true", "false"):
            text = "1" if text.lower() == "true" else "0"
        if (
            (name in _FLAGS and text not in ("0", "1"))
            or (name in _NUMBERS and not text.isdecimal())
            or (name == "arena_extend_strategy" and text not in _STRATEGIES)
            or (name == "device_id" and int(text) >= gpus)
        ):
            raise RuntimeError(
                f'[ONNXRuntimeError] : 1 : FAIL : Failed to parse provider option "{name}"'
            )
        taken[name] = text
    return taken


def check_session_entries(options: Any) -> None:
    for key in _SESSION_ENTRIES:
        try:
            value = options.get_session_config_entry(key)
        except RuntimeError:  # not set
            continue
        assert value == "1", f"{key}={value} does nothing"


def assignment(graph: bytes, entries: Any, provider: str) -> list[SimpleNamespace]:
    """Which provider has which nodes: the CPU has those for which CUDA has no kernel."""
    key = _SESSION_ENTRIES[1]
    try:
        entries.get_session_config_entry(key)
    except RuntimeError:
        raise RuntimeError(f"Session configuration entry '{key}' must be set to \"1\"") from None
    parts: dict[str, list[Any]] = {provider: [], "CPUExecutionProvider": []}
    for node in onnx.load_model_from_string(graph).graph.node:
        parts["CPUExecutionProvider" if node.op_type in _ON_THE_CPU else provider].append(
            SimpleNamespace(op_type=node.op_type, name=node.name, domain=node.domain)
        )
    return [
        SimpleNamespace(ep_name=name, get_nodes=lambda nodes=nodes: nodes)
        for name, nodes in parts.items()
        if nodes
    ]


def check_run_entries(entries: Mapping[str, str], gpu: int) -> None:
    for place in filter(None, entries.get("memory.enable_memory_arena_shrinkage", "").split(";")):
        kind, _, number = place.partition(":")
        if kind not in ("cpu", "gpu"):
            raise RuntimeError(
                f"Unsupported device specified in the memory arena shrink list: {kind}"
            )
        if number and not number.isdecimal():
            raise RuntimeError(f"Unsupported device id in the memory arena shrink list: {number}")
        if kind == "gpu" and int(number or 0) != gpu:
            raise RuntimeError(f"Did not find an arena based allocator registered for {place}")


def check_value(array: Any, kind: str, index: int, gpus: int) -> None:
    """An array that is put into a GPU's memory."""
    if not isinstance(array, np.ndarray):
        raise RuntimeError(
            "Creation of OrtValues is currently only supported from non-string numpy arrays"
        )
    if not isinstance(index, int):
        raise TypeError("OrtDevice(): incompatible constructor arguments")
    if kind not in ("cuda", "gpu") or index >= gpus:
        raise RuntimeError(
            "The provided device id doesn't match any available GPUs on the machine."
        )
