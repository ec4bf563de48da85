"""NVIDIA's real Python package of TensorRT, and ONNX Runtime's real TensorRT provider, without
TensorRT.

Both run over the stand-ins of `tensorrt_stand_ins.c`, beside those of CUDA. So the package takes or
refuses what the builder asks for, and the provider takes or refuses the graph of an engine. What
TensorRT makes of a graph stays unknown.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.cuda_stand_ins import LIBRARIES as CUDA_LIBRARIES
from support.cuda_stand_ins import DryGpu, Log, Other

SOURCE = Path(__file__).with_suffix(".c")
# The first has all functions: a process finds them there, whichever library it expects them in.
LIBRARIES = ("libnvinfer.so.10", "libnvonnxparser.so.10", "libnvinfer_plugin.so.10")


@dataclass(frozen=True)
class Loaded:
    """A loaded engine: flags of its network and builder, number of inputs and outputs."""

    network_flags: int
    builder_flags: int
    tensors: int


def with_tensorrt(gpu: DryGpu) -> DryGpu:
    """Compile TensorRT's libraries into a new folder, with links to the other stand-ins."""
    folder = gpu.folder / "with-tensorrt"
    folder.mkdir()
    for library in CUDA_LIBRARIES:
        (folder / library).symlink_to(gpu.folder / library)
    for number, library in enumerate(LIBRARIES):
        source = [str(SOURCE)] if number == 0 else ["-x", "c", "/dev/null"]
        command = f"cc -std=gnu11 -O1 -shared -fPIC -Wall -Wno-unused -Wl,-soname,{library}".split()
        subprocess.run([*command, "-o", str(folder / library), *source], check=True)
    return DryGpu(folder)


def use_nvidias_package() -> None:
    """Make `import tensorrt` find NVIDIA's bindings, without the package of its libraries."""
    import tensorrt_bindings

    sys.modules["tensorrt"] = tensorrt_bindings


def built_on(log: Log) -> list[int]:
    """Return the number of the GPU on which each engine was built, in order."""
    return [
        int(event.fields[0])
        for event in log.events
        if isinstance(event, Other) and event.what == "built"
    ]


def loaded_engines(log: Log) -> list[Loaded]:
    """Return the engines that were loaded, in order."""
    found = [
        event.fields for event in log.events if isinstance(event, Other) and event.what == "loaded"
    ]
    return [Loaded(*map(int, fields)) for fields in found]


def engine_runs(log: Log) -> list[str]:
    """Return an engine's input shapes of each run: "input_ids 2x8, attention_mask 2x8"."""
    return [
        event.fields[0]
        for event in log.events
        if isinstance(event, Other) and event.what == "engine"
    ]
