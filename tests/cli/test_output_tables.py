"""Scores as CSV, TSV and Parquet, and pairs that cannot be scored."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Finished, assert_refused, vcs
from support.needed import PARQUET
from support.stories import read_lines, story, write_pairs
from vcs_runtime.scoring import score_table

Score = Callable[..., Finished]

NAMES = score_table.NAMES


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Four pairs, the third of which cannot be scored."""
    rows = [
        {"id": f"p{i}", "reference": story(i, 3), "generated": story(i + 9, 2), "n": i}
        for i in range(4)
    ]
    rows[2]["generated"] = ""
    write_pairs(tmp_path / "p.jsonl", rows)
    return tmp_path / "p.jsonl"


def parquet_rows(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = (
        pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    )
    return rows


@pytest.mark.parametrize("suffix", [".csv", ".tsv", PARQUET])
def test_a_table_holds_what_the_lines_hold(
    suffix: str, score: Score, pairs: Path, tmp_path: Path
) -> None:
    assert score(pairs, "-o", tmp_path / "o.jsonl", "--keep-column", "n").code == 1
    assert score(pairs, "-o", tmp_path / f"o{suffix}", "--keep-column", "n").code == 1
    lines = read_lines(tmp_path / "o.jsonl")
    if suffix == ".parquet":
        rows = parquet_rows(tmp_path / "o.parquet")
    else:
        with (tmp_path / f"o{suffix}").open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file, delimiter="," if suffix == ".csv" else "\t"))  # type: ignore[arg-type]
    assert [row["id"] for row in rows] == ["p0", "p1", "p2", "p3"]
    assert [int(str(row["n"])) for row in rows] == [0, 1, 2, 3]
    for row, line in zip(rows, lines, strict=True):
        for name in NAMES:
            assert (float(str(row[name])) if row[name] not in ("", None) else None) == line.get(
                name
            )
        assert (row["error"] or None, row["signature"]) == (line.get("error"), line["signature"])
        assert (row["flags"] or "") == " ".join(line.get("flags", []))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(["p.jsonl", "o.jsonl", f"o{suffix}"])


@pytest.mark.parametrize("suffix", [".csv", PARQUET])
def test_half_a_surrogate_pair_is_written_as_its_number(
    suffix: str, score: Score, tmp_path: Path
) -> None:
    row = {"id": "a\ud800", "reference": story(1), "generated": story(1), "\udfff": "\ud801"}
    write_pairs(tmp_path / "p.jsonl", [row])
    done = score(tmp_path / "p.jsonl", "-o", tmp_path / f"o{suffix}", "--keep-column", "\udfff")
    assert done.code == 0, done.stderr
    if suffix == ".parquet":
        [written] = parquet_rows(tmp_path / "o.parquet")
    else:
        [written] = csv.DictReader((tmp_path / "o.csv").read_text("utf-8").splitlines())
    assert (written["id"], written["\\udfff"]) == ("a\\ud800", "\\ud801")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", PARQUET])
def test_compare_and_report_read_tables_as_they_read_lines(
    suffix: str, score: Score, tiny_bundle: Path, pairs: Path, tmp_path: Path
) -> None:
    rows = [{**row, "generated": story(row["n"] + 30, 3)} for row in read_lines(pairs)]
    write_pairs(tmp_path / "q.jsonl", rows)
    printed = []
    for end in (".jsonl", suffix):
        for name in ("p", "q"):
            (tmp_path / end).mkdir(exist_ok=True)
            score(tmp_path / f"{name}.jsonl", "-o", tmp_path / end / f"{name}{end}")
        files = (tmp_path / end / f"p{end}", tmp_path / end / f"q{end}")
        compared = vcs("compare", *files, "--format", "json")
        assert compared.code in (0, 1), compared.stderr
        printed.append(json.loads(compared.stdout.replace(end, "")))
        done = vcs("report", *files, "-o", tmp_path / end / "r.html", "--bundle", tiny_bundle)
        assert done.code in (0, 1), done.stderr
    assert printed[0] == printed[1]
    assert (tmp_path / ".jsonl/r.html").read_bytes() == (tmp_path / suffix / "r.html").read_bytes()


def test_a_table_is_resumed_from_its_lines_until_it_is_whole(
    score: Score, pairs: Path, tmp_path: Path
) -> None:
    assert score(pairs, "-o", tmp_path / "wanted.csv").code == 1
    assert score(pairs, "-o", tmp_path / "lines.jsonl").code == 1
    first = (tmp_path / "lines.jsonl").read_bytes().splitlines(keepends=True)[0]
    (tmp_path / ".o.csv.lines").write_bytes(first)  # a stopped job leaves its lines
    done = score(pairs, "-o", tmp_path / "o.csv")
    assert_refused(done, "continue it with --resume")
    done = score(pairs, "-o", tmp_path / "o.csv", "--resume", "--json")
    assert json.loads(done.stdout)["resumed"] == 1
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "wanted.csv").read_bytes()
    for option, says in (
        ("--resume", "the file is complete already"),
        ("--json", "it exists already"),
    ):
        done = score(pairs, "-o", tmp_path / "o.csv", option)
        assert_refused(done, says)
    assert score(pairs, "-o", tmp_path / "o.csv", "--overwrite").code == 1
    assert not (tmp_path / ".o.csv.lines").exists()


@pytest.mark.parametrize("name", ["o.xlsx", "o.html", "o.json"])
def test_other_suffixes_of_outputs_are_refused_with_the_choice(
    name: str, score: Score, pairs: Path, tmp_path: Path
) -> None:
    done = score(pairs, "-o", tmp_path / name)
    assert_refused(done, "must end in .jsonl, .ndjson, .csv, .tsv, .parquet, or be a folder")
    assert not (tmp_path / name).exists()


def test_a_table_is_not_the_input(score: Score, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("reference,generated\nOne.,Two.\n")
    done = score(tmp_path / "a.csv", "-o", tmp_path / "a.csv", "--overwrite")
    assert_refused(done, " is the input")


def test_failed_pairs_are_counted_beside_the_means(score: Score, pairs: Path) -> None:
    plain = json.loads(score(pairs, "--json").stdout)
    zero = json.loads(score(pairs, "--on-error", "zero", "--json").stdout)
    assert [(s["scored"], s["failed"], s["failed_as"], s["means_over"]) for s in (plain, zero)] == [
        (3, 1, "skip", 3),
        (3, 1, "zero", 4),
    ]
    for name in NAMES:
        mean = plain["scores"][name]["mean"]
        silent = -1 if name == "margin" else 0
        assert zero["scores"][name]["mean"] == pytest.approx((3 * mean + silent) / 4, abs=1e-12)
    assert zero["zeros"] == plain["zeros"]
    assert "means over 3 of 4 pairs; 1 failed\n" in score(pairs).stdout
    assert (
        "over 4 of 4 pairs; 1 failed (counted as 0)\n" in score(pairs, "--on-error", "zero").stdout
    )


def test_zero_counts_a_job_in_which_everything_failed(score: Score, tmp_path: Path) -> None:
    write_pairs(tmp_path / "p.jsonl", [{"reference": "One.", "generated": ""}])
    done = score(tmp_path / "p.jsonl", "--on-error", "zero", "--json")
    assert (done.code, json.loads(done.stdout)["scores"]["margin"]["mean"]) == (1, -1)


def test_the_lines_are_the_same_whatever_failed_pairs_count(
    score: Score, pairs: Path, tmp_path: Path
) -> None:
    for how in ("skip", "zero"):
        assert score(pairs, "--on-error", how, "-o", tmp_path / f"{how}.jsonl").code == 1
    assert (tmp_path / "skip.jsonl").read_bytes() == (tmp_path / "zero.jsonl").read_bytes()


def test_error_ends_the_job_at_the_first_failed_pair_and_resumes_when_it_is_mended(
    score: Score, pairs: Path, tmp_path: Path
) -> None:
    output = tmp_path / "o.jsonl"
    done = score(pairs, "--on-error", "error", "-o", output)
    assert done.code == 2
    assert (
        "p.jsonl line 3 (id p2): generated: the text is empty; finished output is kept"
        in done.stderr
    )
    assert [line["id"] for line in read_lines(output)] == ["p0", "p1"]
    rows = read_lines(pairs)
    rows[2]["generated"] = story(7)
    write_pairs(pairs, rows)
    assert score(pairs, "--on-error", "error", "-o", output, "--resume").code == 0
    assert [line["id"] for line in read_lines(output)] == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_spreadsheets_run_no_text_if_asked(score: Score, tmp_path: Path, suffix: str) -> None:
    ids = ["=HYPERLINK(1)", "+1", "-1", "@SUM", "\tx", "plain", "a=b"]
    source, output = tmp_path / "p.jsonl", tmp_path / f"o.{suffix}"
    rows = [
        {"id": i, "reference": story(1, 3), "generated": story(20, 2), "=k": "=1+1"} for i in ids
    ]
    write_pairs(source, rows)
    separator = "," if suffix == "csv" else "\t"
    for option in ((), ("--csv-safe",)):
        assert score(source, "-o", output, "--overwrite", "--keep-column", "=k", *option).code == 0
        with output.open(newline="", encoding="utf-8") as file:
            written = list(csv.DictReader(file, delimiter=separator))
        mark = "'" if option else ""
        assert [row["id"] for row in written] == [
            *(f"{mark}{id_}" for id_ in ids[:5]),
            "plain",
            "a=b",
        ]
        assert {row[f"{mark}=k"] for row in written} == {f"{mark}=1+1"}
        assert float(written[0]["margin"]) < 0  # numbers stay numbers


def test_compare_writes_names_that_no_spreadsheet_runs(score: Score, tmp_path: Path) -> None:
    source, output = tmp_path / "p.jsonl", tmp_path / "o.jsonl"
    write_pairs(source, [{"id": i, "reference": story(1), "generated": story(i)} for i in range(3)])
    assert score(source, "-o", output).code == 0
    command = ("compare", output, output, "--name", "=1+1", "--name", "b", "--format", "csv")
    assert vcs(*command).stdout.splitlines()[1].startswith("=1+1,")
    assert vcs(*command, "--csv-safe").stdout.splitlines()[1].startswith("'=1+1,")
