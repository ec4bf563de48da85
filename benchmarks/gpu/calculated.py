"""What NV-Embed-v2 should reach on an H200, calculated: no GPU is needed, and none was asked.

    python benchmarks/gpu/calculated.py

The time of a batch is the sum over its kernels. A matrix product takes its operations over the measured rate of a bare
one (fp16: 788 TFLOP/s on one H200; FP8: twice that, which nobody here has measured), or, if longer, its weights over
the measured rate of a copy (4.3 TB/s). Any other kernel takes the bytes that it reads and writes over the rate of a
copy, or over half of it: kernels seldom reach a copy's rate, so a result is a range. Each kernel starts 2 us after the
one before. Host, tokenizer, the latents' small products, and what GemmFloat8 waits at each call are left out. `measure.py` replaces these figures.
"""

from __future__ import annotations

from dataclasses import dataclass

from weights import size
from work import SHAPES

FP16_RATE, FP8_RATE = 788e12, 2 * 788e12  # operations a second
COPY_RATE = 4.3e12  # bytes read and written a second
_SLOWER = 0.5  # the least share of it that other kernels reach
_GAP = 2e-6  # seconds
GRAPHS = (("packed", "fp16"), ("varlen", "fp16"), ("varlen", "int8"), ("varlen", "fp8"))
"""Layouts and precisions."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a layer: bytes that it reads and writes for each token (weights apart), and how many there are."""

    name: str
    bytes: int
    count: int = 1


def kernels(layout: str, precision: str) -> list[Kernel]:
    """Return the kernels of a layer that are neither products nor attention."""
    config = size(False).decoder
    hidden, wide = config.hidden_size, config.intermediate_size
    keys = config.num_key_value_heads * config.head_dim
    # fp16 has 2 bytes; sums and norms are float32, with 4.
    if layout == "packed":
        found = [
            Kernel("norm", 8 * hidden, 2),
            Kernel("cast of a norm to fp16", 6 * hidden, 2),
            Kernel("padding of queries", 4 * hidden),
            Kernel("padding of keys, of values", 4 * keys, 2),
            Kernel("rotation of queries", 4 * hidden),
            Kernel("rotation of keys", 4 * keys),
            Kernel("padding taken away", 4 * hidden),
            Kernel("cast of an addend to float32", 6 * hidden, 2),
            Kernel("addition", 12 * hidden, 2),
            Kernel("SiLU", 4 * wide),
            Kernel("gate", 6 * wide),
            Kernel("lengths for the attention", 0),
        ]
    else:
        found = [
            Kernel("norm to fp16", 6 * hidden, 2),
            Kernel("rotation of queries", 4 * hidden),
            Kernel("rotation of keys", 4 * keys),
            Kernel("keys, values repeated for all heads", 2 * keys + 2 * hidden, 2),
            Kernel("addition of fp16 to float32", 10 * hidden, 2),
            Kernel("SiLU and gate", 6 * wide),
        ]
    if precision == "fp8":
        found += [Kernel("rounding to FP8", 3 * hidden, 3), Kernel("rounding to FP8, wide", 3 * wide)]
    return found


def products(precision: str, tokens: int) -> tuple[float, int]:
    """Return the seconds of a layer's products for a batch, and how many kernels they are."""
    config = size(False).decoder
    hidden, wide = config.hidden_size, config.intermediate_size
    keys = config.num_key_value_heads * config.head_dim
    matrices = [hidden * hidden, hidden * keys, hidden * keys, hidden * hidden, *[hidden * wide] * 3]
    rate, bytes_ = (FP8_RATE, 1) if precision == "fp8" else (FP16_RATE, 2)
    seconds = sum(max(2 * tokens * numbers / rate, bytes_ * numbers / COPY_RATE) for numbers in matrices)
    if precision == "int8":  # each is widened before its product: a byte read, two written
        seconds += sum(3 * numbers / COPY_RATE for numbers in matrices)
    return seconds, len(matrices) * (2 if precision == "int8" else 1)


def attention(layout: str, lengths: list[int]) -> tuple[float, int]:
    """Return the operations of a layer's attention, and the bytes that it reads and writes."""
    config = size(False).decoder
    queries = config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim if layout == "packed" else queries
    return sum(4.0 * length**2 * queries for length in lengths), sum(lengths) * (4 * queries + 4 * keys)


def milliseconds(layout: str, precision: str, lengths: list[int], share: float) -> float:
    """Return the milliseconds of a batch where kernels beside products reach a share of the copy's rate."""
    config = size(False).decoder
    tokens = sum(lengths)
    others = kernels(layout, precision)
    seconds, count = products(precision, tokens)
    operations, moved = attention(layout, lengths)
    seconds += max(operations / (share * FP16_RATE), moved / (share * COPY_RATE))
    seconds += sum(kernel.count * kernel.bytes for kernel in others) * tokens / (share * COPY_RATE)
    seconds += _GAP * (count + 1 + sum(kernel.count for kernel in others))
    return 1e3 * seconds * config.num_hidden_layers


@dataclass(frozen=True)
class Calculated:
    """The range of a figure."""

    least: float
    most: float


def latency(layout: str, precision: str, lengths: list[int]) -> Calculated:
    """Return the milliseconds of a batch."""
    return Calculated(*(milliseconds(layout, precision, lengths, share) for share in (1.0, _SLOWER)))


def tokens_a_second(layout: str, precision: str, lengths: list[int]) -> Calculated:
    """Return the tokens a second of such batches."""
    time = latency(layout, precision, lengths)
    return Calculated(1e3 * sum(lengths) / time.most, 1e3 * sum(lengths) / time.least)


def text(layout: str, precision: str, shape: str) -> str:
    """Return the figure of a shape: milliseconds of one pair, otherwise tokens a second."""
    if shape == "one pair":
        time = latency(layout, precision, SHAPES[shape])
        return f"{time.least:.0f} to {time.most:.0f} ms"
    rate = tokens_a_second(layout, precision, SHAPES[shape])
    return f"{rate.least / 1e3:.0f}k to {rate.most / 1e3:.0f}k"


def main() -> None:
    print(f"{'':14}{'kernels':>8}" + "".join(f"{shape:>16}" for shape in SHAPES))
    for layout, precision in GRAPHS:
        count = sum(kernel.count for kernel in kernels(layout, precision))
        cells = "".join(f"{text(layout, precision, shape):>16}" for shape in SHAPES)
        print(f"{f'{layout}, {precision}':14}{count:8}{cells}")
    print("kernels: of a layer, beside its products and its attention")
    print("figures: tokens a second, or milliseconds of the texts of one pair")


if __name__ == "__main__":
    main()
