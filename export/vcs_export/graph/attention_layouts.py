"""How texts lie in a decoder's graph: without padding ("packed"), or padded and with a mask ("masked").

Linear layers and norms see tokens as rows, `(tokens, width)`, whatever the layout; only what brings tokens
together - rotation by position, attention, the mean of a text - asks the layout. "packed" is for ONNX
Runtime on CUDA and CPU: no padding but around the attention, which gets no mask, because a mask keeps it
from the fastest kernels. "masked" is for TensorRT: its parser wants four dimensions and a mask, would
ignore lengths, and has failed on the operators RotaryEmbedding and RMSNormalization, which are therefore
spelt out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.graph.streamed import FLOAT, LargeGraph

OPSETS = {"packed": 24, "masked": 23}


class Layout(ABC):
    """The inputs of one graph, and what is done with their places."""

    def __init__(self, graph: LargeGraph, config: DecoderConfig) -> None:
        self.graph = graph
        self.config = config
        cosines, sines = rotation_tables(config)
        self._tables = [
            graph.array(f"rotation.{name}", table, graph.compute)
            for name, table in (("cosines", cosines), ("sines", sines))
        ]

    @property
    @abstractmethod
    def ids(self) -> ir.Value:
        """The token ids `(tokens,)`."""

    @abstractmethod
    def rms_norm(self, x: ir.Value, weight: ir.Value) -> ir.Value:
        """Rows of x divided by their root mean square, times weight; all float32."""

    @abstractmethod
    def attention(self, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        """Attention within each text, with query and key rotated by position: `(tokens, heads * size)`."""

    @abstractmethod
    def mean(self, x: ir.Value) -> ir.Value:
        """The mean `(batch, width)` of each text's pooled rows of x `(tokens, width)`; float32."""

    def _attend(self, *inputs: ir.Value | None, **attributes: int) -> ir.Value:
        return self.graph.op("Attention", *inputs, is_causal=int(self.config.causal), **attributes)

    def _weighted(self, pooled: ir.Value, padded: ir.Value) -> ir.Value:
        """The mean of `padded` `(batch, places, width)` where the bool `pooled` `(batch, places)` is true."""
        graph = self.graph
        mask = graph.op("Cast", pooled, to=int(FLOAT))
        count = graph.op("ReduceSum", mask, graph.ints(1), keepdims=1)
        row = graph.op("Div", mask, graph.op("Max", count, graph.scalar(1.0)))
        # As a product, text by text, so that a text's sum does not depend on where it lies in the batch.
        total = graph.op("MatMul", graph.op("Unsqueeze", row, graph.ints(1)), padded)
        return graph.op("Squeeze", total, graph.ints(1))


class Packed(Layout):
    """All texts' tokens one after the other.

    Inputs, int64: `input_ids` (tokens,); `gather` (batch, width), for each padded place the row of its
    token (padding: any row); `scatter` (tokens,), each token's place in the flattened (batch * width);
    `lengths` (batch,), the tokens of each text; `skip` (batch,), how many of its first are not pooled.
    """

    def __init__(self, graph: LargeGraph, config: DecoderConfig) -> None:
        self._ids = graph.input("input_ids", ("tokens",))
        self._gather = graph.input("gather", ("batch", "width"))
        self._scatter = graph.input("scatter", ("tokens",))
        self._lengths = graph.input("lengths", ("batch",))
        skip = graph.input("skip", ("batch",))
        super().__init__(graph, config)
        width = graph.op("Squeeze", graph.op("Shape", self._gather, start=1, end=2))
        places = graph.op("Range", graph.int_scalar(0), width, graph.int_scalar(1))
        self._positions = graph.op("Expand", places, graph.op("Shape", self._gather))
        self._pooled = graph.op(
            "And",
            graph.op("Less", places, graph.op("Unsqueeze", self._lengths, graph.ints(1))),
            graph.op("GreaterOrEqual", places, graph.op("Unsqueeze", skip, graph.ints(1))),
        )

    @property
    def ids(self) -> ir.Value:
        return self._ids

    def rms_norm(self, x: ir.Value, weight: ir.Value) -> ir.Value:
        return self.graph.op("RMSNormalization", x, weight, axis=-1, epsilon=self.config.rms_norm_eps)

    def attention(self, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        graph = self.graph
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        queries, keys, values = (graph.op("Gather", x, self._gather) for x in (query, key, value))
        inputs = (self._rotated(queries, heads), self._rotated(keys, groups), values)
        padded = self._attend(
            *inputs, None, None, None, self._lengths, q_num_heads=heads, kv_num_heads=groups
        )
        flat = graph.op("Reshape", padded, graph.ints(-1, heads * self.config.head_dim))
        return graph.op("Gather", flat, self._scatter)

    def mean(self, x: ir.Value) -> ir.Value:
        return self._weighted(self._pooled, self.graph.op("Gather", x, self._gather))

    def _rotated(self, x: ir.Value, heads: int) -> ir.Value:
        # Padding is rotated too: of all tokens in one row, ONNX Runtime would allow no more than positions.
        return self.graph.op("RotaryEmbedding", x, *self._tables, self._positions, num_heads=heads)


class Masked(Layout):
    """Texts padded to one length, tokens to the left.

    Inputs, int64 (batch, tokens): `input_ids`; `attention_mask`, 1 where there is a token; `pool_mask`, 1
    where there is one that is pooled.
    """

    def __init__(self, graph: LargeGraph, config: DecoderConfig) -> None:
        ids, mask, pooled = (
            graph.input(name, ("batch", "tokens")) for name in ("input_ids", "attention_mask", "pool_mask")
        )
        super().__init__(graph, config)
        self._ids = graph.op("Reshape", ids, graph.ints(-1))
        self._batch = graph.op("Shape", ids, start=0, end=1)
        self._tokens = graph.op("Shape", ids, start=1, end=2)
        visible = graph.op("Cast", mask, to=int(ir.DataType.BOOL))
        # Every token of a text sees the same; ONNX Runtime wants a row for each of them nevertheless.
        square = graph.op("Concat", graph.ints(1, 1), self._tokens, graph.ints(1), axis=0)
        self._visible = graph.op("Expand", graph.op("Unsqueeze", visible, graph.ints(1, 2)), square)
        self._pooled = graph.op("Cast", pooled, to=int(ir.DataType.BOOL))
        self._rows = [
            graph.op("Slice", table, graph.ints(0), self._tokens, graph.ints(0)) for table in self._tables
        ]

    @property
    def ids(self) -> ir.Value:
        return self._ids

    def rms_norm(self, x: ir.Value, weight: ir.Value) -> ir.Value:
        graph = self.graph
        square = graph.op("ReduceMean", graph.op("Mul", x, x), graph.ints(-1), keepdims=1)
        root = graph.op("Sqrt", graph.op("Add", square, graph.scalar(self.config.rms_norm_eps)))
        return graph.op("Mul", graph.op("Div", x, root), weight)

    def attention(self, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        graph = self.graph
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        out = self._attend(
            self._rotated(self._split(query, heads)),
            self._rotated(self._split(key, groups)),
            self._split(value, groups),
            self._visible,
        )
        joined = graph.op("Transpose", out, perm=[0, 2, 1, 3])
        return graph.op("Reshape", joined, graph.ints(-1, heads * self.config.head_dim))

    def mean(self, x: ir.Value) -> ir.Value:
        graph = self.graph
        shape = graph.op("Concat", self._batch, self._tokens, graph.ints(-1), axis=0)
        return self._weighted(self._pooled, graph.op("Reshape", x, shape))

    def _split(self, x: ir.Value, heads: int) -> ir.Value:
        graph = self.graph
        shape = graph.op("Concat", self._batch, self._tokens, graph.ints(heads, self.config.head_dim), axis=0)
        return graph.op("Transpose", graph.op("Reshape", x, shape), perm=[0, 2, 1, 3])

    def _rotated(self, x: ir.Value) -> ir.Value:
        graph, half = self.graph, self.config.head_dim // 2
        cosines, sines = self._rows
        left = graph.op("Slice", x, graph.ints(0), graph.ints(half), graph.ints(-1))
        right = graph.op("Slice", x, graph.ints(half), graph.ints(2 * half), graph.ints(-1))
        return graph.op(
            "Concat",
            graph.op("Sub", graph.op("Mul", left, cosines), graph.op("Mul", right, sines)),
            graph.op("Add", graph.op("Mul", right, cosines), graph.op("Mul", left, sines)),
            axis=-1,
        )


LAYOUTS: dict[str, type[Layout]] = {"packed": Packed, "masked": Masked}


def rotation_tables(config: DecoderConfig) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Cosine and sine of each position's angles: `(positions, size / 2)`, float32.

    The angles are rounded to float32 as models are trained with: at position 30,000 that is 1e-3 of a turn
    of the fastest pair, so better angles would be other ones.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = np.float32(1) / np.power(np.float32(config.rope_theta), exponents)
    positions = np.arange(config.max_position_embeddings, dtype=np.float32)
    angles = (positions[:, None] * frequencies).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
