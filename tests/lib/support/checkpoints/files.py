"""The files of a made-up checkpoint: settings, and safetensors of any float type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

Tensors = dict[str, NDArray[np.float32]]

STORED_TYPES = {  # as safetensors names them
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
        content = tensor.astype(STORED_TYPES[dtype].numpy()).tobytes()
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
        index = {
            "metadata": {"total_size": sum(t.size for t in tensors.values())},
            "weight_map": places,
        }
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    for file, part in zip(files, parts, strict=True):
        write_safetensors(folder / file, {name: tensors[name] for name in part}, dtype)


def write_json(path: Path, data: Any) -> None:
    """Write a JSON file, and its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def drawn(
    rng: np.random.Generator, *shape: int, centre: float = 0.0, scale: float | None = None
) -> NDArray[np.float32]:
    """Draw normal numbers, by default as wide as keeps the lengths of a matrix's inputs."""
    spread = 1.2 / np.sqrt(shape[-1]) if scale is None else scale
    return (centre + spread * rng.standard_normal(shape)).astype(np.float32)
