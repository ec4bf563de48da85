"""A step for every video of a JSONL file: one more field of its line, or lines about it; resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime._version import __version__
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import Record, run_resumable
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

    def signatures(self, item: Item, record: Record) -> tuple[Any, Any]:
        """The signature that an output's line bears, and the one that this step would give it.

        They are the same where the line needed no step, or the step failed.
        """
        expected = self.signature(item.row)
        if self.field is None:
            return record.get("signature", expected), expected
        made = record.get(MADE, {})
        signature = made.get(self.field) if isinstance(made, dict) else made
        if self.field in item.row or signature is None:
            return expected, expected
        return signature, expected


def run(
    step: Step, source: Path, output: Path, *, resume: bool = False, overwrite: bool = False,
    report: Callable[[str], None] = lambda message: None, progress: bool = True,
) -> int:  # fmt: skip
    """Do a step for every video of a file, and append what it makes to an output.

    The whole input is checked before the first video. A video that cannot be used is named to `report`; the
    others go on.

    Parameters
    ----------
    step
        What is done with each video.
    source
        The videos, as JSONL (docs/visil.md).
    output
        The output, as JSONL.
    resume, overwrite
        As for `jobs.jsonl.OutputFile`.
    report
        Is called with a message for every video that cannot be used.
    progress
        Whether a terminal shows a progress bar.

    Returns
    -------
    int
        How many videos failed, those of earlier runs included.

    Raises
    ------
    InputError
        The input or the output cannot be used. The message names the file and the line.
    ModelError
        The model fails. What was written stays.
    """
    total = sum(1 for _ in read_items(source))  # the whole file is checked first
    if not total:
        raise InputError(f"{source}: it holds no videos")
    failed = set()

    def work(items: Iterator[Item]) -> Iterator[list[tuple[Item, Record]]]:
        for item in items:
            try:
                records = step.lines(item)
            except (TextError, InputError) as error:
                message = str(error).removeprefix(f"{item.place}: ")
                report(f"{item.place}: {message}")
                records = step.failed(item, message)
            yield [(item, record) for record in records]

    def count(item: Item, record: Record, resumed: bool) -> None:
        if not step.succeeded(record):
            failed.add(item.id)

    run_resumable(
        output, read_items(source), total, work, count,
        identify=attrgetter("id"), signatures=step.signatures, several_lines=True,
        resume=resume, overwrite=overwrite,
        bar=partial(progress_bar, enabled=progress, what=step.name, unit="videos"),
    )  # fmt: skip
    return len(failed)
