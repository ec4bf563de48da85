"""The one way in which a job writes its output and continues after a stop.

The output holds finished items in the order of the input. So whatever stops a job (Ctrl-C, kill -9,
a full disk) costs at most the block in flight, and the next run continues after the last whole
line. Each line says how it was computed (`signature`) and from which texts (`texts`). A run
continues only lines that it would write as well.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles, OutputFile
from vcs_runtime.util.progress import progress_bar

T = TypeVar("T")


def hash_texts(*texts: Any) -> str:
    """Return the first 16 hexadecimal digits of the texts' SHA-256, for a line's field `texts`."""
    try:
        data = json.dumps(texts, ensure_ascii=False, default=repr)
    except RecursionError:  # nested too deeply to be a text
        data = "nested"
    return hashlib.sha256(data.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def check_signature(place: object, signature: Any, expected: Any) -> None:
    """Raise InputError unless what was computed earlier has the signature of this run."""
    if signature != expected:
        there, here = differences(signature, expected)
        raise InputError(
            f"{place}: its signature has {there}, and this run's has {here}: "
            "resume with the same options, or use another output"
        )


def differences(one: Any, other: Any) -> list[str]:
    """Return of two signatures the fields that the other one does not have."""
    first, second = (str(line).split("|") for line in (one, other))
    sides = (first, second), (second, first)
    return [
        "|".join(field for field in own if field not in others) or "no more"
        for own, others in sides
    ]


def check_texts(place: object, record: Record, expected: str) -> None:
    """Raise InputError unless the text hash in an existing line is `expected`, this run's hash."""
    if written_texts(place, record) != expected:
        raise InputError(
            f"{place}: the texts of id {record['id']!r} have changed since this line was written: "
            "resume with the same input, or use another output"
        )


def written_texts(place: object, record: Record) -> Any:
    """Return the hash of texts that a line of an earlier run has.

    Raises InputError if it has none.
    """
    if "texts" not in record:
        raise InputError(
            f"{place}: an earlier version of vcs-runtime wrote this line, without a hash of its"
            " texts, so it cannot be continued: use another output"
        )
    return record["texts"]


@dataclass(frozen=True)
class Items(Generic[T]):
    """What a job goes through, in order."""

    items: Iterable[T]
    total: int  # counted before
    identify: Callable[[T], str | int]
    check: Callable[[str, T, Record], None]  # InputError for a line of another job


def run_resumable(
    files: JobFiles,
    through: Items[T],
    work: Callable[[Iterator[T]], Iterable[list[tuple[T, Record]]]],
    each: Callable[[T, Record, bool], None],
    *,
    begins: str = '{"id": ',
    several_lines: bool = False,
    bar: Callable[..., contextlib.AbstractContextManager[Callable[[int], None]]] = progress_bar,
    finish: Callable[[OutputFile], None] | None = None,
) -> None:
    """Do a job item by item, append its lines to an output, and continue an output that was begun.

    `work` takes the unfinished items, and yields them in blocks with their lines, in order. `each`
    receives every item with its line, and whether an earlier run has written it. With
    `several_lines` an item may have more than one. `finish` receives the output with all lines,
    which no other job can write meanwhile. Raises InputError if the output cannot be used, or
    changes while the job is running.
    """
    taken = 0

    def counted() -> Iterator[T]:
        nonlocal taken
        for item in through.items:
            taken += 1
            yield item

    remaining = counted()
    total = through.total
    with contextlib.ExitStack() as stack:
        output = None
        done = 0
        if files.output:
            output = stack.enter_context(
                OutputFile(
                    files.output, files.inputs, resume=files.resume, overwrite=files.overwrite
                )
            )
        if output and files.resume:
            for item, record, first in _finished(output, remaining, through, several_lines):
                done += first
                each(item, record, True)
            output.end_last_line(begins, known=done > 0)
        advance = stack.enter_context(bar(total, done=done, enabled=files.progress))
        for block in work(remaining):
            if output:
                output.append(record for _, record in block)
            for item, record in block:
                each(item, record, False)
            advance(len({id(item) for item, _ in block}))
            if taken > total:
                break
        if taken != total:
            raise InputError(
                f"{files.inputs[0] if files.inputs else 'the input'}: it had {total} items when the"
                f" job began, and has {'more' if taken > total else taken} now; what was finished"
                " is kept, continue with --resume"
            )
        if output and finish:
            finish(output)


def _finished(
    output: OutputFile, items: Iterator[T], through: Items[T], several_lines: bool
) -> Iterator[tuple[T, Record, bool]]:
    """Each existing line with its item, and whether it is the item's first."""
    another = "this is the output of another input"
    item: T | None = None
    for place, record in output.records():
        first = not (several_lines and item is not None and record["id"] == through.identify(item))
        if first:
            item = next(items, None)
        if item is None:
            raise InputError(
                f"{place}: the output has more lines than the input has items: {another}"
            )
        if record["id"] != through.identify(item):
            raise InputError(
                f"{place}: id {record['id']!r}, where the input has {through.identify(item)!r}:"
                f" {another}"
            )
        through.check(place, item, record)
        yield item, record, first
