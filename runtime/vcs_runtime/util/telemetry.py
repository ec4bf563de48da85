"""Telemetry of libraries, switched off."""

from __future__ import annotations

import os
import sys
import warnings

_VARIABLE = "ORT_DISABLE_TELEMETRY"
_REPORTS_FROM = (1, 31)


def may_report() -> bool:
    """Return whether ONNX Runtime was imported with its telemetry on, which nothing can switch off later."""
    if os.environ.get(_VARIABLE) == "1" or (onnxruntime := sys.modules.get("onnxruntime")) is None:
        return False
    version = str(getattr(onnxruntime, "__version__", "")).split(".")[:2]
    return not all(word.isdigit() for word in version) or tuple(map(int, version)) >= _REPORTS_FROM


def refuse_telemetry() -> None:
    """Keep ONNX Runtime from reporting to its makers; call this before it is imported.

    Its wheels report from version 1.31 on, unless the environment says otherwise. Where something else has
    imported it already, a RuntimeWarning says so, once.
    """
    if may_report():
        warnings.warn(
            "onnxruntime was imported before vcs-runtime, and may report to its makers: "
            f"set {_VARIABLE}=1 before it is imported",
            RuntimeWarning,
            stacklevel=2,
        )
    os.environ[_VARIABLE] = "1"
