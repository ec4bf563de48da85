"""A step for every video of a JSONL file: one more field of its line, or lines about it; resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from vcs_runtime._version import __version__
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.experiments.datasets import read_jsonl
from vcs_runtime.jobs.jsonl import OutputFile
from vcs_runtime.util.progress import progress_bar
from vcs_runtime.visil.items import MADE, Item, read_items


@dataclass(frozen=True)
class Step:
    """What is done with each video.

    name       what the step is called
    by         who does it: "model:...|prompt:...", for the signature
    take       the value of the field, or the lines (objects), for a video
    field      the field that is added to the video's line where it is missing; None: the step makes lines
    frames     how many frames of a video file it looks at; None: it looks at none
    """

    name: str
    by: str
    take: Callable[[Item], Any]
    field: str | None = None
    frames: int | None = None

    def signature(self, row: Mapping[str, Any]) -> str:
        """What the result depends on besides the line, in fields `key:value` separated by "|"."""
        shown = "" if self.frames is None else f"|frames:{'files' if 'frames' in row else self.frames}"
        return f"visil|step:{self.name}|{self.by}{shown}|v:{__version__}"

    def lines(self, item: Item) -> list[dict[str, Any]]:
        """The output's lines for a video."""
        signature = self.signature(item.row)
        if self.field is None:
            return [{"id": item.id, **line, "signature": signature} for line in self.take(item)]
        if self.field in item.row:
            return [dict(item.row)]
        made = {**item.made, self.field: signature}
        return [{**item.row, self.field: self.take(item), MADE: made}]

    def failed(self, item: Item, message: str) -> list[dict[str, Any]]:
        """The same for a video that cannot be used: its line as it was, or a line with an `error`."""
        if self.field is not None:
            return [dict(item.row)]
        return [{"id": item.id, "error": message, "signature": self.signature(item.row)}]

    def succeeded(self, row: Mapping[str, Any]) -> bool:
        """Whether an output's line holds what the step makes."""
        return "error" not in row if self.field is None else self.field in row

    def made_by(self, item: Item) -> Any:
        """The signature that an output's line bears, if any."""
        return item.row.get("signature") if self.field is None else item.made.get(self.field)


def run(
    step: Step, source: Path, output: Path, *, resume: bool = False, overwrite: bool = False,
    report: Callable[[str], None] = lambda message: None, progress: bool = True,
) -> int:  # fmt: skip
    """Do `step` for every video of `source`; append what it makes to `output`; how many videos failed.

    A video that cannot be used is named to `report`, the others go on. Raises ModelError where the model
    fails: what was written stays. InputError names the line.
    """
    total = sum(1 for _ in read_items(source))  # the whole file is checked first
    if not total:
        raise InputError(f"{source}: it holds no videos")
    with OutputFile(output, resume=resume, overwrite=overwrite) as lines:
        items = read_items(source)
        done = list(_finished(step, output, items)) if resume else []
        failed = done.count(False)
        with progress_bar(total, enabled=progress, done=len(done), what=step.name, unit="videos") as advance:
            for item in items:
                try:
                    made = step.lines(item)
                except (TextError, InputError) as error:
                    message = str(error).removeprefix(f"{item.place}: ")
                    report(f"{item.place}: {message}")
                    made = step.failed(item, message)
                    failed += 1
                lines.append(made)
                advance(1)
    return failed


def _finished(step: Step, output: Path, items: Iterator[Item]) -> Iterator[bool]:
    """Whether it succeeded, for each video whose lines are there already; these are taken off `items`."""

    def by_id(there: Item) -> Any:
        return there.row.get("id")

    for id_, group in groupby(_rows(output), by_id):
        item = next(items, None)
        succeeded = True
        for there in group:
            if item is None or id_ != item.id:
                raise InputError(f"{there.place}: id {id_!r} is not that of the same video of the input")
            by, expected = step.made_by(there), step.signature(item.row)
            if step.field not in item.row and by not in (None, expected):
                raise InputError(f"{there.place}: made by {by}, this run is {expected}")
            succeeded &= step.succeeded(there.row)
        yield succeeded


def _rows(path: Path) -> Iterator[Item]:
    for number, row in enumerate(read_jsonl(path), 1):
        place = f"{path} line {number}"
        if not isinstance(row, dict):
            raise InputError(f"{place}: this is no line of an earlier run")
        yield Item(place, path.parent, row)
