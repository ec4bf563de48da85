"""`vcs-runtime doctor`, and where the default bundle is found."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from support.command_line import vcs

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
    assert "nothing that scoring needs is missing" in done.stdout
    assert "; segmenter: rules (sentencex, en)" in done.stdout
    (tmp_path / "bundles/default").unlink()
    (tmp_path / "bundles/default").symlink_to(mixed_bundle)
    done = vcs("doctor", VCS_RUNTIME_HOME=str(tmp_path))
    assert "; segmenter: rules (sentencex, en) and model (tiny-sat, fp32)" in done.stdout


def test_doctor_looks_at_the_bundle_that_is_named(tiny_bundle: Path, tmp_path: Path) -> None:
    done = vcs("doctor", "--bundle", tiny_bundle, VCS_RUNTIME_HOME=str(tmp_path))
    assert (done.code, done.stderr) == (0, "")
    assert f"bundle               {tiny_bundle}: tiny-bert, " in done.stdout
    damaged = Path(shutil.copytree(tiny_bundle, tmp_path / "damaged"))
    (damaged / "embedder/model.onnx").write_bytes(b"")
    report = json.loads(vcs("doctor", "--json", "--bundle", damaged).stdout)
    assert report["problems"] == [
        f"bundle {damaged}: embedder/model.onnx has 0 bytes, bundle.json says {(tiny_bundle / 'embedder/model.onnx').stat().st_size}"
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
            name for name in names if name not in line and name not in report and name != "nvidia-cublas"
        ] == []


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
