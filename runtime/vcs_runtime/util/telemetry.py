"""Telemetry of libraries, switched off."""

from __future__ import annotations

import os


def refuse_telemetry() -> None:
    """Keep ONNX Runtime from reporting to its makers; call this before it is imported.

    Its wheels report from version 1.31 on, unless the environment says otherwise.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
