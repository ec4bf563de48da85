"""Rows of JSON files, and of plain texts: one a line of a file, or one a file of a folder."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcs_runtime.jobs.readers.rows import TEXT, Row, RowError, quoted, video_of, with_paths
from vcs_runtime.text.times import TimedText, stamped
from vcs_runtime.util.reading import (
    TooLongError,
    next_line,
    not_utf8,
    opened,
    read_whole,
    unique_keys,
)


class NestedRows(RowError):
    """The rows are the value of `key` in a JSON object."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


def read_json_entries(
    path: Path, id_key: str, name: object, key: str | None = None
) -> Iterator[Row]:
    """Read the rows of a JSON array, or of a JSON object with ids as keys.

    A row is an object or a text. If `key` is given, the rows are the value of `key` in the
    top-level object.
    """
    value = _load(path, name)
    if key is None and isinstance(value, dict):
        value = _entries(value)
    if key is not None:
        value = with_paths(value, [key]) if isinstance(value, dict) else {}
        if key not in value:
            raise RowError(f"--rows {key}: no such key (the keys are {quoted(value)})")
        value = value[key]
    elif isinstance(value, dict):
        value = _captions_below(value)
    if isinstance(value, dict):
        value = [_with_id(entry, id_key, name) for name, entry in value.items()]
    if not isinstance(value, list):
        raise RowError(f"must be a JSON array or object, not {type(value).__name__}")
    for number, entry in enumerate(value, 1):
        yield f"entry {number}", entry


def _entries(value: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a file by id, which may lie under a key beside facts on the file."""
    for key in ("results", "database"):
        inner = value.get(key)
        if not isinstance(inner, dict):
            continue
        entries: list[Any] = list(inner.values())
        if any(isinstance(stamped(entry), TimedText) for entry in entries):
            return inner
        # The row of a video "results" would have names of texts.
        is_row = any(each in inner for each in (TEXT, "reference", "generated", "caption"))
        if not is_row and entries and all(type(entry) is str for entry in entries):
            return inner
    return value


def has_key(path: Path, name: object, key: str) -> bool:
    """Return whether a JSON file is an object with a key. Raises RowError if it is not JSON."""
    value = _load(path, name)
    return isinstance(value, dict) and key in with_paths(value, [key])


def _captions_below(entries: dict[str, Any]) -> Any:
    """Return the rows of captions in an object of COCO or MSR-VTT; any other object as it is.

    Raises NestedRows if a value is a list of other rows, and not of the texts or timed segments of
    one id. Of several lists, as COCO has, the one with most words counts.
    """
    lists = {}
    for key, rows in entries.items():
        if is_rows(rows) and stamped(rows) is rows and _captions(key, rows) is rows:
            lists[key] = _words(rows)
    if not lists:
        return entries
    key = max(lists, key=lambda name: lists[name])
    if all(video_of(row) and "caption" in row for row in entries[key]):
        return entries[key]
    raise NestedRows(
        f"an object with {quoted(entries)}; {key!r} is a list of {len(entries[key])} objects: add"
        f" --rows {key}",
        key,
    )


def is_rows(value: Any) -> bool:
    """Return whether a value is a list of objects."""
    return isinstance(value, list) and bool(value) and all(type(row) is dict for row in value)


def _captions(name: str, value: Any) -> Any:
    """Return the texts of rows that have captions of one id alone, or the value."""
    if not is_rows(value) or stamped(value) is not value:
        return value
    for row in value:
        video = video_of(row)
        named = row.keys() <= {"caption", "id", video} and str(row.get(video, name)) == name
        if not named or not isinstance(row.get("caption"), str):
            return value
    return [row["caption"] for row in value]


def _words(rows: list[dict[str, Any]]) -> int:
    """Count the blanks in the values of rows: ids and addresses have none."""
    values = [value for row in rows for value in row.values()]
    return sum(value.count(" ") for value in values if isinstance(value, str))


def _with_id(entry: Any, id_key: str, name: str) -> dict[str, Any]:
    """Return an entry of a JSON object as a row, whose id is the entry's name."""
    if isinstance(entry, dict):
        timed = stamped(entry)
        text = {TEXT: timed} if isinstance(timed, TimedText) else {}
        return {id_key: name, **text, **entry}
    return {id_key: name, TEXT: _captions(name, entry)}


def read_lines(path: Path, id_key: str) -> Iterator[Row]:
    """Read one text a line, empty lines included. The id of a text is the number of its line."""
    number = 1
    with opened(path) as file:
        try:
            line = next_line(file).removeprefix(codecs.BOM_UTF8)
            while line:
                yield f"line {number}", {id_key: number, TEXT: line.decode().rstrip("\r\n")}
                number += 1
                line = next_line(file)
        except UnicodeDecodeError as error:
            raise RowError(f"line {number}: {not_utf8(error, ' of the line')}") from None
        except TooLongError as error:
            raise RowError(f"line {number}: {error}") from None


def plain_texts(folder: Path) -> list[Path]:
    """Return the .txt files of a folder, by name."""
    return [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() == ".txt" and path.is_file() and not path.name.startswith(".")
    ]


def read_folder(folder: Path, id_key: str) -> Iterator[Row]:
    """Read one text a file. The id of a text is the name of its file, without the suffix."""
    paths = plain_texts(folder)
    if not paths:
        raise RowError("the folder has no file that ends in .txt")
    for path in paths:
        try:
            text = read_whole(path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise RowError(f"{path.name}: {not_utf8(error)}") from None
        yield path.name, {id_key: path.stem, TEXT: text}


def _load(path: Path, name: object) -> Any:
    try:
        text = read_whole(path, name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RowError(not_utf8(error)) from None
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        if _begins_second_value(error):
            raise RowError(
                "the file holds JSON lines, not one JSON value: rename it to .jsonl, or add"
                " --format jsonl"
            ) from None
        raise RowError(f"not JSON: {error}") from None


def _begins_second_value(error: Exception) -> bool:
    """Return whether the error is a second JSON value, on a later line than the first."""
    return (
        isinstance(error, json.JSONDecodeError) and error.msg == "Extra data" and error.lineno > 1
    )
