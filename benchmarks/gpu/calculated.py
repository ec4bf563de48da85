"""What decoders should reach on a GPU, calculated: no GPU is needed, and none was asked.

    python benchmarks/gpu/calculated.py

The time of a batch is the sum over its kernels. A matrix product takes its operations over the measured rate of a bare
one (fp16: 788 TFLOP/s on one H200; FP8: twice that, which nobody here has measured), or, if longer, its weights over
the measured rate of a copy (4.3 TB/s). Any other kernel takes the bytes that it reads and writes over the rate of a
copy, or over half of it: kernels seldom reach a copy's rate, so a result is a range. Each kernel starts 2 us after the
one before. Host, tokenizer, what stands behind the last layer, and what GemmFloat8 waits at each call are left out.
`measure.py` replaces these figures.

The first table is NV-Embed-v2. The second one has the decoders of `models/*.toml` in fp16 or bf16, with their graph for
CUDA: 1,000 pairs of two texts of 600 tokens, each once as a whole and once as 23 sentences, in full batches. Windows of
local layers are not counted, since most of these texts are shorter. Nobody here has measured an A100. It is taken to
reach the same share of its published rates as the H200 does.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from weights import size
from work import SHAPES

from vcs_export.checkpoint.decoder import DecoderConfig


@dataclass(frozen=True)
class Gpu:
    """A GPU: its matrix products of 16 bits, in operations a second; bytes that a copy reads and writes a second."""

    name: str
    products: float
    copy: float


H200 = Gpu("H200", 788e12, 4.3e12)
A100 = Gpu("A100", 788 / 989 * 312e12, 4.3 / 4.8 * 2.04e12)  # published: 312 TFLOP/s and 2.04 TB/s, of 80 GB
_SLOWER = 0.5  # the least share of a copy's rate that other kernels reach
_GAP = 2e-6  # seconds
GRAPHS = (("packed", "fp16"), ("varlen", "fp16"), ("varlen", "int8"), ("varlen", "fp8"))
"""Layouts and precisions."""
NV_EMBED = size(False).decoder
RECIPES = Path(__file__).parents[2] / "models"
_PAIR = {"27x600": SHAPES["one pair"][:2], "630x26": SHAPES["one pair"][2:]}
"""Lengths of the texts of one pair, by the batch that they run in."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of a layer: bytes that it reads and writes for each token (weights apart), and how many there are."""

    name: str
    bytes: int
    count: int = 1


def kernels(layout: str, precision: str, config: DecoderConfig = NV_EMBED) -> list[Kernel]:
    """Return the kernels of a layer that are neither products nor attention."""
    hidden, wide = config.hidden_size, config.intermediate_size
    queries, keys = _widths(config)
    # fp16 has 2 bytes; sums and norms are float32, with 4.
    if layout == "packed":
        found = [
            Kernel("norm", 8 * hidden, 2),
            Kernel("cast of a norm to fp16", 6 * hidden, 2),
            Kernel("padding of queries", 4 * queries),
            Kernel("padding of keys, of values", 4 * keys, 2),
            Kernel("rotation of queries", 4 * queries),
            Kernel("rotation of keys", 4 * keys),
            Kernel("padding taken away", 4 * queries),
            Kernel("cast of an addend to float32", 6 * hidden, 2),
            Kernel("addition", 12 * hidden, 2),
            Kernel("SiLU", 4 * wide),
            Kernel("gate", 6 * wide),
            Kernel("lengths for the attention", 0),
        ]
    else:
        found = [
            Kernel("norm to fp16", 6 * hidden, 2),
            Kernel("rotation of queries", 4 * queries),
            Kernel("rotation of keys", 4 * keys),
            Kernel("keys, values repeated for all heads", 2 * keys + 2 * queries, 2),
            Kernel("addition of fp16 to float32", 10 * hidden, 2),
            Kernel("SiLU and gate", 6 * wide),
        ]
    if config.qkv_bias:
        found += [Kernel("bias of queries", 4 * queries), Kernel("bias of keys, of values", 4 * keys, 2)]
    if config.qk_norm:
        found += [Kernel("norm of queries", 4 * queries), Kernel("norm of keys", 4 * keys)]
    if config.sandwich:
        found.append(Kernel("norm after attention, after the feed-forward layer", 6 * hidden, 2))
    if precision == "fp8":
        found += [Kernel("rounding to FP8", 3 * hidden, 3), Kernel("rounding to FP8, wide", 3 * wide)]
    return found


def _widths(config: DecoderConfig) -> tuple[int, int]:
    """Return the numbers of all heads of queries, and of keys."""
    return config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim


def matrices(config: DecoderConfig) -> list[int]:
    """Return the numbers of each matrix of a layer."""
    hidden, wide = config.hidden_size, config.intermediate_size
    queries, keys = _widths(config)
    return [hidden * queries, hidden * keys, hidden * keys, queries * hidden, *[hidden * wide] * 3]


def products(precision: str, tokens: int, config: DecoderConfig, gpu: Gpu) -> tuple[float, int]:
    """Return the seconds of a layer's products for a batch, and how many kernels they are."""
    rate, bytes_ = (2 * gpu.products, 1) if precision == "fp8" else (gpu.products, 2)
    sizes = matrices(config)
    seconds = sum(max(2 * tokens * numbers / rate, bytes_ * numbers / gpu.copy) for numbers in sizes)
    if precision == "int8":  # each is widened before its product: a byte read, two written
        seconds += sum(3 * numbers / gpu.copy for numbers in sizes)
    return seconds, len(sizes) * (2 if precision == "int8" else 1)


def attention(layout: str, lengths: list[int], config: DecoderConfig) -> tuple[float, int]:
    """Return the operations of a layer's attention, and the bytes that it reads and writes."""
    queries, keys = _widths(config)
    moved = keys if layout == "packed" else queries
    share = 0.5 if config.causal else 1.0
    return share * sum(4.0 * length**2 * queries for length in lengths), sum(lengths) * (
        4 * queries + 4 * moved
    )


def milliseconds(
    layout: str,
    precision: str,
    lengths: list[int],
    share: float,
    config: DecoderConfig = NV_EMBED,
    gpu: Gpu = H200,
) -> float:
    """Return the milliseconds of a batch where kernels beside products reach a share of the copy's rate."""
    tokens = sum(lengths)
    others = kernels(layout, precision, config)
    seconds, count = products(precision, tokens, config, gpu)
    operations, moved = attention(layout, lengths, config)
    seconds += max(operations / (share * gpu.products), moved / (share * gpu.copy))
    seconds += sum(kernel.count * kernel.bytes for kernel in others) * tokens / (share * gpu.copy)
    seconds += _GAP * (count + 1 + sum(kernel.count for kernel in others))
    return 1e3 * seconds * config.num_hidden_layers


@dataclass(frozen=True)
class Calculated:
    """The range of a figure."""

    least: float
    most: float


def latency(
    layout: str, precision: str, lengths: list[int], config: DecoderConfig = NV_EMBED, gpu: Gpu = H200
) -> Calculated:
    """Return the milliseconds of a batch."""
    return Calculated(
        *(milliseconds(layout, precision, lengths, share, config, gpu) for share in (1.0, _SLOWER))
    )


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


def decoders() -> dict[str, DecoderConfig]:
    """Return the decoders that there are recipes for, by name."""
    others = {"max_position_embeddings": 0, "rms_norm_eps": 0.0, "rope_theta": 0.0, "causal": False}
    recipes = (tomllib.loads(path.read_text("utf-8")) for path in sorted(RECIPES.glob("*.toml")))
    return {
        recipe["name"]: DecoderConfig(**{**others, **recipe["config"]})
        for recipe in recipes
        if recipe.get("kind") in ("nv-embed", "decoder")
    }


def numbers(config: DecoderConfig) -> int:
    """Return how many numbers the embeddings and matrices of a decoder have."""
    return config.vocab_size * config.hidden_size + config.num_hidden_layers * sum(matrices(config))


def seconds(config: DecoderConfig, gpu: Gpu) -> Calculated:
    """Return the seconds of 1,000 pairs. Whole texts are in other batches than sentences."""
    ends = []
    for share in (1.0, _SLOWER):
        milliseconds_a_pair = 0.0
        for shape, lengths in _PAIR.items():
            batch = SHAPES[shape]
            milliseconds_a_pair += (
                milliseconds("varlen", "fp16", batch, share, config, gpu) * sum(lengths) / sum(batch)
            )
        ends.append(milliseconds_a_pair)  # 1,000 pairs, and as many milliseconds in a second
    return Calculated(*ends)


def teraflops(config: DecoderConfig) -> float:
    """Return the operations of one pair, in millions of millions."""
    lengths = [length for part in _PAIR.values() for length in part]
    layer = 2 * sum(lengths) * sum(matrices(config)) + attention("varlen", lengths, config)[0]
    return config.num_hidden_layers * layer / 1e12


def main() -> None:
    print(f"{'':14}{'kernels':>8}" + "".join(f"{shape:>16}" for shape in SHAPES))
    for layout, precision in GRAPHS:
        count = sum(kernel.count for kernel in kernels(layout, precision))
        cells = "".join(f"{text(layout, precision, shape):>16}" for shape in SHAPES)
        print(f"{f'{layout}, {precision}':14}{count:8}{cells}")
    print("kernels: of a layer, beside its products and its attention")
    print("figures: tokens a second, or milliseconds of the texts of one pair")
    gpus = (H200, A100)
    print(f"\n{'':32}{'billions':>9}{'GB':>7}{'TFLOP':>8}" + "".join(f"{gpu.name:>16}" for gpu in gpus))
    for name, config in decoders().items():
        own = numbers(config)
        cells = "".join(
            f"{f'{cost.least:.0f} to {cost.most:.0f}':>16}" for cost in (seconds(config, gpu) for gpu in gpus)
        )
        print(f"{name:32}{own / 1e9:9.2f}{2 * own / 1e9:7.1f}{teraflops(config):8.0f}{cells}")
    print(
        "billions: of numbers; GB: of weights, in 16 bits; TFLOP: of one pair; GPUs: seconds for 1,000 pairs"
    )


if __name__ == "__main__":
    main()
