"""Safetensors files larger than memory: headers are read and checked, tensors are read in parts.

A checkpoint is one `model.safetensors`, or several files that `model.safetensors.index.json` names.
The headers are checked before anything is written, and errors name the tensor.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vcs_export.checkpoint.settings import read_json
from vcs_export.errors import CheckpointError, os_reason

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
TYPES: Mapping[str, ir.DataType] = {
    "F32": ir.DataType.FLOAT,
    "F16": ir.DataType.FLOAT16,
    "BF16": ir.DataType.BFLOAT16,
}
"""Supported element types, by the names of safetensors."""

# Bytes of a tensor that a loop holds at a time, in its stored type. They fit a cache.
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: little-endian, rows one after the other."""

    name: str
    shard: str  # the checkpoint's name of the file, which in a hub's cache is a link
    file: Path
    offset: int  # in bytes
    kind: str  # as safetensors names the element type, which need not be one of `TYPES`
    shape: tuple[int, ...]

    @property
    def type(self) -> ir.DataType:
        """The element type."""
        return TYPES[self.kind]

    @property
    def nbytes(self) -> int:
        """The tensor's size in bytes."""
        return math.prod(self.shape) * self._item

    @property
    def _item(self) -> int:
        return int(self.type.numpy().itemsize)

    def part(self, start: int, stop: int) -> StoredTensor:
        """Return the rows from `start` to `stop` as another tensor in the same file."""
        row = self.nbytes // self.shape[0]
        return replace(
            self,
            name=f"{self.name}.{start}-{stop}",
            offset=self.offset + start * row,
            shape=(stop - start, *self.shape[1:]),
        )

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Yield the tensor in blocks of rows, in its stored type, each read on demand."""
        rows = max(1, _BLOCK_BYTES // max(1, self.nbytes // self.shape[0]))
        for start in range(0, self.shape[0], rows):
            yield self._rows(start, min(start + rows, self.shape[0]))

    def check(self) -> None:
        """Read the whole tensor. Raises CheckpointError for NaN, infinity and unreadable files."""
        for _ in self.blocks():
            pass

    def rows(self, start: int = 0, stop: int | None = None) -> NDArray[np.float32]:
        """Return the rows from `start` to `stop` (default: all) in float32.

        Raises CheckpointError.
        """
        return self._rows(start, self.shape[0] if stop is None else stop).astype(
            np.float32, copy=False
        )

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        # The rows are read: mapped pages, 16 GB of them, would count as memory of this process.
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
        block = np.frombuffer(content, self.type.numpy()).reshape(stop - start, *self.shape[1:])
        return checked_finite(block, self.name, self.file)


def checked_finite(numbers: NDArray[Any], name: str, file: Path) -> NDArray[Any]:
    """Return the numbers of a tensor. Raises CheckpointError for NaN or infinity."""
    if not np.isfinite(numbers).all():
        raise CheckpointError(f"{file}: the tensor {name} holds NaN or infinity")
    return numbers


def stored_names(folder: Path) -> set[str]:
    """Return the names of a checkpoint's tensors. Raises CheckpointError, as `open_shards` does."""
    where, _ = _files(folder)
    names: set[str] = set()
    for file in sorted(set(where.values())):
        names.update(tensor.name for tensor in read_header(folder / file))
    return names


def open_shards(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], unused: Collection[str] = ()
) -> dict[str, StoredTensor]:
    """Find the tensors of a checkpoint by their expected shapes. Only headers are read.

    Raises CheckpointError for a tensor that is missing, has another shape or type, or is in another
    file than the index says. So it does for a tensor without a place in the model, unless it is one
    of `unused`.
    """
    where, source = _files(folder)
    stored: dict[str, StoredTensor] = {}
    for name in sorted(set(where.values())):
        for tensor in read_header(folder / name):
            if where.get(tensor.name, name) != name:
                raise CheckpointError(
                    f"{tensor.file} has the tensor {tensor.name}, but {INDEX} puts it into"
                    f" {where[tensor.name]}"
                )
            stored[tensor.name] = tensor
    for name, shape in shapes.items():
        check_tensor(stored.get(name), where.get(name) or source, name, shape)
    for name in sorted(stored.keys() - shapes.keys() - set(unused)):
        raise CheckpointError(
            f"{stored[name].file}: the tensor {name} does not belong to the model of config.json"
        )
    return {name: stored[name] for name in shapes}


def check_tensor(
    tensor: StoredTensor | None, place: object, name: str, shape: tuple[int, ...]
) -> StoredTensor:
    """Return a tensor, unless it is missing or has another shape or type.

    Raises CheckpointError.
    """
    if tensor is None:
        raise CheckpointError(f"{place}: the tensor {name} is missing")
    if tensor.shape != shape:
        raise CheckpointError(
            f"{tensor.file}: the tensor {name} has the shape {tensor.shape}, config.json implies"
            f" {shape}"
        )
    if tensor.kind not in TYPES:
        raise CheckpointError(
            f"{tensor.file}: the tensor {name} is {tensor.kind}, only {', '.join(TYPES)} are"
            " supported"
        )
    return tensor


def _files(folder: Path) -> tuple[dict[str, str], Path]:
    """Return the file of each tensor, and the path of the file that lists the tensors.

    The key "" stands for all tensors of a single file.
    """
    single, index = folder / WEIGHTS, folder / INDEX
    if not index.exists():
        if not single.is_file():
            raise CheckpointError(f"{folder}: the folder has neither {INDEX} nor {WEIGHTS}")
        return {"": WEIGHTS}, single
    if single.exists():
        raise CheckpointError(
            f"{folder}: there are both {INDEX} and {WEIGHTS}: remove the wrong one"
        )
    data = read_json(index)
    places = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(places, dict) or not places:
        raise CheckpointError(f"{index}: weight_map must name a file for each tensor")
    for name, file in places.items():
        if not _is_plain_name(file):
            raise CheckpointError(
                f"{index}: the tensor {name} is in {file!r}, not a plain file name"
            )
        if not (folder / file).is_file():
            raise CheckpointError(f"{folder / file}: no such file, but {INDEX} puts {name} into it")
    return places, index


def _is_plain_name(file: object) -> bool:
    """Return whether a value of the index is a file name without a folder, on every system."""
    if not isinstance(file, str) or file.startswith("."):
        return False
    return Path(file).name == file and "\\" not in file


def read_header(path: Path) -> Iterator[StoredTensor]:
    """Yield the tensors of a safetensors file, once the library has checked it.

    Raises CheckpointError.
    """
    try:
        # The library checks that the tensors fill the file without gaps, so that it refuses
        # truncated downloads.
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
        offset = 8 + length + item["data_offsets"][0]
        yield StoredTensor(name, path.name, real, offset, item["dtype"], tuple(item["shape"]))
