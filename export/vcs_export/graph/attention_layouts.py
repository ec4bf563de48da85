"""Input layouts of a decoder's graph: "packed" for a CPU here, others in `graph.cuda_layouts`.

Linear layers see tokens as rows, `(tokens, width)`, in every layout. Rotation by position,
attention and pooling bring tokens together, so they depend on the layout. So do norms, gates and
sums, for which runtimes have different operators.

In "packed" only the attention sees padding. It gets no mask, except in layers with a window,
because a mask rules out the fastest kernels. In a causal model padding comes after all tokens, so
that no token sees it, and lengths are not needed either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from vcs_export.checkpoint.decoder import DecoderConfig, Llama3Scaling, Rotation
from vcs_export.checkpoint.safetensors_reader import StoredTensor
from vcs_export.graph.nodes import Graph
from vcs_export.graph.streamed import FLOAT, StreamedGraph
from vcs_runtime.bundle.layouts import padded_length

# Added to the score of a hidden token: its weight becomes 0, and no type overflows.
_HIDDEN = -30000.0


class Layout(ABC):
    """The inputs of one graph, and the operations that depend on their layout."""

    def __init__(self, graph: StreamedGraph, config: DecoderConfig) -> None:
        self.graph = graph
        self.config = config
        self._tables = {config.rotation: self._table_pair("rotation", config.rotation)}
        if config.local is not None and config.local.rotation not in self._tables:
            self._tables[config.local.rotation] = self._table_pair(
                "rotation.local", config.local.rotation
            )

    @property
    @abstractmethod
    def ids(self) -> ir.Value:
        """The token ids `(tokens,)`."""

    def rms_norm(self, x: ir.Value, weight: StoredTensor, kind: ir.DataType) -> ir.Value:
        """RMS-normalise the float32 rows x, multiply by `weight`, and cast the result to `kind`."""
        return self.graph.cast(self._rms_norm(x, self._norm_weight(weight, FLOAT)), kind, FLOAT)

    def head_norm(self, x: ir.Value, weight: StoredTensor, heads: int) -> ir.Value:
        """RMS-normalise each head of x `(tokens, heads * size)`.

        x and the result have the type in which matrices are multiplied.
        """
        graph, size = self.graph, self.config.head_dim
        split = graph.op("Reshape", x, graph.ints(-1, heads, size))
        normed = self.rms_norm(graph.exact(split), weight, graph.compute)
        return graph.op("Reshape", normed, graph.ints(-1, heads * size))

    def gated(self, gate: ir.Value, up: ir.Value) -> ir.Value:
        """Return the activation of gate, multiplied with up."""
        graph = self.graph
        if self.config.activation == "gelu_tanh":
            return graph.op("Mul", graph.op("Gelu", gate, approximate="tanh"), up)
        return graph.op("Mul", graph.op("Mul", gate, graph.op("Sigmoid", gate)), up)

    def add(self, x: ir.Value, addend: ir.Value) -> ir.Value:
        """Add to x, float32, an addend of the type in which matrices are multiplied."""
        return self.graph.op("Add", x, self.graph.exact(addend))

    @abstractmethod
    def attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool = False
    ) -> ir.Value:
        """Rotate query and key by position, and attend within each text: `(tokens, heads * size)`.

        If `local` is true, a token sees only near tokens, and the rotation of such layers applies.
        """

    @abstractmethod
    def mean(self, x: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return the float32 mean `(batch, width)` of a text's pooled rows of x `(tokens, width)`.

        The type of x is `kind`.
        """

    @abstractmethod
    def last(self, x: ir.Value) -> ir.Value:
        """Return each text's last-token row of x `(tokens, width)`, as `(batch, width)`."""

    def _table_pair(self, prefix: str, rotation: Rotation) -> tuple[ir.Value, ir.Value]:
        graph = self.graph
        # The runtime pads to such lengths.
        positions = padded_length(self.config.max_position_embeddings)
        cosines, sines = rotation_tables(rotation, self.config.head_dim, positions)
        return (
            graph.array(f"{prefix}.cosines", cosines, graph.compute),
            graph.array(f"{prefix}.sines", sines, graph.compute),
        )

    def _rotation(self, local: bool) -> Rotation:
        """Return the rotation of layers with or without a window."""
        window = self.config.local if local else None
        return window.rotation if window else self.config.rotation

    def _norm_weight(self, weight: StoredTensor, kind: ir.DataType) -> ir.Value:
        """Add the weight of a norm, with its offset."""
        if not self.config.norm_offset:
            return self.graph.stored(weight, kind)
        self.graph.used(weight.nbytes)
        shifted = weight.rows() + self.config.norm_offset
        return self.graph.array(f"{weight.name}.offset", shifted, kind)

    def _rms_norm(self, x: ir.Value, weight: ir.Value) -> ir.Value:
        """Return the norm in float32."""
        return self.graph.op(
            "RMSNormalization", x, weight, axis=-1, epsilon=self.config.rms_norm_eps
        )

    def _scale(self) -> dict[str, float]:
        """Return the attribute for the scale of scores, if it is not the operators' default."""
        scale = self.config.attention_scale
        return {} if scale is None else {"scale": scale}

    def _seen(self, queries: ir.Value, keys: ir.Value, reach: int | None) -> ir.Value:
        """Return which keys each query may see, given their positions, bool `(queries, keys)`."""
        graph, causal = self.graph, self.config.causal
        rows = graph.op("Unsqueeze", queries, graph.ints(1))
        columns = graph.op("Unsqueeze", keys, graph.ints(0))
        before = graph.op("Sub", rows, columns)
        conditions = []
        if causal:
            conditions.append(graph.op("GreaterOrEqual", before, graph.int_scalar(0)))
        if reach is not None:
            distance = before if causal else graph.op("Abs", before)
            conditions.append(graph.op("LessOrEqual", distance, graph.int_scalar(reach)))
        return conditions[0] if len(conditions) == 1 else graph.op("And", *conditions)


class Packed(Layout):
    """The layout with all texts' tokens one after the other.

    The inputs are int64:

    - `input_ids` `(tokens,)`;
    - `gather` `(batch, width)`, the row of the token at each padded place, any row for padding;
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
        self._width = graph.op("Squeeze", graph.op("Shape", self._gather, start=1, end=2))
        places = graph.op("Range", graph.int_scalar(0), self._width, graph.int_scalar(1))
        self._near = None
        if config.local is not None:
            self._near = self._window_bias(places, config.local.reach)
        self._positions = graph.op("Expand", places, graph.op("Shape", self._gather))
        # A text's tokens are pooled from `skip` to its last one. Padding comes after them.
        ends = graph.op("Unsqueeze", self._lengths, graph.ints(1))
        before_end = graph.op("Less", places, ends)
        starts = graph.op("Unsqueeze", skip, graph.ints(1))
        self._pooled = graph.op("And", before_end, graph.op("GreaterOrEqual", places, starts))

    @property
    def ids(self) -> ir.Value:
        """The token ids `(tokens,)`."""
        return self._ids

    def attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool = False
    ) -> ir.Value:
        """Pad the tokens, rotate, attend, and take the padding away."""
        heads, groups = self.config.num_attention_heads, self.config.num_key_value_heads
        query = self._padded(query)
        key = self._padded(key)
        value = self._padded(value)
        query = self._rotated(query, heads, local)
        key = self._rotated(key, groups, local)
        return self._attention_of_padded(query, key, value, local)

    def last(self, x: ir.Value) -> ir.Value:
        """Return the rows of last tokens."""
        graph = self.graph
        ends = graph.op("CumSum", self._lengths, graph.int_scalar(0))
        return graph.op("Gather", x, graph.op("Sub", ends, graph.int_scalar(1)))

    def _padded(self, x: ir.Value) -> ir.Value:
        return self.graph.op("Gather", x, self._gather)

    def _window_bias(self, places: ir.Value, reach: int) -> ir.Value:
        """Return the bias of scores in layers with a window, `(width, width)`."""
        return self._bias(self._seen(places, places, reach))

    def _bias(self, seen: ir.Value) -> ir.Value:
        """Return the bias of scores that hides the keys which a query may not see."""
        graph = self.graph
        return graph.computed(graph.op("Where", seen, graph.scalar(0.0), graph.scalar(_HIDDEN)))

    def _attention_of_padded(
        self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool
    ) -> ir.Value:
        """Attend, and take the padding away."""
        graph, config = self.graph, self.config
        heads = config.num_attention_heads
        inputs = [query, key, value, self._near if local else None]
        if not config.causal:
            # The two empty inputs before the lengths are past keys and values.
            inputs += [None, None, self._lengths]
        # The bias of a window hides later tokens already. The kernel for a CPU would copy it in
        # each layer to make it causal.
        causal = config.causal and not local
        padded = graph.op(
            "Attention",
            *inputs,
            is_causal=int(causal),
            q_num_heads=heads,
            kv_num_heads=config.num_key_value_heads,
            **self._scale(),
        )
        flat = graph.op("Reshape", padded, graph.ints(-1, heads * config.head_dim))
        return graph.op("Gather", flat, self._scatter)

    def mean(self, x: ir.Value, kind: ir.DataType) -> ir.Value:
        """Return the mean of each text's tokens from `skip` on."""
        graph = self.graph
        padded = self._padded(graph.cast(x, FLOAT, kind))
        mask = graph.op("Cast", self._pooled, to=int(FLOAT))
        count = graph.op("ReduceSum", mask, graph.ints(1), keepdims=1)
        row = graph.op("Div", mask, graph.op("Max", count, graph.scalar(1.0)))
        # A product for each text makes its sum independent of its place in the batch.
        total = graph.op("MatMul", graph.op("Unsqueeze", row, graph.ints(1)), padded)
        return graph.op("Squeeze", total, graph.ints(1))

    def _rotated(self, x: ir.Value, heads: int, local: bool) -> ir.Value:
        # Padding is rotated too, because ONNX Runtime refuses rows with more tokens than positions.
        return self.graph.op(
            "RotaryEmbedding",
            x,
            *self._tables[self._rotation(local)],
            self._positions,
            num_heads=heads,
        )


def rotated(graph: Graph, x: ir.Value, size: int, tables: Sequence[ir.Value]) -> ir.Value:
    """Rotate heads x `(..., size)` by elementary operators, with tables of cosines and sines."""
    cosines, sines = tables
    left = graph.op("Slice", x, graph.ints(0), graph.ints(size // 2), graph.ints(-1))
    right = graph.op("Slice", x, graph.ints(size // 2), graph.ints(size), graph.ints(-1))
    return graph.op(
        "Concat",
        graph.op("Sub", graph.op("Mul", left, cosines), graph.op("Mul", right, sines)),
        graph.op("Add", graph.op("Mul", right, cosines), graph.op("Mul", left, sines)),
        axis=-1,
    )


def rotation_tables(
    rotation: Rotation, size: int, positions: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return cosine and sine of each position's angles, `(positions, size / 2)`, float32.

    The angles are rounded to float32, as in training. At position 30,000 the rounding is 1e-3 of a
    turn of the fastest pair, so that exact angles would give other results.
    """
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    # Powers in single precision differ between machines. These equal PyTorch's on a CPU, except for
    # about one frequency in a hundred.
    powers = np.power(np.float64(rotation.theta), exponents.astype(np.float64)).astype(np.float32)
    frequencies = np.float32(1) / powers
    if isinstance(rotation.scaling, Llama3Scaling):
        frequencies = _llama3(frequencies, rotation.scaling)
    elif rotation.scaling is not None:
        frequencies = frequencies / np.float32(rotation.scaling)
    angles = (np.arange(positions, dtype=np.float32)[:, None] * frequencies).astype(np.float64)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _llama3(frequencies: NDArray[np.float32], scaling: Llama3Scaling) -> NDArray[np.float32]:
    """Scale frequencies as Llama 3.1 does, each step rounded to float32."""
    low = scaling.low_freq_factor
    high = scaling.high_freq_factor
    window = scaling.original_max_position_embeddings
    wavelengths = 2 * np.pi / frequencies
    few_turns = wavelengths > window / low
    many_turns = wavelengths < window / high
    # In between, the share of the unscaled frequency grows with the number of turns.
    share = (window / wavelengths - low) / (high - low)
    between = (1 - share) * frequencies / scaling.factor + share * frequencies
    unless_few = np.where(many_turns, frequencies, between)
    return np.where(few_turns, frequencies / scaling.factor, unless_few)
