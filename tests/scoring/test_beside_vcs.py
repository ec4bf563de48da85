"""Metrics beside VCS in files, summaries, comparisons and tables: the same for each of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.command_line import Finished, vcs
from support.needed import PARQUET
from support.stories import read_lines, story
from vcs_runtime import Scorer
from vcs_runtime.scoring.score_table import FURTHER, PART

pytestmark = pytest.mark.parametrize("metric", FURTHER)


@pytest.fixture
def score(tiny_bundle: Path) -> Callable[..., Finished]:
    options = ("--bundle", tiny_bundle, "--words", tiny_bundle, "--device", "cpu")
    return lambda *arguments: vcs("score", *arguments, *options)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", PARQUET])
def test_files_summaries_and_comparisons_have_it(
    metric: str, suffix: str, score: Callable[..., Finished], pairs_file: Path, scorer: Scorer, tmp_path: Path
) -> None:
    out = tmp_path / f"o{suffix}"
    done = score(pairs_file, "--also", metric, "-o", out, "--json")
    assert done.code == 0, done.stderr
    summary = json.loads(done.stdout)
    pairs = [(row["reference"], row["generated"]) for row in read_lines(pairs_file)]
    results = scorer.score_many(pairs, also=[metric])
    if suffix == ".parquet":
        rows = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
    elif suffix == ".csv":
        with out.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    else:
        rows = read_lines(out)
    for name in FURTHER[metric]:
        expected = [getattr(result, name) for result in results]
        assert [float(row[name]) for row in rows] == expected
        own = summary["scores"][name]
        assert own["mean"] == pytest.approx(np.mean(expected), abs=1e-15)
        assert own["ci95"][0] <= own["mean"] <= own["ci95"][1]
        compared = vcs("compare", out, out, "--name", "a", "--name", "b", "--score", name, "--format", "json")
        assert json.loads(compared.stdout)["mean_a"] == own["mean"]


def test_a_file_without_it_is_neither_compared_by_it_nor_continued_with_it(
    metric: str, score: Callable[..., Finished], pairs_file: Path, tmp_path: Path
) -> None:
    out, name = tmp_path / "o.jsonl", list(FURTHER[metric])[-1]
    done = score(pairs_file, "-o", out)
    assert not [own for own in FURTHER[metric] if own in done.stdout + out.read_text()]
    compared = vcs("compare", out, out, "--name", "a", "--name", "b", "--score", name)
    assert (compared.code, f"line 1: '{name}' is None" in compared.stderr) == (2, True)
    continued = score(pairs_file, "--also", metric, "-o", out, "--resume")
    assert (continued.code, f"also:{metric}" in continued.stderr) == (2, True)


def test_one_pair_is_printed_with_it(metric: str, score: Callable[..., Finished], tmp_path: Path) -> None:
    for name in ("r", "g"):
        (tmp_path / name).write_text(story(1 if name == "r" else 2))
    done = score(tmp_path / "r", tmp_path / "g", "--also", metric)
    shown = {line.split()[0]: line.rstrip() for line in done.stdout.splitlines() if line.strip()}
    for name, info in FURTHER[metric].items():
        assert (name in shown) == (info.level <= PART)
        assert name not in shown or shown[name].endswith(info.meaning)
