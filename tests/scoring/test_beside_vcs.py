"""Metrics beside VCS in files, summaries, comparisons and tables: the same for each of them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.command_line import Finished, assert_refused, vcs
from support.needed import PARQUET
from support.stories import read_lines, story
from vcs_numba import Scores
from vcs_runtime import Options, Scorer
from vcs_runtime.scoring.columns import COUNTS, TEXTS, names_of, to_columns
from vcs_runtime.scoring.score_table import FURTHER, PART

pytestmark = pytest.mark.parametrize("metric", FURTHER)
#: Metric -> the field of a result that has its numbers.
FIELDS = {"hm-cf": "further", "substitution": "strict"}


def test_it_changes_no_other_score_and_is_absent_unless_asked_for(
    metric: str, scorer: Scorer
) -> None:
    pairs = [(story(i, 3 + i), story(20 + i, 2 + i)) for i in range(6)]
    plain, also, both = (
        scorer.score_many(pairs, also=names) for names in ([], [metric], [*FURTHER])
    )
    assert [a.scores for a in also] == [p.scores for p in plain]
    for result in plain:
        assert (result.also, getattr(result, FIELDS[metric])) == ((), None)
        assert all(math.isnan(getattr(result, name)) for name in FURTHER[metric])
    assert not FURTHER[metric].keys() & plain[0].to_dict().keys()
    values = also[0].to_dict()
    assert [values[name] for name in FURTHER[metric]] == list(getattr(also[0], FIELDS[metric]))
    assert scorer.score_many(pairs[::-1], also=[metric]) == also[::-1]
    assert [getattr(own, FIELDS[metric]) for own in both] == [
        getattr(own, FIELDS[metric]) for own in also
    ]
    assert both[0].also == tuple(FURTHER)
    fields = also[0].signature.split("|")
    added = [field for field in fields if field.startswith(("also:", "words:"))]
    assert [field.partition(":")[0] for field in added] == [
        "also",
        *["words"] * (metric == "substitution"),
    ]
    assert added[0] == f"also:{metric}"
    assert [field for field in fields if field not in added] == plain[0].signature.split("|")


def test_short_texts_have_none(metric: str) -> None:
    with pytest.raises(ValueError, match=f"short texts have no sentences; leave out {metric}"):
        Options(short=True, also=[metric])


def test_columns_hold_it(metric: str, scorer: Scorer) -> None:
    options = Options(also=[metric])
    results = list(scorer.iter_scores([(story(1), story(2)), (story(3), "")], options))
    columns = to_columns(results, options)
    assert (
        tuple(columns) == names_of(options) == (*Scores._fields, *FURTHER[metric], *COUNTS, *TEXTS)
    )
    for name in FURTHER[metric]:
        assert columns[name].tolist()[0] == getattr(results[0], name)
        assert np.isnan(columns[name]).tolist() == [False, True]
    # A batch of failures alone has the same columns, or its file would not fit the others.
    assert tuple(to_columns(results[1:], options)) == tuple(columns)


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", PARQUET])
def test_files_summaries_and_comparisons_have_it(
    metric: str,
    suffix: str,
    score: Callable[..., Finished],
    pairs_file: Path,
    scorer: Scorer,
    tmp_path: Path,
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
        compared = vcs(
            "compare", out, out, "--name", "a", "--name", "b", "--score", name, "--format", "json"
        )
        assert json.loads(compared.stdout)["mean_a"] == own["mean"]


def test_a_file_without_it_is_neither_compared_by_it_nor_continued_with_it(
    metric: str, score: Callable[..., Finished], pairs_file: Path, tmp_path: Path
) -> None:
    out, name = tmp_path / "o.jsonl", list(FURTHER[metric])[-1]
    done = score(pairs_file, "-o", out)
    assert not [own for own in FURTHER[metric] if own in done.stdout + out.read_text()]
    compared = vcs("compare", out, out, "--name", "a", "--name", "b", "--score", name)
    assert_refused(compared, f"line 1: '{name}' must be a number, not None")
    continued = score(pairs_file, "--also", metric, "-o", out, "--resume")
    assert_refused(continued, f"also:{metric}")


def test_one_pair_is_printed_with_it(
    metric: str, score: Callable[..., Finished], tmp_path: Path
) -> None:
    for name in ("r", "g"):
        (tmp_path / name).write_text(story(1 if name == "r" else 2))
    done = score(tmp_path / "r", tmp_path / "g", "--also", metric, "--all")
    shown = {line.split()[0]: line.rstrip() for line in done.stdout.splitlines() if line.strip()}
    for name, info in FURTHER[metric].items():
        assert (name in shown) == (info.level <= PART)
        assert name not in shown or shown[name].endswith(info.meaning)
