"""Steps for the videos of a JSONL file, resumable: each adds a field to a line, or writes lines about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime._version import __version__
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import Items, check_signature, check_texts, hash_texts, run_resumable
from vcs_runtime.util.progress import progress_bar
from vcs_visil.jobs.items import MADE, Item, read_items


@dataclass(frozen=True)
class Step:
    """A step that is done with each video."""

    name: str
    by: str
    take: Callable[[Item], Any]
    field: str | None = None
    frames: int | None = None

    def signature(self, row: Mapping[str, Any]) -> str:
        """Return what the result depends on besides the line: fields `key:value`, separated by "|"."""
        frames = "" if self.frames is None else f"|frames:{'files' if 'frames' in row else self.frames}"
        return f"visil|step:{self.name}|{self.by}{frames}|v:{__version__}"

    def lines(self, item: Item) -> list[dict[str, Any]]:
        """Return the lines of the output for a video."""
        signature = self.signature(item.row)
        if self.field is None:
            texts = hash_texts(item.row)
            return [
                {"id": item.id, **line, "signature": signature, "texts": texts} for line in self.take(item)
            ]
        if self.field in item.row:
            return [dict(item.row)]
        made = {**item.made, self.field: signature}
        return [{**item.row, self.field: self.take(item), MADE: made}]

    def failed(self, item: Item, message: str) -> list[dict[str, Any]]:
        """Return the lines for a video that cannot be used: the unchanged line, or a line with an `error`."""
        if self.field is not None:
            return [dict(item.row)]
        signature, texts = self.signature(item.row), hash_texts(item.row)
        return [{"id": item.id, "error": message, "signature": signature, "texts": texts}]

    def succeeded(self, row: Mapping[str, Any]) -> bool:
        """Return whether a line of the output has the result of the step."""
        return "error" not in row if self.field is None else self.field in row

    def check(self, place: str, item: Item, record: Record) -> None:
        """Raise InputError unless this step would give an item this line of the output.

        A line that needed no step, or whose step failed, has no signature.
        """
        expected = self.signature(item.row)
        if self.field is None:
            check_signature(place, record.get("signature"), expected)
            check_texts(place, record, hash_texts(item.row))
            return
        made = record.get(MADE, {})
        signature = made.get(self.field) if isinstance(made, dict) else made
        added = {MADE}
        if self.field not in item.row:
            added.add(self.field)
            if signature is not None:
                check_signature(place, signature, expected)
        written, given = (
            hash_texts({name: value for name, value in row.items() if name not in added})
            for row in (record, item.row)
        )
        check_texts(place, {**record, "texts": written}, given)


def run_step(
    step: Step, source: Path, output: Path, *, inputs: Sequence[Path] = (), resume: bool = False,
    overwrite: bool = False, report: Callable[[str], None] = lambda message: None, progress: bool = True,
) -> int:  # fmt: skip
    """Do a step for every video of a file, and append the results to an output.

    The whole input is checked before the first video. If a video cannot be used, the others are still done.
    """
    total, begins = 0, ""
    for item in read_items(source):  # the whole file is checked first
        total += 1
        begins = begins or f"{{{json.dumps(next(iter(item.row)) if step.field else 'id')}: "
    if not total:
        raise InputError(f"{source}: the file holds no videos")
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
        JobFiles(output, resume, overwrite, progress=progress, inputs=[source, *inputs]),
        Items(read_items(source), total, attrgetter("id"), step.check), work, count,
        begins=begins, several_lines=True, bar=partial(progress_bar, what=step.name, unit="videos"),
    )  # fmt: skip
    return len(failed)
