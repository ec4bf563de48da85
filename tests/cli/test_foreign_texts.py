"""Ids, file names and words of a bundle are no markup, and break no terminal or stream."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from support.command_line import vcs
from support.needed import needs
from support.stories import read_lines, story, write_pairs
from vcs_experiments.cli.results import finish
from vcs_experiments.results import Results
from vcs_runtime.cli import main
from vcs_runtime.comparing.tables import Table

ESCAPES = "\x1b]0;pwned\x07\x1b[2J\x9b\u202e\ud800[/x]\n"
SHOWN = r"\x1b]0;pwned\x07\x1b[2J\x9b\u202e\ud800[/x]\n"


@pytest.fixture
def engine(tiny_bundle: Path) -> tuple[object, ...]:
    return ("--bundle", tiny_bundle, "--device", "cpu")


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """Two pairs of a hostile id, of which one cannot be scored, and a third one."""
    rows = [
        {"id": f"{ESCAPES}{i}", "reference": story(1), "generated": story(2) * (i < 2)}
        for i in range(3)
    ]
    write_pairs(tmp_path / "pairs.jsonl", rows)
    return tmp_path / "pairs.jsonl"


def safe(text: str) -> bool:
    return all(character.isprintable() for line in text.split("\n") for character in line)


@needs("matplotlib")
def test_ids_are_shown_escaped_by_every_command(
    engine: tuple[object, ...], pairs: Path, tmp_path: Path
) -> None:
    scores, other = tmp_path / "scores.jsonl", tmp_path / "other.jsonl"
    done = [vcs("score", pairs, "-o", scores, *engine)]
    # Data stay.
    assert [line["id"] for line in read_lines(scores)] == [f"{ESCAPES}{i}" for i in range(3)]
    rows = read_lines(scores)
    rows[0]["vcs"] = 0.5
    write_pairs(other, rows)
    done.append(vcs("explain", pairs, *engine))
    done.append(vcs("report", pairs, "-o", tmp_path / "r.html", *engine))
    done.append(vcs("report", scores, "-o", tmp_path / "s.html", "--title", ESCAPES))
    done.append(vcs("compare", scores, other, "--name", ESCAPES, "--name", "other"))
    for command in done:
        assert command.code == 1, command
        assert SHOWN in command.stderr
        assert safe(command.stderr), command.stderr
        assert safe(command.stdout), command.stdout
    assert f"pair {SHOWN}0" in done[1].stdout
    assert SHOWN in done[4].stdout


def test_names_of_summaries_are_shown_escaped(tmp_path: Path) -> None:
    summary = {"name": ESCAPES, "visil": 0.5, "tokens": 3}
    write_pairs(tmp_path / "v.jsonl", [{"id": ESCAPES, "signature": "s", "summaries": [summary]}])
    done = vcs("visil", "select", tmp_path / "v.jsonl", "--alpha", "1")
    assert (done.code, done.stdout.count(SHOWN)) == (0, 3)
    assert safe(done.stdout), done.stdout


def test_a_bundle_of_a_stranger_is_shown_escaped(tiny_bundle: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, bundle)
    manifest = json.loads((bundle / "bundle.json").read_text("utf-8"))
    hostile = {name: f"{name} {ESCAPES}" for name in ("name", "licence", "source")}
    (bundle / "bundle.json").write_text(json.dumps(manifest | hostile), "utf-8")
    done = vcs("bundle", "info", bundle)
    assert done.code == 0
    assert safe(done.stdout)
    assert all(f"{name} {SHOWN}" in done.stdout for name in hostile)
    assert len(done.stdout.splitlines()) == len(
        vcs("bundle", "info", tiny_bundle).stdout.splitlines()
    )


def test_tables_of_experiments_show_texts_escaped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table("name", f"title {ESCAPES}", ("scene",), [(f"scene {ESCAPES}",)])
    finish(
        Results("rank", "signature", {}, {}, notes=[f"note {ESCAPES}"], tables=[table]), tmp_path
    )
    printed = capsys.readouterr().out
    assert printed.count(SHOWN[:11]) == 3  # a narrow table breaks the rest
    assert safe(printed)


def test_errors_show_names_of_files_escaped(engine: tuple[object, ...], tmp_path: Path) -> None:
    done = vcs("score", f"{tmp_path}/\x1b[2J\nvcs-runtime: all is well", *engine)
    assert (done.code, len(done.stderr.splitlines())) == (2, 1)
    assert r"\x1b[2J\nvcs-runtime: all is well" in done.stderr
    usage = vcs("score", "--device", "\x1b[2J")
    assert usage.code == 2
    assert safe(usage.stderr)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_output_escapes_what_its_encoding_lacks(
    engine: tuple[object, ...], tmp_path: Path, encoding: str
) -> None:
    source = tmp_path / "pairs.jsonl"
    write_pairs(source, [{"id": "öλ中", "reference": f"{story(1)} 中文。", "generated": story(2)}])
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    with redirect_stdout(stream), pytest.raises(SystemExit) as ended:
        main(["explain", str(source), *map(str, engine)])
    assert not ended.value.code
    printed = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert r"\u03bb\u4e2d" in printed


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are Unicode")
@needs("matplotlib")
def test_names_that_are_not_utf_8(engine: tuple[object, ...], tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.jsonl")
    rows = [{"id": i, "reference": story(1), "generated": story(i)} for i in range(2, 5)]
    write_pairs(Path(name), rows)
    scores = f"{name[:-6]}-scores.jsonl"
    assert vcs("score", name, "-o", scores, *engine).code == 0
    texts = [f"{name[:-6]}-{number}.txt" for number in (1, 2)]
    for number, path in enumerate(texts):
        Path(path).write_text(story(number))
    other = tmp_path / "other.jsonl"
    shutil.copy(scores, other)
    for arguments in (
        ("report", scores, "-o", tmp_path / "r.html"),
        ("report", scores, "-o", f"{name}.html", "--title", "a\udcff"),
        ("report", name, "-o", tmp_path / "r.html", "--overwrite", *engine),
        ("report", *texts, "-o", tmp_path / "r.pdf", *engine),
        ("explain", name, *engine),
        ("compare", scores, other),
        ("compare", scores, other, "--format", "latex"),
        ("compare", scores, other, "--format", "json"),
        ("bundle", "pack", engine[1], "-o", f"{name}.tar"),
    ):
        done = vcs(*arguments)
        assert (done.code, done.stderr) == (0, ""), done
    assert r"<title>a\udcff</title>" in Path(f"{name}.html").read_text("utf-8")


def test_a_user_without_a_home_folder(
    engine: tuple[object, ...], pairs_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: Any) -> None:
        raise KeyError("no entry")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    for name in ("HOME", "XDG_CACHE_HOME", "VCS_RUNTIME_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert vcs("score", pairs_file, *engine).code == 0
    for done in (vcs("score", pairs_file), vcs("bundle", "info", "default")):
        assert (done.code, len(done.stderr.splitlines())) == (2, 1)
        assert "this user has no home folder: set VCS_RUNTIME_HOME" in done.stderr
    doctor = vcs("doctor")
    assert (doctor.code, doctor.stderr) == (1, "")
    assert "set VCS_RUNTIME_HOME" in doctor.stdout
    with patch.dict(os.environ, {"VCS_RUNTIME_HOME": "~nobody-of-this-name/x"}):
        assert vcs("score", pairs_file, *engine).code == 0
