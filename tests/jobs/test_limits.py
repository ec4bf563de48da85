"""Files that would fill the memory or never end: refused before they are read, with the place."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Finished, vcs
from support.stories import story, write_pairs
from vcs_runtime.util import reading

LONG = 70_000_000  # characters, more than a line may have


@pytest.fixture
def scores(score: Callable[..., Finished], pairs_file: Path, tmp_path: Path) -> Path:
    assert score(pairs_file, "-o", tmp_path / "scores.jsonl").code == 0
    return tmp_path / "scores.jsonl"


def assert_refused(done: Finished, *says: object) -> None:
    assert (done.code, len(done.stderr.splitlines())) == (2, 1), done
    for part in says:
        assert str(part) in done.stderr


@pytest.mark.parametrize(("suffix", "line"), [("jsonl", 1), ("csv", 2), ("tsv", 2), ("txt", 1)])
def test_a_line_without_end_is_refused(
    suffix: str, line: int, score: Callable[..., Finished], tmp_path: Path
) -> None:
    source = tmp_path / f"long.{suffix}"
    separator = "\t" if suffix == "tsv" else ","
    source.write_text(f"reference{separator}generated\n" if line == 2 else "")
    os.truncate(source, LONG)
    says = f"{source} line {line}: a line has more than 64 MB: raise --max-read-mb"
    if suffix == "txt":
        assert_refused(score("--references", source, "--predictions", source), says)
    else:
        assert_refused(score(source), says)


def test_a_row_of_many_lines_is_refused(score: Callable[..., Finished], tmp_path: Path) -> None:
    source = tmp_path / "p.csv"
    source.write_text('reference,generated\n"a.","b."\n"' + "a line\n" * 400 + '","c."\n')
    says = "line 3: a row has more than 0.001 MB: raise --max-read-mb"
    assert_refused(score(source, "--max-read-mb", "0.001"), f"{source} {says}")
    assert score(source, "--max-read-mb", "0.01").code == 0


def test_a_file_that_is_read_as_a_whole_has_a_limit(
    score: Callable[..., Finished], pairs_file: Path, tmp_path: Path
) -> None:
    array, text = tmp_path / "p.json", tmp_path / "t.txt"
    array.write_text(f"[{','.join(pairs_file.read_text().splitlines())}]")
    text.write_text(story(1))
    for path, arguments in ((array, (array,)), (text, (text, text))):
        done = score(*arguments, "--max-read-mb", "0.0001")
        assert_refused(done, f"{path}: a file has more than 0.0001 MB: raise --max-read-mb")
        for much in ("1", "1e6"):  # more than any memory: a limit, and no size to be prepared for
            assert score(*arguments, "--max-read-mb", much).code == 0
    os.truncate(text, 1_000_000_001)
    assert_refused(score(text, text), "more than 1000 MB")


def test_a_limit_lifts_that_of_lines_and_changes_no_score(
    score: Callable[..., Finished],
    pairs_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = score(pairs_file, "-o", tmp_path / "o.jsonl")
    monkeypatch.setattr(reading, "LINE_MB", 0.0001)
    assert_refused(score(pairs_file), f"{pairs_file} line 1: a line has more than 0.0001 MB")
    lifted = score(pairs_file, "-o", tmp_path / "p.jsonl", "--max-read-mb", "1")
    assert (usual.code, lifted.code) == (0, 0)
    assert (tmp_path / "p.jsonl").read_bytes() == (tmp_path / "o.jsonl").read_bytes()


def test_the_limit_can_be_set_for_scores_of_visil(tmp_path: Path) -> None:
    source = tmp_path / "v.jsonl"
    summary = {"name": "short", "visil": 0.5, "tokens": 3}
    write_pairs(source, [{"id": "v", "signature": "s", "summaries": [summary]}])
    command = ("visil", "select", source, "--alpha", "1", "--max-read-mb")
    assert_refused(
        vcs(*command, "0.00001"),
        f"{source} line 1: a line has more than 1e-05 MB: raise",
    )
    assert vcs(*command, "1").code == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_devices_and_pipes_are_refused_where_they_cannot_work(
    kind: str, tiny_bundle: Path, scores: Path, tmp_path: Path
) -> None:
    special = Path("/dev/zero")
    if kind == "pipe":
        os.mkfifo(special := tmp_path / "pipe")
    bundle, refs = ("--bundle", tiny_bundle, "--device", "cpu"), tmp_path / "refs.txt"
    refs.write_text(story(1))
    for arguments in (
        ("score", special, *bundle),
        ("score", "--references", refs, "--predictions", special, *bundle),
        ("explain", special, *bundle),
        ("report", special, "-o", tmp_path / "r.html"),
        ("report", scores, "--pairs", special, "-o", tmp_path / "r.html", *bundle),
        ("bundle", "unpack", special, "-o", tmp_path / "u"),
        ("experiment", "authors", "--data", special, "-o", tmp_path / "x", *bundle),
    ):
        assert_refused(vcs(*arguments), f"{special}: must be a regular file")
    for arguments in (
        ("score", special, refs, *bundle),
        ("compare", special, scores),
        ("compare", scores, special),
        ("visil", "select", special, "--alpha", "1"),
    ) * (kind == "device"):
        assert_refused(vcs(*arguments), f"{special}: must be a regular file")


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_pipes_work_where_a_file_is_read_or_written_once(
    score: Callable[..., Finished], pairs_file: Path, scores: Path, tmp_path: Path
) -> None:
    text, pipe = tmp_path / "t.txt", tmp_path / "pipe"
    text.write_text(story(1))
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(story(2),))
    writer.start()
    by_pipe = score(pipe, text, "--json")
    writer.join()
    (tmp_path / "u.txt").write_text(story(2))
    assert by_pipe == score(tmp_path / "u.txt", text, "--json")

    writer = threading.Thread(target=pipe.write_bytes, args=(scores.read_bytes(),))
    writer.start()
    compared = vcs("compare", pipe, scores, "--name", "a", "--name", "b", "--format", "json")
    writer.join()
    assert compared == vcs(
        "compare", scores, scores, "--name", "a", "--name", "b", "--format", "json"
    )

    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    assert score(pairs_file, "-o", pipe).code == 0
    reader.join()
    assert received == [scores.read_bytes()]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such pipes")
def test_an_output_whose_reader_has_gone_is_an_error(
    score: Callable[..., Finished], tmp_path: Path
) -> None:
    """More pairs than a block has: the reader goes while the first block is scored."""
    rows = [
        {"id": i, "reference": "A dog. A cat.", "generated": "A man. A cat."} for i in range(2100)
    ]
    write_pairs(tmp_path / "p.jsonl", rows)
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = threading.Thread(target=lambda: os.close(os.open(pipe, os.O_RDONLY)))
    reader.start()
    assert_refused(score(tmp_path / "p.jsonl", "-o", pipe), f"{pipe}: Broken pipe")
    reader.join()
