"""Reading pairs from JSONL, CSV and Parquet files, one at a time, with errors that name the line.

A file that cannot be read as pairs (broken JSON, a missing column) is an InputError: the job must not start.
Whether the *text* of a pair can be scored is decided by the scorer.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.util.extras import require

_KEYS = ("reference", "generated")
# By default csv refuses fields over 128 KiB. Which texts are too long is decided by the scorer.
_CSV_FIELD = 1 << 30


@dataclass(frozen=True, slots=True)
class InputPair:
    """One row of an input file.

    Attributes
    ----------
    place
        "line 7", or "row 7" of a Parquet file.
    id
        The row's own id; None if it has none.
    reference
        The reference, or several.
    generated
        The generated text.
    """

    place: str
    id: str | int | None
    reference: Any
    generated: Any

    @property
    def name(self) -> str | int:
        """The id of the pair in the output: its own, or its place."""
        return self.id if self.id is not None else self.place

    @property
    def texts(self) -> tuple[Any, Any]:
        """The pair as the scorer takes it."""
        return self.reference, self.generated


def read_pairs(path: Path) -> Iterator[InputPair]:
    """Read the pairs of a file one at a time.

    Parameters
    ----------
    path
        A `.csv` or `.parquet` file; any other name is read as JSONL.

    Yields
    ------
    InputPair
        The pairs, in order.

    Raises
    ------
    InputError
        The file cannot be read, or a row is not a pair. The message names the file and the line.
    MissingExtraError
        A Parquet file needs the extra `parquet`.
    """
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a regular file (it is read twice: to check it, and to score it)")
    kind = path.suffix.lower()
    read = {".csv": _read_csv, ".parquet": _read_parquet}.get(kind, _read_jsonl)
    try:
        for place, row in read(path):
            yield _pair(place, row)
    except _RowError as error:
        raise InputError(f"{path} {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def count_pairs(path: Path) -> int:
    """Count the pairs of a file, which is read as a whole. Raises InputError as `read_pairs` does."""
    return sum(1 for _ in read_pairs(path))


class _RowError(Exception):
    """A row that is not a pair. The message begins with the place."""


def _pair(place: str, row: Any) -> InputPair:
    if not isinstance(row, dict):
        raise _RowError(
            f"{place}: an object with {' and '.join(_KEYS)} was expected, not {type(row).__name__}"
        )
    for key in _KEYS:
        if key not in row:
            raise _RowError(f"{place}: no {key!r} (there is {', '.join(map(repr, row)) or 'nothing'})")
    name = row.get("id")
    if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
        raise _RowError(f"{place}: 'id' must be a string or a whole number, not {type(name).__name__}")
    return InputPair(place, name, row["reference"], row["generated"])


def _read_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    return ((f"line {number}", row) for number, row in read_jsonl(path))


def _read_csv(path: Path) -> Iterator[tuple[str, Any]]:
    csv.field_size_limit(_CSV_FIELD)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            _check_columns(reader.fieldnames or (), "line 1")
            for row in reader:
                if None in row or None in row.values():
                    raise _RowError(f"line {reader.line_num}: not as many fields as the header")
                yield f"line {reader.line_num}", row
        except UnicodeDecodeError:
            raise _RowError(f"line {reader.line_num + 1}: not UTF-8") from None
        except csv.Error as error:
            raise _RowError(f"line {reader.line_num + 1}: not CSV: {error}") from None


def _read_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    pq = require("pyarrow.parquet", "parquet", f"{path}: reading Parquet")
    pa = require("pyarrow", "parquet", f"{path}: reading Parquet")
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(file.schema_arrow.names, "schema")
            columns = [name for name in ("id", *_KEYS) if name in file.schema_arrow.names]
            number = 0
            for batch in file.iter_batches(batch_size=256, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except pa.ArrowException as error:
        raise _RowError(f"is not a Parquet file: {error}") from None


def _check_columns(columns: Sequence[str], place: str) -> None:
    for key in _KEYS:
        if key not in columns:
            raise _RowError(
                f"{place}: no column {key!r} (there is {', '.join(map(repr, columns)) or 'nothing'})"
            )
