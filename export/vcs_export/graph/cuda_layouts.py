"""Input layouts of a decoder's graph for ONNX Runtime's CUDA provider: "varlen", or else "packed".

Their operators are single fused kernels of the provider, and mostly missing on a CPU:

- GatedRMSNorm multiplies with the SiLU of a gate, with a single rounding.
- PackedMultiHeadAttention attends within texts of any lengths, without padding. It takes fp16, and
  as many heads of keys and values as of queries. It is not causal, and has no windows.
- RMSNormalization reads float32 and writes fp16. From bf16 it writes only bf16, which is enough for
  the norms of heads.

Causal models, windows and bf16 therefore keep padding around their attention, as in `Packed`.
Their attention is flash attention, either with lengths or causal: with lengths, the provider
aligns a causal mask at the last token of each text. Layers with a window add a bias, for which it
has a fused kernel if the padded width is a multiple of 4.

With "varlen", the mean of a text's tokens has two steps. Tokens are added in groups of
`POOL_GROUP`, each of them separate in memory, so that no sum depends on the text's place in its
batch. Then the groups are added.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from vcs_export.checkpoint.decoder import DecoderConfig
from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.attention_layouts import Layout, Packed
from vcs_export.graph.nodes import Graph
from vcs_export.graph.streamed import FLOAT, StreamedGraph
from vcs_runtime.bundle.layouts import POOL_GROUP

# GatedRMSNorm divides by the root of the mean square plus this number. In float32 a mean square
# below 64 vanishes beside it, so that the divisor is 2^15 to the bit, which the norm's weights of
# 2^15 undo. A mean square of 10^4 would change the last of fp16's 11 bits by a hundredth.
_HUGE = 2.0**30
_ROOT = 2.0**15


class _Fused(Layout):
    """The fused kernels for fp16 and bf16, and rotation without padding."""

    def _prepare(self, positions: ir.Value) -> None:
        """Add the operators' constants, given each token's position in its text, `(tokens,)`."""
        graph = self.graph
        self._token_positions = graph.op("Unsqueeze", positions, graph.ints(1))
        if self.config.activation == "silu":
            self._silu_weight = graph.array(
                "silu.weight", np.full(self.config.intermediate_size, _ROOT), graph.compute
            )

    def rms_norm(self, x: ir.Value, weight: StoredTensor, kind: ir.DataType) -> ir.Value:
        """Normalise in float32, and round once.

        In fp16 one kernel does both, with the weight in fp16.
        """
        if kind == ir.DataType.FLOAT16:
            return self._rms_norm(x, self._norm_weight(weight, kind))
        return super().rms_norm(x, weight, kind)

    def head_norm(self, x: ir.Value, weight: StoredTensor, heads: int) -> ir.Value:
        """Normalise heads in one kernel, which computes in float32."""
        graph, size = self.graph, self.config.head_dim
        split = graph.op("Reshape", x, graph.ints(-1, heads, size))
        normed = self._rms_norm(split, self._norm_weight(weight, graph.compute))
        return graph.op("Reshape", normed, graph.ints(-1, heads * size))

    def gated(self, gate: ir.Value, up: ir.Value) -> ir.Value:
        """Return SiLU of gate, multiplied with up, in one kernel; other activations in two."""
        if self.config.activation != "silu":
            return super().gated(gate, up)
        return self.graph.microsoft_op(
            "GatedRMSNorm", up, self._silu_weight, gate, activation="silu", epsilon=_HUGE
        )

    def _rotated_tokens(self, x: ir.Value, heads: int, local: bool) -> ir.Value:
        """Rotate rows `(tokens, heads * size)`."""
        # Each token is taken as a text of one token, so that each may have any position.
        graph = self.graph
        rows = graph.op("Unsqueeze", x, graph.ints(1))
        tables = self._tables[self._rotation(local)]
        rotated = graph.op("RotaryEmbedding", rows, *tables, self._token_positions, num_heads=heads)
        return graph.op("Squeeze", rotated, graph.ints(1))


class CudaPacked(_Fused, Packed):
    """The layout `Packed` with CUDA's fused kernels."""

    def __init__(self, graph: StreamedGraph, config: DecoderConfig) -> None:
        super().__init__(graph, config)
        flat = graph.op("Reshape", self._positions, graph.ints(-1))
        self._prepare(graph.op("Gather", flat, self._scatter))

    def attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool = False
    ) -> ir.Value:
        """Rotate tokens, pad them, attend, and take the padding away."""
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        query = self._rotated_tokens(query, heads, local)
        key = self._rotated_tokens(key, groups, local)
        return self._attention_of_padded(
            self._padded(query), self._padded(key), self._padded(value), local
        )


class Texts:
    """The inputs of a graph that takes all texts' tokens in one row, and their pooling.

    The inputs are int64:

    - `input_ids` `(tokens,)`;
    - `positions` `(tokens,)`, each token's place in its text;
    - `starts` `(batch + 1,)`, the row of each text's first token, and the number of tokens;
    - `places` `(batch, width)`, the places of tokens in texts padded to `width`, then the places
      of padding;
    - `pool` `(groups, POOL_GROUP)`, the rows of pooled tokens of a text, then -1;
    - `owners` `(groups,)`, the text of each group;
    - `counts` `(batch,)`, the number of pooled tokens of each text.

    Without `pooled` there are only the first four. Call `prepare` before `attention`, and
    `prepare_mean` before `mean`.
    """

    def __init__(self, graph: Graph, pooled: bool = True) -> None:
        self._graph = graph
        self.ids = graph.input("input_ids", ("tokens",))
        self.positions = graph.input("positions", ("tokens",))
        self._bounds = graph.input("starts", ("starts",))
        self._places = graph.input("places", ("batch", "width"))
        if pooled:
            self._pool = graph.input("pool", ("groups", POOL_GROUP))
            self._owners = graph.input("owners", ("groups",))
            self._counts = graph.input("counts", ("batch",))

    def prepare(self) -> None:
        """Convert the inputs that attention takes as int32."""
        self._starts = self._graph.op("Cast", self._bounds, to=int(ir.DataType.INT32))
        self._places = self._graph.op("Cast", self._places, to=int(ir.DataType.INT32))

    def prepare_mean(self) -> None:
        """Compute the weights of tokens and groups."""
        graph = self._graph
        # Tokens weigh 1 in their group. The padding of a group reads the row -1, and weighs 0.
        real = graph.op("GreaterOrEqual", self._pool, graph.int_scalar(0))
        self._in_group = graph.op("Unsqueeze", graph.op("Cast", real, to=int(FLOAT)), graph.ints(1))
        # Groups weigh 1 / (tokens of the text) in the mean of their text, and 0 in all others.
        batch = graph.op("Squeeze", graph.op("Shape", self._counts))
        texts = graph.op("Range", graph.int_scalar(0), batch, graph.int_scalar(1))
        of_text = graph.op("Equal", graph.op("Unsqueeze", texts, graph.ints(1)), self._owners)
        size = graph.op("Unsqueeze", graph.op("Cast", self._counts, to=int(FLOAT)), graph.ints(1))
        self._of_groups = graph.op("Div", graph.op("Cast", of_text, to=int(FLOAT)), size)

    def attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, heads: int, **scale: float
    ) -> ir.Value:
        """Attend within each text; all are fp16."""
        return self._graph.microsoft_op(
            "PackedMultiHeadAttention",
            query,
            key,
            value,
            None,
            self._places,
            self._starts,
            num_heads=heads,
            **scale,
        )

    def first(self, x: ir.Value) -> ir.Value:
        """Return the rows of first tokens."""
        graph = self._graph
        starts = graph.op("Slice", self._bounds, graph.ints(0), graph.ints(-1), graph.ints(0))
        return graph.op("Gather", x, starts)

    def last(self, x: ir.Value) -> ir.Value:
        """Return the rows of last tokens."""
        graph, most = self._graph, np.iinfo(np.int64).max
        ends = graph.op("Slice", self._bounds, graph.ints(1), graph.ints(most), graph.ints(0))
        return graph.op("Gather", x, graph.op("Sub", ends, graph.int_scalar(1)))

    def mean(self, x: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return the mean of the pooled tokens, float32; x has the type `kind`."""
        graph = self._graph
        rows = graph.op("Gather", x, self._pool)
        if kind != FLOAT:
            rows = graph.op("Cast", rows, to=int(FLOAT))
        sums = graph.op("Squeeze", graph.op("MatMul", self._in_group, rows), graph.ints(1))
        return graph.op("MatMul", self._of_groups, sums)


class Varlen(_Fused):
    """The layout with all texts' tokens in one row, with the inputs of `Texts`."""

    def __init__(self, graph: StreamedGraph, config: DecoderConfig) -> None:
        if config.causal or config.local is not None or graph.compute != ir.DataType.FLOAT16:
            raise ValueError(
                "PackedMultiHeadAttention has no causal attention, no windows, and only fp16"
            )
        self._texts = Texts(graph)
        super().__init__(graph, config)
        self._prepare(self._texts.positions)
        self._texts.prepare()
        self._texts.prepare_mean()

    @property
    def ids(self) -> ir.Value:
        """The token ids `(tokens,)`."""
        return self._texts.ids

    def attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool = False
    ) -> ir.Value:
        """Rotate, repeat keys and values for all heads, and attend."""
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        return self._texts.attention(
            self._rotated_tokens(query, heads, local),
            self._repeated(self._rotated_tokens(key, groups, local)),
            self._repeated(value),
            heads,
            **self._scale(),
        )

    def last(self, x: ir.Value) -> ir.Value:
        """Return the rows of last tokens."""
        return self._texts.last(x)

    def mean(self, x: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return the mean of the pooled tokens."""
        return self._texts.mean(x, kind)

    def _repeated(self, x: ir.Value) -> ir.Value:
        """Repeat heads of keys or values, so that there are as many as of queries."""
        graph, config = self.graph, self.config
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        if heads == groups:
            return x
        split = graph.op("Reshape", x, graph.ints(-1, groups, 1, config.head_dim))
        repeated = graph.op("Expand", split, graph.ints(1, 1, heads // groups, 1))
        return graph.op("Reshape", repeated, graph.ints(-1, heads * config.head_dim))
