"""Reading of JSON lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.util.reading import (
    TooLongError,
    next_line,
    not_utf8,
    opened,
    refuse_special,
    unique_keys,
)

Record = dict[str, Any]
"""One line of an output."""


def read_jsonl(
    path: Path,
    *,
    skip_torn: bool = False,
    name: object = None,
    unique: bool = False,
    pipe: bool = False,
) -> Iterator[tuple[int, Any]]:
    """Read the values of a JSONL file one at a time, with their line numbers from 1.

    Raises InputError that names the file (`name`) and the line. Blank lines, a byte order mark and,
    if `skip_torn`, a last line that was cut short are skipped. `unique` refuses an object with one
    key twice.
    """
    name = path if name is None else name
    hook = unique_keys if unique else None
    number = 1
    try:
        refuse_special(path, name, pipe=pipe)
        with opened(path) as file:
            line = next_line(file).removeprefix(codecs.BOM_UTF8)
            while line:
                if not line.isspace() and not (skip_torn and is_torn(line)):
                    yield number, _parse(line, f"{name} line {number}", hook)
                number += 1
                line = next_line(file)
    except TooLongError as error:
        raise InputError(f"{name} line {number}: {error}") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from None


def read_records(
    path: Path,
    fields: Sequence[str] = ("id",),
    otherwise: str = "this line was not written by an earlier run",
    *,
    skip_torn: bool = False,
    pipe: bool = False,
) -> Iterator[tuple[str, Record]]:
    """Read the lines that a job has written, with their places.

    Raises InputError for a line without `fields`.
    """
    for number, record in read_jsonl(path, skip_torn=skip_torn, pipe=pipe):
        place = f"{path} line {number}"
        if not isinstance(record, dict) or any(field not in record for field in fields):
            raise InputError(f"{place}: {otherwise}")
        yield place, record


def is_torn(line: bytes) -> bool:
    """Whether a line has no line end and is not JSON, as a write that was cut short leaves it."""
    if line.endswith(b"\n"):
        return False
    try:
        _parse(line, "")
    except InputError:
        return True
    return False


def _parse(
    line: bytes, place: str, hook: Callable[[list[tuple[str, Any]]], Record] | None = None
) -> Any:
    try:
        return json.loads(line.decode(), object_pairs_hook=hook)
    except UnicodeDecodeError as error:
        raise InputError(f"{place}: {not_utf8(error, ' of the line')}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON: {error}") from None
