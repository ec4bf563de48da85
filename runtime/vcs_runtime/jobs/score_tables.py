"""Score files as tables: CSV, TSV or Parquet files, made from a job's lines once all lines exist.

Lines can be appended and continued, a table cannot. So a job keeps its lines in OUTPUT.jsonl until
the table is written as a whole.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import Record, is_torn, read_records
from vcs_runtime.jobs.output import JobFiles, OutputFile
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.readers.rows import RowError
from vcs_runtime.scoring import score_table
from vcs_runtime.util.atomic import file_errors, refuse_input_as_output, replaced
from vcs_runtime.util.extras import require
from vcs_runtime.util.printable import cell

# How half a surrogate pair is written.
_HALF: Final = "backslashreplace"
#: The suffixes of tables.
TABLES: Final = (".csv", ".tsv", ".parquet")
_WHOLE = ("n_ref", "n_gen", "reference_index", "n_references")
_BATCH = 1024


def is_table(path: Path) -> bool:
    """Whether a path has the suffix of a table."""
    return path.suffix.lower() in TABLES


def as_lines(files: JobFiles) -> tuple[JobFiles, Callable[[OutputFile], None] | None]:
    """Return the files for a job's lines, and the function that makes the table from the lines.

    The lines of a table are written to OUTPUT.jsonl beside the table. If the output is not a table,
    the files are unchanged and the function is None.
    """
    output = files.output
    if output is None or not is_table(output):
        return files, None
    if output.suffix.lower() == ".parquet":
        require("pyarrow.parquet", "parquet", f"{output}: writing Parquet")
    refuse_input_as_output(output, *files.inputs)
    if output.exists() and not files.overwrite:
        state = "it is whole, so there is nothing to continue" if files.resume else "it exists"
        raise InputError(f"{output}: {state}; replace it with --overwrite")
    lines = output.with_name(f"{output.name}.jsonl")
    # The user has not named this file, so it must not be replaced unless a job wrote it.
    if files.overwrite and lines.is_file() and not _holds_lines(lines):
        raise InputError(f"{lines}: it holds no lines of a job, which would lie here: move it")

    def finish(written: OutputFile) -> None:
        with file_errors(output):
            write_table(lines, output)
            written.remove()

    return replace(files, output=lines), finish


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
    columns: dict[str, set[type]] = {}
    for _, record in read_records(lines):
        for name, value in record.items():
            columns.setdefault(name, set()).add(type(value))
    with replaced(output) as file:
        if output.suffix.lower() == ".parquet":
            _write_parquet(lines, file, columns)
        else:
            separator = "\t" if output.suffix.lower() == ".tsv" else ","
            _write_separated(lines, file, list(columns), separator)


def _write_separated(lines: Path, file: BinaryIO, columns: list[str], separator: str) -> None:
    text = io.TextIOWrapper(file, "utf-8", _HALF, newline="", write_through=True)
    writer = csv.DictWriter(text, columns, delimiter=separator, lineterminator="\n")
    writer.writerow({name: cell(name) for name in columns})
    for _, record in read_records(lines):
        writer.writerow({name: cell(_cell(value)) for name, value in record.items()})
    text.detach()


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


def _write_parquet(lines: Path, file: BinaryIO, columns: dict[str, set[type]]) -> None:
    pa = require("pyarrow", "parquet", "writing Parquet")
    pq = require("pyarrow.parquet", "parquet", "writing Parquet")
    types = {
        frozenset({int}): pa.int64(),
        frozenset({float}): pa.float64(),
        frozenset({int, float}): pa.float64(),
        frozenset({bool}): pa.bool_(),
    }
    kinds = {}
    for name, python_types in columns.items():
        kinds[name] = types.get(frozenset(python_types - {type(None)}), pa.string())
    schema = pa.schema([(_whole(name), kind) for name, kind in kinds.items()])
    rows = read_records(lines)
    with pq.ParquetWriter(file, schema) as writer:
        while batch := [record for _, record in islice(rows, _BATCH)]:
            arrays = {}
            for name, kind in kinds.items():
                is_text = kind == pa.string()
                values = [_as(record.get(name), is_text) for record in batch]
                arrays[_whole(name)] = pa.array(values, kind)
            writer.write_table(pa.table(arrays))


def _as(value: Any, text: bool) -> Any:
    return _whole(str(_cell(value))) if text and value is not None else value


def _whole(text: str) -> str:
    """Return a text with each lone surrogate written as an escaped number.

    An id in JSON can contain a lone surrogate, but UTF-8 cannot.
    """
    return text.encode("utf-8", _HALF).decode()
