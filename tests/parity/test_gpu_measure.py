"""`benchmarks/gpu/measure.py --tiny` beside PyTorch: both sides give the same vectors, and
quantised ones near them."""

from __future__ import annotations

import json
from pathlib import Path

from support.processes import run_python

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu/measure.py"


def test_both_sides_give_the_same_vectors_with_planted_outliers(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    done = run_python(SCRIPT, *f"--tiny --json {path} --only correctness precisions peers".split())
    assert done.returncode == 0, done.stderr
    rows = {row["what"]: row for row in json.loads(path.read_text("utf-8"))["rows"]}
    assert not [row for row in rows.values() if "failed" in row]
    assert rows["packed, fp32"]["texts"] == 64
    assert rows["packed, fp32"]["largest difference"] < 1e-6
    assert 1e-6 < rows["packed, int8, 2 layers: error"]["1 - cosine, worst"] < 0.02
    assert all(
        rows[f"PyTorch unpadded, {shape}"]["tokens/s"] > 0
        for shape in ("27x600", "630x26", "block")
    )
