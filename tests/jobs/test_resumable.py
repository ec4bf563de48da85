"""The engine by which every job writes and continues its output, and loses and destroys nothing."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.command_line import vcs
from support.stories import read_lines, write_pairs
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.output import JobFiles, OutputFile
from vcs_runtime.jobs.resumable import Items, check_signature, hash_texts, run_resumable


def one_each(items: Iterator[str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """A block for each item, with one line."""
    return ([(item, {"id": item, "signature": "s"})] for item in items)


def two_each(items: Iterator[str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """A block for each item, with two lines."""
    return (
        [(item, {"id": item, "part": part, "signature": "s"}) for part in (1, 2)] for item in items
    )


def letters(text: str, total: int | None = None, signature: str = "s") -> Items[str]:
    return Items(
        text,
        len(text) if total is None else total,
        str,
        lambda place, _, record: check_signature(place, record.get("signature"), signature),
    )


def run(
    output: Path,
    items: str,
    work: Any = one_each,
    signature: str = "s",
    several_lines: bool = False,
    **files: Any,
) -> list[Any]:
    """Run a job over the letters of a text; returns what it was told of each line."""
    calls: list[Any] = []
    run_resumable(
        JobFiles(output, **files),
        dataclasses.replace(letters(items, signature=signature), several_lines=several_lines),
        work,
        lambda *call: calls.append(call),
    )
    return calls


def test_every_block_is_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda *call: (events.append("written"), write(*call))[1])
    monkeypatch.setattr(os, "fsync", lambda *call: (events.append("synced"), sync(*call))[1])
    files = JobFiles(tmp_path / "o.jsonl")
    run_resumable(files, letters("ab"), one_each, lambda *call: events.append("counted"))
    assert events == ["written", "synced", "counted"] * 2


@pytest.mark.parametrize("work", [one_each, two_each])
@pytest.mark.parametrize("finished", [0, 1, 3])
def test_items_that_are_finished_are_not_worked_on_again(
    tmp_path: Path, work: Any, finished: int
) -> None:
    whole, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    several = {"several_lines": work is two_each}
    calls = run(whole, "abc", work, **several)
    lines = whole.read_bytes().splitlines(keepends=True)
    each = len(lines) // 3
    part.write_bytes(b"".join(lines[: each * finished]) + b'{"id": "tor')
    resumed = run(part, "abc", work, resume=True, **several)
    assert part.read_bytes() == whole.read_bytes()
    assert [call[:2] for call in resumed] == [call[:2] for call in calls]
    assert [call[2] for call in resumed] == [True] * each * finished + [False] * each * (
        3 - finished
    )


def test_an_id_that_comes_twice_is_two_items_unless_items_have_several_lines(
    tmp_path: Path,
) -> None:
    output = tmp_path / "o.jsonl"
    run(output, "aab")
    assert [resumed for *_, resumed in run(output, "aabc", resume=True)] == [
        True,
        True,
        True,
        False,
    ]
    assert [line["id"] for line in read_lines(output)] == list("aabc")


@pytest.mark.parametrize(
    ("items", "signature", "says"),
    [
        (
            "abc",
            "other",
            "line 1: its signature has s, but this run's has other: resume with the same version, bundle and options",
        ),
        ("axc", "s", "line 2: id 'b', but the input has 'x': this is the output of another input"),
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
    with pytest.raises(
        InputError, match=r"o\.jsonl line 1: (this line was not written by an earlier run|not JSON)"
    ):
        run(output, "abc", resume=True)


def test_the_last_whole_line_is_found_without_reading_at_an_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pread", raising=False)  # Windows has none
    output = tmp_path / "o.jsonl"
    whole = json.dumps({"id": "a"}) + "\n"
    output.write_text(whole + "x" * 200_000)
    with OutputFile(output, resume=True) as file:
        file.end_last_line("{", known=True)
        assert output.read_text() == whole
        file.append([{"id": "b"}])
    assert [line["id"] for line in read_lines(output)] == ["a", "b"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_last_line_of_several_blocks_is_recognised(tmp_path: Path, whole: bool) -> None:
    """The file is read backwards in blocks of 64 KiB.

    The line fills three of them, each with another letter.
    """
    output = tmp_path / "o.jsonl"
    line = json.dumps({"id": "".join(letter * (1 << 16) for letter in "xyz")})
    output.write_text(line if whole else line[:-1])
    with OutputFile(output, resume=True) as file:
        file.end_last_line('{"id": ', known=False)
    assert output.read_text() == (line + "\n" if whole else "")


def test_a_last_line_that_lacks_only_its_line_end_is_kept(tmp_path: Path) -> None:
    output = tmp_path / "o.jsonl"
    run(output, "abc")
    whole = output.read_bytes()
    for cut in range(len(whole)):
        output.write_bytes(whole[:cut])
        resumed = sum(call[2] for call in run(output, "abc", resume=True))
        assert output.read_bytes() == whole
        assert resumed == whole[: cut + 1].count(b"\n")


@pytest.mark.parametrize(
    "content",
    [
        b"my notes, one line",
        b"one\ntwo",
        b'{"reference": "a", "generated": "b"}',
        b'{"idea": 1',
        b'{"id" : 1',
        b"\xff\xfe\n\x00",
        b"\n\n  x",
        b" ",
        b"12",
        b"x" * 100_000,
    ],
)
def test_a_file_of_something_else_is_refused_and_left_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    output = tmp_path / "notes.txt"
    output.write_bytes(content)
    with pytest.raises(InputError, match=r"notes\.txt"):
        run(output, "abc", resume=True)
    assert output.read_bytes() == content


@pytest.mark.parametrize(("items", "signature"), [("abc", "other"), ("xbc", "s"), ("", "s")])
def test_a_refused_output_keeps_its_torn_line(tmp_path: Path, items: str, signature: str) -> None:
    output = tmp_path / "o.jsonl"
    content = b'{"id": "a", "signature": "s"}\n{"id": "b'
    output.write_bytes(content)
    with pytest.raises(InputError, match="line 1"):
        run(output, items, signature=signature, resume=True)
    assert output.read_bytes() == content


def write_to(path: Path, mode: str, text: str) -> None:
    with path.open(mode) as file:
        file.write(text)


def replace(path: Path) -> None:
    beside = path.with_suffix(".other")
    beside.write_bytes(path.read_bytes())
    beside.replace(path)


HAPPENED: dict[str, Callable[[Path], object]] = {
    "it was removed or renamed": Path.unlink,
    "another file has taken its place": replace,
    "another program has changed it (0 bytes instead of 30)": lambda path: write_to(path, "w", ""),
    "another program has changed it (31 bytes instead of 30)": lambda path: write_to(
        path, "a", "x"
    ),
}


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("happened", HAPPENED)
def test_an_output_that_changes_while_the_job_is_running_ends_it(
    tmp_path: Path, happened: str, last: bool
) -> None:
    output = tmp_path / "o.jsonl"

    def work(items: Iterator[str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
        yield from one_each(iter([next(items)]))
        HAPPENED[happened](output)
        yield from one_each(items)

    with pytest.raises(InputError) as refusal:
        run(output, "a" if last else "abc", work)
    assert str(refusal.value).startswith(
        f"{output}: {happened} while the job was running, so output "
    )
    assert "continue with --resume" in str(refusal.value)
    if output.exists():
        assert b"\0" not in output.read_bytes()
        assert b'"b"' not in output.read_bytes()


def test_an_output_that_is_emptied_just_before_a_write_gets_no_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, write = tmp_path / "o.jsonl", os.write
    file = OutputFile(output)
    file.append([{"id": "a"}])
    monkeypatch.setattr(os, "write", lambda *call: (write_to(output, "w", ""), write(*call))[1])
    file.append([{"id": "b"}])
    with pytest.raises(InputError, match="another program has changed it"):
        file.close()
    assert [line["id"] for line in read_lines(output)] == ["b"]


def test_files_without_numbers_are_told_apart_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat, fstat = os.stat, os.fstat

    def numbered(status: os.stat_result, device: int) -> os.stat_result:
        return os.stat_result((status.st_mode, 0, device, *status[3:]))

    monkeypatch.setattr(os, "stat", lambda *call, **more: numbered(stat(*call, **more), 1))
    monkeypatch.setattr(os, "fstat", lambda file: numbered(fstat(file), 2))
    source, output = tmp_path / "in.jsonl", tmp_path / "o.jsonl"
    source.write_text("precious")
    run(output, "abc", inputs=[source])
    run(output, "abc", inputs=[source], overwrite=True)
    assert len(read_lines(output)) == 3
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(InputError, match=" is the input"):
        run(tmp_path / "link", "abc", inputs=[source], overwrite=True)
    assert source.read_text() == "precious"


@pytest.mark.parametrize(
    ("items", "now"), [("ab", "2 now"), ("abcd", "more now"), ("abcdefgh", "more now")]
)
def test_an_input_that_changes_while_it_is_read_ends_the_job(
    tmp_path: Path, items: str, now: str
) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "o.jsonl"
    for path in (None, output):
        with pytest.raises(InputError) as refusal:
            run_resumable(
                JobFiles(path, inputs=[source]), letters(items, 3), one_each, lambda *_: None
            )
        assert str(refusal.value).startswith(
            f"{source}: it had 3 items when the job began, but has {now}; "
        )
    assert "".join(line["id"] for line in read_lines(output)) == items[:4]


def test_what_is_no_file_can_be_written(tmp_path: Path) -> None:
    assert len(run(Path(os.devnull), "abc")) == len(run(Path(os.devnull), "abc", resume=True)) == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((["a", "b"], "c"), (["a"], "c")),
        ((["a", "b"], "c"), (["ab"], "c")),
        ((["a"], "b"), ("a", "b")),
        (("a", "bc"), ("ab", "c")),
        (("a", "b"), ("b", "a")),
        (("1", "b"), (1, "b")),
        ((None, "b"), ("null", "b")),
        ((["a", 1], "b"), (["a", 2], "b")),
        ((["a", "b"], "c"), ('a", "b', "c")),
        (("\ud83d\ude00", "b"), ("😀", "b")),
        (("\ud800", "b"), ("?", "b")),
    ],
)
def test_other_texts_have_another_hash(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    assert hash_texts(*one) == hash_texts(*one) != hash_texts(*other)
    assert len(hash_texts(*one)) == 16


def test_anything_has_a_hash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, b"\xff", {"a": float("nan")}, {1, 2}, "\ud800"):
        assert int(hash_texts(value, "b"), 16) >= 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("vcs", value) for value in (None, "x", 10**400, True, [1], float("nan"))),
        ("margin", {}),
        ("n_ref", "x"),
        ("segmenter", [1]),
        ("signature", 5),
        ("error", 5),
        ("error", None),
    ],
)
def test_a_damaged_score_of_an_earlier_run_is_named(
    tiny_bundle: Path, pairs_file: Path, tmp_path: Path, name: str, value: object
) -> None:
    output = tmp_path / "o.jsonl"
    command = ("score", pairs_file, "-o", output, "--bundle", tiny_bundle, "--device", "cpu")
    assert vcs(*command).code == 0
    rows = read_lines(output)[:3]
    write_pairs(output, [*rows[:2], rows[2] | {name: value}])
    damaged = output.read_bytes()
    done = vcs(*command, "--resume")
    assert (done.code, len(done.stderr.splitlines())) == (2, 1)
    assert f"{output} line 3: " in done.stderr
    assert output.read_bytes() == damaged
