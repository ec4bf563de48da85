"""`benchmarks/gpu/measure.py --tiny`: the script that measures a GPU runs on a CPU, and its two sides agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu/measure.py"


def test_the_dry_run_fails_nowhere_and_both_sides_give_the_same_vectors(tmp_path: Path) -> None:
    told = tmp_path / "figures.json"
    sections = ["speed", "pytorch", "pairs", "error", "memory", "fp8", "graphs", "engines"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--tiny", "--work", str(tmp_path), "--json", str(told), "--only", *sections],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(told.read_text("utf-8"))["rows"]
    assert not [row for row in rows if row["what"] == "failed"]
    assert {row["section"] for row in rows} == {"weights", *sections}
    assert {row["section"] for row in rows if row["what"] == "not measured"} == {"memory", "fp8", "engines"}
    [error] = [row for row in rows if row["what"] == "fp32 against float32 in PyTorch"]
    assert error["largest difference"] < 1e-6
    [fp8] = [row for row in rows if row["what"] == "fp8, padded, cpu"]
    assert fp8["tokens/s"] > 0
    assert 1e-6 < fp8["1 - cosine, worst"] < 0.01
    graphs = [row for row in rows if row["section"] == "graphs" and row["what"] != "seconds"]
    assert [abs(row.get("length", 1) - 1) < 1e-5 for row in graphs] == [True] * 6
    assert ["not measured" in row for row in graphs] == [False, True] * 3  # recorded: on a GPU alone
    assert {row["what"] for row in rows if row["section"] == "speed" and row["what"] != "seconds"} == {
        f"{kind}, {layout}, fp32"
        for kind in ("mix", "chunks", "documents")
        for layout in ("packed", "padded")
    }
