"""The script that measures on a GPU runs over the stand-ins."""

from __future__ import annotations

import json
from pathlib import Path

from support.cuda_stand_ins import DryGpu
from support.processes import run_python

BENCHMARKS = Path(__file__).parents[2] / "benchmarks/gpu"


def test_every_section_measures_on_a_gpu(dry_gpu: DryGpu, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    # A stand-in's vectors have one length; those of the default model have another.
    for vectors, start in ((384, ["--only", "default", "jobs", "--json"]), (64, ["--resume"])):
        log = tmp_path / str(vectors)
        log.touch()
        done = run_python(
            BENCHMARKS / "measure.py",
            "--tiny",
            "--device",
            "cuda:0",
            *start,
            path,
            env=dry_gpu.environment(log, vectors=vectors),
        )
        assert done.returncode == 0, done.stderr
    rows = json.loads(path.read_text("utf-8"))["rows"]
    assert [row for row in rows if "failed" in row] == []
    codes = [row["exit codes"] for row in rows if "exit codes" in row]
    assert codes == [[0] * 4] * 2
    measured = {
        row["what"] for row in rows if row.get("tokens/s", 0) > 0 or row.get("pairs/s", 0) > 0
    }
    assert measured >= {
        "packed, 27x600",
        "varlen, one pair",
        "packed, bf16, 2 layers, 630x26",
        "varlen, int8, 2 layers, block",
        "6 pairs, references cached",
        "the default model, one process",
        "varlen, alone and among others",
    }
    arenas = {row["what"]: row for row in rows if row["section"] == "memory"}
    assert arenas["no limit"]["peak GB"] > 0
    reopened = arenas["release and reopening of the whole model, 0 GB held by PyTorch"]
    assert reopened["freed GB"] > 0
    assert arenas["no limit"]["released GB"] < 0.001
