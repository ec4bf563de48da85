"""ONNX Runtime's telemetry is off, and a program that cannot be helped is told so."""

from __future__ import annotations

import os
import sys
import types
import warnings

import pytest

from vcs_runtime.inference.device import import_onnxruntime
from vcs_runtime.util.telemetry import refuse_telemetry


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An ONNX Runtime that something else has imported, with its telemetry on."""
    module = types.ModuleType("onnxruntime")
    module.__version__ = "1.31.1"  # type: ignore[attr-defined]
    module.set_default_logger_severity = lambda _: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    return module


def test_a_program_that_imported_onnxruntime_first_is_warned_once(imported: types.ModuleType) -> None:
    with pytest.warns(
        RuntimeWarning, match="imported before vcs-runtime, and may report .* ORT_DISABLE_TELEMETRY=1"
    ):
        assert import_onnxruntime() is imported
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_onnxruntime()


@pytest.mark.parametrize("case", ["the variable is set", "it is too old to report", "it is not imported yet"])
def test_others_are_not_warned(
    imported: types.ModuleType, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    if case == "the variable is set":
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    elif case == "it is too old to report":
        imported.__version__ = "1.20.0"  # type: ignore[attr-defined]
    else:
        monkeypatch.delitem(sys.modules, "onnxruntime")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refuse_telemetry()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
