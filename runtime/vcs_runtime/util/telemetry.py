"""Telemetry of libraries, switched off."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

_VARIABLE = "ORT_DISABLE_TELEMETRY"
_REPORTS_FROM = (1, 31)
_OPENVINO_REPORTER = "openvino_telemetry"


def early_reporters() -> list[str]:
    """Return the libraries imported too early, with their telemetry on, such as "OpenVINO"."""
    early = []
    if _onnxruntime_may_report():
        early.append("ONNX Runtime")
    if _openvino_reports() is not None:
        early.append("OpenVINO")
    return early


def refuse_telemetry() -> None:
    """Keep ONNX Runtime from reporting to its makers; call this before it is imported.

    Its wheels report from version 1.31 on, unless the environment says otherwise. Where something
    else has imported it already, a RuntimeWarning says so, once.
    """
    if _onnxruntime_may_report():
        warnings.warn(
            "onnxruntime was imported before vcs-runtime and may send telemetry: set"
            f" {_VARIABLE}=1 before it is imported",
            RuntimeWarning,
            stacklevel=2,
        )
    os.environ[_VARIABLE] = "1"


def refuse_openvino_telemetry() -> None:
    """Keep OpenVINO from reporting to its makers; call this before it is imported.

    Its import writes an identifier to the home folder and reports to Google Analytics, unless the
    user has declined in a file there. It goes without where its package `openvino_telemetry` cannot
    be imported, which this arranges. Where something else has imported OpenVINO already, its later
    reports are switched off, and a RuntimeWarning says so, once.
    """
    reporter = _openvino_reports()
    if reporter is not None:
        reporter.consent = False
        warnings.warn(
            "openvino was imported before vcs-runtime and has sent telemetry: import it later, or"
            " turn telemetry off with `opt_in_out --opt_out`",
            RuntimeWarning,
            stacklevel=2,
        )
    sys.modules.setdefault(_OPENVINO_REPORTER, None)  # type: ignore[arg-type]


def _onnxruntime_may_report() -> bool:
    """Return whether ONNX Runtime was imported with its telemetry on.

    Nothing can switch it off later.
    """
    onnxruntime = sys.modules.get("onnxruntime")
    if os.environ.get(_VARIABLE) == "1" or onnxruntime is None:
        return False
    version = str(getattr(onnxruntime, "__version__", "")).split(".")[:2]
    if not all(map(str.isdigit, version)):
        return True  # an unknown version may report
    return tuple(map(int, version)) >= _REPORTS_FROM


def _openvino_reports() -> Any:
    """Return the reporter of an OpenVINO that was imported already, or None."""
    reporter = getattr(sys.modules.get("openvino.tools.ovc"), "telemetry", None)
    return reporter if getattr(reporter, "consent", False) else None
