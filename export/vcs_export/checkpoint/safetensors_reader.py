"""Safetensors files that may be larger than memory: headers are read and checked, tensors read in parts.

A checkpoint is one `model.safetensors`, or several files that `model.safetensors.index.json` names. What a
model needs is checked against the headers before anything is written, and refused by the tensor's name.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vcs_export.checkpoint.transformer import CONFIG, WEIGHTS, read_json
from vcs_export.errors import CheckpointError, os_reason

INDEX = "model.safetensors.index.json"
TYPES: Mapping[str, ir.DataType] = {
    "F32": ir.DataType.FLOAT,
    "F16": ir.DataType.FLOAT16,
    "BF16": ir.DataType.BFLOAT16,
}
"""Element types that are taken, as safetensors names them."""

# What a loop over a tensor holds at a time, in its stored type: little enough for a cache.
_BLOCK_BYTES = 1 << 20

Progress = Callable[[str, int, int], None]
"""Told how far a long step is: what is done, bytes behind, bytes in all."""


def silent(step: str, done: int, total: int) -> None:
    """A `Progress` that nobody watches."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor where it lies: `offset` bytes into `file`, little-endian, rows one after the other.

    file   the file itself;  shard  what the checkpoint calls it (in a hub's cache, the name of a link)
    """

    name: str
    shard: str
    file: Path
    offset: int
    type: ir.DataType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self._item

    @property
    def _item(self) -> int:
        return int(self.type.numpy().itemsize)

    def blocks(self) -> Iterator[NDArray[Any]]:
        """The tensor in blocks of rows, in its stored type, each read when it is asked for."""
        rows = max(1, _BLOCK_BYTES // max(1, self.nbytes // self.shape[0]))
        for start in range(0, self.shape[0], rows):
            yield self._rows(start, min(start + rows, self.shape[0]))

    def rows(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """The rows from `start` to `stop` (default: all) in float32. Raises CheckpointError."""
        return self._rows(start, self.shape[0] if stop is None else stop).astype(np.float32, copy=False)

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        # Read, not mapped: mapped pages would count as this process's memory, all 16 GB of them.
        width = math.prod(self.shape[1:])
        size = self._item
        try:
            with self.file.open("rb") as file:
                file.seek(self.offset + start * width * size)
                content = file.read((stop - start) * width * size)
        except OSError as error:
            raise CheckpointError(f"{self.file}: cannot be read: {os_reason(error)}") from None
        if len(content) != (stop - start) * width * size:
            raise CheckpointError(f"{self.file}: ends within the tensor {self.name}")
        return np.frombuffer(content, self.type.numpy()).reshape(stop - start, *self.shape[1:])


def open_shards(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, StoredTensor]:
    """The tensors `shapes` of the checkpoint in `folder`, each checked; only headers are read.

    Raises CheckpointError naming the file and the tensor: missing, one that has no place in the model, of
    another shape or type than float32, float16 or bfloat16, or in another file than the index says.
    """
    where, source = _files(folder)
    found: dict[str, StoredTensor] = {}
    for name in sorted(set(where.values())):
        for tensor in _header(folder / name):
            if where.get(tensor.name, name) != name:
                raise CheckpointError(
                    f"{tensor.file}: has the tensor {tensor.name}, "
                    f"but {INDEX} puts it into {where[tensor.name]}"
                )
            found[tensor.name] = tensor
    for name, shape in shapes.items():
        if name not in found:
            raise CheckpointError(f"{where.get(name) or source}: the tensor {name} is missing")
        if found[name].shape != shape:
            raise CheckpointError(
                f"{found[name].file}: the tensor {name} has the shape {found[name].shape}, "
                f"{CONFIG} implies {shape}"
            )
    for name in sorted(found.keys() - shapes.keys()):
        raise CheckpointError(f"{found[name].file}: the tensor {name} has no place in the model of {CONFIG}")
    return {name: found[name] for name in shapes}


def _files(folder: Path) -> tuple[dict[str, str], Path]:
    """The file of each tensor (a single file, which says nothing: of ""), and what names the tensors."""
    single, index = folder / WEIGHTS, folder / INDEX
    if not index.exists():
        if not single.is_file():
            raise CheckpointError(f"{folder}: there is neither {INDEX} nor {WEIGHTS} in it")
        return {"": WEIGHTS}, single
    if single.exists():
        raise CheckpointError(f"{folder}: there are both {INDEX} and {WEIGHTS}: which of them holds?")
    data = read_json(index)
    places = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index}: weight_map must name a file for each tensor")
    for name, file in places.items():
        if not isinstance(file, str) or Path(file).name != file or "\\" in file or file.startswith("."):
            raise CheckpointError(f"{index}: the tensor {name} is in {file!r}, which is no plain file name")
        if not (folder / file).is_file():
            raise CheckpointError(f"{folder / file}: no such file, but {INDEX} puts {name} into it")
    return places, index


def _header(path: Path) -> Iterator[StoredTensor]:
    """The tensors that a safetensors file declares, once the library has found it whole."""
    try:
        # It checks that the tensors fill the file without gaps: a download that broke off is found here.
        with safe_open(path, framework="numpy"), path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length))
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path}: damaged, or not a safetensors file: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {os_reason(error)}") from None
    real = Path(os.path.realpath(path))
    for name, item in header.items():
        if name == "__metadata__":
            continue
        if item["dtype"] not in TYPES:
            raise CheckpointError(
                f"{path}: the tensor {name} is {item['dtype']}, only {', '.join(TYPES)} are supported"
            )
        offset = 8 + length + item["data_offsets"][0]
        yield StoredTensor(name, path.name, real, offset, TYPES[item["dtype"]], tuple(item["shape"]))
