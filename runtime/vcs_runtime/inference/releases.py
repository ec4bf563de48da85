"""Which release of ONNX Runtime a graph needs: told by the graph, so that it holds for every bundle.

An older release refuses the graph in words of its own, or it opens the graph and computes something else.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from vcs_runtime.bundle.onnx_check import graph_versions
from vcs_runtime.inference.device import CUDA, available_providers, import_onnxruntime

# From which version of the file format, or of the standard operators, a graph needs which release. The tests
# in tests/inference/test_releases.py ran under all releases around these.
_NEEDED: Final = (
    # 1.23.0 computes attention with a mask wrongly.
    (11, 23, (1, 23, 1)),
    # 1.24 opens such graphs, but computes attention over padded texts wrongly.
    (12, 24, (1, 25)),
)


def needed_release(model: Path) -> tuple[int, ...]:
    """Return the lowest release of ONNX Runtime that runs a graph rightly: `(1, 25)`, or () for all.

    Raises BundleError if the file is not an ONNX graph.
    """
    file_format, operators = graph_versions(model)
    fitting = [release for ir, opset, release in _NEEDED if file_format >= ir or operators >= opset]
    return max(fitting, default=())


def old_release(model: Path) -> str:
    """Say that the installed ONNX Runtime is too old for a graph, and what to do; "" if it is not.

    Raises BundleError, as `needed_release`, and MissingExtraError without ONNX Runtime.
    """
    installed: str = import_onnxruntime().__version__
    needed = needed_release(model)
    if tuple(map(int, re.findall(r"\d+", installed)[:3])) >= needed:
        return ""
    release = ".".join(map(str, needed))
    package = "onnxruntime-gpu" if CUDA in available_providers() else "onnxruntime"
    return (
        f"{model} needs ONNX Runtime {release} or later, and {installed} is installed: "
        f"pip install --upgrade '{package}>={release}'"
    )
