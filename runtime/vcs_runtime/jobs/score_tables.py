"""Score files as tables: CSV, TSV or Parquet files, made from a job's lines once all lines exist.

Lines can be appended and continued, a table cannot. So a job keeps its lines in .OUTPUT.lines until
the table is written as a whole.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from vcs_runtime.errors import InputError, VcsError
from vcs_runtime.jobs.jsonl import Record, is_torn, read_records
from vcs_runtime.jobs.output import JobFiles, OutputFile
from vcs_runtime.jobs.pairs import InputPair, PairSource
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.readers.rows import RowError
from vcs_runtime.jobs.resumable import check_texts, hash_texts
from vcs_runtime.scoring import score_table
from vcs_runtime.util.atomic import beside, file_errors, refuse_input_as_output, replaced
from vcs_runtime.util.extras import require
from vcs_runtime.util.printable import cell

# How half a surrogate pair is written.
_HALF: Final = "backslashreplace"
#: The suffixes of tables.
TABLES: Final = (".csv", ".tsv", ".parquet")
_WHOLE = ("n_ref", "n_gen", "reference_index", "n_references")
_BATCH = 1024
# The largest whole number up to which floats hold all.
_EXACT: Final = 1 << 53

Check: TypeAlias = Callable[[str, InputPair, Record], None]


def is_table(path: Path) -> bool:
    """Whether a path has the suffix of a table."""
    return path.suffix.lower() in TABLES


def as_lines(
    files: JobFiles, source: PairSource, check: Check
) -> tuple[JobFiles, Callable[[OutputFile], None] | None]:
    """Return the files for a job's lines, and the function that makes the table from the lines.

    The lines of a table are written to .OUTPUT.lines beside the table. If the output is not a
    table, the files are unchanged and the function is None. `check` raises InputError for a line
    that this job would not write for a pair.
    """
    output = files.output
    if output is None:
        return files, None
    lines = output
    if is_table(output):
        _check_output(output, files)
        lines = _lines_of(output)
    if files.resume and not os.path.exists(lines):
        _take_over(output, lines, source, check)
    if lines == output:
        return files, None
    if files.overwrite and lines.is_file():
        is_own = _holds_lines(lines) and _belong(lines, source, _check_input)
        if not is_own:
            raise InputError(
                f"{lines} is the unfinished output of a job with another input: continue that job"
                " with --resume, or delete the file"
            )

    def finish(written: OutputFile) -> None:
        kept = "; the scores are kept: continue with --resume, also in another format"
        try:
            with file_errors(output, kept):
                write_table(lines, output)
        except VcsError:
            raise
        except Exception as error:  # whatever a library raises about a value
            raise InputError(f"{output}: {type(error).__name__}: {error}{kept}") from error
        written.remove()

    return replace(files, output=lines), finish


def _check_output(output: Path, files: JobFiles) -> None:
    """Raise InputError if a table cannot be written in the end."""
    if output.suffix.lower() == ".parquet":
        require("pyarrow.parquet", "parquet", f"{output}: writing Parquet")
    refuse_input_as_output(output, *files.inputs)
    exists = os.path.exists(output)
    if exists and not files.overwrite:
        state = "the file is complete already" if files.resume else "it exists already"
        raise InputError(f"{output}: {state}; replace it with --overwrite")
    if exists and not output.is_file():
        raise InputError(f"{output}: a table can only be written to a regular file")
    with file_errors(output):
        partial = beside(_target(output))
        partial.touch(exist_ok=False)
        partial.unlink()


def _target(output: Path) -> Path:
    """Return the file to which an output leads, through any links."""
    return Path(os.path.realpath(output))


def _lines_of(output: Path) -> Path:
    return output.with_name(f".{output.name}.lines")


def _take_over(output: Path, lines: Path, source: PairSource, check: Check) -> None:
    """Rename the lines that this job left when its output was a table of another format."""
    for suffix in TABLES:
        other = _lines_of(output.with_suffix(suffix))
        if other != lines and os.path.isfile(other) and _belong(other, source, check):
            with OutputFile(other, resume=True) as file:
                file.remove(lambda path: path.rename(_target(lines)))
            return


def _belong(lines: Path, source: PairSource, check: Check) -> bool:
    """Return whether all complete lines are those of the first pairs, and pass a check."""
    pairs = source.read()
    try:
        for place, record in read_records(lines, ("id", "texts"), skip_torn=True):
            pair = next(pairs, None)
            if pair is None or record["id"] != pair.name:
                return False
            check(place, pair, record)
    except InputError:
        return False
    return True


def _check_input(place: str, pair: InputPair, record: Record) -> None:
    check_texts(place, record, hash_texts(*pair.texts))


def _holds_lines(path: Path) -> bool:
    """Return whether a file is empty, or begins with a complete or incomplete line of a job."""
    with file_errors(path), path.open("rb") as file:
        first = file.readline()
    try:
        return not first or {"id", "texts"} <= json.loads(first).keys()
    except (ValueError, AttributeError, RecursionError):
        return is_torn(first) and first.startswith(b'{"id": ')


def write_table(lines: Path, output: Path) -> None:
    """Write the lines of a score file as a table. Raises OSError and InputError."""
    columns: dict[str, _Column] = {}
    for _, record in read_records(lines):
        for name, value in record.items():
            columns.setdefault(name, _Column()).add(value)
    with replaced(_target(output)) as file:
        if output.suffix.lower() == ".parquet":
            _write_parquet(lines, file, columns)
        else:
            separator = "\t" if output.suffix.lower() == ".tsv" else ","
            _write_separated(lines, file, list(columns), separator)


def _write_separated(lines: Path, file: BinaryIO, columns: list[str], separator: str) -> None:
    text = io.TextIOWrapper(file, "utf-8", _HALF, newline="", write_through=True)
    writer = csv.DictWriter(_Rows(text), columns, delimiter=separator)
    writer.writerow({name: cell(name) for name in columns})
    for _, record in read_records(lines):
        writer.writerow({name: cell(_cell(value)) for name, value in record.items()})
    text.detach()


class _Rows:
    """A file of rows that end in a line feed.

    Before Python 3.13, the writer quotes no carriage return unless one ends its rows.
    """

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def write(self, row: str) -> None:
        """Write one row, as the writer of `csv` ends it."""
        self._text.write(row.removesuffix("\r\n") + "\n")


def read_table(path: Path) -> Iterator[tuple[str, Record]]:
    """Read the rows of a table as records, empty cells dropped."""
    file = InputFile(path)
    try:
        for place, row in file.rows("id"):
            record = {}
            for name, value in row.items():
                if value is None or value == "":
                    continue
                is_text = name in _NUMBERS and not file.typed
                record[name] = _number(value) if is_text else value
            yield f"{path} {place}", record
    except (RowError, OSError) as error:
        raise file.error(error) from None


_NUMBERS = frozenset({*score_table.ALL, *_WHOLE})


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _cell(value: Any) -> Any:
    """Return a value as written to a CSV cell.

    Lists of words are joined by spaces. Other lists, objects and booleans become JSON.
    """
    if isinstance(value, list) and all(map(_is_word, value)):
        return " ".join(value)
    return json.dumps(value) if isinstance(value, list | dict | bool) else value


def _is_word(item: object) -> bool:
    return isinstance(item, str) and " " not in item


@dataclass
class _Column:
    """The types of a column's values, and the range of its whole numbers."""

    types: set[type] = field(default_factory=set)
    low: int = 0
    high: int = 0

    def add(self, value: Any) -> None:
        """Take one more value into account."""
        self.types.add(type(value))
        if type(value) is int:
            self.low = min(self.low, value)
            self.high = max(self.high, value)

    def kind(self, pa: Any) -> Any:
        """Return the type in Arrow that holds each value as it is; text holds any."""
        types = self.types - {type(None)}
        if types == {bool}:
            return pa.bool_()
        if types == {int}:
            if self.low >= -(1 << 63) and self.high < 1 << 63:
                return pa.int64()
            if self.low == 0 and self.high < 1 << 64:
                return pa.uint64()
        is_exact = self.low >= -_EXACT and self.high <= _EXACT
        if types == {float} or (types == {int, float} and is_exact):
            return pa.float64()
        return pa.string()


def _write_parquet(lines: Path, file: BinaryIO, columns: dict[str, _Column]) -> None:
    pa = require("pyarrow", "parquet", "writing Parquet")
    pq = require("pyarrow.parquet", "parquet", "writing Parquet")
    kinds = {name: column.kind(pa) for name, column in columns.items()}
    schema = pa.schema([(_whole(name), kind) for name, kind in kinds.items()])
    rows = read_records(lines)
    with pq.ParquetWriter(file, schema) as writer:
        while batch := [record for _, record in islice(rows, _BATCH)]:
            arrays = []
            for name, kind in kinds.items():
                is_text = kind == pa.string()
                values = [_as(record.get(name), is_text) for record in batch]
                arrays.append(pa.array(values, kind))
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _as(value: Any, text: bool) -> Any:
    return _whole(str(_cell(value))) if text and value is not None else value


def _whole(text: str) -> str:
    """Return a text with each lone surrogate written as an escaped number.

    An id in JSON can contain a lone surrogate, but UTF-8 cannot.
    """
    return text.encode("utf-8", _HALF).decode()
