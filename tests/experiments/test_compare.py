"""`vcs-runtime compare`: two score files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from support.stories import write_pairs
from vcs_runtime.cli import cli
from vcs_runtime.errors import InputError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


def lines(values: list[float], signature: str = "vcs|one", **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": i, "vcs": value, "las": value / 2, "signature": signature, **more}
        for i, value in enumerate(values)
    ]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    draw = np.random.default_rng(1)
    a = draw.uniform(0.2, 0.8, 40)
    b = a + 0.1
    b[7] -= 0.5
    write_pairs(tmp_path / "a.jsonl", lines(a.tolist()))
    write_pairs(tmp_path / "b.jsonl", lines(b.tolist())[::-1])  # the order does not matter
    return tmp_path / "a.jsonl", tmp_path / "b.jsonl"


def test_difference_interval_tests_and_what_moved(pair: tuple[Path, Path]) -> None:
    done = run(*pair, "--json", "--moved", 3)
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["pairs"] == 40
    assert found["difference"] == pytest.approx(0.1 - 0.5 / 40)
    low, high = found["ci95"]
    assert low < found["difference"] < high
    assert found["p_bootstrap"] < 0.01
    assert found["p_permutation"] < 0.01
    assert found["moved"][0]["id"] == "7"
    assert len(found["moved"]) == 3
    assert run(*pair, "--json", "--moved", 3).stdout == done.stdout
    half = json.loads(run(*pair, "--json", "--score", "las").stdout)
    assert half["difference"] == pytest.approx(found["difference"] / 2)


def test_the_tables_for_people(pair: tuple[Path, Path]) -> None:
    done = run(*pair)
    assert done.exit_code == 0
    for part in ("vcs, 40 pairs", "difference +0.0875", "paired bootstrap", "permutation", "A vcs|one"):
        assert part in done.stdout


def zeros(margins: list[float]) -> list[dict[str, Any]]:
    """Lines of an earlier version, which had no margin."""
    return [line | {"sas": 0.5, "nas": margin + 0.5} for line, margin in
            zip(lines([max(0.0, margin) for margin in margins]), margins, strict=True)]  # fmt: skip


def test_where_vcs_is_mostly_zero_the_margin_is_compared_and_said(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a.jsonl", zeros([-0.3, -0.2, -0.1, 0.1]))
    write_pairs(tmp_path / "b.jsonl", zeros([-0.2, -0.1, 0.0, 0.2]))
    done = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    assert done.exit_code == 0
    assert done.stdout.startswith(
        "VCS is 0 for 6 of 8 scores, so the margin is compared; --score vcs compares VCS.\n"
    )
    assert "margin, 4 pairs: -0.1250 in A, -0.0250 in B" in done.stdout
    named = run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--score", "vcs", "--json")
    found = json.loads(named.stdout)
    assert (found["score"], found["reason"]) == ("vcs", "")
    write_pairs(tmp_path / "b.jsonl", zeros([0.2, 0.1, 0.1, 0.2]))
    half = json.loads(run(tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--json").stdout)
    assert (half["score"], half["reason"]) == ("vcs", "")  # 3 of 8


def test_other_signatures_are_refused_unless_forced(pair: tuple[Path, Path], tmp_path: Path) -> None:
    write_pairs(tmp_path / "b.jsonl", lines([0.5] * 40, "vcs|two"))
    refused = run(*pair)
    assert isinstance(refused.exception, InputError)
    assert "vcs|one and vcs|two; --ignore-signatures" in str(refused.exception)
    forced = run(*pair, "--ignore-signatures")
    assert forced.exit_code == 0
    assert "B vcs|two" in forced.stdout


def test_ids_of_one_file_alone_are_named_and_the_rest_is_compared(
    pair: tuple[Path, Path], tmp_path: Path
) -> None:
    rows = lines([0.5] * 30)
    rows[3] = {"id": 3, "error": "generated: the text is empty", "signature": "vcs|one"}
    write_pairs(tmp_path / "b.jsonl", rows)
    done = run(*pair, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["pairs"] == 29
    assert sorted(map(int, found["left_out"])) == [3, *range(30, 40)]
    assert "vcs-runtime: 3: not scored in both files" in done.stderr


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "it holds no scores"),
        ([{"id": 1, "vcs": 0.5}], "line 1: no line of a score file"),
        ([{"id": 1, "vcs": 0.5, "signature": "s"}] * 2, "line 2: id 1 is there twice"),
        ([{"id": 1, "vcs": float("nan"), "signature": "s"}], "line 1: 'vcs' is nan"),
        ([{"id": 1, "signature": "s"}], "line 1: 'vcs' is None"),
        (
            [{"id": 1, "vcs": 1, "signature": "s"}, {"id": 2, "vcs": 1, "signature": "t"}],
            "line 2: scored as t, the lines before as s",
        ),
        ([{"id": 99, "vcs": 0.5, "signature": "vcs|one"}], "no id that both have scored"),
    ],
)
def test_bad_files_are_named(pair: tuple[Path, Path], tmp_path: Path, rows: list[Any], says: str) -> None:
    write_pairs(tmp_path / "b.jsonl", rows)
    refused = run(*pair)
    assert isinstance(refused.exception, InputError)
    assert "b.jsonl" in str(refused.exception)
    assert says in str(refused.exception)


def test_an_unknown_score_is_wrong_usage(pair: tuple[Path, Path]) -> None:
    done = run(*pair, "--score", "bleu")
    assert done.exit_code == 2
    assert "'--score': 'bleu' is not one of 'vcs'" in done.stderr


def test_one_pair_has_no_interval(tmp_path: Path) -> None:
    for name in "ab":
        write_pairs(tmp_path / name, lines([0.5 if name == "a" else 0.75]))
    found = json.loads(run(tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert (found["difference"], found["ci95"], found["p_permutation"]) == (0.25, [None, None], None)


def test_neither_a_model_nor_an_extra_is_needed(pair: tuple[Path, Path]) -> None:
    script = (
        "import sys\n"
        "for name in ('onnxruntime', 'nltk', 'rouge_score', 'matplotlib', 'scipy', 'sentencex'): sys.modules[name] = None\n"
        "from vcs_runtime.cli import main\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "compare", *map(str, pair)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "difference +0.0875" in done.stdout


def test_scoring_starts_without_the_experiments() -> None:
    script = "import sys, vcs_runtime.cli\nprint([name for name in sys.modules if name.startswith('vcs_runtime.experiment')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert {"compare", "experiment"} <= set(cli.list_commands(None))  # type: ignore[arg-type]
