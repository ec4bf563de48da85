"""The family of export/README.md computes the published formula."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from support.checkpoints import decoder as tiny_decoder
from support.numpy_decoder import embed, token_ids
from support.snippets import run_snippet
from vcs_export.checkpoint.decoders import opening
from vcs_runtime import Embedder
from vcs_runtime.cli import cli

PAGE = "export/README.md"
NAME = "mistral"
TEXT = "a young woman opens the door and looks at the river while two cats run"


@pytest.fixture
def mistral(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A tiny checkpoint of the page's family, which the page's module reads."""
    names: dict[str, Any] = {**vars(tiny_decoder)}
    monkeypatch.setitem(tiny_decoder.FAMILIES, NAME, run_snippet(PAGE, "entry", **names)["MISTRAL"])
    read = run_snippet(PAGE, NAME)["read"]
    monkeypatch.setattr(opening, "FAMILIES", {**opening.FAMILIES, NAME: read})
    return tiny_decoder.write_tiny_decoder(tmp_path / NAME, NAME)


def export(folder: Path, target: Path) -> Result:
    arguments = ["--from", str(folder), "-o", str(target), "--precision", "fp32"]
    return CliRunner().invoke(cli, ["export", "decoder", *arguments])


def test_the_example_exports_a_mistral_with_a_window(mistral: Path, tmp_path: Path) -> None:
    run = export(mistral, tmp_path / "bundle")
    assert run.exit_code == 0, run.output
    with Embedder.open(tmp_path / "bundle", device="cpu") as embedder:
        [vector] = embedder.embed([TEXT])
    ids = token_ids(mistral, TEXT)
    windows = (8.0,) * 2
    np.testing.assert_allclose(vector, embed(mistral, ids, windows=windows), rtol=0, atol=1e-5)
    assert np.abs(vector - embed(mistral, ids)).max() > 1e-2  # without the window


def test_the_example_refuses_what_it_does_not_know(mistral: Path, tmp_path: Path) -> None:
    tiny_decoder.write_tiny_decoder(
        mistral, NAME, rope_scaling={"rope_type": "yarn", "factor": 4.0}
    )
    run = export(mistral, tmp_path / "bundle")
    assert run.exit_code == 1
    assert "rope_type 'yarn' is not supported" in str(run.exception)
