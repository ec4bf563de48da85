"""How long a process may take before it counts as one that hangs, on a machine that may be busy or suspended."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LOOK_AFTER_S, _SHOWN = 0.1, 3000


def said_last(output: Path) -> str:
    """Return where a process was when it was aborted, or else the end of its output."""
    text = output.read_text("utf-8", "backslashreplace")
    at = text.rfind("Fatal Python error")
    return text[-_SHOWN:] if at < 0 else text[at:].partition("\n\nExtension modules")[0][:_SHOWN]


class _State(NamedTuple):
    """Whether a process or one of its children runs, or waits for a processor or a disk; and what it has used."""

    moves: bool
    cpu_s: float


class Patience:
    """Counts the time in which a process and its children only sleep, and the processor's time that they use.

    A machine with much to do gives a process little, however long it is waited for, so the time in which it
    waits for a processor is not counted. Where a system does not show it, all time counts.
    """

    def __init__(self, pid: int, asleep_s: float = 120, cpu_s: float = 600) -> None:
        self._pid = pid
        self._limits = asleep_s, cpu_s
        self.why = ""
        self.begin()

    def begin(self) -> None:
        """Forget what was counted: something has happened."""
        self._asleep_s = self._unseen_s = 0.0
        self._begun_cpu_s: float | None = None

    def is_over(self, waited_s: float) -> bool:
        """Note that so many seconds have passed, and say whether the process hangs."""
        self._unseen_s += waited_s
        if self._unseen_s < _LOOK_AFTER_S:
            return False
        waited_s, self._unseen_s = self._unseen_s, 0.0
        state = _state(self._pid)
        if self._begun_cpu_s is None:
            self._begun_cpu_s = state.cpu_s
        asleep_s, cpu_s = self._limits
        if not state.moves:
            self._asleep_s += waited_s
        if self._asleep_s > asleep_s:
            self.why = f"has slept for {asleep_s:g} s"
        elif state.cpu_s - self._begun_cpu_s > cpu_s:
            self.why = f"has computed for {cpu_s:g} s"
        return bool(self.why)


def _state(pid: int) -> _State:
    moves, cpu_s = False, 0.0
    if sys.platform == "linux":
        ticks = os.sysconf("SC_CLK_TCK")
        with suppress(OSError):  # it has just ended
            for task in Path(f"/proc/{pid}/task").iterdir():
                fields = (task / "stat").read_text().rpartition(")")[2].split()
                moves |= fields[0] in "RD"
                cpu_s += (int(fields[11]) + int(fields[12])) / ticks
                for child in (task / "children").read_text().split():
                    state = _state(int(child))
                    moves, cpu_s = moves or state.moves, cpu_s + state.cpu_s
    return _State(moves, cpu_s)
