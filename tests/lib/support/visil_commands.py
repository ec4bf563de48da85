"""`vcs-runtime visil` in this process, with click's result, and a model by a script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from vcs_runtime.cli import cli
from vcs_visil.summaries import Part


def visil(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["visil", *map(str, arguments)])


def write(what: str, items: Path, output: Path, *arguments: object) -> Result:
    return visil("write", what, items, "-o", output, *arguments)


def score(source: Path, output: Path, *arguments: object) -> Result:
    return visil("score", source, "-o", output, *arguments)


class Scripted:
    """Writes what it is told to, in turn, and keeps what it was asked."""

    fingerprint = "scripted"

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[list[Part]]()

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        self.asked.append(list(parts))
        return self.answers.pop(0)

    @property
    def prompts(self) -> list[str]:
        """What it was asked, as texts."""
        return ["".join(map(str, parts)) for parts in self.asked]
