"""Rows of tables: CSV, TSV, Parquet and Excel sheets."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from vcs_runtime.jobs.readers.rows import Pick, Row, RowError
from vcs_runtime.util.extras import require
from vcs_runtime.util.reading import (
    TooLongError,
    line_limit,
    next_line,
    not_utf8,
    opened,
    read_whole,
)

_CSV_FIELD = (1 << 31) - 1  # the largest that Windows takes
_BATCH = 256  # rows of a Parquet file that are read at a time
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}


def read_separated(path: Path, separators: str, pick: Pick) -> Iterator[Row]:
    """Read a table of text with a header."""
    csv.field_size_limit(min(line_limit(), _CSV_FIELD))  # by default 128 KiB
    separator = _separator(path, separators)
    with opened(path) as file:
        lines = _Lines(io.TextIOWrapper(file, "utf-8-sig", newline=""))
        reader = csv.DictReader(lines, strict=True, delimiter=separator)
        try:
            names = list(reader.fieldnames or ())
            _refuse_twice(names, "line 1")
            lines.begin_row()
            pick(names, "line 1")
            for row in reader:
                if None in row or None in row.values():
                    raise RowError(f"line {reader.line_num}: more or fewer fields than the header")
                yield f"line {reader.line_num}", row
                lines.begin_row()
        except TooLongError as error:
            raise RowError(f"line {reader.line_num + 1}: {error}") from None
        except UnicodeDecodeError as error:
            raise RowError(f"line {reader.line_num + 1}: {not_utf8(error, '-')}") from None
        except csv.Error as error:
            raise RowError(f"line {reader.line_num + 1}: not CSV: {error}") from None


def read_parquet(path: Path, pick: Pick) -> Iterator[Row]:
    """Read the columns of a Parquet file that `pick` returns, as `read_separated` does."""
    pq = require("pyarrow.parquet", "parquet", f"{path}: reading Parquet")
    pa = require("pyarrow", "parquet", f"{path}: reading Parquet")
    number = 0
    try:
        with pq.ParquetFile(path) as file:
            columns = pick(list(file.schema_arrow.names), "schema")
            for batch in file.iter_batches(batch_size=_BATCH, columns=columns):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except pa.ArrowException as error:
        raise RowError(f"is not a Parquet file: {str(error).splitlines()[0]}") from None
    except UnicodeDecodeError:  # Arrow does not look into texts
        raise RowError(
            f"one of the rows {number + 1} to {number + _BATCH}: a text is not UTF-8"
        ) from None


class _Lines:
    """The lines of a file. All lines of one row together keep to the limit of a line."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self.begin_row()

    def begin_row(self) -> None:
        self._read = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next_line(self._file, self._read)
        self._read += len(line)
        if not line:
            raise StopIteration
        return line


def read_xlsx(path: Path, pick: Pick, name: object) -> Iterator[Row]:
    """Read the first sheet of an Excel file with a header, as `read_separated` does."""
    calamine = require("python_calamine", "xlsx", f"{path}: reading .xlsx")
    content = read_whole(path, name)
    try:
        with calamine.CalamineWorkbook.from_filelike(io.BytesIO(content)) as book:
            rows = book.get_sheet_by_index(0).to_python(skip_empty_area=False)
    except calamine.CalamineError as error:
        raise RowError(f"is not an Excel file: {error}") from None
    names = [str(name) for name in rows[0]] if rows else []
    _refuse_twice([name for name in names if name], "row 1")
    pick(names, "row 1")
    for number, cells in enumerate(rows[1:], 2):
        if any(cell != "" for cell in cells):
            yield f"row {number}", dict(zip(names, map(_whole, cells), strict=True))


def _whole(cell: object) -> object:
    """Return a whole number as an int: a sheet holds only floats."""
    if isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return cell


def _separator(path: Path, allowed: str) -> str:
    """Return the separator with most columns in the header; RowError if it is not allowed."""
    # The allowed separators come first, so that they win if all are equal.
    best = max([*allowed, *_SEPARATORS], key=lambda separator: len(_header(path, separator)))
    if best not in allowed:
        expected = " or ".join(_SEPARATORS[separator] for separator in allowed)
        name = "tsv" if best == "\t" else "csv"
        raise RowError(
            f"line 1: the columns are separated by {_SEPARATORS[best]}, not by {expected}: add"
            f" --format {name}"
        )
    return str(best)


def _header(path: Path, separator: str) -> list[str]:
    try:
        with opened(path) as file:
            text = io.TextIOWrapper(file, "utf-8-sig", newline="")
            return next(csv.reader(_Lines(text), delimiter=separator), [])
    except (UnicodeDecodeError, csv.Error, TooLongError):
        return []  # the reader names the line


def _refuse_twice(names: list[str], place: str) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise RowError(f"{place}: the column {name!r} occurs twice")
