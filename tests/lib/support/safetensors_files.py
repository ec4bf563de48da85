"""Safetensors files of any float type, read without the package's own reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.checkpoints.files import STORED_TYPES

Array = NDArray[np.float64]


class StoredTensors(Mapping[str, Array]):
    """The tensors of all safetensors files in a folder, float64, each read on request."""

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
        kind = np.dtype(STORED_TYPES[entry["dtype"]].numpy())
        found = np.fromfile(path, kind, (end - first) // kind.itemsize, offset=start + first)
        return found.reshape(entry["shape"]).astype(np.float64)

    def rows(self, name: str, which: list[int]) -> Array:
        """Some rows of a matrix that may be large."""
        path, start, entry = self._places[name]
        count, width = entry["shape"]
        kind = np.dtype(STORED_TYPES[entry["dtype"]].numpy())
        step = width * kind.itemsize
        assert 0 <= min(which) <= max(which) < count, name
        first = start + entry["data_offsets"][0]
        found = [np.fromfile(path, kind, width, offset=first + row * step) for row in which]
        return np.array(found).astype(np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
