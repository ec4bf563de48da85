"""The input layout "packed" for a CPU, whose attention takes bounded memory.

ONNX Runtime's attention on a CPU holds the scores of all pairs of tokens, `heads * width^2`
numbers. Above `WIDEST` places the queries come in blocks, so that a head has at most `SCORES`
scores at a time. A block sees all its keys at once, so that softmax is as exact as before. Keys
that a causal mask or a window hides from a whole block are skipped.

Shorter texts, which may share a batch, are computed by the single operator, with the same bits.
CUDA has flash attention, and other graphs (`graph.cuda_layouts`).
"""

from __future__ import annotations

from functools import partial

import onnx_ir as ir

from vcs_export.graph.attention_layouts import Packed

WIDEST = 2048
"""Width of the widest batch whose attention is computed at once."""

SCORES = WIDEST**2
"""Most scores of a head in one block of queries. A block has at least one query."""


class CpuPacked(Packed):
    """The layout `Packed` with attention over blocks of queries for wide batches."""

    def _window_bias(self, places: ir.Value, reach: int) -> ir.Value:
        """Return the bias of narrow batches.

        It is `(1, 1)` in wide batches, where each block computes its bias.
        """
        graph = self.graph
        width = graph.op("Shape", places)
        wide = graph.op("Greater", width, graph.int_scalar(WIDEST))
        stop = graph.op("Where", wide, graph.ints(1), width)
        needed = graph.op("Slice", places, graph.ints(0), stop, graph.ints(0))
        return super()._window_bias(needed, reach)

    def _attention_of_padded(
        self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool
    ) -> ir.Value:
        """Attend, and take the padding away."""
        return self.graph.choice(
            self.graph.op("Greater", self._width, self.graph.int_scalar(WIDEST)),
            partial(self._in_blocks, query, key, value, local),
            partial(super()._attention_of_padded, query, key, value, local),
        )

    def _in_blocks(self, query: ir.Value, key: ir.Value, value: ir.Value, local: bool) -> ir.Value:
        """Attend with a block of queries at a time, and take the padding away."""
        graph, config = self.graph, self.config
        width, one = self._width, graph.int_scalar(1)
        # As few blocks as the limit of scores allows, all with the same number of rows.
        most = graph.op("Max", graph.op("Div", graph.int_scalar(SCORES), width), one)
        count = self._quotient(width, most)
        rows = self._quotient(width, count)
        # Heads come first before the loop, or the operator would copy keys and values in each turn.
        keys = self._by_head(key, config.num_key_value_heads)
        values = self._by_head(value, config.num_key_value_heads)

        def of_block(number: ir.Value) -> ir.Value:
            start = graph.op("Mul", number, rows)
            places = graph.op("Range", start, graph.op("Add", start, rows), one)
            # The last block is full too, because it repeats the last query.
            places = graph.op("Min", places, graph.op("Sub", width, one))
            return self._of_block(places, query, keys, values, local)

        seen = graph.repeat(count, of_block)  # (blocks, batch, rows, heads * size)
        flat = graph.op(
            "Reshape", seen, graph.ints(-1, config.num_attention_heads * config.head_dim)
        )
        # `scatter` numbers the places text by text. The result is ordered by blocks, then by texts.
        text = graph.op("Div", self._scatter, width)
        place = graph.op("Mod", self._scatter, width)
        block = graph.op("Div", place, rows)
        row = graph.op("Mod", place, rows)
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
        start, stop = self._visible_keys(block, reach)
        bias = None
        if config.causal or reach is not None:
            keys = graph.op("Slice", keys, start, stop, graph.ints(2))
            values = graph.op("Slice", values, start, stop, graph.ints(2))
            bias = self._bias_of_block(block, start, stop, reach)
        lengths: list[ir.Value | None] = []
        if not config.causal:
            ends = graph.op("Min", self._lengths, stop)
            # A row of padding may see nothing, and must not become NaN before it is dropped.
            count = graph.op("Max", graph.op("Sub", ends, start), graph.ints(1))
            # The two empty inputs before the lengths are past keys and values.
            lengths = [None, None, count]
        queries = self._by_head(graph.op("Gather", query, block, axis=1), heads)
        seen = graph.op("Attention", queries, keys, values, bias, *lengths, **self._scale())
        joined = graph.op("Transpose", seen, perm=[0, 2, 1, 3])
        return graph.op("Reshape", joined, graph.ints(0, 0, heads * config.head_dim))

    def _visible_keys(self, block: ir.Value, reach: int | None) -> tuple[ir.Value, ir.Value]:
        """Return the first key that a block of queries may see, and the end, each `(1,)`."""
        graph, config = self.graph, self.config
        # The positions of a block are in order.
        first = graph.op("Gather", block, graph.ints(0))
        last = graph.op("Gather", block, graph.ints(-1))
        start = graph.ints(0)
        stop = graph.op("Unsqueeze", self._width, graph.ints(0))
        if reach is not None:
            start = graph.op("Max", graph.op("Sub", first, graph.int_scalar(reach)), start)
        if config.causal:
            stop = graph.op("Min", graph.op("Add", last, graph.int_scalar(1)), stop)
        elif reach is not None:
            stop = graph.op("Min", graph.op("Add", last, graph.int_scalar(1 + reach)), stop)
        return start, stop

    def _bias_of_block(
        self, block: ir.Value, start: ir.Value, stop: ir.Value, reach: int | None
    ) -> ir.Value:
        """Return the bias of the scores of a block, `(rows, stop - start)`."""
        graph = self.graph
        first = graph.op("Squeeze", start)
        end = graph.op("Squeeze", stop)
        columns = graph.op("Range", first, end, graph.int_scalar(1))
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
