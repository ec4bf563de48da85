"""The input layout "packed" for a CPU, whose attention takes bounded memory.

ONNX Runtime's attention on a CPU holds the scores of all pairs of tokens, `heads * width^2` of
them. Above `WIDEST` places, queries come in blocks of so many that a head has at most `SCORES`
scores at a time. Each block sees all its keys at once, so that softmax is as exact as before, and
keys that a causal mask or a window hides from a whole block are left out.

Shorter texts, which may share a batch, keep the single operator and so their bits. CUDA has flash
attention and graphs of its own (`graph.cuda_layouts`).
"""

from __future__ import annotations

import onnx_ir as ir

from vcs_export.graph.attention_layouts import Packed

WIDEST = 2048
"""Places of the widest batch whose attention is computed at once."""

SCORES = WIDEST**2
"""Scores of a head in one block of queries, at most; at least one query is in it."""


class CpuPacked(Packed):
    """The layout `Packed` with attention over blocks of queries for wide batches."""

    def _window_bias(self, places: ir.Value, reach: int) -> ir.Value:
        """Return the bias of narrow batches.

        In wide ones each block makes its own, and this is `(1, 1)`.
        """
        graph = self.graph
        width = graph.op("Shape", places)
        wide = graph.op("Greater", width, graph.int_scalar(WIDEST))
        stop = graph.op("Where", wide, graph.ints(1), width)
        return super()._window_bias(
            graph.op("Slice", places, graph.ints(0), stop, graph.ints(0)), reach
        )

    def _attention_of_padded(
        self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool
    ) -> ir.Value:
        """Attend, and take the padding away."""
        return self.graph.choice(
            self.graph.op("Greater", self._width, self.graph.int_scalar(WIDEST)),
            lambda: self._in_blocks(query, key, value, local),
            lambda: super(CpuPacked, self)._attention_of_padded(query, key, value, local),
        )

    def _in_blocks(self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool) -> ir.Value:
        """Attend with a block of queries at a time, and take the padding away."""
        graph, config = self.graph, self.config
        width, one = self._width, graph.int_scalar(1)
        most = graph.op("Max", graph.op("Div", graph.int_scalar(SCORES), width), one)
        count = self._quotient(width, most)
        rows = self._quotient(width, count)
        groups = config.num_key_value_heads
        # Heads first once, or the operator would copy keys and values for each block.
        keys, values = self._by_head(key, groups), self._by_head(value, groups)

        def of_block(number: ir.Value) -> ir.Value:
            start = graph.op("Mul", number, rows)
            places = graph.op("Range", start, graph.op("Add", start, rows), one)
            # The last block is full, too: the last query is in it several times.
            places = graph.op("Min", places, graph.op("Sub", width, one))
            return self._of_block(places, query, keys, values, local)

        seen = graph.repeat(count, of_block)  # (blocks, batch, rows, heads * size)
        flat = graph.op(
            "Reshape", seen, graph.ints(-1, config.num_attention_heads * config.head_dim)
        )
        text, place = (graph.op(kind, self._scatter, width) for kind in ("Div", "Mod"))
        block, row = (graph.op(kind, place, rows) for kind in ("Div", "Mod"))
        batch = graph.op("Squeeze", graph.op("Shape", self._lengths))
        before = graph.op("Add", graph.op("Mul", block, batch), text)
        return graph.op("Gather", flat, graph.op("Add", graph.op("Mul", before, rows), row))

    def _of_block(
        self, block: ir.Value, query: ir.Value, keys: ir.Value, values: ir.Value, local: bool
    ) -> ir.Value:
        """Attend with the queries at the positions `block` `(rows,)`.

        The result is `(batch, rows, heads * size)`.
        """
        graph, config = self.graph, self.config
        heads = config.num_attention_heads
        reach = config.local.reach if local and config.local else None
        # Rows of a block are in order.
        first, last = (graph.op("Gather", block, graph.ints(place)) for place in (0, -1))
        start, stop = graph.ints(0), graph.op("Unsqueeze", self._width, graph.ints(0))
        if reach is not None:
            start = graph.op("Max", graph.op("Sub", first, graph.int_scalar(reach)), start)
        if config.causal or reach is not None:
            end = graph.op("Add", last, graph.int_scalar(1 if config.causal else 1 + (reach or 0)))
            stop = graph.op("Min", end, stop)
            keys, values = (
                graph.op("Slice", x, start, stop, graph.ints(2)) for x in (keys, values)
            )
        bias = (
            self._bias_of_block(block, start, stop, reach)
            if config.causal or reach is not None
            else None
        )
        lengths = None
        if not config.causal:
            ends = graph.op("Min", self._lengths, stop)
            # A row of padding may see nothing: it must not become NaN before it is taken away.
            lengths = graph.op("Max", graph.op("Sub", ends, start), graph.ints(1))
        seen = graph.op(
            "Attention",
            self._by_head(graph.op("Gather", query, block, axis=1), heads),
            *(keys, values, bias),
            *(() if lengths is None else (None, None, lengths)),
            **self._scale(),
        )
        joined = graph.op("Transpose", seen, perm=[0, 2, 1, 3])
        return graph.op("Reshape", joined, graph.ints(0, 0, heads * config.head_dim))

    def _bias_of_block(
        self, block: ir.Value, start: ir.Value, stop: ir.Value, reach: int | None
    ) -> ir.Value:
        """Return what is added to the scores of a block, `(rows, stop - start)`."""
        graph = self.graph
        columns = graph.op(
            "Range", *(graph.op("Squeeze", end) for end in (start, stop)), graph.int_scalar(1)
        )
        return self._bias(self._seen(block, columns, reach))

    def _by_head(self, x: ir.Value, heads: int) -> ir.Value:
        """Turn `(batch, places, heads * size)` into `(batch, heads, places, size)`."""
        graph = self.graph
        split = graph.op("Reshape", x, graph.ints(0, 0, heads, self.config.head_dim))
        return graph.op("Transpose", split, perm=[0, 2, 1, 3])

    def _quotient(self, number: ir.Value, divisor: ir.Value) -> ir.Value:
        """Divide and round up."""
        graph = self.graph
        more = graph.op("Sub", graph.op("Add", number, divisor), graph.int_scalar(1))
        return graph.op("Div", more, divisor)
