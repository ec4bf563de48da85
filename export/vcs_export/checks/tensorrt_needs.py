"""What building TensorRT engines needs: memory, disk, time. All calculated from the weights, not measured."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vcs_export.errors import ExportError
from vcs_runtime.bundle.manifest import EmbedderSpec, Part
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import BundleError
from vcs_runtime.inference import nvidia

# The parser, the builder and the finished engine each hold the weights in the host's memory.
_COPIES = 3
_HOST = 2e9
# Bytes of the GPU for each place of the largest batch, and for each number of a vector: inputs and outputs of
# the widest layer. NV-Embed-v2 in half precision has 28,672 numbers there, for vectors of 4,096.
_PLACE = 32
_SEGMENTER_WIDTH = 1024  # not in the manifest; of the largest learned segmenters
# Minutes of an engine, and of each GB of weights: TensorRT reads, transforms and times them.
_MINUTES, _MINUTES_PER_GB = 1.0, 0.5
_MEMORY = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Needs:
    """What building engines needs. Sizes are bytes."""

    memory: float
    disk: float
    gpu_memory: float
    minutes: float

    def __str__(self) -> str:
        return (
            f"{_gb(self.memory)} of memory, {_gb(self.disk)} of disk, {_gb(self.gpu_memory)} of the GPU's "
            f"memory, about {self.minutes:.0f} min"
        )


def needs_of(bundle: Bundle, batches: Sequence[tuple[Part, tuple[int, int]]]) -> Needs:
    """Calculate what building engines needs."""
    memory = disk = gpu_memory = minutes = 0.0
    for part, (rows, tokens) in batches:
        spec = bundle.part(part)
        if spec is None:
            raise BundleError(f"bundle {bundle.root}: it holds no {part}")
        weights = bundle.weights_size(spec)
        width = spec.dimension if isinstance(spec, EmbedderSpec) else _SEGMENTER_WIDTH
        memory = max(memory, _COPIES * weights + _HOST)
        disk += weights
        gpu_memory += weights + _PLACE * width * rows * tokens
        minutes += _MINUTES + _MINUTES_PER_GB * weights / 1e9
    return Needs(memory, disk, gpu_memory, minutes)


def check_needs(bundle: Bundle, needs: Needs, index: int, *, ignore: bool = False) -> str:
    """Compare what building needs with what this machine has."""
    gpu = nvidia.gpu(index)
    free = shutil.disk_usage(bundle.root.parent).free
    rows = [
        ("memory", needs.memory, free_host_memory()),
        (f"disk beside {bundle.root}", needs.disk, free),
        (f"memory of {gpu.name}", needs.gpu_memory, gpu.memory),
    ]
    needed = ", ".join(f"{_gb(need)} of {what} ({_gb(there)} here)" for what, need, there in rows)
    line = f"calculated needs: {needed}, about {needs.minutes:.0f} min"
    short = [what for what, need, there in rows if there is not None and there < need]
    if short and not ignore:
        raise ExportError(
            f"{bundle.root}: too little {', '.join(short)} to build engines; {line}. Fewer or smaller "
            "engines (--shape) need less; --ignore-needs starts all the same"
        )
    return line


def free_host_memory() -> int | None:
    """Return the bytes of memory that this process may still take; None if the system does not say."""
    try:
        fields = dict(line.split(":", 1) for line in _MEMORY.read_text().splitlines())
        free = int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:  # the limit of a container
        limit, used = (int((_GROUP / f"memory.{name}").read_text()) for name in ("max", "current"))
        numbers = dict(line.split() for line in (_GROUP / "memory.stat").read_text().splitlines())
        # What was read of files counts as used, and makes room: a bundle just exported fills many GB with it.
        used -= int(numbers["inactive_file"]) + int(numbers["active_file"])
    except (OSError, KeyError, ValueError):
        return free
    return min(free, max(0, limit - used))


def _gb(size: float | None) -> str:
    return "unknown" if size is None else f"{size / 1e9:.1f} GB"
