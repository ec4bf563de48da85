"""`vcs-runtime doctor`, and where the default bundle is found."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.command_line import vcs
from support.processes import captured
from vcs_runtime.inference import speed
from vcs_runtime.inference.device import choose_device
from vcs_runtime.inference.openvino import best_precision

ROOT = Path(__file__).parents[2]


def test_doctor_says_what_is_there_and_what_is_missing(
    tiny_bundle: Path, mixed_bundle: Path, tmp_path: Path
) -> None:
    done = vcs("doctor", "--json", VCS_RUNTIME_HOME=str(tmp_path))
    report = json.loads(done.stdout)
    assert done.code == 1
    assert "CPUExecutionProvider" in report["providers"]
    assert any("vcs-runtime fetch default" in problem for problem in report["problems"])
    (tmp_path / "bundles").mkdir()
    (tmp_path / "bundles/default").symlink_to(tiny_bundle)
    done = vcs("doctor", VCS_RUNTIME_HOME=str(tmp_path))
    assert (done.code, done.stderr) == (0, "")
    assert "this machine has everything that scoring needs" in done.stdout
    assert re.search(r"GPU 0 +\S", done.stdout)
    assert "; segmenter: rules (sentencex, en)" in done.stdout
    (tmp_path / "bundles/default").unlink()
    (tmp_path / "bundles/default").symlink_to(mixed_bundle)
    done = vcs("doctor", VCS_RUNTIME_HOME=str(tmp_path))
    assert "rules (sentencex, en) and learned segmenter (tiny-sat, fp32)" in done.stdout


def test_doctor_looks_at_the_bundle_that_is_named(tiny_bundle: Path, tmp_path: Path) -> None:
    done = vcs("doctor", "--bundle", tiny_bundle, VCS_RUNTIME_HOME=str(tmp_path))
    assert (done.code, done.stderr) == (0, "")
    assert f"bundle               {tiny_bundle}: tiny-bert, " in done.stdout
    damaged = Path(shutil.copytree(tiny_bundle, tmp_path / "damaged"))
    (damaged / "embedder/model.onnx").write_bytes(b"")
    report = json.loads(vcs("doctor", "--json", "--bundle", damaged).stdout)
    assert report["problems"] == [
        f"bundle {damaged}: embedder/model.onnx has 0 bytes, bundle.json lists"
        f" {(tiny_bundle / 'embedder/model.onnx').stat().st_size}: copy it again"
    ]


def test_doctor_knows_every_extra_and_its_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    del extras["parity"]  # oracles of tests
    report = json.loads(vcs("doctor", "--json").stdout)
    for extra, requirements in extras.items():
        names = [re.split(r"[\[>=]", requirement)[0] for requirement in requirements]
        line = report.get(f"extra {extra}", "")
        assert [
            name
            for name in names
            if name not in line and name not in report and name != "nvidia-cublas"
        ] == []


# OpenVINO reads this variable when it is imported, so that every machine can stand for an old one.
@pytest.mark.parametrize("isa", ["AVX2", ""])
def test_doctor_says_in_which_precision_openvino_computes_here(isa: str) -> None:
    pytest.importorskip("openvino")
    environment = {**os.environ, "OV_CPU_MAX_ISA": isa} if isa else dict(os.environ)
    command = [sys.executable, "-m", "vcs_runtime", "doctor", "--json"]
    done = captured(command, env=environment)
    report = json.loads(done.stdout)
    assert report["extra openvino"] == f"openvino {version('openvino')}"
    assert report["telemetry"] == "off"
    end = " than device cpu, with slightly different scores: docs/guide/processors.md"
    here = choose_device("openvino")
    lines = {
        "bf16 amx": f"bf16 (this processor multiplies in bf16: AMX); faster{end}",
        "bf16 avx512": (
            "bf16 (this processor multiplies in bf16: AVX-512 BF16); perhaps faster"
            f" (--measure){end}"
        ),
        "bf16": f"bf16 (this processor multiplies in bf16); perhaps faster (--measure){end}",
        "fp32": (
            "fp32"
            f" ({best_precision()[1] if not isa else 'this processor does not multiply in bf16'});"
            " hardly faster than device cpu"
        ),
    }
    assert (
        report["device openvino"]
        == lines["fp32" if isa else f"{here.precision} {here.instructions}".strip()]
    )


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("fpu avx2 avx512f", "not installed"),
        ("GenuineIntel avx512_bf16", "not installed"),
        (
            "fpu avx512_bf16",
            (
                "not installed; this processor has bf16 (AVX-512 BF16), which"
                " vcs-runtime[openvino] uses: docs/guide/processors.md"
            ),
        ),
        (
            "fpu avx512_bf16 amx_bf16",
            (
                "not installed; this processor has bf16 (AMX), which"
                " vcs-runtime[openvino] uses: docs/guide/processors.md"
            ),
        ),
        (None, "not installed"),  # macOS and Windows have no such file
    ],
)
def test_doctor_says_what_openvino_would_bring_here(
    monkeypatch: pytest.MonkeyPatch, flags: str | None, said: str
) -> None:
    def read_text(path: Path, *arguments: Any, **options: Any) -> str:
        if str(path) != "/proc/cpuinfo":
            return actual_text(path, *arguments, **options)
        if flags is None:
            raise FileNotFoundError(path)
        return f"processor\t: 0\nflags\t\t: {flags}\n"

    def version_of(package: str) -> str:
        if package == "openvino":
            raise PackageNotFoundError(package)
        return version(package)

    actual_text = Path.read_text
    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr("vcs_runtime.cli.doctor.version", version_of)
    monkeypatch.setitem(sys.modules, "openvino", None)
    report = json.loads(vcs("doctor", "--json").stdout)
    assert report["extra openvino"] == "openvino not installed (vcs-runtime[openvino])"
    assert report["device openvino"] == said
    assert report["problems"] == []


def test_doctor_names_what_is_wrong_with_an_openvino_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setitem(sys.modules, "openvino", None)
    report = json.loads(vcs("doctor", "--json").stdout)
    assert report["device openvino"].startswith(
        "the device openvino needs openvino (import of openvino halted"
    )
    assert report["problems"] == []


def test_an_environment_can_hold_the_default_bundle_of_all_its_users(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VCS_RUNTIME_HOME", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    (tmp_path / "share/vcs-runtime/bundles").mkdir(parents=True)
    (tmp_path / "share/vcs-runtime/bundles/default").symlink_to(tiny_bundle)
    done = vcs("bundle", "info", "default")
    assert done.stdout.startswith(
        f"bundle       tiny-bert ({tmp_path / 'share/vcs-runtime/bundles/default'})\n"
    )
    assert vcs("bundle", "info", "default", VCS_RUNTIME_HOME=str(tmp_path / "other")).code == 2


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ([1.0, 0.4, 0.9], "openvino: 2.50 times as fast as cpu, with slightly different scores"),
        ([1.0, 1.6, 0.95], "cpu: no other device is clearly faster with this bundle"),
        ([1.0], "only cpu was measured; pip install 'vcs-runtime[openvino]' adds another device"),
    ],
)
def test_doctor_measures_the_devices_of_the_processor_in_turns(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, seconds: list[float], verdict: str
) -> None:
    def in_turns(runs: list[Callable[[], Any]]) -> list[float]:
        first, *others = [run() for run in runs]
        assert all(np.allclose(first, other, atol=1e-5) for other in others)
        return seconds

    pytest.importorskip("openvino")
    monkeypatch.setattr(speed, "in_turns", in_turns)
    monkeypatch.setattr(
        import_module("vcs_runtime.cli.doctor"), "best_precision", lambda: ("bf16", "for the test")
    )
    monkeypatch.setattr(
        "vcs_runtime.inference.openvino.best_precision", lambda: ("fp32", "for the test")
    )
    if len(seconds) == 1:
        monkeypatch.setattr(
            import_module("vcs_runtime.cli.doctor"), "_version", lambda package: None
        )
    report = json.loads(vcs("doctor", "--measure", "--json", "--bundle", tiny_bundle).stdout)
    assert report["fastest device"] == verdict
    assert report["speed of cpu"] == "1.00 s for two descriptions and their sentences"
    if len(seconds) == 3:
        assert report["speed of openvino"].startswith(f"{seconds[1]:.2f} s")
        assert "speed of openvino:fp32" in report
    assert "fastest device" not in json.loads(
        vcs("doctor", "--json", "--bundle", tiny_bundle).stdout
    )
