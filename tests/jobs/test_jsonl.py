"""JSON lines: reading them, and the engine by which every job writes and continues its output."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.stories import read_lines, write_pairs
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import OutputFile, read_jsonl, run_resumable

BOM = b"\xef\xbb\xbf"


def one_each(items: Iterator[str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """A block for each item, with one line."""
    return ([(item, {"id": item, "signature": "s"})] for item in items)


def two_each(items: Iterator[str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """A block for each item, with two lines."""
    return ([(item, {"id": item, "part": part, "signature": "s"}) for part in (1, 2)] for item in items)


def run(output: Path, items: str, work: Any = one_each, signature: str = "s", **options: Any) -> list[Any]:
    """Run a job over the letters of a text; returns what it was told of each line."""
    calls: list[Any] = []
    run_resumable(
        output, iter(items), len(items), work, lambda *call: calls.append(call),
        identify=str, signatures=lambda _, record: (record.get("signature"), signature), **options,
    )  # fmt: skip
    return calls


def test_values_come_with_their_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    path.write_bytes(BOM + b'{"a": 1}\r\n\n  \n[2]\n"\xc3\xa4"')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (4, [2]), (5, "ä")]
    assert list(read_jsonl(path, skip_torn=True)) == [(1, {"a": 1}), (4, [2])]


@pytest.mark.parametrize(
    ("line", "says"),
    [(b"{", "not JSON: "), (b'"\xff"', "not UTF-8 (byte 1 of the line)"), (BOM + b"1", "not JSON: "),
     (b"[" * 100_000, "not JSON: ")],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_named(tmp_path: Path, line: bytes, says: str) -> None:
    path = tmp_path / "values.jsonl"
    path.write_bytes(b"1\n" + line + b"\n3\n")
    with pytest.raises(InputError) as refusal:
        list(read_jsonl(path))
    assert str(refusal.value).startswith(f"{path} line 2: {says}")
    with pytest.raises(InputError, match=r"missing\.jsonl: No such file"):
        list(read_jsonl(tmp_path / "missing.jsonl"))


def test_a_long_file_is_never_in_memory_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    write_pairs(path, ["x" * 1000] * 5000)
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_jsonl(path)) == 5000
        assert tracemalloc.get_traced_memory()[1] < 500_000
    finally:
        tracemalloc.stop()


def test_every_block_is_on_the_disk_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *call: (events.append("written"), write(*call))[1])
    monkeypatch.setattr(os, "fsync", lambda *call: (events.append("synced"), sync(*call))[1])
    run_resumable(
        tmp_path / "o.jsonl", iter("ab"), 2, one_each, lambda *call: events.append("counted"),
        identify=str, signatures=lambda *_: ("s", "s"),
    )  # fmt: skip
    assert events == ["written", "synced", "counted"] * 2


@pytest.mark.parametrize("work", [one_each, two_each])
@pytest.mark.parametrize("finished", [0, 1, 3])
def test_items_that_are_finished_are_not_worked_on_again(tmp_path: Path, work: Any, finished: int) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    several = {"several_lines": work is two_each}
    calls = run(whole, "abc", work, **several)
    lines = whole.read_bytes().splitlines(keepends=True)
    each = len(lines) // 3
    part.write_bytes(b"".join(lines[: each * finished]) + b'{"id": "tor')
    resumed = run(part, "abc", work, resume=True, **several)
    assert part.read_bytes() == whole.read_bytes()
    assert [call[:2] for call in resumed] == [call[:2] for call in calls]
    assert [call[2] for call in resumed] == [True] * each * finished + [False] * each * (3 - finished)


def test_an_id_that_comes_twice_is_two_items_unless_items_have_several_lines(tmp_path: Path) -> None:
    output = tmp_path / "o.jsonl"
    run(output, "aab")
    assert [resumed for *_, resumed in run(output, "aabc", resume=True)] == [True, True, True, False]
    assert [line["id"] for line in read_lines(output)] == list("aabc")


@pytest.mark.parametrize(
    ("items", "signature", "says"),
    [
        ("abc", "other", "line 1: its signature is s, and this run's is other: resume with the same options"),
        ("axc", "s", "line 2: id 'b', where the input has 'x': this is the output of another input"),
        ("ab", "s", "line 3: the output has more lines than the input has items"),
    ],
)
def test_the_output_of_another_run_is_refused_and_left_as_it_is(
    tmp_path: Path, items: str, signature: str, says: str
) -> None:
    output = tmp_path / "o.jsonl"
    run(output, "abc")
    before = output.read_bytes()
    with pytest.raises(InputError) as refusal:
        run(output, items, signature=signature, resume=True)
    assert str(refusal.value).startswith(f"{output} {says}")
    assert output.read_bytes() == before


@pytest.mark.parametrize("line", ['{"some": "file"}', "[]", "{"])
def test_a_file_that_no_job_has_written_is_refused(tmp_path: Path, line: str) -> None:
    output = tmp_path / "o.jsonl"
    output.write_text(line + "\n")
    with pytest.raises(InputError, match=r"o\.jsonl line 1: (this is no line of an earlier run|not JSON)"):
        run(output, "abc", resume=True)


def test_the_last_whole_line_is_found_without_reading_at_an_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pread", raising=False)  # Windows has none
    output = tmp_path / "o.jsonl"
    whole = json.dumps({"id": "a"}) + "\n"
    output.write_text(whole + "x" * 200_000)
    with OutputFile(output, resume=True) as file:
        assert output.read_text() == whole
        file.append([{"id": "b"}])
    assert [line["id"] for line in read_lines(output)] == ["a", "b"]
