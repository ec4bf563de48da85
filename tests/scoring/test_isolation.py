"""Scoring needs no network and none of the training stack."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from pathlib import Path

import pytest

from support.processes import captured, run_python

SCRIPT = """
    import contextlib, io, socket, sys

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {"torch", "transformers", "optimum", \
"sentence_transformers", "trl", "verl",
                                      "torchmetrics", "lightning", "vcs_export",
                                      # What tokenizers brings along for downloads, and Starlette \
for the server.
                                      "huggingface_hub", "hf_xet", "httpx", "httpx2", "httpcore", \
"httpcore2", "anyio",
                                      "filelock", "fsspec", "h11", "idna", "requests", "tqdm", \
"truststore", "urllib3", "yaml"}:
                raise ImportError(f"{name} must not be imported")

    sys.meta_path.insert(0, Refuse())

    def audit(event, arguments):
        if event.startswith("socket."):
            raise AssertionError(f"{event} {arguments}")

    sys.addaudithook(audit)  # sees every socket that Python opens

    from vcs_runtime import Scorer, ScorerConfig
    from vcs_runtime.cli import cli
    from vcs_runtime.training import TextMetric

    story = "A man walks into the kitchen. He cuts an onion. A dog looks at him."
    for bundle in (sys.argv[1], "default"):
        with Scorer.open(bundle, device="cpu") as scorer:
            print(scorer.score(story, story).vcs, scorer.score(story, "A horse stands in a \
river.").vcs)
            print(scorer.score_short("a man walks", "a dog runs").n_ref)
    metric = TextMetric(ScorerConfig(sys.argv[1], "cpu"), asynchronous=True)
    metric.update([story], [story])
    print(metric.compute()["vcs"])
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main(["score", *sys.argv[2:], "--bundle", sys.argv[1], "--device", "cpu"], \
standalone_mode=False)
"""


def test_scoring_and_training_need_neither_a_network_nor_pytorch(tiny_bundle: Path) -> None:
    examples = Path(__file__).parents[2] / "docs/examples"
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tiny_bundle)]
    command += [str(examples / "reference.txt"), str(examples / "generated.txt")]
    done = captured(command)
    assert done.returncode == 0, done.stderr
    *scored, in_training = done.stdout.split()
    for equal, other, words in (scored[:3], scored[3:]):  # of the tiny bundle, and of the default
        assert float(equal) > 0.999
        assert 0.0 <= float(other) < 0.5
        assert words == "2"
    assert float(in_training) > 0.999


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("vcs_runtime.compat", "matplotlib torch onnxruntime"),
        (
            "vcs_runtime vcs_runtime.cli vcs_runtime.training vcs_runtime.integrations",
            (
                "torch transformers optimum onnx pyarrow torchmetrics evaluate datasets vcs_export"
                " vcs_experiments vcs_visil vcs_runtime.integrations.torchmetrics"
                " vcs_runtime.integrations.evaluate"
            ),
        ),
    ],
)
def test_an_import_imports_nothing_that_is_not_needed(modules: str, absent: str) -> None:
    code = (
        f"import sys, {', '.join(modules.split())}; print(*set({absent.split()}) &"
        " set(sys.modules))"
    )
    done = run_python("-c", code, check=True)
    assert done.stdout.split() == []


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
        "import sys, time; from vcs_runtime import Embedder; print('opening', flush=True)\nwith"
        " Embedder.open(sys.argv[1], sys.argv[2]) as embedder: print(embedder.embed(['a man', 'a"
        " dog']).shape)"
    )
    calls = "trace=socket,connect,openat,open,creat,mkdir,mkdirat,rename,renameat2,unlink,execve"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "VCS_RUNTIME_HOME": str(tmp_path / "records"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = captured(
        [
            "strace",
            "-f",
            "-qq",
            "-e",
            calls,
            "-o",
            trace,
            sys.executable,
            "-c",
            script,
            tiny_bundle,
            device,
        ],
        env=environment,
        cwd=tmp_path,
    )
    if "ptrace" in done.stderr:
        pytest.skip("processes may not be traced here")
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=1)[1] for line in trace.read_text("utf-8", "replace").splitlines()]
    assert [line for line in lines if line.startswith(("socket(", "connect("))] == []
    assert sum(line.startswith("execve(") for line in lines) == 1
    changed = [
        line
        for line in lines
        if not line.startswith("open") or re.search("O_WRONLY|O_RDWR|O_CREAT", line)
    ]
    # The second half of a call during which another thread made one has no file's name: the first
    # half has.
    changed = [line for line in changed if not line.startswith(("execve(", "+++", "---", "<... "))]
    assert [
        line for line in changed if str(tmp_path / "records") not in line and '"/dev/' not in line
    ] == []
    assert list(home.iterdir()) == []
    read = {
        Path(found[1])
        for line in lines
        if (found := re.match(r'open\w*\(.*?"([^"]+)".*= \d+$', line))
        and str(tiny_bundle) in found[1]
    }
    listed = {
        tiny_bundle / entry["path"]
        for entry in json.loads((tiny_bundle / "bundle.json").read_text())["files"]
    }
    assert {path for path in read if path.is_file()} <= {*listed, tiny_bundle / "bundle.json"}
