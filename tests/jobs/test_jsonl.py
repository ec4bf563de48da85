"""JSON lines: reading them."""

from __future__ import annotations

import errno
import gc
import io
import tracemalloc
from pathlib import Path

import pytest

from support.stories import write_pairs
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.jobs.readers.input_file import InputFile

BOM = b"\xef\xbb\xbf"


def test_values_come_with_their_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    path.write_bytes(BOM + b'{"a": 1}\r\n\n  \n[2]\n"\xc3\xa4"')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (4, [2]), (5, "ä")]


def test_a_torn_last_line_is_skipped_if_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "values.jsonl"
    path.write_bytes(b'1\n{"a": 1')
    assert list(read_jsonl(path, skip_torn=True)) == [(1, 1)]
    path.write_bytes(b'1\n{"a": 1}')
    assert list(read_jsonl(path, skip_torn=True)) == [(1, 1), (2, {"a": 1})]
    path.write_bytes(b'{"a": 1\n2')
    with pytest.raises(InputError, match="line 1: not JSON"):
        list(read_jsonl(path, skip_torn=True))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "not JSON: "),
        (b'"\xff"', "not UTF-8 (byte 1 of the line)"),
        (BOM + b"1", "not JSON: "),
        (b"[" * 100_000, "not JSON: "),
    ],
)
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

    def peak(lines: int) -> int:
        write_pairs(path, ["x" * 1000] * lines)
        tracemalloc.start()
        try:
            assert sum(1 for _ in read_jsonl(path)) == lines
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(5000), peak(20_000)
    assert many < 1.5 * few  # the file system chooses how much is read at once


class Unclosable(io.FileIO):
    """A file whose closing fails, as it may on a network's file system."""

    def close(self) -> None:
        was_open = not self.closed
        super().close()
        if was_open:
            raise OSError(errno.EIO, "Input/output error")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".jsonl", '{"id": 1}\n{"id": 2}\n'),
        (".json", '[\n{"id": 1},\n{"id": 2}]'),
        (".csv", "id\n1\n2\n"),
        (".tsv", "id\tb\n1\t\n2\t\n"),
        (".txt", "one\ntwo\n"),
    ],
)
def test_an_input_whose_closing_fails_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, content: str
) -> None:
    (tmp_path / f"p{suffix}").write_text(content)
    expected = list(InputFile(tmp_path / f"p{suffix}").rows("id"))
    assert len(expected) == 2
    monkeypatch.setattr(Path, "open", lambda path, *_, **__: io.BufferedReader(Unclosable(path)))
    file = InputFile(tmp_path / f"p{suffix}")
    assert list(file.rows("id")) == expected
    assert next(file.rows("id")) == expected[0]  # and the rest is left
    gc.collect()
