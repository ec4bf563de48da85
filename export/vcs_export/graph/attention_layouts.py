"""Input layouts of a decoder's graph: without padding ("packed"), or padded and with a mask ("masked").

Linear layers see tokens as rows, `(tokens, width)`, in every layout. Only rotation by position, attention and
the mean of a text, which bring tokens together, depend on the layout; and the operators of norms, gates and
sums, of which each runtime has its fastest.

"packed" is for ONNX Runtime on a CPU. There is no padding except around the attention, which gets no mask,
because a mask keeps it from the fastest kernels. "masked" is for TensorRT. Its parser needs four dimensions
and a mask, would ignore lengths, and has failed on the operators RotaryEmbedding and RMSNormalization, which
are therefore spelt out. "varlen" is for CUDA (`graph.cuda_layouts`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.streamed import FLOAT, StreamedGraph


class Layout(ABC):
    """The inputs of one graph, and the operations that depend on their layout."""

    def __init__(self, graph: StreamedGraph, config: DecoderConfig) -> None:
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

    def rms_norm(self, x: ir.Value, weight: StoredTensor, kind: ir.DataType) -> ir.Value:
        """Divide rows of x, float32, by their root mean square, and multiply with weight; of type kind."""
        stored = self.graph.stored(weight, FLOAT)
        return self.graph.cast(self._rms_norm(x, stored), kind, FLOAT)

    def gated(self, gate: ir.Value, up: ir.Value) -> ir.Value:
        """Return SiLU of gate, multiplied with up."""
        graph = self.graph
        return graph.op("Mul", graph.op("Mul", gate, graph.op("Sigmoid", gate)), up)

    def add(self, x: ir.Value, addend: ir.Value) -> ir.Value:
        """Add to x, float32, an addend of the type in which matrices are multiplied."""
        return self.graph.op("Add", x, self.graph.exact(addend))

    @abstractmethod
    def attention(self, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        """Attend within each text, with query and key rotated by position: `(tokens, heads * size)`."""

    @abstractmethod
    def mean(self, x: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return the mean, float32 `(batch, width)`, of each text's pooled rows of x `(tokens, width)`.

        The type of x is `kind`.
        """

    def _rms_norm(self, x: ir.Value, weight: ir.Value) -> ir.Value:
        """Return the norm in float32."""
        return self.graph.op("RMSNormalization", x, weight, axis=-1, epsilon=self.config.rms_norm_eps)

    def _attend(self, *inputs: ir.Value | None, **attributes: int) -> ir.Value:
        return self.graph.op("Attention", *inputs, is_causal=int(self.config.causal), **attributes)

    def _weighted(self, pooled: ir.Value, padded: ir.Value) -> ir.Value:
        """Return the mean of `padded` `(batch, places, width)` where `pooled` `(batch, places)` is true."""
        graph = self.graph
        mask = graph.op("Cast", pooled, to=int(FLOAT))
        count = graph.op("ReduceSum", mask, graph.ints(1), keepdims=1)
        row = graph.op("Div", mask, graph.op("Max", count, graph.scalar(1.0)))
        # A product for each text makes its sum independent of its place in the batch.
        total = graph.op("MatMul", graph.op("Unsqueeze", row, graph.ints(1)), padded)
        return graph.op("Squeeze", total, graph.ints(1))


class Packed(Layout):
    """The layout with all texts' tokens one after the other.

    The inputs are int64:

    - `input_ids` `(tokens,)`;
    - `gather` `(batch, width)`, the row of the token at each padded place, or any row at padding;
    - `scatter` `(tokens,)`, each token's place in the flattened `(batch * width)`;
    - `lengths` `(batch,)`, the number of tokens of each text;
    - `skip` `(batch,)`, how many first tokens of each text are not pooled.
    """

    def __init__(self, graph: StreamedGraph, config: DecoderConfig) -> None:
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
        """The token ids `(tokens,)`."""
        return self._ids

    def attention(self, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        """Pad the tokens, rotate, attend with lengths, and take the padding away."""
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        queries, keys, values = (self._padded(x) for x in (query, key, value))
        return self._attention_of_padded(self._rotated(queries, heads), self._rotated(keys, groups), values)

    def _padded(self, x: ir.Value) -> ir.Value:
        return self.graph.op("Gather", x, self._gather)

    def _attention_of_padded(self, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        """Attend with lengths, and take the padding away."""
        graph = self.graph
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        inputs = (query, key, value, None, None, None, self._lengths)
        padded = self._attend(*inputs, q_num_heads=heads, kv_num_heads=groups)
        flat = graph.op("Reshape", padded, graph.ints(-1, heads * self.config.head_dim))
        return graph.op("Gather", flat, self._scatter)

    def mean(self, x: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return the mean of the tokens that `skip` leaves."""
        graph = self.graph
        return self._weighted(self._pooled, self._padded(graph.cast(x, FLOAT, kind)))

    def _rotated(self, x: ir.Value, heads: int) -> ir.Value:
        # Padding is rotated too: ONNX Runtime refuses more tokens in a row than there are positions.
        return self.graph.op("RotaryEmbedding", x, *self._tables, self._positions, num_heads=heads)


class Masked(Layout):
    """The layout with texts padded to one length, tokens to the left.

    The inputs are int64 `(batch, tokens)`: `input_ids`; `attention_mask`, 1 where there is a token; and
    `pool_mask`, 1 where there is a token that is pooled.
    """

    def __init__(self, graph: StreamedGraph, config: DecoderConfig) -> None:
        ids, mask, pooled = (
            graph.input(name, ("batch", "tokens")) for name in ("input_ids", "attention_mask", "pool_mask")
        )
        super().__init__(graph, config)
        self._ids = graph.op("Reshape", ids, graph.ints(-1))
        self._batch = graph.op("Shape", ids, start=0, end=1)
        self._tokens = graph.op("Shape", ids, start=1, end=2)
        visible = graph.op("Cast", mask, to=int(ir.DataType.BOOL))
        # All tokens of a text see the same tokens, but ONNX Runtime needs a row for each.
        square = graph.op("Concat", graph.ints(1, 1), self._tokens, graph.ints(1), axis=0)
        self._visible = graph.op("Expand", graph.op("Unsqueeze", visible, graph.ints(1, 2)), square)
        self._pooled = graph.op("Cast", pooled, to=int(ir.DataType.BOOL))
        self._rows = [
            graph.op("Slice", table, graph.ints(0), self._tokens, graph.ints(0)) for table in self._tables
        ]

    @property
    def ids(self) -> ir.Value:
        """The token ids `(tokens,)`."""
        return self._ids

    def attention(self, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        """Attend with a mask."""
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

    def mean(self, x: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return the mean of the tokens in `pool_mask`."""
        graph = self.graph
        shape = graph.op("Concat", self._batch, self._tokens, graph.ints(-1), axis=0)
        return self._weighted(self._pooled, graph.op("Reshape", graph.cast(x, FLOAT, kind), shape))

    def _rms_norm(self, x: ir.Value, weight: ir.Value) -> ir.Value:
        """Normalise by elementary operators."""
        graph = self.graph
        square = graph.op("ReduceMean", graph.op("Mul", x, x), graph.ints(-1), keepdims=1)
        root = graph.op("Sqrt", graph.op("Add", square, graph.scalar(self.config.rms_norm_eps)))
        return graph.op("Mul", graph.op("Div", x, root), weight)

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


def rotation_tables(config: DecoderConfig) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return cosine and sine of each position's angles, `(positions, size / 2)`, float32.

    The angles are rounded to float32, with which models are trained. At position 30,000 the rounding is 1e-3
    of a turn of the fastest pair, so exact angles would be different ones.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    frequencies = np.float32(1) / np.power(np.float32(config.rope_theta), exponents)
    positions = np.arange(config.max_position_embeddings, dtype=np.float32)
    angles = (positions[:, None] * frequencies).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
