"""Scores of other metrics, computed elsewhere, that stand beside ours (docs/guide/experiments.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vcs_experiments.datasets.texts import finite_number
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.readers.rows import RowError

# The parts of an id, as `pairs.csv` has them; `id` alone may hold both.
_FIRST, _LAST = ("model", "scene", "vid"), ("case", "id")


@dataclass(frozen=True)
class Foreign:
    """A column of scores by the id of a text, as `pairs.jsonl` has it, and the file that they come from."""

    path: Path
    numbers: dict[str, float]


def read_column(name: str, path: Path) -> Foreign:
    """Read the column `name` of a file with ids, or its only column; raise InputError for a row without."""
    file, numbers = InputFile(path), dict[str, float]()
    try:
        for place, row in file.rows("id"):
            there = ", ".join(map(repr, row))
            first = [str(row.pop(key)) for key in _FIRST if key in row][:1]
            last = [str(row.pop(key)) for key in _LAST if key in row][:1]
            if not last:
                raise RowError(f"{place}: no 'id' (there is {there})")
            if name not in row and len(row) != 1:
                raise RowError(f"{place}: no {name!r}, nor a single column of scores (there is {there})")
            key = name if name in row else next(iter(row))
            number, id_ = finite_number(row[key]), "/".join(first + last)
            if number is None:
                raise RowError(f"{place}: {key} of {id_} is {row[key]!r}, not a number")
            if id_ in numbers:
                raise RowError(f"{place}: id {id_} is there twice")
            numbers[id_] = number
    except (RowError, OSError) as error:
        raise file.error(error) from None
    if not numbers:
        raise InputError(f"{path}: no scores in it")
    return Foreign(path, numbers)
