"""The telemetry of ONNX Runtime and of OpenVINO is off, or the program is warned."""

from __future__ import annotations

import os
import sys
import textwrap
import types
import warnings
from pathlib import Path

import pytest

from support.processes import run_python
from vcs_runtime.inference.device import import_onnxruntime
from vcs_runtime.util.telemetry import early_reporters, refuse_openvino_telemetry, refuse_telemetry


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An ONNX Runtime that something else has imported, with its telemetry on."""
    module = types.ModuleType("onnxruntime")
    module.__version__ = "1.31.1"  # type: ignore[attr-defined]
    module.set_default_logger_severity = lambda _: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY")
    return module


def test_a_program_that_imported_onnxruntime_first_is_warned_once(
    imported: types.ModuleType,
) -> None:
    with pytest.warns(
        RuntimeWarning,
        match="imported before vcs-runtime and may send .* ORT_DISABLE_TELEMETRY=1",
    ):
        assert import_onnxruntime() is imported
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_onnxruntime()


@pytest.mark.parametrize(
    "case", ["the variable is set", "it is too old to report", "it is not imported yet"]
)
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


# Whoever reports starts a process, which opens a socket, and keeps an identifier in the home
# folder. The hook also keeps a failing test from reporting.
IMPORT_OPENVINO = """
    import os, sys

    def audit(event, arguments):
        if event.startswith(("socket.", "urllib.", "subprocess.")) or event in ("os.fork", \
"os.mkdir"):
            print(event, arguments, file=sys.stderr)
            raise OSError(event)

    sys.addaudithook(audit)
    from vcs_runtime.util.telemetry import early_reporters, refuse_openvino_telemetry
    refuse_openvino_telemetry()
    import openvino

    openvino.Core()
    print(openvino.__version__, hasattr(openvino, "convert_model"), early_reporters())
"""


def test_openvino_is_imported_whole_and_reports_nothing(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    environment = {**os.environ, "HOME": str(tmp_path), "LOCALAPPDATA": str(tmp_path)}
    # Where these are set it does not report anyway.
    for variable in ("CI", "TF_BUILD", "JENKINS_URL"):
        environment.pop(variable, None)
    done = run_python("-c", textwrap.dedent(IMPORT_OPENVINO), env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.endswith(" True []\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("consent", [True, False])
def test_a_program_that_imported_openvino_first_is_warned_once_unless_its_user_declined(
    monkeypatch: pytest.MonkeyPatch, consent: bool
) -> None:
    reporter = types.SimpleNamespace(consent=consent)
    tools = types.ModuleType("openvino.tools.ovc")
    tools.telemetry = reporter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openvino.tools.ovc", tools)
    monkeypatch.setitem(sys.modules, "openvino_telemetry", types.ModuleType("openvino_telemetry"))
    assert early_reporters() == (["OpenVINO"] if consent else [])
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        refuse_openvino_telemetry()
        refuse_openvino_telemetry()
    assert ["opt_in_out --opt_out" in str(warning.message) for warning in shown] == [True] * consent
    assert reporter.consent is False
    assert early_reporters() == []
