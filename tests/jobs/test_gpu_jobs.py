"""Jobs on a stand-in for a GPU: a thread reads the next block ahead, without a visible effect."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support import stand_in
from support.stories import story, write_pairs
from vcs_runtime import Options, Scorer
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.run import score_file

PAIRS = 2_200  # three blocks of 200,000 characters


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gpu") / "pairs.jsonl"
    rows = [
        {"id": i, "reference": story(i % 7, 3), "generated": story(100 + i % 9, 3)}
        for i in range(PAIRS)
    ]
    rows[1_500]["generated"] = ""
    write_pairs(path, rows)
    return path


@pytest.fixture(scope="module")
def expected(source: Path, tiny_bundle: Path) -> bytes:
    """What the CPU writes, as the GPU would sign it."""
    output = source.with_name("cpu.jsonl")
    with Scorer.open(tiny_bundle, device="cpu") as scorer:
        score_file(scorer, source, JobFiles(output, progress=False), Options())
    return output.read_bytes().replace(b"engine:ort-cpu", b"engine:ort-cuda")


def run_on_gpu(bundle: Path, source: Path, output: Path, *, resume: bool = False) -> int:
    with Scorer.open(bundle, device="cuda:0:fp32") as scorer:
        return score_file(
            scorer, source, JobFiles(output, resume=resume, progress=False), Options()
        ).resumed


def test_a_job_of_three_blocks_equals_the_cpus_bytes(
    tiny_bundle: Path,
    source: Path,
    expected: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in.put_in(monkeypatch)
    run_on_gpu(tiny_bundle, source, tmp_path / "gpu.jsonl")
    assert (tmp_path / "gpu.jsonl").read_bytes() == expected


@pytest.mark.parametrize("kept", [3, 760])
def test_a_resumed_job_equals_an_undisturbed_one(
    kept: int,
    tiny_bundle: Path,
    source: Path,
    expected: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in.put_in(monkeypatch)
    output = tmp_path / "gpu.jsonl"
    output.write_bytes(b"".join(expected.splitlines(keepends=True)[:kept]) + b'{"id": 7, "vc')
    assert run_on_gpu(tiny_bundle, source, output, resume=True) == kept
    assert output.read_bytes() == expected


def test_a_job_killed_between_two_blocks_is_continued(
    tiny_bundle: Path,
    source: Path,
    expected: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = """
        import os, signal, sys
        from pathlib import Path
        import pytest
        from support import stand_in
        from vcs_runtime import Options, Scorer
        from vcs_runtime.jobs.output import JobFiles
        from vcs_runtime.jobs.run import score_file

        write = os.write
        def killed_after_a_block(file, data):
            write(file, data)
            os.kill(os.getpid(), signal.SIGKILL)

        with pytest.MonkeyPatch.context() as patch:
            stand_in.put_in(patch)
            with Scorer.open(sys.argv[1], device="cuda:0:fp32") as scorer:
                os.write = killed_after_a_block
                score_file(scorer, Path(sys.argv[2]), JobFiles(Path(sys.argv[3]), \
progress=False), Options())
    """
    output = tmp_path / "gpu.jsonl"
    command = [sys.executable, "-c", textwrap.dedent(script), tiny_bundle, source, output]
    library = str(Path(__file__).parents[1] / "lib")
    killed = subprocess.run(command, cwd=library, check=False)
    assert killed.returncode == -signal.SIGKILL
    finished = output.read_bytes().count(b"\n")
    assert 0 < finished < PAIRS
    stand_in.put_in(monkeypatch)
    assert run_on_gpu(tiny_bundle, source, output, resume=True) == finished
    assert output.read_bytes() == expected
