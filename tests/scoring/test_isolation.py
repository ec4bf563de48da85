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
        story = "A man walks into the kitchen. He cuts an onion. A dog looks at him."
        print(scorer.score(story, story).vcs, scorer.score(story, "A horse stands in a river.").vcs)
        print(scorer.score_short("a man walks", "a dog runs").n_ref)
"""


def score(bundle: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), bundle], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def assert_scored(printed: list[str]) -> None:
    equal, other, words = printed
    assert float(equal) > 0.999
    assert 0.0 <= float(other) < 0.5
    assert words == "2"


def test_a_tiny_bundle_is_scored_without_network_and_without_pytorch(tiny_bundle: Path) -> None:
    assert_scored(score(str(tiny_bundle)))


def test_the_embedded_default_too() -> None:
    assert_scored(score("default"))


@pytest.mark.parametrize("package", ["torch", "transformers", "optimum", "onnx", "pyarrow", "vcs_export"])
def test_importing_the_runtime_does_not_import(package: str) -> None:
    code = f"import sys, vcs_runtime, vcs_runtime.cli; sys.exit({package!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
