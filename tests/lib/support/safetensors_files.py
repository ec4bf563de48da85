"""Safetensors files of any float type, written and read without the package's own code.

The library's own writer for NumPy has no bfloat16.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

Array = NDArray[np.float64]
Tensors = dict[str, NDArray[np.float32]]
_TYPES = {
    "F64": ir.DataType.DOUBLE,
    "F32": ir.DataType.FLOAT,
    "F16": ir.DataType.FLOAT16,
    "BF16": ir.DataType.BFLOAT16,
}


def write_safetensors(path: Path, tensors: Tensors, dtype: str = "F32") -> None:
    """Write one file; `dtype` is how numbers are stored, as safetensors names it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    contents, end = [], 0
    for name, tensor in tensors.items():
        content = tensor.astype(_TYPES[dtype].numpy()).tobytes()
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [end, end + len(content)],
        }
        contents.append(content)
        end += len(content)
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(start).to_bytes(8, "little") + start + b"".join(contents))


def write_shards(folder: Path, tensors: Tensors, dtype: str = "F32", shards: int = 1) -> None:
    """Write a checkpoint's tensors into `shards` files, with an index if there is more than one."""
    names = sorted(tensors)
    parts = [names[i::shards] for i in range(shards)]
    files = ["model.safetensors"]
    if shards > 1:
        files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
        places = {name: file for file, part in zip(files, parts, strict=True) for name in part}
        index = {"metadata": {"total_size": sum(t.size for t in tensors.values())}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    for file, part in zip(files, parts, strict=True):
        write_safetensors(folder / file, {name: tensors[name] for name in part}, dtype)


class StoredTensors(Mapping[str, Array]):
    """The tensors of all safetensors files in a folder, float64. Each is read when it is asked for."""

    def __init__(self, folder: Path) -> None:
        self._places: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                size = int.from_bytes(file.read(8), "little")
                header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            self._places |= {name: (path, 8 + size, entry) for name, entry in header.items()}

    def __getitem__(self, name: str) -> Array:
        path, start, entry = self._places[name]
        first, end = entry["data_offsets"]
        kind = np.dtype(_TYPES[entry["dtype"]].numpy())
        found = np.fromfile(path, kind, (end - first) // kind.itemsize, offset=start + first)
        return found.reshape(entry["shape"]).astype(np.float64)

    def rows(self, name: str, which: list[int]) -> Array:
        """Some rows of a matrix that may be large."""
        path, start, entry = self._places[name]
        count, width = entry["shape"]
        kind = np.dtype(_TYPES[entry["dtype"]].numpy())
        step = width * kind.itemsize
        assert 0 <= min(which) <= max(which) < count, name
        first = start + entry["data_offsets"][0]
        found = [np.fromfile(path, kind, width, offset=first + row * step) for row in which]
        return np.array(found).astype(np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
