"""Score files, which `vcs-runtime score -o` writes: how they are recognised and read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import Record, read_jsonl, read_records
from vcs_runtime.jobs.readers.input_file import SUFFIXES
from vcs_runtime.jobs.resumable import differences
from vcs_runtime.jobs.score_tables import TABLES, is_table, read_table
from vcs_runtime.scoring import score_table
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer

_NUMBERS = (*score_table.NAMES, "n_ref", "n_gen")
# The smallest and the largest value of each number, and by how much rounding may pass them.
_COUNT = (0, 1 << 53)
_RANGES: Final = {name: (info.low, info.high) for name, info in score_table.ALL.items()} | {
    "n_ref": _COUNT,
    "n_gen": _COUNT,
}
_ROUNDING = 1e-6
#: Suffixes of score files.
SCORES: Final = (".jsonl", ".ndjson", *TABLES)
_OTHERS: Final = {*SUFFIXES} - {*SCORES}
_TYPES: Final = (
    ("id", (str, int), "text or whole number"),
    ("signature", str, "text"),
    ("error", str, "text"),
    ("segmenter", (str, type(None)), "text"),
)


def is_scores(path: Path) -> bool:
    """Whether a file begins as a score file does. Raises InputError if it cannot be read."""
    row: Any
    if is_table(path):
        _, row = next(read_table(path), ("", None))
    elif path.suffix.lower() in _OTHERS:
        return False
    else:
        _, row = next(read_jsonl(path), (0, None))
    return (
        isinstance(row, dict)
        and {"id", "signature"} <= row.keys()
        and bool({"vcs", "error"} & row.keys())
    )


def metrics_of(path: Path) -> tuple[str, ...]:
    """Return the metrics beside VCS of a score file. Raises InputError as `read_scores` does."""
    scored = (row for _, row in read_scores(path) if "error" not in row)
    return next((score_table.metrics_in(row) for row in scored), ())


def options_of(path: Path, options: Options, scorer: Scorer) -> tuple[Options, str]:
    """Return options with a score file's metrics, and a message if the signatures differ.

    The metrics of the file apply unless `options.also` names others. The message is "" if the
    signatures are equal.
    """
    options = replace(options, also=options.also or metrics_of(path))
    _, line = next(read_scores(path))
    written, current = line["signature"], scorer.signature_for(options)
    if written == current:
        return options, ""
    there, here = differences(written, current)
    return options, f"{path}: scored with {there}, but this run has {here}: give the same options"


def read_scores(
    path: Path, names: Sequence[str] = _NUMBERS, *, pipe: bool = False
) -> Iterator[tuple[str, Record]]:
    """Read the lines of a score file, each with its place and the numbers `names` or an `error`.

    Raises InputError for an invalid line, and for lines of several signatures.
    """
    signature = None
    fields = ("id", "signature")
    otherwise = "not a line of a score file (`vcs-runtime score -o`)"
    if path.suffix.lower() in _OTHERS:
        raise InputError(f"{path}: not a score file (an output of `vcs-runtime score -o`)")
    lines = read_table(path) if is_table(path) else read_records(path, fields, otherwise, pipe=pipe)
    for place, row in lines:
        if any(field not in row for field in fields):
            raise InputError(f"{place}: {otherwise}")
        if signature is not None and row["signature"] != signature:
            raise InputError(
                f"{place}: scored as {row['signature']}, but the lines before as {signature}"
            )
        signature = row["signature"]
        check_line(place, row, names)
        yield place, row
    if signature is None:
        raise InputError(f"{path}: the file holds no scores")


def check_line(place: str, row: Record, names: Sequence[str] = _NUMBERS) -> None:
    """Raise InputError unless a line of a score file has its scores in range, or an error."""
    for name, types, description in _TYPES:
        if name in row and (isinstance(row[name], bool) or not isinstance(row[name], types)):
            raise InputError(f"{place}: {name!r} is not a {description}")
    if "error" in row:
        return
    for name in dict.fromkeys((*names, *_RANGES)):
        if name in row or name in names:
            _number(row, name, place)


def check_signatures(
    signatures: Mapping[Path, str], scores: Iterable[str] = score_table.ALL
) -> None:
    """Raise InputError if score files were not scored alike; their signatures are by path.

    Fields that cannot change `scores` do not count: metrics beside VCS, and the bundle that
    compares words for them.
    """
    models = set(re.findall(r"\|words:[^|]*", "".join(signatures.values())))
    several = len(models) > 1 and not score_table.SUBSTITUTION.keys().isdisjoint(scores)
    ignored = r"\|also:[^|]*" if several else r"\|(also|words):[^|]*"
    compared = {path: re.sub(ignored, "", line) for path, line in signatures.items()}
    first, *others = compared
    for path in others:
        if compared[path] == compared[first]:
            continue
        fields = differences(compared[first], compared[path])
        raise InputError(
            f"{first} and {path} were scored differently: {' and '.join(fields)}; score both again"
            " with the same version, bundle and options, or compare them with --ignore-signatures"
        )


def _number(row: Record, name: str, place: str) -> float:
    """Return a number of a line. Raises InputError if it is not a number, or out of its range."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise InputError(f"{place}: {name!r} must be a number, not {value!r}")
    low, high = _RANGES[name]
    if not low - _ROUNDING <= value <= high + _ROUNDING:
        raise InputError(f"{place}: {name!r} must be from {low:g} to {high:g}")
    return float(value)
