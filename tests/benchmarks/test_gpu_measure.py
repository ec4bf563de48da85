"""`benchmarks/gpu/measure.py --tiny` runs every section on a CPU, and goes on after a stop."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from support.processes import run_python

BENCHMARKS = Path(__file__).parents[2] / "benchmarks/gpu"
SECTIONS = (
    "machine default correctness packed varlen residual score jobs precisions peers"
    " training memory batches"
).split()


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, str(BENCHMARKS / "measure.py"), "--tiny", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@pytest.mark.slow
def test_a_killed_run_keeps_its_rows_and_is_resumed_by_section(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with start("--json", path, "--work", tmp_path / "work") as run:
        while run.poll() is None and not (path.exists() and "packed" in read(path)["sections"]):
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
    stopped = read(path)
    assert stopped["sections"]["machine"]["state"] == "done"
    assert stopped["sections"]["packed"]["state"] == "running"
    stopped["rows"].append({"section": "packed", "what": "a row of the section that was stopped"})
    path.write_text(json.dumps(stopped), "utf-8")

    with start("--resume", path, "--work", tmp_path / "work") as run:
        _, errors = run.communicate()
    assert run.returncode == 0, errors
    whole = read(path)
    assert {name: section["state"] for name, section in whole["sections"].items()} == dict.fromkeys(
        SECTIONS, "done"
    )
    assert whole["sections"]["machine"] == stopped["sections"]["machine"]
    assert [row for row in whole["rows"] if row["section"] == "machine"] == [
        row for row in stopped["rows"] if row["section"] == "machine"
    ]
    assert {row["section"] for row in whole["rows"]} == set(SECTIONS)
    assert [row for row in whole["rows"] if "failed" in row or "was stopped" in row["what"]] == []
    measured = {
        (row["section"], row["what"]) for row in whole["rows"] if row.get("tokens/s", 0) > 0
    }
    shapes = ("27x600", "630x26", "one pair", "block")
    assert {("packed", f"packed, {shape}") for shape in shapes} <= measured
    assert {("precisions", f"packed, int8, 2 layers, {shape}") for shape in shapes} <= measured
    rows = {(row["section"], row["what"]): row for row in whole["rows"]}
    # Also where PyTorch is missing.
    assert rows["correctness", "packed, fp32"]["largest difference"] < 1e-6
    assert rows["residual", "Cast and Add, 64 x 64"]["ms a sum"] > 0
    [vectors] = [row for row in whole["rows"] if row["what"] == "vectors, cpu"]
    assert vectors["equal bits, alone and in a batch"] == vectors["texts"] > 8
    assert rows["default", "VCS, cpu"]["equal"] == rows["default", "VCS, cpu"]["pairs"] == 6
    for what in ("the default model", "SaT and the default model"):
        assert rows["jobs", f"{what}, one process"]["pairs/s"] > 0
        assert rows["jobs", f"{what}, four processes and their start"]["exit codes"] == [0] * 4
    [batches] = [row for row in whole["rows"] if row["what"] == "packed, alone and among others"]
    assert (
        batches["equal bits, repeated"] == batches["equal to the bit"] == batches["texts"] == 64
    )  # on a CPU


@pytest.mark.slow
def test_one_section_is_valid_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    with start("--json", path, "--only", "score") as run:
        _, errors = run.communicate()
    assert run.returncode == 0, errors
    rows = {row["what"]: row for row in read(path)["rows"]}
    assert rows["6 pairs, every reference new"]["pairs/s"] > 0
    assert (
        rows["one pair, reference cached"]["p99 ms"]
        >= rows["one pair, reference cached"]["p50 ms"]
        > 0
    )


def test_a_section_that_fails_says_where_and_the_next_one_goes_on(tmp_path: Path) -> None:
    path, work = tmp_path / "results.json", tmp_path / "work"
    (work / "whole").mkdir(parents=True)
    (work / "whole/tokenizer.json").write_text("{}")  # looks like a checkpoint, and is none
    with start("--json", path, "--work", work, "--only", "score", "memory") as run:
        run.communicate()
    assert run.returncode == 0
    failed, other = read(path)["rows"]
    assert failed["what"] == "all of it"
    assert "config.json" in failed["failed"]
    assert ".py:" in failed["at"]
    assert other == {"section": "memory", "what": "all of it", "not measured": "no GPU"}
    assert {name: section["state"] for name, section in read(path)["sections"].items()} == {
        "score": "failed",
        "memory": "done",
    }


def test_the_time_of_kernels_is_summed_by_kind_and_gaps_are_not_busy(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    kernels = [
        ("kernel", "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", 0, 60),
        # At the same time.
        ("kernel", "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", 50, 20),
        ("kernel", "void onnxruntime::cuda::_UnaryElementWise<float, __half>", 80, 10),
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 90, 10),
        ("cpu_op", "aten::mm", 0, 1000),
    ]
    events = [
        {"cat": cat, "name": name, "ts": ts, "dur": dur} for cat, name, ts, dur in reversed(kernels)
    ]
    trace.write_text(
        json.dumps({"traceEvents": [*events, {"ph": "M", "name": "process_name"}]}), "utf-8"
    )
    code = (
        "import json, pathlib, sys, speed;"
        " print(json.dumps(speed.summary(speed.read_trace(pathlib.Path(sys.argv[1])))))"
    )
    done = run_python("-c", code, trace, cwd=BENCHMARKS, check=True)
    summary = json.loads(done.stdout)
    assert summary["busy"] == pytest.approx(0.9)
    assert summary["kernels"] == 4
    assert {key: value for key, value in summary.items() if key.endswith(" ms")} == {
        "products ms": 0.06,
        "attention ms": 0.02,
        "element-wise ms": 0.01,
        "copies ms": 0.01,
    }


def test_figures_of_a_small_model_are_refused(tmp_path: Path) -> None:
    with start("--keep", "--json", tmp_path / "results.json") as run:
        _, errors = run.communicate()
    assert run.returncode == 2
    assert "figures of a small model mean nothing" in errors
