"""An encoder's float32 graph with its weights and products in fp16, for a strongly typed network.

Products with weights, products of attention, and tables of rows become fp16. All between them
stays float32: biases, Softmax, norms, GELU, sums of layers and the pooling. So do the inputs and
outputs of the graph.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from vcs_export.errors import ExportError

_PRODUCTS = {"MatMul", "Gemm"}
# Operators that may lie between the first product of attention and Softmax.
_SCORES = {"Add", "Div", "Mul", "Where"}


def write_half(model: Path, folder: Path) -> Path:
    """Write the graph and its weights into a folder, in half precision; return the graph's path.

    Raises ExportError if a weight is beyond fp16's largest number.
    """
    # The reader refuses a file of weights with several links, as a bundle's may have.
    source = shutil.copytree(model.parent, folder / "float32", copy_function=shutil.copyfile)
    loaded = ir.load(source / model.name)
    graph = loaded.graph
    nodes = list(graph)
    attention: set[ir.Node] = set()
    for node in nodes:
        if node.op_type == "Softmax":
            attention.update(_attention(node))
    for node in attention:
        _scale_query(graph, node)
    halves: dict[ir.Value, ir.Value] = {}
    for node in nodes:
        if node in attention or (node.op_type in _PRODUCTS and _is_stored(node.inputs[1])):
            _halve(graph, node, node.inputs, halves)
        elif node.op_type == "Gather" and _is_stored(node.inputs[0]):
            _halve(graph, node, node.inputs[:1], halves)
    unused = [name for name, value in graph.initializers.items() if not value.uses()]
    for name in unused:
        del graph.initializers[name]
    written = folder / model.name
    ir.save(loaded, written, external_data=f"{model.name}.data")
    return written


def _is_stored(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and value.dtype == ir.DataType.FLOAT


def _attention(softmax: ir.Node) -> Iterator[ir.Node]:
    """Yield the products before and after the Softmax of attention."""
    before = [softmax]
    while before:
        for node in before.pop().predecessors():
            if node.op_type in _SCORES:
                before.append(node)
            elif node.op_type == "MatMul":
                yield node
    yield from (use.node for use in softmax.outputs[0].uses() if use.node.op_type == "MatMul")


def _scale_query(graph: ir.Graph, product: ir.Node) -> None:
    """Scale the query instead of the scores, which may be beyond fp16's largest number."""
    [scores] = product.outputs
    [use, *more] = scores.uses()
    scale = use.node
    if more or use.idx != 0 or scale.op_type not in ("Div", "Mul"):
        return
    if not _is_stored(scale.inputs[1]):
        return
    # Move the scale before the product: it reads the query, and the product reads its result.
    scale.outputs[0].replace_all_uses_with(scores)
    scale.replace_input_with(0, product.inputs[0])
    product.replace_input_with(0, scale.outputs[0])
    graph.remove(scale)
    graph.insert_before(product, scale)


def _halve(
    graph: ir.Graph,
    node: ir.Node,
    inputs: Sequence[ir.Value | None],
    halves: dict[ir.Value, ir.Value],
) -> None:
    """Let a node read its first inputs in fp16, and others read its output in float32."""
    for place, value in enumerate(inputs):
        if value is not None:
            if value not in halves:
                halves[value] = _half(graph, node, value)
            node.replace_input_with(place, halves[value])
    [output] = node.outputs
    cast = ir.node("Cast", [output], {"to": int(ir.DataType.FLOAT)}, name=f"{node.name}.wide")
    [wide] = cast.outputs
    output.replace_all_uses_with(wide, replace_graph_outputs=True)
    cast.replace_input_with(0, output)
    # The widened value takes over the name, type and shape.
    wide.name = output.name
    wide.type = output.type
    wide.shape = output.shape
    output.name = f"{output.name}.half"
    output.type = None
    graph.insert_after(node, cast)


def _half(graph: ir.Graph, node: ir.Node, value: ir.Value) -> ir.Value:
    """Return a weight in fp16, or the fp16 Cast of another value.

    The Cast is inserted before `node`, the first node that reads the value in fp16.
    """
    name = f"{value.name}.fp16"
    if not value.const_value:
        cast = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, name=name)
        cast.outputs[0].name = name
        graph.insert_before(node, cast)
        return cast.outputs[0]
    with np.errstate(over="ignore"):
        numbers = value.const_value.numpy().astype(np.float16)
    if not np.isfinite(numbers).all():
        raise ExportError(f"{value.name} has numbers beyond fp16's largest one: use cuda:N")
    half = ir.Value(
        name=name,
        const_value=ir.tensor(numbers, name=name),
        shape=ir.Shape(numbers.shape),
        type=ir.TensorType(ir.DataType.FLOAT16),
    )
    graph.register_initializer(half)
    return half
