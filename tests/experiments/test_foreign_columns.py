"""Scores that were computed elsewhere (`--column NAME=FILE`), and the tables for papers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.experiments import CASES, comparison, files, table, write_json
from support.stories import read_lines, story, write_pairs
from vcs_runtime.errors import InputError


def assert_balanced(text: str, columns: int) -> None:
    """Assert that a LaTeX table is one, and that its rows have as many cells as it has columns."""
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    bare = re.sub(r"\\\\.", "", body)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    for name in ("table", "tabular"):
        assert (
            len(re.findall(rf"\\begin{{{name}\*?}}", body))
            == len(re.findall(rf"\\end{{{name}\*?}}", body))
            == 1
        )
    assert body.count(r"\caption{") == body.count(r"\label{tab:") == 1
    [specification] = re.findall(r"\\begin{tabular}{([lr]+)}", body)
    rows = [
        line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line
    ]
    assert {len(re.split(r"(?<!\\)&", row)) for row in rows} == {columns} == {len(specification)}


def test_rank_shows_other_scores_and_ranks_by_them(experiment: Any, tmp_path: Path) -> None:
    references = {f"v{i}": story(i) for i in range(4)}
    write_json(tmp_path / "references.json", references)
    for k, name in enumerate(("one", "two")):
        data = {id_: story(9 + k + i) for i, id_ in enumerate(references)}
        write_json(tmp_path / f"models/{name}.json", data)
    numbers = {
        (model, id_): k + i / 8
        for k, model in enumerate(("one", "two"))
        for i, id_ in enumerate(references)
    }
    lines = [
        {"model": model, "id": id_, "note": "-", "clip_s": value}
        for (model, id_), value in numbers.items()
    ]
    write_pairs(tmp_path / "clip.jsonl", lines)
    rows = "".join(f"{model}/{id_},{10 * value}\n" for (model, id_), value in numbers.items())
    (tmp_path / "pac.csv").write_text(f"id,score\n{rows}other/v1,3\n")
    arguments = (
        *f"rank --references {tmp_path}/references.json --predictions {tmp_path}/models".split(),
        "--resamples",
        100,
    )
    assert experiment(*arguments).exit_code == 0
    before = files(tmp_path / "out")["pairs.jsonl"]
    columns = (
        "--column",
        f"clip_s={tmp_path / 'clip.jsonl'}",
        "--column",
        f"PAC-S={tmp_path / 'pac.csv'}",
    )
    done = experiment(*arguments, *columns, "--by", "PAC-S", "--resume")
    assert done.exit_code == 0, done.output
    assert files(tmp_path / "out")["pairs.jsonl"] == before  # nothing is scored again for them
    two, one = table(tmp_path / "out", "ranking")
    assert (two["model"], two["PAC-S"], two["clip_s"]) == ("two", 10 * 1.1875, 1.1875)
    assert (one["PAC-S"], one["to the next"]) == (10 * 0.1875, None)
    assert b"two,v3," in files(tmp_path / "out")["pairs.csv"]
    assert files(tmp_path / "out")["pairs.csv"].splitlines()[0].endswith(b",clip_s,PAC-S")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"id": "0/x", "S": 1}\n{"id": "0/y", "S": "high"}\n',
            "s.jsonl line 2: S of 0/y must be a number, not 'high'",
        ),
        ('{"id": "0/x", "S": 1}\n\n{"id": "0/x", "S": 1}\n', "s.jsonl line 3: id 0/x occurs twice"),
        ('{"scene": "0", "S": 1}\n', "s.jsonl line 1: no 'id', only 'scene', 'S'"),
        (
            '{"id": "0/x", "a": 1, "b": 2}\n',
            "s.jsonl line 1: neither 'S' nor exactly one column of scores (it has 'id', 'a', 'b')",
        ),
        ('{"id": "0/x", "S": NaN}\n', "s.jsonl line 1: S of 0/x must be a number, not nan"),
        ("", "s.jsonl: the file holds no scores"),
        (
            '{"scene": 0, "case": "' + CASES[0] + '", "S": 1}\n',
            f"s.jsonl: no S for 0/{CASES[1]} (missing for 3 of 4 texts)",
        ),
    ],
)
def test_other_scores_that_do_not_fit_are_named(
    text: str, message: str, experiment: Any, tmp_path: Path
) -> None:
    (tmp_path / "s.jsonl").write_text(text)
    data = comparison(tmp_path / "data", 1)
    done = experiment("corruption", "--data", data, "--column", f"S={tmp_path / 's.jsonl'}")
    assert isinstance(done.exception, InputError)
    assert str(done.exception).endswith(message)
    assert not (tmp_path / "out/pairs.jsonl").exists()


def test_names_of_other_scores_are_checked(experiment: Any, tmp_path: Path) -> None:
    data = comparison(tmp_path / "data", 1)
    lines = [{"id": f"0/{case}", "S": 1} for case in CASES]
    write_pairs(tmp_path / "s.jsonl", lines)
    for column, message in (("S", "'S' is not NAME=FILE"), ("=s", "'=s' is not NAME=FILE")):
        assert message in experiment("corruption", "--data", data, "--column", column).output
    twice = ("--column", f"S={tmp_path / 's.jsonl'}") * 2
    assert "two columns are called 'S'" in experiment("corruption", "--data", data, *twice).output
    done = experiment("corruption", "--data", data, "--column", f"LAS={tmp_path / 's.jsonl'}")
    assert str(done.exception) == "--column: 'LAS' is already a column: choose another name"
    own = experiment("corruption", "--data", data, "--column", f"S={tmp_path / 'out/cases.csv'}")
    assert isinstance(own.exception, InputError)  # there is no such file


def test_tables_for_papers_lie_beside_the_others(experiment: Any, tmp_path: Path) -> None:
    data, out = comparison(tmp_path / "data"), tmp_path / "out"
    lines = [
        {"scene": scene, "case": case, "A_B & 5 %": 20.0 + scene}
        for scene in range(3)
        for case in CASES
    ]
    write_pairs(tmp_path / "s.jsonl", lines)
    done = experiment("corruption", "--data", data, "--column", f"A_B & 5 %={tmp_path / 's.jsonl'}")
    assert done.exit_code == 0, done.output
    text = (out / "cases.tex").read_text()
    assert_balanced(text, 1 + len(CASES))
    assert r"\multicolumn{1}{c}{Valid test cases} & \multicolumn{3}{c}{Invalid test cases}" in text
    means = {row["case"]: row for row in table(out, "cases")}
    row = next(line for line in text.splitlines() if line.startswith(r"VCS\_LCT0 & "))
    assert re.findall(r"-?\d+\.\d", row) == [
        f"{100 * means[case]['VCS_LCT0']:.1f}" for case in CASES
    ]
    assert "\nA\\_B \\& 5 \\% & $21.0$ & $21.0$" in text  # as it is, and so the caption says
    assert r"times 100, but A\_B \& 5 \%." in text
    deviation = np.std([20.0, 21.0, 22.0], ddof=1)
    assert f"\n & $\\pm {deviation:.1f}$" in text
    content = {str(i): {f"A{k}": story(10 * i + k) for k in (1, 2, 3)} for i in range(2)}
    write_json(tmp_path / "a.json", content)
    finished = experiment("authors", "--data", tmp_path / "a.json", out=tmp_path / "authors")
    assert finished.exit_code == 0
    text = (tmp_path / "authors/authors.tex").read_text()
    assert_balanced(text, 7)
    assert r"\multicolumn{2}{c}{Reference by A1} & \multicolumn{2}{c}{Reference by A2}" in text


def test_correlations_are_a_table_of_one_and_of_nine_references(
    experiment: Any, tmp_path: Path
) -> None:
    videos = [
        {
            "vid": f"v{i}",
            "refs": [[story(100 * i + k, 1) for k in range(9)]],
            "cands": [story(100 * i + k, 1) for k in (0, 8, 20)],
            "scores": [[5, 4], [4, 3], [1, 2]],
        }
        for i in range(3)
    ]
    write_pairs(tmp_path / "v.jsonl", videos)
    for name, sign in (("up", -1), ("down", 1)):
        pairs = [{"vid": f"v{i}", "id": k, "score": sign * k} for i in range(3) for k in range(3)]
        write_pairs(tmp_path / f"{name}.jsonl", pairs)
    done = experiment(
        *f"vatex --data {tmp_path}/v.jsonl --resamples 100 --column".split(),
        f"EMScore 9ref={tmp_path / 'up.jsonl'}",
        "--column",
        f"free={tmp_path / 'down.jsonl'}",
    )
    assert done.exit_code == 0, done.output
    rows = {
        (row["metric"], row["references"]): row for row in table(tmp_path / "out", "correlation")
    }
    assert rows["EMScore", "9ref"]["Kendall tau-b"] == pytest.approx(
        -rows["free", ""]["Kendall tau-b"]
    )
    assert rows["EMScore", "9ref"]["Kendall tau-b"] > 0.8
    text = (tmp_path / "out/correlation.tex").read_text()
    assert_balanced(text, 7)
    heads = (
        r"\multicolumn{2}{c}{1 reference} & \multicolumn{2}{c}{9 references} &"
        r" \multicolumn{2}{c}{as given}"
    )
    assert heads in text
    best = 100 * rows["EMScore", "9ref"]["Kendall tau-b"]
    assert re.search(
        rf"\nEMScore &  &  & \$\\mathbf{{{{{best:.1f}}}}}\$ & ".replace("{{", "{").replace(
            "}}", "}"
        ),
        text,
    )
    assert len(read_lines(tmp_path / "out/pairs.jsonl")) == 9
