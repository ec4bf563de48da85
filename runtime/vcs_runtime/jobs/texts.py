"""Texts by id: references in one file, predictions in others, and the pairs that they make."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.pairs import (
    REFUSE,
    InputPair,
    Keys,
    as_text,
    checked_id,
    kept_of,
    references_of,
    twice,
    with_suffix,
)
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.readers.json_files import is_rows
from vcs_runtime.jobs.readers.layouts import OWN
from vcs_runtime.jobs.readers.rows import TEXT, RowError, listed, quoted, video_of, with_paths

#: The keys of a reference and of a prediction in rows, if none is given; the first one that is
#: there counts.
REFERENCE_KEYS = ("reference", "summary", TEXT, "caption")
PREDICTION_KEYS = ("generated", "prediction", "summary", TEXT, "caption")
_SHOWN = 3  # ids in a message
# A suffix of a file has a letter: "clip.01" has none.
_SUFFIX = re.compile(r"\.(?=\d?[A-Za-z])[A-Za-z0-9]{2,5}$")


@dataclass(frozen=True, slots=True)
class Texts:
    """A file of texts by id."""

    file: InputFile
    predictions: bool = False  # or references
    keys: Keys = field(default_factory=Keys)
    duplicates: str = REFUSE

    def read(self) -> Iterator[InputPair]:
        """Read the texts, in order, as one-sided pairs."""
        id_key = self.keys.id or self.file.layout.id
        try:
            for place, row in self.file.rows(id_key):
                if isinstance(row, str | list):  # of an array: its number is its id
                    row = {id_key: int(place.split()[-1]), TEXT: row}
                if not isinstance(row, dict):
                    raise RowError(f"{place}: must be a text with an id, not {type(row).__name__}")
                keys = (id_key, *self.keys.reference, self.keys.generated or "", *self.keys.keep)
                yield self._pair(place, with_paths(row, keys), id_key)
        except (RowError, TextError, OSError) as error:
            raise self.file.error(error) from None

    def _pair(self, place: str, row: Mapping[str, Any], id_key: str) -> InputPair:
        """Return the text of a row as a pair without the other side."""
        keys = self._keys(place, row, id_key)
        # The `id` of a caption in COCO's files is not its video's.
        if not self.keys.id and (id_key not in row or keys == ["caption"]):
            id_key = video_of(row) or id_key
        if row.get(id_key) is None:
            raise RowError(f"{place}: no {id_key!r} (it has {quoted(row)}): add --id-key NAME")
        name = checked_id(row[id_key], place, id_key)
        if not keys:
            return InputPair(place, name, None, None, missing=True)
        kept = kept_of(row, [key for key in self.keys.keep if key in row])
        try:
            texts = [as_text(row[key], self.file) for key in keys]
            generated = self.file.layout.read_generated(texts[0]) if self.predictions else None
        except (RowError, TextError) as error:
            raise RowError(f"{place}: {error}") from None
        from_list = any(listed(row[key]) is not row[key] for key in keys)
        if not self.predictions:
            return InputPair(place, name, references_of(texts), None, kept, from_list=from_list)
        return InputPair(place, name, None, generated, kept, from_list=from_list)

    def by_id(self) -> dict[str, InputPair]:
        """Read all texts, by id. References with one id belong together.

        Raises InputError if two predictions have one id, or if there are no texts.
        """
        texts: dict[str, InputPair] = {}
        seen: Counter[str] = Counter()
        groups: dict[str, list[InputPair]] = {}
        for text in self.read():
            if text.missing:
                continue
            if self.duplicates != REFUSE:
                text = with_suffix(text, seen)
            name = str(text.name)
            if name in texts and self.predictions:
                raise twice(self.file, name, texts[name].place, text.place)
            texts.setdefault(name, text)
            groups.setdefault(name, []).append(text)
        if not texts:
            at = f" at {self.keys.generated!r}" if self.keys.generated else ""
            raise InputError(f"{self.file}: the file holds no texts{at}")
        return texts if self.predictions else joined(groups)

    def _keys(self, place: str, row: Mapping[str, Any], id_key: str) -> Sequence[str]:
        """Return the keys of the text, or of several references. Raises RowError if it has none.

        A path that leads nowhere in a row with an id has no key: its prediction is missing.
        """
        if row.keys() == {id_key, TEXT}:
            return (TEXT,)
        layout = self.file.layout
        named: Sequence[str]
        usual: Sequence[str]
        if self.predictions:
            named = (self.keys.generated,) if self.keys.generated else ()
            usual = PREDICTION_KEYS if layout is OWN else (layout.generated,)
        else:
            named = self.keys.reference
            usual = REFERENCE_KEYS if layout is OWN else (layout.reference,)
        keys = named or [key for key in usual if key in row][:1]
        if not keys or any(key not in row for key in keys):
            if self.predictions and named and "." in named[0] and id_key in row:
                return ()
            names = " or ".join(map(repr, named or usual))
            option = "--generated-key" if self.predictions else "--reference-key"
            remedy = f"give {option}"
            if all(is_rows(row[key]) for key in row.keys() - {id_key}):
                remedy = "a list of objects is not a text"
            raise RowError(f"{place}: no {names} (it has {quoted(row)}): {remedy}")
        return keys


def joined(groups: Mapping[str, Sequence[InputPair]]) -> dict[str, InputPair]:
    """Return one pair for each group: the first, with the references of all."""
    texts = {}
    for name, pairs in groups.items():
        texts[name] = pairs[0]
        if len(pairs) > 1:
            references = references_of([pair.reference for pair in pairs])
            from_list = any(pair.from_list for pair in pairs)
            texts[name] = replace(pairs[0], reference=references, from_list=from_list)
    return texts


class MatchedFiles:
    """The pairs of references and the predictions of one system, in the order of the references."""

    def __init__(
        self,
        references: Mapping[str, InputPair],
        reference_files: Sequence[InputFile],
        predictions: Texts,
        keep: Sequence[str] = (),
    ) -> None:
        self._files = (predictions.file, *reference_files)
        reference_file = ", ".join(map(str, reference_files))
        texts = predictions.by_id()
        self.assumed = ""
        if texts.keys().isdisjoint(references):
            equal = _equal_without_place(references, texts)
            if equal:
                there, here = next(iter(equal.items()))
                self.assumed = (
                    f"{self}: no id is the same as in {reference_file}. Ids were matched without"
                    f" folder and suffix, such as {here!r} and {there!r} ({len(equal)} in all)"
                )
            names = {here: there for there, here in equal.items()}
            texts = {names.get(name, name): text for name, text in texts.items()}
        self.missing = [name for name in references if name not in texts]
        self.superfluous = [name for name in texts if name not in references]
        if len(self.missing) == len(references):
            raise InputError(
                f"{self}: no id is the same as in {reference_file}: {_some(self.superfluous)}"
                f" here, {_some(self.missing)} there"
            )
        self._ids = len(references)
        self._pairs: list[InputPair] = []
        for number, (name, reference) in enumerate(references.items(), 1):
            text = texts.get(name)
            if text is None:
                text = InputPair(f"missing {number}", name, None, None, missing=True)
            pair = InputPair(
                text.place,
                reference.id,
                reference.reference,
                text.generated,
                {**text.kept, **reference.kept},
                text.missing,
                reference.from_list or text.from_list,
            )
            for key in keep:
                if key not in pair.kept:
                    raise InputError(
                        f"{reference_file} {reference.place}: there is no {key!r} to keep, and"
                        f" none in {self}"
                    )
            self._pairs.append(pair)

    def __str__(self) -> str:
        return str(self._files[0])

    @property
    def paths(self) -> tuple[Path, ...]:
        """The predictions, and the references."""
        return tuple(file.path for file in self._files)

    def read(self) -> Iterator[InputPair]:
        """Return the pairs. One without a prediction is among them, and cannot be scored."""
        return iter(self._pairs)

    def problems(self) -> list[str]:
        """Return a sentence about references, and one about predictions, without a match."""
        sentences = []
        if self.missing:
            share = f"{len(self.missing)} of {self._ids} references"
            sentences.append(f"{self}: there is no prediction for {share}: {_some(self.missing)}")
        if self.superfluous:
            count = len(self.superfluous)
            sentences.append(
                f"{self}: {count} prediction{'s' if count > 1 else ''} left out, because there is"
                f" no reference: {_some(self.superfluous)}"
            )
        return sentences


def _equal_without_place(references: Iterable[str], predictions: Iterable[str]) -> dict[str, str]:
    """Return the predictions of references whose ids are equal without folder and suffix."""
    there, here = _without_place(references), _without_place(predictions)
    return {name: here[bare] for bare, name in there.items() if bare in here}


def _without_place(names: Iterable[str]) -> dict[str, str]:
    """Return ids by what is left without folder and suffix, where it is of one id alone."""
    groups: dict[str, list[str]] = {}
    for name in names:
        bare = _SUFFIX.sub("", name.replace("\\", "/").rsplit("/", 1)[-1])
        groups.setdefault(bare, []).append(name)
    return {bare: group[0] for bare, group in groups.items() if len(group) == 1}


def _some(names: Sequence[str]) -> str:
    return quoted(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
