"""Where a bundle's graphs are measured while it is built: on a GPU if there is one, otherwise on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from vcs_export.errors import ExportError
from vcs_export.quantization import fp8
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.device import choose_device, describe, split_device

T = TypeVar("T")
Report = Callable[[str], None]
"""Takes one line about a step."""


def unreported(line: str) -> None:
    """Drop a line: the `Report` of callers that want none."""


class Measuring:
    """A device to measure on, "auto", "cpu" or "cuda:N". A GPU that "auto" chose and that fails is left.

    Raises ExportError or ValueError for another name, and DeviceError.
    """

    def __init__(self, device: str, precision: str, report: Report = unreported) -> None:
        if split_device(device)[0] == "tensorrt":
            raise ExportError(f"device must be auto, cpu or cuda:N, not {device}")
        chosen = choose_device(device)
        if chosen.is_gpu and precision == fp8.PRECISION and not (gpu := nvidia.gpu(chosen.index)).has_fp8:
            if device != "auto":
                raise DeviceError(f"{device}: {gpu.name} does not multiply in FP8: --device cpu")
            chosen = replace(choose_device("cpu"), reason=f"auto: {gpu.name} does not multiply in FP8")
        self._fallback = device == "auto" and chosen.is_gpu
        self._device = f"cuda:{chosen.index}" if chosen.is_gpu else "cpu"
        self._precision, self._report = precision, report
        report(f"{precision} is measured on {describe(chosen)}")

    def run(self, work: Callable[[str], T]) -> T:
        """Return what `work` returns, which takes the name of the device."""
        if self._fallback:
            try:
                return work(self._device)
            except DeviceError as error:
                self._report(f"{self._precision} is measured on the CPU after all: {error}")
                self._fallback, self._device = False, "cpu"
        return work(self._device)
