"""Input files: their format, from the suffix or `--format`, and a check against the contents."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.jobs.readers.json_files import (
    has_key,
    plain_texts,
    read_folder,
    read_json_entries,
    read_lines,
)
from vcs_runtime.jobs.readers.layouts import LAYOUTS, OWN, Layout
from vcs_runtime.jobs.readers.rows import Pick, Row, RowError
from vcs_runtime.jobs.readers.tables import read_parquet, read_separated, read_xlsx
from vcs_runtime.util.reading import converted, opened, refuse_special, suffix_of

#: What each kind of file is called.
_KINDS: Final = {
    "jsonl": "JSON lines",
    "json": "a JSON array or object",
    "csv": "CSV",
    "tsv": "TSV",
    "parquet": "Parquet",
    "xlsx": "an Excel file",
    "lines": "one text a line",
}
#: The names of formats, for `--format`.
FORMATS: Final = (*_KINDS, *LAYOUTS)
_SUFFIXES: Final = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
    ".txt": "lines",
}
#: The suffixes of files that hold texts.
SUFFIXES: Final = tuple(_SUFFIXES)
_TYPED = ("jsonl", "json", "parquet")  # in the others a number may be a text

_HEAD = 1 << 16
_BEGINNINGS = {
    "parquet": rb"PAR1",
    "xlsx": rb"PK\x03\x04",
    "json": rb"\s*(\{\s*[\r\n]|\[\s*[\[{\"\r\n])",
    "jsonl": rb"\s*\{\s*\"",
}


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file with rows."""

    path: Path
    format: str | None = None  # one of `FORMATS`; None: by the suffix
    name: str = ""  # its name in errors; "": its path
    rows_key: str | None = None  # the key of a JSON object that holds the rows

    def __str__(self) -> str:
        return self.name or str(self.path)

    @property
    def layout(self) -> Layout:
        """The keys of its rows, unless others are given."""
        return LAYOUTS.get(self.format or "", OWN)

    @property
    def typed(self) -> bool:
        """Whether its format distinguishes texts from numbers.

        Raises InputError and OSError as `rows` does.
        """
        return (self._declared() or self._kind()) in _TYPED

    def rows(self, id_key: str, pick: Pick = lambda names, place: None) -> Iterator[Row]:
        """Read the rows, of a table the columns that `pick` returns.

        Raises RowError and InputError.
        """
        refuse_special(self.path, self)
        if self.path.is_dir():
            yield from read_folder(self.path, id_key)
            return
        kind = self._kind()
        if kind == "jsonl":
            for number, row in read_jsonl(self.path, name=self, unique=True):
                yield f"line {number}", row
        elif kind == "json":
            yield from read_json_entries(self.path, id_key, self, self.rows_key)
        elif kind == "lines":
            yield from read_lines(self.path, id_key)
        elif kind == "parquet":
            yield from read_parquet(self.path, pick)
        elif kind == "xlsx":
            yield from read_xlsx(self.path, pick, self)
        else:
            yield from read_separated(self.path, ",;" if kind == "csv" else "\t", pick)

    def has_key(self, key: str) -> bool:
        """Return whether it is a JSON object with a key. Raises InputError as `rows` does."""
        refuse_special(self.path, self)
        return self.path.is_file() and self._kind() == "json" and has_key(self.path, self, key)

    def error(self, error: RowError | TextError | OSError) -> InputError:
        """Return the error of a row, or of the system, with the name of the file."""
        if isinstance(error, OSError):
            return InputError(f"{self}: {error.strerror or error}")
        text = str(error)
        names_place = re.match(r"(line|row|entry) [0-9]|schema|is ", text)
        named = InputError(f"{self} {text}" if names_place else f"{self}: {text}")
        if isinstance(error, RowError):
            named.remedy = error.remedy
        return named

    def _declared(self) -> str | None:
        if self.format in _KINDS:
            return self.format
        default = "jsonl" if self.format == "lmms-eval" else None
        return _SUFFIXES.get(suffix_of(self.path), default)

    def _kind(self) -> str:
        """Return the format. Raises InputError if the contents have another format."""
        declared = self._declared()
        with opened(self.path) as file:
            head = file.read(_HEAD).removeprefix(codecs.BOM_UTF8)
        if declared in ("csv", "tsv", "json") and not head.strip():
            raise InputError(f"{self}: the file is empty")
        if re.match(rb"(?:\0[ -~]){4}|(?:[ -~]\0){4}", head):
            order = "BE" if head[:1] == b"\0" else "LE"
            raise InputError(f"{self}: UTF-16 without a mark: {converted(f'UTF-16{order}')}")
        held = next((kind for kind, begins in _BEGINNINGS.items() if re.match(begins, head)), None)
        if declared is None:
            return held or "jsonl"
        # A JSON object may lie on one line: its reader tells it from JSON lines.
        if held in (None, declared) or (declared == "json" and held == "jsonl"):
            return declared
        if self.format:
            source, remedy = f"--format {self.format}", f"give --format {held}"
        else:
            source, remedy = f"the suffix {self.path.suffix}", f"rename it, or give --format {held}"
        raise InputError(
            f"{self}: {source} means {_KINDS[declared]}, but the file holds {_KINDS[str(held)]}:"
            f" {remedy}"
        )


def texts_in(folder: Path) -> set[str]:
    """Return the names without suffix of a folder's plain texts; empty for a file."""
    return {path.stem for path in plain_texts(folder)} if folder.is_dir() else set()


def files_of(paths: Sequence[Path]) -> list[Path]:
    """Return the files. A folder stands for its files with a suffix in `SUFFIXES`, by name.

    Raises InputError for a folder without such files.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        in_folder = sorted(path.iterdir())
        inputs = [each for each in in_folder if suffix_of(each) in SUFFIXES and each.is_file()]
        if not inputs:
            raise InputError(f"{path}: the folder has no file that ends in {', '.join(SUFFIXES)}")
        files += inputs
    return files
