"""Score files as tables: any value, any end of a job, and nobody else's lines."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.stories import read_lines, story, write_pairs
from vcs_runtime import Options, Scorer
from vcs_runtime.errors import InputError
from vcs_runtime.jobs import score_tables
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.run import score_file
from vcs_runtime.jobs.score_tables import write_table
from vcs_runtime.jobs.summary import Summary

WHOLE = 1 << 53
USUAL = Options()


def run(
    scorer: Scorer, source: Path, output: Path, options: Options = USUAL, **how: bool
) -> Summary:
    return score_file(scorer, source, JobFiles(output, progress=False, **how), options)  # type: ignore[arg-type]


def column(folder: Path, values: list[Any]) -> tuple[str, list[Any]]:
    """Write values as a column of Parquet, and return its type and what can be read from it."""
    parquet = pytest.importorskip("pyarrow.parquet")
    write_pairs(folder / "lines", [{"id": i, "k": value} for i, value in enumerate(values)])
    write_table(folder / "lines", folder / "t.parquet")
    written = parquet.read_table(folder / "t.parquet").column("k")
    return str(written.type), written.to_pylist()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int64", [1, -2, None]),
        ("int64", [(1 << 63) - 1, -(1 << 63)]),
        ("uint64", [(1 << 64) - 1, None, 5]),
        ("double", [0.5, WHOLE, -WHOLE]),
        ("double", [0.5, math.inf]),
        ("bool", [True, None, False]),
    ],
)
def test_a_column_of_parquet_has_the_type_that_holds_its_values(
    tmp_path: Path, kind: str, values: list[Any]
) -> None:
    assert column(tmp_path, values) == (kind, values)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1 << 64, 1], ["18446744073709551616", "1"]),
        ([1 << 63, -1], ["9223372036854775808", "-1"]),
        ([-(1 << 63) - 1], ["-9223372036854775809"]),
        ([WHOLE + 1, 0.5], ["9007199254740993", "0.5"]),
        ([0.5, -WHOLE - 1, None], ["0.5", "-9007199254740993", None]),
        ([True, 1], ["true", "1"]),
        ([{"a": [1, None]}, ["x", "y"], 3], ['{"a": [1, null]}', "x y", "3"]),
    ],
)
def test_what_no_type_holds_becomes_text(
    tmp_path: Path, values: list[Any], texts: list[Any]
) -> None:
    assert column(tmp_path, values) == ("string", texts)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 66), 1 << 66)
    | st.floats()
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(values=st.lists(JSON, min_size=1, max_size=5))
@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_any_value_can_be_written(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, values: list[Any]
) -> None:
    folder = tmp_path_factory.mktemp("any")
    if suffix == ".parquet":
        kind, written = column(folder, values)
        assert len(written) == len(values)
        for value, found in zip(values, written, strict=True):
            if kind != "string" and value is not None:
                assert found == value or value != value
        return
    write_pairs(folder / "lines", [{"id": i, "k": value} for i, value in enumerate(values)])
    write_table(folder / "lines", folder / f"t{suffix}")
    with (folder / f"t{suffix}").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="," if suffix == ".csv" else "\t"))
    assert [row["id"] for row in rows] == [str(i) for i in range(len(values))]


@pytest.mark.parametrize("text", ["a\rb", "\r", "a\nb", "a\r\nb", "\r\n", '"\r', "\u2028", "\x1c"])
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_a_line_end_within_a_value_ends_no_row(tmp_path: Path, suffix: str, text: str) -> None:
    write_pairs(tmp_path / "lines", [{"id": text, "k": text}, {"id": 2, "k": "plain"}])
    write_table(tmp_path / "lines", tmp_path / f"t{suffix}")
    rows = [row for _, row in score_tables.read_table(tmp_path / f"t{suffix}")]
    assert rows == [{"id": text, "k": text}, {"id": "2", "k": "plain"}]
    assert (tmp_path / f"t{suffix}").read_bytes().endswith(b"plain\n")


def test_two_columns_may_have_one_name_without_half_surrogates(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    write_pairs(tmp_path / "lines", [{"id": 1, "\ud800": 1, "\\ud800": 2}])
    write_table(tmp_path / "lines", tmp_path / "t.parquet")
    assert parquet.ParquetFile(tmp_path / "t.parquet").read().num_columns == 3


@pytest.mark.parametrize("other", ["out.tsv", "out.jsonl", "out.csv"])
@pytest.mark.parametrize(
    "error", [OverflowError("too large"), csv.Error("a value"), ValueError(""), OSError(28, "full")]
)
def test_a_table_that_fails_leaves_a_job_that_another_format_finishes(
    scorer: Scorer,
    pairs_file: Path,
    tmp_path: Path,
    other: str,
    error: Exception,
) -> None:
    def fail(*_: object) -> None:
        raise error

    run(scorer, pairs_file, tmp_path / f"expected-{other}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score_tables, "_write_separated", fail)
        with pytest.raises(InputError, match=r"out\.csv: .*continue with --resume, also"):
            run(scorer, pairs_file, tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    assert run(scorer, pairs_file, tmp_path / other, resume=True).resumed == 12
    assert (tmp_path / other).read_bytes() == (tmp_path / f"expected-{other}").read_bytes()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {pairs_file.name, other, f"expected-{other}"}


def stopped(scorer: Scorer, source: Path, output: Path, lines: int = 5) -> Path:
    """Leave what a job of a table leaves that is killed in its next line; return that file."""
    whole = output.with_name("whole.jsonl")
    run(scorer, source, whole)
    left = output.with_name(f".{output.name}.lines")
    written = whole.read_bytes().splitlines(keepends=True)
    left.write_bytes(b"".join(written[:lines]) + written[lines][:20])
    whole.unlink()
    return left


@pytest.fixture
def other_pairs(tmp_path: Path) -> Path:
    """The ids of `pairs_file` with other texts."""
    rows = [{"id": i, "reference": story(50 + i), "generated": story(i)} for i in range(12)]
    write_pairs(tmp_path / "other.jsonl", rows)
    return tmp_path / "other.jsonl"


@pytest.mark.parametrize("how", ["overwrite", "resume"])
def test_a_finished_file_beside_a_table_is_not_taken_for_its_lines(
    scorer: Scorer, pairs_file: Path, other_pairs: Path, tmp_path: Path, how: str
) -> None:
    run(scorer, other_pairs, tmp_path / "x.csv.jsonl")
    run(scorer, pairs_file, tmp_path / "y.csv.jsonl")
    before = [(tmp_path / name).read_bytes() for name in ("x.csv.jsonl", "y.csv.jsonl")]
    for name in ("x.csv", "y.csv"):
        assert run(scorer, pairs_file, tmp_path / name, **{how: True}).resumed == 0
    assert [(tmp_path / name).read_bytes() for name in ("x.csv.jsonl", "y.csv.jsonl")] == before


def test_an_interrupted_table_is_resumed_after_its_pair_is_mended(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    stopped(scorer, pairs_file, tmp_path / "x.csv")
    rows = read_lines(pairs_file)
    rows[5]["generated"] = story(900)  # the sixth is the first without a line
    write_pairs(pairs_file, rows)
    assert run(scorer, pairs_file, tmp_path / "x.csv", resume=True).resumed == 5
    assert {path.name for path in tmp_path.iterdir()} == {"pairs.jsonl", "x.csv"}


@pytest.mark.parametrize("how", ["overwrite", "resume", "neither"])
def test_no_job_takes_the_unfinished_lines_of_another_input(
    scorer: Scorer, pairs_file: Path, other_pairs: Path, tmp_path: Path, how: str
) -> None:
    left = stopped(scorer, other_pairs, tmp_path / "x.csv")
    before = left.read_bytes()
    with pytest.raises(InputError, match=r"\.x\.csv\.lines"):
        run(scorer, pairs_file, tmp_path / "x.csv", **({} if how == "neither" else {how: True}))
    assert left.read_bytes() == before
    assert run(scorer, other_pairs, tmp_path / "x.csv", resume=True).resumed == 5


@pytest.mark.parametrize("options", [Options(), Options(chunk_size=2)])
def test_a_job_starts_again_over_its_own_unfinished_lines(
    scorer: Scorer, pairs_file: Path, tmp_path: Path, options: Options
) -> None:
    stopped(scorer, pairs_file, tmp_path / "x.csv")
    assert run(scorer, pairs_file, tmp_path / "x.csv", options, overwrite=True).resumed == 0
    assert len(list(score_tables.read_table(tmp_path / "x.csv"))) == 12


@pytest.mark.parametrize("other", ["input", "options"])
def test_another_format_finishes_only_the_same_job(
    scorer: Scorer, pairs_file: Path, other_pairs: Path, tmp_path: Path, other: str
) -> None:
    left = stopped(scorer, pairs_file, tmp_path / "x.tsv")
    before = left.read_bytes()
    options = Options(chunk_size=2) if other == "options" else Options()
    source = other_pairs if other == "input" else pairs_file
    for name in ("x.csv", "x.jsonl"):
        assert run(scorer, source, tmp_path / name, options, resume=True).resumed == 0
    assert left.read_bytes() == before
    assert run(scorer, pairs_file, tmp_path / "x.ndjson", resume=True).resumed == 5
    assert not left.exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows has other limits, and links need a right")
@pytest.mark.parametrize("length", [230, 239, 245, 255])
def test_a_name_too_long_for_its_partial_file_is_refused_at_the_start(
    scorer: Scorer,
    pairs_file: Path,
    tmp_path: Path,
    length: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a pair was scored")

    monkeypatch.setattr(scorer, "stream", fail)
    output = tmp_path / f"{'é' * ((length - 4) // 2)}.csv".rjust(length - (length - 4) // 2, "n")
    assert len(os.fsencode(output.name)) == length
    for how in ({}, {"resume": True}, {"overwrite": True}):
        with pytest.raises(InputError, match="File name too long"):
            run(scorer, pairs_file, output, **how)
    assert list(tmp_path.iterdir()) == [pairs_file]


@pytest.mark.skipif(os.name == "nt", reason="links need a right on Windows")
def test_a_table_follows_a_link_as_lines_do(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far/old.csv").write_text("old")
    links = {"l.csv": "far/old.csv", "new.csv": "far/new.csv", "link.csv": "l.csv"}
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
        run(scorer, pairs_file, tmp_path / name, overwrite=True)
        assert (tmp_path / name).is_symlink()
        assert len(list(score_tables.read_table(tmp_path / target))) == 12
    assert len(list((tmp_path / "far").iterdir())) == 2


@pytest.mark.skipif(os.name == "nt", reason="links need a right on Windows")
def test_a_link_to_nothing_that_can_be_written_is_refused_at_the_start(
    scorer: Scorer, pairs_file: Path, tmp_path: Path
) -> None:
    for name, target in (("a.csv", "missing/t.csv"), ("b.csv", os.devnull)):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(InputError, match=name):
            run(scorer, pairs_file, tmp_path / name, overwrite=True)
        assert (tmp_path / name).is_symlink()
    assert len(list(tmp_path.iterdir())) == 3
