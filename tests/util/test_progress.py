"""Progress bars: what a terminal shows while a block of pairs is scored."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.stories import story, write_pairs
from vcs_runtime.util.progress import progress_bar, report_part, units_in_work


def test_without_a_bar_parts_go_nowhere() -> None:
    report_part(0.5)
    with progress_bar(10, enabled=False) as advance, units_in_work(4, 0):
        report_part(0.5)
        advance(4)


def read(terminal: int) -> bytes:
    """Read what a terminal shows next; b"" after the other end was closed."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError:
        return b""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_the_bar_moves_within_a_block_and_never_back(tiny_bundle: Path, tmp_path: Path) -> None:
    pairs = [{"reference": story(i, 40), "generated": story(100 + i, 40)} for i in range(30)]
    write_pairs(tmp_path / "p.jsonl", pairs)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "vcs_runtime", "score", str(tmp_path / "p.jsonl"), "--bundle",
               str(tiny_bundle), "--device", "cpu", "--json"]  # fmt: skip
    # Rich redraws ten times a second; the script makes it redraw at every move.
    script = (
        "import rich.progress as p; move = p.Progress.update\n"
        "p.Progress.update = lambda self, *a, **k: (move(self, *a, **k), self.refresh())[0]\n"
        "import sys; from vcs_runtime.cli import main; main(sys.argv[1:])"
    )
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen([command[0], "-c", script, *command[3:]], stdout=subprocess.PIPE, stderr=theirs,
                          env=environment) as process:  # fmt: skip
        os.close(theirs)
        shown = b"".join(iter(lambda: read(ours), b""))
        os.close(ours)
        assert process.stdout is not None
        assert b'"scored": 30' in process.stdout.read()
    assert process.returncode == 0
    counts = [int(count) for count in re.findall(r"(\d+)/30", shown.decode(errors="replace"))]
    assert counts == sorted(counts)
    assert counts[-1] == 30
    assert len(set(counts)) > 5  # all thirty pairs are one block
