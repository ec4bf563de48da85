"""`make evidence`: its steps exist, it goes on where it stopped, and it says what it skipped and why."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "benchmarks"


def evidence(work: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        SCRIPTS / "evidence.py",
        "--work",
        work,
        "--parity",
        work / "none",
        "--check",
        *options,
    ]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)


def told(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What is said of each step."""
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines() if "  " in line)


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A work folder where the recorded cases of the core were compared."""
    done = evidence(tmp_path, "--only", "parity", "core", "gpu", "explain")
    assert done.returncode == 0, done.stdout + done.stderr
    assert told(done)["parity"].endswith("min")
    assert "recorded: 4000 cases" in (tmp_path / "parity.log").read_text("utf-8")
    return tmp_path


def test_what_is_finished_is_not_run_again_until_the_code_has_changed(finished: Path) -> None:
    assert told(evidence(finished, "--only", "parity"))["parity"].startswith("finished before, at ")
    (finished / "steps.json").write_text(json.dumps({"parity": "another"}), "utf-8")
    assert told(evidence(finished, "--only", "parity"))["parity"].endswith("min")


def test_what_cannot_run_is_skipped_with_the_reason(tmp_path: Path) -> None:
    lines = told(evidence(tmp_path, "--list"))
    assert lines["explain"] == "skipped: no folder of data: --data"
    assert lines["graph-forms"] == "skipped: no checkpoint of all-MiniLM-L6-v2: --model"
    assert lines["core"] == "skipped: no environment of the originals: make parity"
    assert lines["parity"].startswith("about ")


def test_a_step_that_takes_longer_than_the_minutes_left_does_not_start(tmp_path: Path) -> None:
    lines = told(evidence(tmp_path, "--only", "parity", "--minutes", "0.1"))
    assert lines["parity"] == "skipped: takes about 0.2 min, and 0 are left"
    assert not (tmp_path / "steps.json").exists()


def test_a_step_that_fails_is_named_with_its_log_and_tried_again(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "clip-cc").mkdir(parents=True)  # without the files that the step reads
    done = evidence(tmp_path, "--data", str(data), "--only", "pairs")
    assert done.returncode == 1
    log = told(done)["pairs"].removeprefix("failed: ")
    assert "references.json" in Path(log).read_text("utf-8")
    assert evidence(tmp_path, "--data", str(data), "--only", "pairs").returncode == 1


def test_every_step_names_a_script_with_its_options() -> None:
    code = """
        import evidence, json, pathlib
        given = evidence.Given(*[pathlib.Path("x")] * 4)
        print(json.dumps([[str(part) for part in step.command(given)] for step in evidence.STEPS]))
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=SCRIPTS, env=os.environ, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for script, *arguments in json.loads(done.stdout):
        if script != "-m":
            text = (SCRIPTS / script).read_text("utf-8")
            options = [argument for argument in arguments if argument.startswith("--")]
            assert [option for option in options if f'"{option}"' not in text] == [], script
