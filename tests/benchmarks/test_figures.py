"""The manual's tables of figures are those in benchmarks/results/figures, of the default model."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from support.processes import captured, run_python
from vcs_runtime import Scorer

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "benchmarks"
FIGURES = SCRIPTS / "results/figures"
MANUAL = ROOT / "docs"


def tables(manual: Path, figures: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        SCRIPTS / "tables.py",
        *f"--manual {manual} --figures {figures}".split(),
        *options,
    ]
    return captured(command)


@pytest.fixture
def copy(tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the pages, and one of the figures."""
    return Path(shutil.copytree(MANUAL, tmp_path / "manual")), Path(
        shutil.copytree(FIGURES, tmp_path / "figures")
    )


def test_the_pages_have_the_figures_that_are_kept() -> None:
    done = tables(ROOT / "docs", FIGURES, "--check")
    assert done.returncode == 0, done.stderr


def test_another_figure_fails_the_check_until_the_page_is_written_again(
    copy: tuple[Path, Path],
) -> None:
    manual, figures = copy
    path = figures / "amd-epyc-avx2/end_to_end.json"
    record = json.loads(path.read_text("utf-8"))
    record["rows"][0]["sides"]["ours cpu"]["pairs_s"] = 3.3
    path.write_text(json.dumps(record), "utf-8")
    done = tables(manual, figures, "--check")
    assert done.returncode == 1
    assert "speed.md differs from the figures: run benchmarks/tables.py" in done.stderr
    assert tables(manual, figures).returncode == 0
    assert "| ours cpu | 3.30 (2.0) |" in (manual / "benchmarks/speed.md").read_text("utf-8")
    assert tables(manual, figures, "--check").returncode == 0


def test_figures_without_a_table_and_tables_without_figures_are_named(
    copy: tuple[Path, Path],
) -> None:
    manual, figures = copy
    shutil.copytree(figures / "amd-epyc-avx2", figures / "another")
    (figures / "amd-epyc-avx2/core.json").unlink()
    done = tables(manual, figures, "--check")
    assert done.returncode == 1
    assert "core amd-epyc-avx2 has no figures" in done.stderr
    assert "jobs another has no table" in done.stderr


def test_a_new_run_of_a_workload_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    def keep(workload: str, pairs: float) -> dict[str, Any]:
        row = {"workload": workload, "sides": {"ours cpu": {"pairs_s": pairs}}}
        code = (
            f"import records, pathlib; print(records.keep('x', [{row}],"
            f" pathlib.Path({str(tmp_path)!r})))"
        )
        done = run_python("-c", code, cwd=SCRIPTS, check=True)
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
    a_revision = (
        r"[0-9a-f]{7,}\+?" if (ROOT / ".git").exists() else re.escape(version("vcs-runtime"))
    )
    assert re.fullmatch(a_revision, many["revision"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", many["date"])
    assert "numpy" in many["versions"]
    assert record["processor"]["cores"] >= 1


# The models in a signature: learned segmenter and embedder, each with its digits.
DIGITS = re.compile(r"[+:](boundary-en@\w+).*\|emb:([^|]+)|\|emb:([^|]+)")


def digits(signature: str) -> set[str]:
    found = DIGITS.search(signature)
    assert found, signature
    return set(filter(None, found.groups()))


@pytest.fixture(scope="module")
def present() -> set[str]:
    with Scorer.open("default", device="cpu") as scorer:
        return digits(scorer.signature)


def of_the_default(side: str) -> bool:
    """Whether the side of a row is the default bundle, on whatever device."""
    return side.rpartition(":")[0].removeprefix("ours ") in ("", "default")


# Digits of an earlier definition, of the same files: the scores of 100 outputs were found equal
# (1e-8 in the means) by the script `recheck` at 07564bf. Results with these digits are not run
# again.
EQUAL = {"boundary-en@923c", "all-minilm-l6-v2@d445"}


@pytest.fixture(scope="module")
def equal(present: set[str]) -> set[str]:
    """Digits of the default, and those of which that is known."""
    return present | EQUAL if present == {"boundary-en@51c6", "all-minilm-l6-v2@4e4b"} else present


def test_figures_are_of_the_model_that_is_the_default(equal: set[str]) -> None:
    """After another default, the scripts are to be run again."""
    stale = {
        f"{path.parent.name}/{path.name}: {row['workload']}, {side}"
        for path in FIGURES.glob("*/*.json")
        for row in json.loads(path.read_text("utf-8"))["rows"]
        for side, signature in row.get("signatures", {}).items()
        if of_the_default(side) and not digits(signature) <= equal
    }
    assert stale == set()


def test_figures_whose_signature_was_not_kept_are_of_a_model_that_computes_the_same(
    equal: set[str],
) -> None:
    """Their file names the digits of the weights that the scores were made with."""
    models = {
        f"{path.parent.name}/{path.name}": record["model"]
        for path in FIGURES.glob("*/*.json")
        if "model" in (record := json.loads(path.read_text("utf-8")))
    }
    assert models
    assert {
        name: model for name, model in models.items() if not set(model.split(" and ")) <= equal
    } == {}


def test_results_of_experiments_are_of_the_default_or_of_digits_that_were_found_equal(
    equal: set[str],
) -> None:
    """Otherwise `experiments.py` is to be run again."""
    stale = {
        path.parent.name: signature
        for path in (SCRIPTS / "results").glob("*/results.json")
        if not digits(signature := json.loads(path.read_text("utf-8"))["signature"]) <= equal
    }
    assert stale == {}


def test_figures_of_another_origin_say_so_until_all_of_them_are_measured_again(
    tmp_path: Path,
) -> None:
    def keep(*workloads: str, source: str | None = None) -> Any:
        rows = [{"workload": name, "cells": {"time": "1 s"}} for name in workloads]
        call = (
            f"records.keep('x', {rows}, pathlib.Path({str(tmp_path)!r}), place=records.ANY,"
            f" source={source!r})"
        )
        code = f"import records, pathlib; print({call})"
        done = run_python("-c", code, cwd=SCRIPTS, check=True)
        return json.loads(Path(done.stdout.strip()).read_text("utf-8"))

    record = keep("one", "two", source="From elsewhere.")
    assert record["source"] == "From elsewhere."
    assert "processor" not in record
    assert keep("one")["source"] == "From elsewhere."
    record = keep("one", "two")
    assert "source" not in record
    assert record["processor"]["cores"] >= 1


def test_a_source_archive_has_its_version_for_a_revision(tmp_path: Path) -> None:
    """It knows no revisions, and what is measured there is of this version."""
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(SCRIPTS / "records.py", tmp_path / "benchmarks")
    done = run_python(
        "-c", "import records; print(records.revision())", cwd=tmp_path / "benchmarks", check=True
    )
    assert done.stdout.strip() == version("vcs-runtime")
