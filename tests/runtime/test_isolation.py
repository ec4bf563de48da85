"""Scoring needs no network and none of the training stack."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SCRIPT = """
    import socket, sys

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {"torch", "transformers", "optimum", "sentence_transformers", "vcs_export"}:
                raise ImportError(f"{name} must not be imported")

    sys.meta_path.insert(0, Refuse())

    def audit(event, arguments):
        if event.startswith("socket."):
            raise AssertionError(f"{event} {arguments}")

    sys.addaudithook(audit)  # sees every socket that Python opens

    from vcs_runtime import Scorer

    with Scorer.open(sys.argv[1], device="cpu") as scorer:
        print(scorer.score("A man walks. He sits down.", "A man walks. A dog runs.").vcs)
        print(scorer.score_short("a man walks", "a dog runs").n_ref)
"""


def score(bundle: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), bundle], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_tiny_bundle_is_scored_without_network_and_without_pytorch(tiny_bundle: Path) -> None:
    score_text, words = score(str(tiny_bundle))
    assert 0.0 <= float(score_text) <= 1.0
    assert words == "2"


def test_the_embedded_default_too() -> None:
    assert 0.0 < float(score("default")[0]) < 1.0


@pytest.mark.parametrize("package", ["torch", "transformers", "optimum", "onnx", "pyarrow", "vcs_export"])
def test_importing_the_runtime_does_not_import(package: str) -> None:
    code = f"import sys, vcs_runtime, vcs_runtime.cli; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
