"""The one way in which a job writes its output and continues after a stop.

The output holds finished items in the order of the input. A job that is stopped (by Ctrl-C, kill
-9, a full disk) loses at most the block in work. The next run continues after the last complete
line. Each line says how it was computed (`signature`) and from which texts (`texts`). A run
continues only an output whose lines it would have written itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Raise InputError unless an earlier result has the signature of this run."""
    if signature != expected:
        there, here = differences(signature, expected)
        raise InputError(
            f"{place}: its signature has {there}, but this run's has {here}: resume with the same"
            " version, bundle and options, or choose another output"
        )


def differences(one: Any, other: Any) -> tuple[str, str]:
    """Return the fields of each of two signatures that the other one does not have."""
    first, second = str(one).split("|"), str(other).split("|")
    return _missing_fields(first, second), _missing_fields(second, first)


def _missing_fields(fields: Sequence[str], others: Sequence[str]) -> str:
    return "|".join(field for field in fields if field not in others) or "no other field"


def check_texts(place: object, record: Record, expected: str) -> None:
    """Raise InputError unless the text hash in an existing line is `expected`, this run's hash."""
    if record.get("texts") != expected:
        raise InputError(
            f"{place}: the texts of id {record['id']!r} have changed since this line was written:"
            " resume with the same input, or choose another output"
        )


@dataclass(frozen=True)
class Items(Generic[T]):
    """The items of a job, in order."""

    items: Iterable[T]
    total: int  # counted before
    identify: Callable[[T], str | int]
    check: Callable[[str, T, Record], None]  # InputError for a line of another job
    several_lines: bool = False  # an item may have more than one

    def changed(self, source: object, taken: int) -> InputError:
        """Return the error for an input that has another number of items now."""
        number = "more" if taken > self.total else taken
        return InputError(
            f"{source}: it had {self.total} items when the job began, but has {number} now;"
            " finished output is kept: continue with --resume"
        )


def run_resumable(
    files: JobFiles,
    through: Items[T],
    work: Callable[[Iterator[T]], Iterable[list[tuple[T, Record]]]],
    each: Callable[[T, Record, bool], None],
    *,
    begins: str = '{"id": ',
    bar: Callable[..., contextlib.AbstractContextManager[Callable[[int], None]]] = progress_bar,
    finish: Callable[[OutputFile], None] | None = None,
) -> None:
    """Do a job item by item, and append its lines to an output, which may hold lines already.

    `work` takes the unfinished items, and yields them in blocks with their lines, in order. `each`
    receives every item with its line, and whether an earlier run has written it. Lines of this job
    start with `begins`. `finish` receives the output with all lines, while it is still locked.
    Raises InputError if the output cannot be used, or changes while the job is running.
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
            done = _pass_existing(output, remaining, through, each)
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
            raise through.changed(files.inputs[0] if files.inputs else "the input", taken)
        if output and finish:
            finish(output)


def _pass_existing(
    output: OutputFile,
    items: Iterator[T],
    through: Items[T],
    each: Callable[[T, Record, bool], None],
) -> int:
    """Call `each` for every existing line with its item, and return the number of items."""
    another = "this is the output of another input"
    count = 0
    item: T | None = None
    for place, record in output.records():
        same_item = False
        if through.several_lines and item is not None:
            same_item = record["id"] == through.identify(item)
        if not same_item:
            item = next(items, None)
            count += 1
        if item is None:
            raise InputError(
                f"{place}: the output has more lines than the input has items: {another}"
            )
        if record["id"] != through.identify(item):
            raise InputError(
                f"{place}: id {record['id']!r}, but the input has {through.identify(item)!r}:"
                f" {another}"
            )
        through.check(place, item, record)
        each(item, record, True)
    return count
