"""The commands of experiments in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from vcs_runtime.cli import cli


@pytest.fixture
def experiment(tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `vcs-runtime experiment` in this process, on the tiny bundle; returns click's result."""
    import nltk

    # METEOR's corpora, if this machine has them, stay out of it.
    monkeypatch.setattr(nltk.data, "path", [])

    def run(command: str, *arguments: object, out: Path = tmp_path / "out") -> Result:
        engine = ["--bundle", tiny_bundle, "--device", "cpu"]
        if command not in {"parameters", "make-corruptions"}:
            engine += ["--workers", 1]
        return CliRunner().invoke(
            cli, ["experiment", command, *map(str, arguments), "-o", str(out), *map(str, engine)]
        )

    return run
