"""Rows of JSON files, and of files with one text a line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcs_runtime.jobs.readers.rows import TEXT, Row, RowError, quoted
from vcs_runtime.text.times import stamped
from vcs_runtime.util.reading import TooLongError, next_line, read_whole, unique_keys


class NestedRows(RowError):
    """The rows are below a key: the second argument."""

    def __str__(self) -> str:
        return str(self.args[0])


def read_json_entries(
    path: Path, id_key: str, name: object, key: str | None = None
) -> Iterator[Row]:
    """Read the rows of a JSON array, or of a JSON object with ids as keys.

    A row is an object or a text. If `key` is given, the rows are the value of `key` in the
    top-level object.
    """
    value = _load(path, name)
    if key is not None:
        if not (isinstance(value, dict) and key in value):
            raise RowError(f"--rows {key}: no such key (there is {quoted(value)})")
        value = value[key]
    elif isinstance(value, dict):
        for rows, own in value.items():
            if (
                isinstance(own, list)
                and own
                and {*map(type, own)} == {dict}
                and stamped(own) is own
            ):
                there = f"an object with {quoted(value)}; {rows!r} is a list of {len(own)} objects"
                raise NestedRows(f"{there}: --rows {rows}", rows)
    if isinstance(value, dict):
        value = [
            {id_key: key, **entry} if isinstance(entry, dict) else {id_key: key, TEXT: entry}
            for key, entry in value.items()
        ]
    if not isinstance(value, list):
        raise RowError(f"an array or an object of JSON was expected, not {type(value).__name__}")
    for number, entry in enumerate(value, 1):
        yield f"entry {number}", entry


def read_lines(path: Path, id_key: str) -> Iterator[Row]:
    """Read one text a line, an empty one included. Its id is the number of the line."""
    number = 1
    with path.open("rb") as file:
        try:
            line = next_line(file).removeprefix(codecs.BOM_UTF8)
            while line:
                yield f"line {number}", {id_key: number, TEXT: line.decode().rstrip("\r\n")}
                number += 1
                line = next_line(file)
        except UnicodeDecodeError as error:
            raise RowError(f"line {number}: not UTF-8 (byte {error.start} of the line)") from None
        except TooLongError as error:
            raise RowError(f"line {number}: {error}") from None


def _load(path: Path, name: object) -> Any:
    try:
        text = read_whole(path, name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RowError(f"not UTF-8 (byte {error.start})") from None
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        if (
            isinstance(error, json.JSONDecodeError)
            and error.msg == "Extra data"
            and error.lineno > 1
        ):
            raise RowError(
                "it holds JSON lines, not one JSON value: name it .jsonl, or give --format jsonl"
            ) from None
        raise RowError(f"not JSON: {error}") from None
