"""A tiny SaT model with the inputs and outputs of the hub's files: float16 mask and logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from vcs_runtime.bundle.opening import Bundle, open_bundle


def write_hub_model(source: Path, target: Path) -> Path:
    """Write the model `source`, weights included, with a float16 mask and float16 logits."""
    model = ir.load(source)
    graph = model.graph
    mask = next(value for value in graph.inputs if value.name == "attention_mask")
    half = ir.Value(
        name="attention_mask", shape=mask.shape, type=ir.TensorType(ir.DataType.FLOAT16)
    )
    mask.name = "attention_mask_int64"
    cast = ir.node("Cast", [half], {"to": ir.DataType.INT64})
    cast.outputs[0].name = "attention_mask_cast"
    ir.convenience.replace_all_uses_with(mask, cast.outputs[0])
    graph.inputs[list(graph.inputs).index(mask)] = half
    graph.insert_before(graph[0], cast)
    logits = graph.outputs[0]
    last = ir.node("Cast", [logits], {"to": ir.DataType.FLOAT16})
    logits.name, last.outputs[0].name = "logits_as_computed", "logits"
    last.outputs[0].shape, last.outputs[0].type = logits.shape, ir.TensorType(ir.DataType.FLOAT16)
    graph.append(last)
    graph.outputs[0] = last.outputs[0]
    for value in graph.initializers.values():
        # Nothing outside.
        value.const_value = ir.tensor(value.const_value.numpy().copy(), name=value.name)
    ir.save(model, target)
    return target


@dataclass(frozen=True)
class Substitute(Bundle):
    """A bundle in which other files take the place of the segmenter's."""

    files: dict[str, Path]

    @classmethod
    def of(cls, folder: Path, **files: Path) -> Substitute:
        bundle = open_bundle(folder)
        return cls(bundle.root, bundle.manifest, files)

    def path(self, relative: str) -> Path:
        kind = Path(relative).name.split(".")[0]
        return self.files.get(kind, super().path(relative))
