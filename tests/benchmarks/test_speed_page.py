"""docs/benchmarks/speed.md: its tables are those of the figures in benchmarks/results/speed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vcs_runtime import Scorer

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "benchmarks"
FIGURES = SCRIPTS / "results/speed"
PAGE = ROOT / "docs/benchmarks/speed.md"


def tables(page: Path, figures: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(SCRIPTS / "tables.py"),
        "--page",
        str(page),
        "--figures",
        str(figures),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the page, and one of the figures."""
    return Path(shutil.copy(PAGE, tmp_path)), Path(shutil.copytree(FIGURES, tmp_path / "speed"))


def test_the_page_has_the_figures_that_are_kept() -> None:
    done = tables(PAGE, FIGURES, "--check")
    assert done.returncode == 0, done.stderr


def test_another_figure_fails_the_check_until_the_page_is_written_again(copy: tuple[Path, Path]) -> None:
    page, figures = copy
    path = figures / "amd-epyc-avx2/end_to_end.json"
    record = json.loads(path.read_text("utf-8"))
    record["rows"][0]["sides"]["ours cpu"]["pairs_s"] = 3.3
    path.write_text(json.dumps(record), "utf-8")
    done = tables(page, figures, "--check")
    assert done.returncode == 1
    assert "run benchmarks/tables.py" in done.stderr
    assert tables(page, figures).returncode == 0
    assert "| ours cpu | 3.30 (2.0) |" in page.read_text("utf-8")
    assert tables(page, figures, "--check").returncode == 0


def test_figures_without_a_table_and_tables_without_figures_are_named(copy: tuple[Path, Path]) -> None:
    page, figures = copy
    shutil.copytree(figures / "amd-epyc-avx2", figures / "another")
    (figures / "amd-epyc-avx2/core.json").unlink()
    done = tables(page, figures, "--check")
    assert done.returncode == 1
    assert "core amd-epyc-avx2 has no figures" in done.stderr
    assert "jobs another has no table" in done.stderr


def test_a_new_run_of_a_workload_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    def keep(workload: str, pairs: float) -> dict[str, Any]:
        row = {"workload": workload, "sides": {"ours cpu": {"pairs_s": pairs}}}
        code = f"import records, pathlib; print(records.keep('x', [{row}], pathlib.Path({str(tmp_path)!r})))"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True
        )
        record: dict[str, Any] = json.loads(Path(done.stdout.strip()).read_text("utf-8"))
        return record

    keep("many", 1.0)
    keep("shared", 2.0)
    record = keep("many", 3.0)
    assert {row["workload"]: row["sides"]["ours cpu"]["pairs_s"] for row in record["rows"]} == {
        "many": 3.0,
        "shared": 2.0,
    }
    [many, _] = record["rows"]
    assert re.fullmatch(r"[0-9a-f]{7,}\+?", many["revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", many["date"])
    assert "numpy" in many["versions"]
    assert record["processor"]["cores"] >= 1


def test_figures_are_of_the_model_that_is_the_default() -> None:
    """After another default, `end_to_end.py` and `jobs.py` are to be run again."""
    with Scorer.open("default", device="cpu") as scorer:
        [model] = re.findall(r"\bemb:[^|]+", scorer.signature)
    for path in FIGURES.glob("*/*.json"):
        for row in json.loads(path.read_text("utf-8"))["rows"]:
            for side, signature in row.get("signatures", {}).items():
                if side.rpartition(":")[0].removeprefix("ours ") in ("", "default"):
                    assert model in signature, f"{path}: {row['workload']}, {side}"
