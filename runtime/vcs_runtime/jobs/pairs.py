"""Pairs of a file of any format, one at a time, with errors that name the place.

A file that cannot be read as pairs (broken JSON, a missing column) is an InputError: the job must
not start. Whether the *text* of a pair can be scored is decided by the scorer.
"""

from __future__ import annotations

import json
import re
import shlex
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.readers.rows import TEXT, RowError, is_missing, listed, quoted, with_paths
from vcs_runtime.scoring import score_table
from vcs_runtime.text.times import stamped

REFUSE, SUFFIX = "refuse", "suffix"
#: The ways to treat a second pair with the same id: refuse the input, or call the pair `id#2`.
DUPLICATES = (REFUSE, SUFFIX)
# The fields of a line of the output.
OUTPUT_KEYS = frozenset(
    {
        *score_table.ALL,
        "id",
        "n_ref",
        "n_gen",
        "flags",
        "segmenter",
        "reference_index",
        "n_references",
        "error",
        "signature",
        "texts",
    }
)


@dataclass(frozen=True, slots=True)
class InputPair:
    """One row of an input file."""

    place: str  # "line 7"; "row 7" of a Parquet file or a sheet; "entry 7" of a JSON file
    id: str | int | None
    reference: Any  # a text or several
    generated: Any
    kept: Mapping[str, Any] = field(default_factory=dict)  # columns that the output repeats
    missing: bool = False  # there is no generated text, which was reported already
    from_list: bool = False  # a text of it was a list written as text

    @property
    def name(self) -> str | int:
        """The id of the pair in the output: its own, or its place."""
        return self.id if self.id is not None else self.place

    @property
    def texts(self) -> tuple[Any, Any]:
        """The pair as the scorer takes it."""
        return self.reference, self.generated

    @property
    def references(self) -> list[Any]:
        """The references, also a single one, as a list."""
        return self.reference if isinstance(self.reference, list) else [self.reference]


class PairSource(Protocol):
    """Pairs that can be read more than once. As a string: what errors call it."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are read."""

    def read(self) -> Iterator[InputPair]:
        """Read the pairs, in order. Raises InputError that names the place."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a row's texts, id and kept columns.

    Keys for texts and id that are not given follow from the format of the file.
    """

    reference: tuple[str, ...] = ()
    generated: str | None = None
    id: str | None = None
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError if a kept key is the name of a field of the output."""
        for name in self.keep:
            if name in OUTPUT_KEYS:
                raise ValueError(f"--keep-column {name}: the output has another column {name!r}")

    def of(self, file: InputFile) -> tuple[tuple[str, ...], str, str]:
        """Return the keys of the references, of the generated text and of the id in a file."""
        layout = file.layout
        return (
            self.reference or (layout.reference,),
            self.generated or layout.generated,
            self.id or layout.id,
        )


@dataclass(frozen=True, slots=True)
class PairFile:
    """A file of pairs."""

    file: InputFile
    keys: Keys = field(default_factory=Keys)
    duplicates: str = REFUSE

    def __str__(self) -> str:
        return str(self.file)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The file."""
        return (self.file.path,)

    def read(self) -> Iterator[InputPair]:
        """Read the pairs, in order. Raises InputError that names the place."""
        references, generated, id_key = self.keys.of(self.file)
        # Columns that must be there, and the options that name them.
        needed = dict.fromkeys(references, "--reference-key")
        needed[generated] = "--generated-key"
        needed |= dict.fromkeys(self.keys.keep, "--keep-column")
        if self.keys.id:
            needed[id_key] = "--id-key"

        def pick(names: list[str], place: str) -> list[str]:
            columns = {column_of(key, names): key for key in needed}
            options = {column: needed[key] for column, key in columns.items()}
            refuse_missing(options, names, f"{place}: no column", ())
            every = (column_of(id_key, names), *columns)
            return [name for name in dict.fromkeys(every) if name in names]

        seen: Counter[str] = Counter()
        try:
            for place, row in self.file.rows(id_key, pick):
                pair = self._pair(place, row, needed)
                yield with_suffix(pair, seen) if self.duplicates == SUFFIX else pair
        except (RowError, TextError, OSError) as error:
            raise self.file.error(error) from None

    def _pair(self, place: str, row: Any, needed: Mapping[str, str]) -> InputPair:
        references, generated, id_key = self.keys.of(self.file)
        if not isinstance(row, dict):
            names = " and ".join((*references, generated))
            raise RowError(f"{place}: must be an object with {names}, not {type(row).__name__}")
        row = with_paths(row, (id_key, *needed))
        if place == "entry 1" and row.keys() == {id_key, TEXT} and str(row[id_key]) in _KEYS:
            raise RowError("the file holds one pair: put the pair into a list: [{...}]")
        refuse_missing(needed, row, f"{place}: no", (id_key, TEXT))
        layout = self.file.layout
        try:
            reference = references_of([as_text(row[key], self.file) for key in references])
            text = layout.read_generated(as_text(row[generated], self.file))
        except (RowError, TextError) as error:
            raise RowError(f"{place}: {error}") from None
        return InputPair(
            place,
            checked_id(row.get(id_key), place, id_key),
            reference,
            text,
            kept_of(row, self.keys.keep),
            from_list=any(listed(row[key]) is not row[key] for key in (*references, generated)),
        )


def read_pairs(source: Path | PairSource) -> Iterator[InputPair]:
    """Read the pairs of a file one at a time."""
    yield from as_source(source).read()


def as_source(source: Path | PairSource) -> PairSource:
    """Return the pairs of a file with the usual keys; other sources as they are."""
    return PairFile(InputFile(source)) if isinstance(source, Path) else source


def count_pairs(source: Path | PairSource) -> int:
    """Count the pairs, which are read as a whole. Raises InputError as `read_pairs` does.

    It also raises InputError if two pairs have one id; the message names both places.
    """
    hashes = array("q", (hash(str(pair.name)) for pair in read_pairs(source)))
    ordered = np.sort(np.frombuffer(hashes, np.int64))
    suspects = set(ordered[1:][ordered[1:] == ordered[:-1]].tolist())
    if suspects:
        _refuse_equal_ids(source, suspects)
    return len(hashes)


def _refuse_equal_ids(source: Path | PairSource, hashes: Collection[int]) -> None:
    """Raise InputError if two pairs whose ids have one of these hashes have the same id."""
    places: dict[str, str] = {}
    for pair in read_pairs(source):
        name = str(pair.name)
        if hash(name) not in hashes:
            continue
        if name in places:
            raise twice(source, name, places[name], pair.place)
        places[name] = pair.place


def twice(source: object, name: str, first: str, second: str) -> InputError:
    """Return the error for an id that two rows have."""
    return InputError(
        f"{source} {second}: {first} also has the id {name!r}: give every pair its own id, or add"
        " --duplicates suffix"
    )


def with_suffix(pair: InputPair, seen: Counter[str]) -> InputPair:
    """Return a pair whose id no earlier pair has: `id#2` where `id` is taken."""
    if pair.id is None:
        return pair
    seen[str(pair.id)] += 1
    count = seen[str(pair.id)]
    return pair if count == 1 else replace(pair, id=f"{pair.id}#{count}")


def column_of(key: str, names: Collection[str]) -> str:
    """Return the column of a table that holds a key: the key, or the first part of a path."""
    column = key.split(".")[0]
    return column if key not in names and column in names else key


def refuse_missing(
    needed: Mapping[str, str], names: Any, begins: str, by_id: tuple[str, ...]
) -> None:
    """Raise RowError if any needed key is missing.

    The message names all missing keys and the options that rename them.
    """
    missing = [key for key in needed if key not in names]
    if not missing:
        return
    absent = " and no ".join(map(repr, missing))
    message = f"{begins} {absent} (it has {quoted(names)}): "
    if by_id and set(names) == set(by_id):
        raise RowError(message, TEXTS_BY_ID)
    if not by_id and len(names) == 1:
        raise RowError(f"{message}only one column: separate columns by commas, in TSV by tabs")
    options = list(dict.fromkeys(needed[key] for key in missing))
    if "id" not in names and "--id-key" not in needed.values():
        options.append("--id-key")
    free = [name for name in names if name not in needed and name != "id" and "." not in name]
    raise RowError(message, f"give {_with_columns(options, free)}")


TEXTS_BY_ID: Final = "give texts by id with --references and --predictions"
# Words in the names that columns usually have, by the option that names the column.
_USUAL: Final = {
    "--reference-key": "ref refs reference references gt truth groundtruth target gold answer"
    " label",
    "--generated-key": "hyp hypothesis pred preds prediction predictions predicted generated output"
    " response candidate cand completion hypotheses",
    "--id-key": "id vid video key name clip idx index uid image",
}

_KEYS: Final = set(" ".join(_USUAL.values()).split())


def _with_columns(options: Sequence[str], free: Sequence[str]) -> str:
    """Return options with the columns that they probably mean, or NAME; the id is optional."""
    named = []
    left = list(free)
    for option in options:
        likely = [name for name in left if _words(name) & set(_USUAL.get(option, "").split())]
        if not likely and len(left) == 1 and option in ("--reference-key", "--generated-key"):
            likely = left
        if likely:
            name = likely[0]
            left.remove(name)
            named.append(f"{option} {shlex.quote(name)}")
        elif option != "--id-key":
            named.append(f"{option} NAME")
    return " ".join(named)


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()))


def checked_id(name: Any, place: str, key: str) -> str | int | None:
    """Return an id. Raises RowError if it is neither a string nor a whole number."""
    if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
        raise RowError(
            f"{place}: {key!r} must be a string or a whole number, not {type(name).__name__}"
        )
    return name


def as_text(value: Any, file: InputFile) -> Any:
    """Return numbers of untyped files and timed segments as text, and lists written as text.

    Segments become one text with time stamps. In a list of several references, each one is
    converted.
    """
    value = listed(value)
    if isinstance(value, list):
        text = stamped(value)
        if text is not value:
            return text
        return [stamped(reference) for reference in value]
    if isinstance(value, int | float) and not file.typed:
        return str(value)
    return value


def references_of(texts: Sequence[Any]) -> Any:
    """Return the one reference, or several of columns and lists without the missing ones."""
    if len(texts) == 1 and not isinstance(texts[0], list):
        return texts[0]
    every = []
    for text in texts:
        every += text if isinstance(text, list) else [text]
    return [text for text in every if not is_missing(text)]


def kept_of(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the named columns of a row, as JSON can hold them."""
    if not names:
        return {}
    columns = {name: row[name] for name in names}
    copy: dict[str, Any] = json.loads(json.dumps(columns, default=str))
    return copy
