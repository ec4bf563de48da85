"""Scoring needs no network and none of the training stack."""

from __future__ import annotations

import json
import os
import re
import shutil
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


# What Python's audit hooks do not see: the calls of native code.
@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("device", ["cpu", "openvino"])
def test_running_a_model_opens_no_socket_and_writes_nothing_but_the_record_of_the_bundle(
    tiny_bundle: Path, tmp_path: Path, device: str
) -> None:
    pytest.importorskip("openvino")
    home, trace = tmp_path / "home", tmp_path / "trace"
    home.mkdir()
    script = (
        "import sys, time; from vcs_runtime import Embedder; print('opening', flush=True)\n"
        "with Embedder.open(sys.argv[1], sys.argv[2]) as embedder: print(embedder.embed(['a man', 'a dog']).shape)"
    )
    calls = "trace=socket,connect,openat,open,creat,mkdir,mkdirat,rename,renameat2,unlink,execve"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "VCS_RUNTIME_HOME": str(tmp_path / "records"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        ["strace", "-f", "-qq", "-e", calls, "-o", trace, sys.executable, "-c", script, tiny_bundle, device],
        env=environment, capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    if "ptrace" in done.stderr:
        pytest.skip("processes may not be traced here")
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=1)[1] for line in trace.read_text("utf-8", "replace").splitlines()]
    assert [line for line in lines if line.startswith(("socket(", "connect("))] == []
    assert sum(line.startswith("execve(") for line in lines) == 1
    changed = [
        line for line in lines if not line.startswith("open") or re.search("O_WRONLY|O_RDWR|O_CREAT", line)
    ]
    # The second half of a call during which another thread made one has no file's name: the first half has.
    changed = [line for line in changed if not line.startswith(("execve(", "+++", "---", "<... "))]
    assert [line for line in changed if str(tmp_path / "records") not in line and '"/dev/' not in line] == []
    assert list(home.iterdir()) == []
    read = {
        Path(found[1])
        for line in lines
        if (found := re.match(r'open\w*\(.*?"([^"]+)".*= \d+$', line)) and str(tiny_bundle) in found[1]
    }
    listed = {
        tiny_bundle / entry["path"]
        for entry in json.loads((tiny_bundle / "bundle.json").read_text())["files"]
    }
    assert {path for path in read if path.is_file()} <= {*listed, tiny_bundle / "bundle.json"}
