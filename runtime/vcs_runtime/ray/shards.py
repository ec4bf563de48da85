"""Shards: JSONL files that are there as a whole or not at all, and what a stopped job left of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import check_signature, read_records
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.jobs.run import Block
from vcs_runtime.util.atomic import write_whole

# A shard is what a scorer takes at a time: its batches are then as full as in one process.
_SHARD_CHARACTERS = 200_000
_SHARD_PAIRS = 1024


class Part(NamedTuple):
    """Pairs to be scored together; or with `records`, scored by an earlier run."""

    pairs: list[InputPair]
    records: list[dict[str, Any]] | None = None


class Kept:
    """The folder OUTPUT.shards: what was finished before its turn, by this run or one before.

    A file bears the place of its first pair and holds the lines that the output will have. In `with`: where
    the block ends well, nothing is left of the folder. Without an output nothing is kept.
    """

    def __init__(self, output: Path | None, line_signature: str, *, resume: bool, overwrite: bool) -> None:
        self._folder = output and output.with_name(output.name + ".shards")
        self._signature = line_signature
        self._resume = resume
        self._overwrite = overwrite

    def cut(self, pairs: Iterator[InputPair]) -> Iterator[Part]:
        """Cut the pairs to shards; those of an earlier run come back with their records.

        To be asked for when the output is open, and so locked against other jobs. Raises InputError: shards
        of an earlier run where this one does not resume, or of other options or another input.
        """
        files = self._files()
        shard: list[InputPair] = []
        characters = 0
        for pair in pairs:
            file = files.get(pair.place)
            if shard and (file or characters >= _SHARD_CHARACTERS or len(shard) >= _SHARD_PAIRS):
                yield Part(shard)
                shard, characters = [], 0
            if file:
                yield self._load(file, pair, pairs)
                continue
            shard.append(pair)
            characters += _size(pair.reference) + _size(pair.generated)
        if shard:
            yield Part(shard)

    def keep(self, block: Block) -> None:
        if self._folder:
            self._folder.mkdir(exist_ok=True)
            write_shard(self._path(block[0][0].place), (record for _, record in block))

    def drop(self, block: Block) -> None:
        """Forget what the output holds now."""
        if self._folder:
            self._path(block[0][0].place).unlink(missing_ok=True)

    def __enter__(self) -> Kept:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._folder and kind is None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, place: str) -> Path:
        assert self._folder
        return self._folder / f"{place.replace(' ', '-')}.jsonl"

    def _files(self) -> dict[str, Path]:
        if not self._folder or not self._folder.is_dir():
            return {}
        if self._overwrite:
            shutil.rmtree(self._folder)
        files = {path.stem.replace("-", " "): path for path in self._folder.glob("*.jsonl")}
        if files and not self._resume:
            raise InputError(
                f"{self._folder}: shards of an earlier run; go on with --resume, or use --overwrite"
            )
        return files

    def _load(self, file: Path, first: InputPair, pairs: Iterator[InputPair]) -> Part:
        lines = list(read_records(file, ("id", "signature")))
        part = Part([first, *islice(pairs, len(lines) - 1)], [record for _, record in lines])
        if len(part.pairs) < len(lines):
            raise InputError(f"{file}: it has more lines than the input has pairs from {first.place} on")
        for pair, (place, record) in zip(part.pairs, lines, strict=True):
            check_signature(place, record["signature"], self._signature)
            if record["id"] != pair.name:
                raise InputError(
                    f"{place}: id {record['id']!r}, where the input has {pair.name!r}: delete the folder"
                )
        return part


def write_shard(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines to `path`, synced, so that it is there as a whole or not at all.

    Raises InputError naming the file.
    """
    try:
        # Under names of their own until then: two actors that were given the same pairs, one of them thought
        # dead, must not write one file.
        write_whole(path, "".join(json.dumps(record) + "\n" for record in records))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _size(texts: Any) -> int:
    """Characters of a text or several, as far as it is one."""
    if isinstance(texts, str):
        return len(texts)
    return sum(map(_size, texts)) if isinstance(texts, list) else 0
