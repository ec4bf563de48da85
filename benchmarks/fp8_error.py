"""What FP8 loses in NV-Embed's decoder, by the way in which its inputs are scaled, with and without outliers.

    python benchmarks/fp8_error.py                     # tables in Markdown: 4 layers at full width, minutes, 4 GB
    python benchmarks/fp8_error.py --width 256         # the same at a sixteenth of the width, seconds

Weights are random, in the true architecture. The outliers are those of real Mistrals, planted: a unit of the second
layer's gated layer gives +-1000 where the others give .01 to .1, and so one channel of the sum is +-400 from the
third layer on, either in every token or in `<s>` alone; cosines leave that channel out. Rounding is emulated in NumPy; sums are float32. The second
table shows the fast accumulation of Hopper's products in FP8, with the published width of its sums: each step adds 32
products to a sum, all cut to 13 bits below the largest of them (https://arxiv.org/abs/2412.19437, section 3.5.2). The
third table is behind the ratio up to which a matrix is multiplied in FP8 (`fp8.Range.fits`).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from records import ANY, keep, markdown_rows

from vcs_export.quantization import fp8

Array = NDArray[np.float32]
_FULL = 4096
_LAYERS = 4
_TEXTS, _LENGTH = 6, 24
_CALIBRATION = 3  # of the texts, whose ranges are taken
_GROUP, _BITS = 32, 13  # of fast accumulation
_PLANTED, _UNIT, _CHANNEL = 1, 5, 2  # the layer of the outlier, its unit there, its channel of the sum


def _narrow(numbers: Array) -> Array:
    return numbers.astype(fp8.TYPE.numpy()).astype(np.float32)


def _half(numbers: Array) -> Array:
    return numbers.astype(np.float16).astype(np.float32)


Rounded = tuple[Array, bool]
"""The inputs of a matrix as a way rounds them, and whether the matrix is FP8 too."""


def _in_half(x: Array, seen: fp8.Range) -> Rounded:
    return _half(x), False


def _fixed(x: Array, seen: fp8.Range) -> Rounded:
    return _rounded_by(x, seen.scale), True


def _by_token(x: Array, seen: fp8.Range) -> Rounded:
    scale = np.abs(x).max(axis=1, keepdims=True) / np.float32(fp8.LARGEST)
    return _narrow(x / scale) * scale, True


def _ruled(x: Array, seen: fp8.Range) -> Rounded:
    return _fixed(x, seen) if seen.fits else _in_half(x, seen)


WAYS = {
    "fp16": _in_half,
    "FP8, fixed scales": _fixed,
    "FP8, a scale a token": _by_token,
    "FP8, fixed scales, outlying inputs in fp16": _ruled,
}


@dataclass
class Matrix:
    """A random matrix, `(out, in)`, as stored in half precision and as rounded to FP8; and what was seen of its inputs."""

    exact: Array
    narrow: Array
    seen: fp8.Range | None = None

    @classmethod
    def of(cls, numbers: Array) -> Matrix:
        half = numbers.astype(np.float16)
        scale = fp8.scale(fp8.largest([half]))
        [levels] = fp8.quantise([half], scale)
        return cls(half.astype(np.float32), levels.astype(np.float32) * np.float32(scale))

    def product(self, x: Array, way: str) -> Array:
        """Return x times the matrix as a way multiplies them; the exact way also sees the range of x."""
        if way == "exact":
            ranged = np.abs(x[: _CALIBRATION * _LENGTH])
            self.seen = fp8.Range(float(ranged.max()), float(ranged.mean()))
            return x @ self.exact.T
        assert self.seen
        rounded, in_fp8 = WAYS[way](x, self.seen)
        return _half(rounded @ (self.narrow if in_fp8 else self.exact).T)


@dataclass(frozen=True)
class Model:
    """A random decoder of the true proportions; its layers are made one at a time.

    width     hidden size
    outliers  "none", "every token" or "`<s>` alone": the tokens whose planted unit gives +-1000
    """

    width: int
    outliers: str

    @property
    def size(self) -> int:
        return min(128, self.width // 8)

    def tokens(self) -> Array:
        """Word vectors of all tokens, `(tokens, width)`; the first of each text is `<s>`."""
        rng = np.random.default_rng(7)
        x = rng.standard_normal((_TEXTS * _LENGTH, self.width), np.float32)
        first = np.arange(len(x)) % _LENGTH == 0
        x[first] = x[0]
        if self.outliers != "none":
            # Two channels, one constant and one of changing sign, which the planted unit multiplies.
            strong = first | (self.outliers == "every token")
            x[:, 0] = 40 * strong
            x[:, 1] = 40 * strong * np.where(rng.random(len(x)) < 0.5, -1, 1)
        return x

    def matrices(self, layer: int, x: Array) -> dict[str, Matrix]:
        """The seven matrices of a layer that sees the sums x."""
        rng = np.random.default_rng([11, layer])
        width, inner, groups = self.width, self.width * 7 // 2, width_of_groups(self)
        planted = layer == _PLANTED and self.outliers != "none"
        shapes = {
            "q": (width, width), "k": (groups, width), "v": (groups, width), "o": (width, width),
            "gate": (inner, width), "up": (inner, width), "down": (width, inner),
        }  # fmt: skip
        # A layer with an outlier: usual outputs of its units are .01 to .1, and count as much as in other layers.
        factors = {"gate": 0.3, "up": 0.3, "down": 20.0} if planted else {}
        numbers = {
            name: rng.standard_normal(shape, np.float32)
            * np.float32(factors.get(name, 1.2) / shape[1] ** 0.5)
            for name, shape in shapes.items()
        }
        if planted:
            reached = np.abs(_norm(x)[::_LENGTH, 0]).mean()
            for name, channel in (("gate", 0), ("up", 1)):
                numbers[name][_UNIT] = 0
                numbers[name][_UNIT, channel] = 1000**0.5 / reached
            numbers["down"][:, _UNIT] = 0
            numbers["down"][_CHANNEL, _UNIT] = 0.4
        return {name: Matrix.of(matrix) for name, matrix in numbers.items()}

    def layer(self, x: Array, matrices: dict[str, Matrix], way: str) -> Array:
        """Return the sums after a layer, whose products are made in a way."""
        x = x + matrices["o"].product(self._attention(_norm(x), matrices, way), way)
        gate, up = (matrices[name].product(_norm(x), way) for name in ("gate", "up"))
        return x + matrices["down"].product(gate / (1 + np.exp(-gate)) * up, way)

    def _attention(self, x: Array, matrices: dict[str, Matrix], way: str) -> Array:
        query, key, value = (
            matrices[name].product(x, way).reshape(_TEXTS, _LENGTH, -1, self.size).transpose(0, 2, 1, 3)
            for name in "qkv"
        )
        key, value = (np.repeat(part, query.shape[1] // part.shape[1], axis=1) for part in (key, value))
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(self.size**0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        seen: Array = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        return seen.transpose(0, 2, 1, 3).reshape(x.shape)


def width_of_groups(model: Model) -> int:
    """Width of keys and of values: a quarter of the heads have their own."""
    return max(1, model.width // model.size // 4) * model.size


def _norm(x: Array) -> Array:
    normed: Array = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + np.float32(1e-5))
    return normed


def _table(width: int) -> Iterator[str]:
    yield "| outliers | way | kept in fp16 | 1 - cosine, mean | at worst |"
    yield "|---|---|---|---|---|"
    for outliers in ("none", "every token", "`<s>` alone"):
        model = Model(width, outliers)
        sums = dict.fromkeys(("exact", *WAYS), model.tokens())
        kept: list[str] = []
        for layer in range(_LAYERS):
            matrices = model.matrices(layer, sums["exact"])
            sums = {way: model.layer(x, matrices, way) for way, x in sums.items()}
            kept += [
                f"{layer}.{name}" for name, matrix in matrices.items() if matrix.seen and not matrix.seen.fits
            ]
        ends = {way: _norm(x)[_CALIBRATION * _LENGTH :] for way, x in sums.items()}
        for x in ends.values():
            x[:, _CHANNEL] = 0  # it would hide all others
        which = {"fp16": "all", "FP8, fixed scales, outlying inputs in fp16": ", ".join(kept) or "none"}
        for way in WAYS:
            lost = _lost(ends[way], ends["exact"])
            yield f"| {outliers} | {way} | {which.get(way, 'none')} | {lost.mean():.1e} | {lost.max():.1e} |"


def _lost(found: Array, exact: Array) -> Array:
    """Return 1 - cosine between the texts' mean last hidden states."""
    ours, theirs = (x.reshape(-1, _LENGTH, x.shape[1]).mean(axis=1) for x in (found, exact))
    lost: Array = 1 - (ours * theirs).sum(axis=1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(
        theirs, axis=1
    )
    return lost


def _ratios() -> Iterator[str]:
    yield "| largest / mean input | lost where the scale is tight | where it is twice that |"
    yield "|---|---|---|"
    x = np.random.default_rng(0).standard_normal((1, 1 << 18), np.float32)
    mean = float(np.abs(x).mean())
    for ratio in (64, 1024, 2048, 4096, 8192, 16384, 32768, 65536):
        tight = 2 * ratio * mean / fp8.LARGEST  # powers of two are up to twice as large
        errors = (
            float(np.linalg.norm(_rounded_by(x, s) - x) / np.linalg.norm(x)) for s in (tight, 2 * tight)
        )
        yield f"| {ratio:,} | " + " | ".join(f"{error:.1%}" for error in errors) + " |"


def _rounded_by(x: Array, scale: float) -> Array:
    return _narrow(np.clip(x / np.float32(scale), -fp8.LARGEST, fp8.LARGEST)) * np.float32(scale)


def _fast(a: Array, b: Array) -> Array:
    """Return a b^T, summed as fast accumulation sums."""
    total = np.zeros((len(a), len(b)))
    for start in range(0, a.shape[1], _GROUP):
        part = slice(start, start + _GROUP)
        products = a[:, None, part].astype(np.float64) * b[None, :, part]
        largest = np.maximum(np.abs(products).max(axis=2), np.abs(total))
        step = 2.0 ** (np.floor(np.log2(np.maximum(largest, 1e-300))) - _BITS)
        total = (np.trunc(products / step[:, :, None]).sum(axis=2) + np.trunc(total / step)) * step
    return total.astype(np.float32)


def _accumulation() -> Iterator[str]:
    yield "| inputs of a product | from rounding to FP8 | from fast accumulation |"
    yield "|---|---|---|"
    rng = np.random.default_rng(3)
    for inputs, outlier in ((4096, 0.0), (14336, 0.0), (4096, 64.0), (14336, 64.0)):
        x = rng.standard_normal((8, inputs), np.float32)
        weight = rng.standard_normal((64, inputs), np.float32) / np.float32(inputs**0.5)
        if outlier:
            x[:, 17] = outlier
        scales = [fp8.scale(float(np.abs(item).max())) for item in (x, weight)]
        a, b = (_narrow(item / scale) * scale for item, scale in zip((x, weight), scales, strict=True))
        exact, rounded = (p.astype(np.float64) @ q.T.astype(np.float64) for p, q in ((x, weight), (a, b)))
        size = np.sqrt((exact**2).mean())
        errors = (
            np.sqrt((difference**2).mean()) / size for difference in (rounded - exact, _fast(a, b) - rounded)
        )
        what = f"{inputs}, of size 1" + (f", one of {outlier:g}" if outlier else "")
        yield "| " + " | ".join([what, *(f"{error:.2%}" for error in errors)]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--width", type=int, default=_FULL, help=f"hidden size; {_FULL} is the true one")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    if arguments.keep and arguments.width != _FULL:
        parser.error("the manual's figures are of the full width")
    print(
        f"{_LAYERS} layers, {arguments.width} numbers wide, {_TEXTS - _CALIBRATION} texts of {_LENGTH} tokens\n"
    )
    lost = []
    for line in _table(arguments.width):
        print(line, flush=True)
        lost.append(line)
    print("\nError of one product, as a share of its size\n")
    summed = list(_accumulation())
    print(*summed, sep="\n")
    print("\nError of rounding normally distributed inputs with a fixed scale, as a share of their size\n")
    print(*_ratios(), sep="\n")
    if arguments.keep:
        print(keep("fp8_error", markdown_rows(lost), place=ANY))
        print(keep("fp8_accumulation", markdown_rows(summed), place=ANY))


if __name__ == "__main__":
    main()
