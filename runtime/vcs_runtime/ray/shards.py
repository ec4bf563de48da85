"""Shards of a job: JSONL files that are there as a whole or not at all, and the shards of a stopped job."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vcs_runtime.errors import InputError
from vcs_runtime.jobs.jsonl import read_records
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.jobs.run import Block, check_line
from vcs_runtime.scoring.preparation import BLOCK_CHARACTERS, BLOCK_PAIRS
from vcs_runtime.util.atomic import unwritable, write_whole
from vcs_runtime.util.presence import is_folder

# Named by the place of a pair; whole, or cut short by a kill.
_SHARD = re.compile(r"((line|row|entry|missing)-\d+\.jsonl|\.(line|row|entry|missing)-\d+\.jsonl\..+)")


class Part(NamedTuple):
    """Pairs that are scored together."""

    pairs: list[InputPair]
    records: list[dict[str, Any]] | None = None


class ShardFolder:
    """The folder OUTPUT.shards with the shards that were finished before their turn, also by an earlier run.

    A file is named by the place of its first pair and holds the lines for the output. Used in `with`, the
    shards are deleted when the block ends well, and the folder if it holds nothing else.
    """

    def __init__(self, output: Path | None, signature: str, *, resume: bool, overwrite: bool) -> None:
        self._folder = output and output.with_name(output.name + ".shards")
        self._signature = signature
        self._resume = resume
        self._overwrite = overwrite

    def cut(self, pairs: Iterator[InputPair]) -> Iterator[Part]:
        """Cut the pairs into shards of the size of a scorer's blocks, so that batches are equally full.

        The output must be open, which locks it against other jobs.
        """
        files = self._files()
        shard: list[InputPair] = []
        characters = 0
        for pair in pairs:
            file = files.get(pair.place)
            if shard and (file or characters >= BLOCK_CHARACTERS or len(shard) >= BLOCK_PAIRS):
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
        """Write a shard that was finished before its turn."""
        if self._folder:
            self._folder.mkdir(exist_ok=True)
            write_shard(self._path(block[0][0].place), (record for _, record in block))

    def drop(self, block: Block) -> None:
        """Delete the file of a shard that is now in the output."""
        if self._folder:
            self._path(block[0][0].place).unlink(missing_ok=True)

    def __enter__(self) -> ShardFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._folder and kind is None:
            self._clear(self._folder)

    @staticmethod
    def _clear(folder: Path) -> None:
        with suppress(OSError):  # the folder is missing, or holds files of somebody else
            for path in folder.iterdir():
                if _SHARD.fullmatch(path.name):
                    path.unlink()
            folder.rmdir()

    def _path(self, place: str) -> Path:
        assert self._folder
        return self._folder / f"{place.replace(' ', '-')}.jsonl"

    def _files(self) -> dict[str, Path]:
        if not self._folder or not is_folder(self._folder):
            return {}
        if self._overwrite:
            self._clear(self._folder)
        files = {path.stem.replace("-", " "): path for path in self._folder.glob("*.jsonl")}
        if files and not self._resume:
            raise InputError(
                f"{self._folder}: shards of an earlier run; continue with --resume, or use --overwrite"
            )
        return files

    def _load(self, file: Path, first: InputPair, pairs: Iterator[InputPair]) -> Part:
        lines = list(read_records(file, ("id", "signature")))
        part = Part([first, *islice(pairs, len(lines) - 1)], [record for _, record in lines])
        if len(part.pairs) < len(lines):
            raise InputError(f"{file}: it has more lines than the input has pairs from {first.place} on")
        for pair, (place, record) in zip(part.pairs, lines, strict=True):
            if record["id"] != pair.name:
                raise InputError(
                    f"{place}: id {record['id']!r}, where the input has {pair.name!r}: delete the folder"
                )
            check_line(self._signature, place, pair, record)
        return part


def write_shard(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines whole or not at all. Raises InputError naming the file."""
    with unwritable(path):
        # The temporary name is unique: two actors may have the same pairs, if one was believed dead.
        write_whole(path, "".join(json.dumps(record) + "\n" for record in records))


def _size(texts: Any) -> int:
    """Characters of one text or several; 0 for anything else."""
    if isinstance(texts, str):
        return len(texts)
    return sum(map(_size, texts)) if isinstance(texts, list) else 0
