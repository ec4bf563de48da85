"""The nodes of a graph, over onnx-ir: names are generated, and constants are small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

_PRODUCER = "vcs-runtime"
# The oldest file format for each operator set. Readers refuse files that are too new.
_IR_VERSIONS = {17: 8, 18: 8, 23: 11, 24: 12}
_MICROSOFT = "com.microsoft"


class Graph:
    """The nodes and small constants of one graph.

    Nodes must be added after the values that they read.

    Names follow from the order of the calls, so that the same calls give the same bytes.
    """

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self._float: np.dtype[Any] = np.dtype(np.float32)
        self._inputs: list[ir.Value] = []
        self._nodes: list[ir.Node] = []
        self._prefix = ""  # of the names of nodes of an inner graph
        self._constants: dict[str, ir.Value] = {}

    def input(self, name: str, shape: Sequence[str | int]) -> ir.Value:
        """Add an int64 input. Dimensions are sizes or names."""
        value = ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(ir.DataType.INT64))
        self._inputs.append(value)
        return value

    def op(
        self, kind: str, *inputs: ir.Value | None, **attributes: int | float | str | Sequence[int]
    ) -> ir.Value:
        """Add a standard operator with one output. None stands for an omitted input."""
        return self._node("", kind, inputs, attributes)

    def microsoft_op(
        self, kind: str, *inputs: ir.Value | None, **attributes: int | float | str
    ) -> ir.Value:
        """Add an operator of ONNX Runtime with one output."""
        return self._node(_MICROSOFT, kind, inputs, attributes)

    def choice(
        self, condition: ir.Value, yes: Callable[[], ir.Value], no: Callable[[], ir.Value]
    ) -> ir.Value:
        """Return the value of `yes` if a condition holds, else the value of `no`.

        Only one of them is computed. Both functions add the nodes of an inner graph, which may read
        all values of this one.
        """
        branches = {
            "then_branch": self._inner("then_branch", [], lambda: [yes()]),
            "else_branch": self._inner("else_branch", [], lambda: [no()]),
        }
        return self._node("", "If", [condition], branches)

    def repeat(self, count: ir.Value, of_turn: Callable[[ir.Value], ir.Value]) -> ir.Value:
        """Run `of_turn` `count` times, and stack the equally shaped results as `(count, ...)`.

        OpenVINO refuses a Scan whose inner graph reads values of the outer one, which Loop may do.
        """
        always = self._constant("true", np.array(True))
        turn = self._scalar_input("turn", ir.DataType.INT64)
        go_on = self._scalar_input("go_on", ir.DataType.BOOL)

        def body() -> tuple[ir.Value, ir.Value]:
            return self.op("Identity", go_on), of_turn(turn)

        attributes = {"body": self._inner("body", [turn, go_on], body)}
        return self._node("", "Loop", [count, always], attributes)

    def _scalar_input(self, name: str, kind: ir.DataType) -> ir.Value:
        """Return an input of an inner graph of the next node."""
        unique = f"{self._prefix}{name}_{len(self._nodes)}"
        return ir.Value(name=unique, shape=ir.Shape(()), type=ir.TensorType(kind))

    def ints(self, *values: int) -> ir.Value:
        """Return a constant int64 vector, stored in the graph's file."""
        return self._constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def int_scalar(self, value: int) -> ir.Value:
        """Return a constant int64 scalar, stored in the graph's file."""
        return self._constant(f"int_{value}", np.array(value, np.int64))

    def scalar(self, value: float) -> ir.Value:
        """Return a constant float scalar, stored in the graph's file."""
        return self._constant(f"scalar_{value!r}", np.array(value, self._float))

    def _write(
        self,
        output: ir.Value,
        name: str,
        shape: Sequence[str | int],
        model: Path,
        weights: Sequence[ir.Value],
    ) -> None:
        """Write the graph with its float32 output `name`."""
        output.name = name
        output.shape = ir.Shape(shape)
        output.type = ir.TensorType(ir.DataType.FLOAT)
        opsets = {"": self.opset}
        if any(node.domain == _MICROSOFT for node in self._nodes):
            opsets[_MICROSOFT] = 1
        graph = ir.Graph(
            self._inputs,
            [output],
            nodes=self._nodes,
            initializers=[*self._constants.values(), *weights],
            opset_imports=opsets,
            name="encoder",
        )
        version = _IR_VERSIONS[self.opset]
        proto = ir.to_proto(ir.Model(graph, ir_version=version, producer_name=_PRODUCER))
        model.write_bytes(proto.SerializeToString(deterministic=True))

    def _node(
        self, domain: str, kind: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]
    ) -> ir.Value:
        name = f"{self._prefix}{kind}_{len(self._nodes)}"
        output = ir.Value(name=f"{name}_out")
        self._nodes.append(
            ir.node(kind, inputs, attributes, domain=domain, outputs=[output], name=name)
        )
        return output

    def _inner(
        self, name: str, inputs: Sequence[ir.Value], compute: Callable[[], Sequence[ir.Value]]
    ) -> ir.Attr:
        """Return a graph attribute `name` for the next node, with the nodes that `compute` adds."""
        outer = self._nodes, self._prefix
        self._nodes, self._prefix = [], f"{self._prefix}{len(self._nodes)}.{name}."
        try:
            outputs = compute()
            graph = ir.Graph(inputs, outputs, nodes=self._nodes, name=self._prefix.rstrip("."))
            return ir.AttrGraph(name, graph)
        finally:
            self._nodes, self._prefix = outer

    def _constant(self, name: str, array: NDArray[Any]) -> ir.Value:
        if name not in self._constants:
            tensor = ir.tensor(array, name=name)
            self._constants[name] = ir.Value(
                name=name,
                shape=ir.Shape(array.shape),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
        return self._constants[name]
