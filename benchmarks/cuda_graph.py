"""Whether NV-Embed's graph for CUDA computes what its other graph does, and what its rounding costs.

    python benchmarks/cuda_graph.py           # tables in Markdown; about five minutes, 6 GB of memory

No GPU is needed, and none is used: both graphs are computed in NumPy (`tests/lib/support/numpy_onnx.py`), which rounds
where the kernels of ONNX Runtime 1.31.1 round. Weights are random, in fp16. Vectors are compared with those of the
published formula in float64.

The first table has one layer at NV-Embed's full width, and a small model of four layers. "without rounding" is the
largest difference of a number between the two graphs when both are computed in float64. The second table has the small
model with the outliers of real Mistrals, planted (`tests/lib/support/outliers.py`): one channel of the sum is about
+-400 from the third layer on, in every token or in `<s>` alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))

from records import ANY, keep, markdown_rows

from support.numpy_nv_embed import embed
from support.numpy_onnx import run
from support.tiny_nv_embed import VOCABULARY, build_tiny_nv_embed_bundle, write_tiny_nv_embed
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import batches

Array = NDArray[Any]
SMALL = {
    "hidden": 512, "layers": 4, "heads": 4, "groups": 1, "head_dim": 128, "intermediate": 1792, "latents": 64,
    "cross_size": 64, "positions": 256,
}  # fmt: skip
WIDE = {
    "hidden": 4096, "layers": 1, "heads": 32, "groups": 8, "head_dim": 128, "intermediate": 14336, "latents": 512,
    "cross_heads": 8, "cross_size": 64, "positions": 256,
}  # fmt: skip
LENGTHS = (5, 17, 26, 40, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = [[1, *rng.integers(3, len(VOCABULARY), length - 2).tolist(), 2] for length in LENGTHS]
    print(
        "| model | precision | graphs differ without rounding | CUDA, rounded | CPU, rounded |\n|---|---|---|---|---|"
    )
    for name, shape, precisions in (
        ("one layer, full width", WIDE, ["fp16"]),
        ("small", SMALL, ["fp16", "int8"]),
    ):
        with _Model(rows, None, **shape) as model:
            for precision in precisions:
                cuda, other = model.vectors(precision, exact=True)
                errors = [np.abs(found - model.want).max() for found in model.vectors(precision)]
                print(f"| {name} | {precision} | {np.abs(cuda - other).max():.0e} | {_scientific(*errors)} |")
    print(
        "\n| outliers | precision | CUDA: 1 - cosine, mean | at worst | CPU: mean | at worst |\n|---|---|---|---|---|---|"
    )
    # The manual has what is lost on CUDA.
    kept = ["| outliers | precision | 1 - cosine, mean | at worst |", "|---|---|---|---|"]
    for tokens in (None, "every", "<s>"):
        with _Model(rows, tokens and (1, tokens), **SMALL) as model:
            for precision in ("fp16", "bf16", "int8"):
                lost = [1 - (found * model.want).sum(axis=1) for found in model.vectors(precision)]
                cells = _scientific(*(number for each in lost for number in (each.mean(), each.max())))
                print(f"| {tokens or 'none'} | {precision} | {cells} |")
                name = {None: "none", "every": "every token", "<s>": "`<s>` alone"}[tokens]
                kept.append(f"| {name} | {precision} | {_scientific(lost[0].mean(), lost[0].max())} |")
    if arguments.keep:
        print(keep("cuda_graph", markdown_rows(kept), place=ANY))


def _scientific(*numbers: float) -> str:
    return " | ".join(f"{number:.1e}" for number in numbers)


class _Model:
    """A random checkpoint, the vectors of its published formula, and bundles of it."""

    def __init__(self, rows: list[list[int]], outliers: tuple[int, str] | None, **shape: Any) -> None:
        self._rows = rows
        self._folder = tempfile.TemporaryDirectory(prefix="cuda-graph-")
        self._checkpoint = write_tiny_nv_embed(
            Path(self._folder.name, "checkpoint"), dtype="F16", outliers=outliers, **shape
        )
        self.want = np.array([embed(self._checkpoint, row) for row in rows])

    def __enter__(self) -> _Model:
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def vectors(self, precision: str, exact: bool = False) -> tuple[Array, Array]:
        """Return the vectors of the graph that CUDA runs, and of the one that a CPU runs."""
        folder = Path(self._folder.name, precision)
        if not folder.exists():
            build_tiny_nv_embed_bundle(
                folder,
                checkpoint=self._checkpoint,
                precision=precision,
                least_cosine=-1,
                most_change=1,
                texts=["two cats", "a dog"],
            )
        spec = open_bundle(folder / "bundle").manifest.embedder
        assert spec is not None
        cuda, other = (
            self._run(folder / "bundle", graph.model, graph.layout, exact)
            for graph in (spec.cuda or spec, spec)
        )
        return cuda, other

    def _run(self, bundle: Path, model: str, layout: str, exact: bool) -> Array:
        [batch] = batches(self._rows, 1 << 12, layout, mixed=True)
        return run(bundle / model, batch.inputs, exact=exact)[np.argsort(batch.rows)]


if __name__ == "__main__":
    main()
