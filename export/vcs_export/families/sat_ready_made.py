"""SaT's ready-made graphs (`model.onnx`, `model_optimized.onnx`), checked and copied as they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from vcs_export.checkpoint.transformer import TOKENIZER
from vcs_export.checkpoint.xlm_roberta import READY_MADE, SatConfig
from vcs_export.errors import CheckpointError, os_reason
from vcs_export.graph.transformer import INPUTS
from vcs_export.graph.xlm_roberta import OUTPUT

_PRECISIONS = {ir.DataType.FLOAT: "fp32", ir.DataType.FLOAT16: "fp16"}


@dataclass(frozen=True)
class ReadyMade:
    """A ready-made graph."""

    path: Path
    weights: tuple[Path, ...]  # files beside it
    precision: str

    def copy(self, place: Callable[[str], Path], model: str) -> tuple[str, ...]:
        """Copy the graph and its weights to the places of their names in a bundle, and return the names."""
        folder = model.rpartition("/")[0]
        names = (model, *(f"{folder}/{path.name}" for path in self.weights))
        for path, name in zip((self.path, *self.weights), names, strict=True):
            shutil.copyfile(path, place(name))
        return names


def open_ready_made(path: Path, config: SatConfig) -> ReadyMade:
    """Check a ready-made graph: inputs, output, and the size of its embeddings. Raises CheckpointError."""
    try:
        graph = ir.load(path).graph
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {os_reason(error)}") from None
    except Exception as error:  # the parser has no error class for damaged bytes
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise CheckpointError(f"{path}: not an ONNX file: {reason}") from None
    inputs, outputs = ([value.name for value in values] for values in (graph.inputs, graph.outputs))
    if sorted(map(str, inputs)) != sorted(INPUTS) or outputs != [OUTPUT]:
        raise CheckpointError(
            f"{path}: {', '.join(INPUTS)} in and {OUTPUT} out were expected, not {inputs} and {outputs}"
        )
    tensors = [value.const_value for value in graph.initializers.values() if value.const_value is not None]
    shape = (config.vocab_size, config.hidden_size)
    tables = [tensor for tensor in tensors if tuple(tensor.shape) == shape]
    if not tables:
        raise CheckpointError(f"{path}: no table of embeddings of the shape {shape} that config.json implies")
    if tables[0].dtype not in _PRECISIONS:
        raise CheckpointError(f"{path}: embeddings of type {tables[0].dtype.name} are not supported")
    if quantised := sorted({node.op_type for node in graph if "Integer" in node.op_type}):
        raise CheckpointError(f"{path}: quantised already ({', '.join(quantised)}): export it from fp32")
    weights = {str(tensor.location) for tensor in tensors if isinstance(tensor, ir.ExternalTensor)}
    return ReadyMade(
        path, tuple(_beside(path, name) for name in sorted(weights)), _PRECISIONS[tables[0].dtype]
    )


def _beside(path: Path, name: str) -> Path:
    weights = path.parent / name
    # A link is accepted, because hubs' caches consist of links: its target is copied.
    if name != weights.name or "\\" in name or not weights.is_file():
        raise CheckpointError(f"{path}: its tensors are in {name!r}, which is not a file beside it")
    if name in (*READY_MADE, TOKENIZER):
        raise CheckpointError(f"{path}: its tensors are in {name!r}, a name that the bundle uses otherwise")
    return weights
