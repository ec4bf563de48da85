"""Progress bars: what a terminal shows while a block of pairs is scored."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from support.stories import story, write_pairs
from support.terminal import on_terminal
from vcs_runtime.util.progress import progress_bar, report_part, units_in_work


def test_without_a_bar_parts_go_nowhere() -> None:
    report_part(0.5)
    with progress_bar(10, enabled=False) as advance, units_in_work(4, 0):
        report_part(0.5)
        advance(4)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_the_bar_moves_within_a_block_and_never_back(tiny_bundle: Path, tmp_path: Path) -> None:
    pairs = [{"reference": story(i, 40), "generated": story(100 + i, 40)} for i in range(30)]
    write_pairs(tmp_path / "p.jsonl", pairs)
    shown = on_terminal("score", tmp_path / "p.jsonl", "--bundle", tiny_bundle, "--device", "cpu")
    counts = [int(count) for count in re.findall(r"(\d+)/30", shown)]
    assert counts == sorted(counts)
    assert counts[-1] == 30
    assert len(set(counts)) > 5  # all thirty pairs are one block


def test_without_a_terminal_a_line_tells_the_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vcs_runtime.util.progress.EVERY", -1.0)
    with progress_bar(10) as advance:
        advance(0)
        advance(4)
    assert capsys.readouterr().err == (
        "vcs-runtime: scoring: 0 of 10\nvcs-runtime: scoring: 4 of 10, less than a minute left\n"
    )
