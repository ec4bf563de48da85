"""What rounding the default embedder's matrices does to scores: on pairs that an export makes, and on real pairs.

    python benchmarks/quantization_changes.py [PAIRS.jsonl ...] [--forms int8 fp8 int4] [--most 80] [--first N] [--keep]

The matrices are rounded as fp16, bf16, int8 and int4 (blocks of 128) and fp8 (E4M3) store them, and multiplied in
float32; word vectors and norms stay as they are. Printed are the absolute changes of VCS and of the margin, mean, 95th
percentile and largest: on the pairs that `vcs_export.checks.rewrites` makes of the demo's texts and of the calibration's,
with chunks of 15 words; and on each file of pairs (`reference`, `generated`), of which at most `--most` are taken, evenly,
with the default's own segmenter. `--first` takes the first pairs of a file instead. The manual's table is made by

    python benchmarks/pairs.py comparison VCS_EVAL/comparison -o rewrites.jsonl
    python benchmarks/quantization_changes.py rewrites.jsonl --first 78 --keep
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from records import ANY, keep

from vcs_export.checks.quantization_error import calibration_texts, demo_texts
from vcs_export.checks.rewrites import rewritten_pairs
from vcs_export.quantization.fp8 import TYPE, scale
from vcs_export.quantization.nbits import BITS, quantise
from vcs_numba import score_embeddings
from vcs_runtime import Embedder, Scorer
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.paths import bundle_folder

FORMS = ("fp16", "bf16", "int8", "fp8", "int4")
HALVES = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16}


def rounded(matrix: Any, form: str) -> Any:
    """A matrix `(in, out)`, float32, after a round trip through the format."""
    if form in HALVES:
        return matrix.astype(HALVES[form]).astype(np.float32)
    if form == "fp8":
        step = np.float32(scale(float(np.abs(matrix).max())))
        return (matrix / step).astype(TYPE.numpy()).astype(np.float32) * step
    bits = BITS[form]
    [(stored, steps)] = quantise([np.ascontiguousarray(matrix.T)], bits)
    if bits == 4:
        stored = np.stack([stored & 15, stored >> 4], axis=-1).reshape(*stored.shape[:2], -1)
    numbers = (stored.astype(np.float32) - (1 << (bits - 1))) * steps[:, :, None]
    return np.ascontiguousarray(numbers.reshape(len(numbers), -1)[:, : len(matrix)].T)


def write_rounded(form: str, target: Path) -> Path:
    """A copy of the default bundle with rounded matrices."""
    shutil.copytree(bundle_folder("default"), target)
    for path in target.rglob("*"):
        path.chmod(0o755)
    manifest = json.loads((target / MANIFEST).read_text("utf-8"))
    model = target / manifest["embedder"]["model"]
    data = model.with_name(f"{model.name}.data")
    content = bytearray(data.read_bytes())
    for name, value in ir.load(model).graph.initializers.items():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor) and len(tensor.shape) == 2 and "embed" not in name:
            new = rounded(tensor.numpy(), form).tobytes()
            content[tensor.offset or 0 : (tensor.offset or 0) + len(new)] = new
    data.unlink()
    data.write_bytes(content)
    [entry] = [entry for entry in manifest["files"] if target / entry["path"] == data]
    entry["sha256"] = hashlib.sha256(content).hexdigest()
    (target / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    return target


def made_scores(bundle: Path | str, texts: list[str]) -> Any:
    pairs = rewritten_pairs(texts)
    sides = [side for pair in pairs for side in (pair.reference, pair.generated)]
    pieces = list(dict.fromkeys(piece for side in sides for piece in (*side, " ".join(side))))
    with Embedder.open(bundle, device="cpu") as embedder:
        vectors = dict(zip(pieces, embedder.embed(pieces), strict=True))
    found = []
    for pair in pairs:
        both = pair.reference, pair.generated
        chunks = (np.stack([vectors[chunk] for chunk in side]) for side in both)
        scores = score_embeddings(*chunks, *(vectors[" ".join(side)] for side in both))
        found.append((scores.vcs, scores.margin))
    return np.array(found)


def real_scores(bundle: Path | str, pairs: list[tuple[str, str]]) -> Any:
    with Scorer.open(bundle, device="cpu") as scorer:
        return np.array([(result.vcs, result.margin) for result in scorer.score_many(pairs)])


def read(path: Path, most: int, first: int | None) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()[:first]]
    chosen = (
        np.unique(np.linspace(0, len(rows) - 1, most).astype(int)) if len(rows) > most else range(len(rows))
    )
    return [(rows[i]["reference"], rows[i]["generated"]) for i in chosen]


def table(name: str, before: Any, after: dict[str, Any]) -> Iterator[str]:
    yield f"{name}: {len(before)} pairs, VCS is 0 in {(before[:, 0] == 0).mean():.0%} of them"
    for form, scores in after.items():
        cells = [form.ljust(5)]
        for what, change in zip(("VCS", "margin"), np.abs(scores - before).T, strict=True):
            cells.append(
                f"{what}: mean {change.mean():.5f}, 95 % {np.quantile(change, 0.95):.5f}, most {change.max():.4f}"
            )
        yield "  ".join(cells)


def cells(name: str, before: Any, scores: Any) -> dict[str, str]:
    """Mean and 95th percentile of the changes of VCS and of the margin."""
    found = {}
    for what, change in zip(("VCS", "margin"), np.abs(scores - before).T, strict=True):
        found[f"{name}: {what}, mean"] = f"{change.mean():.5f}"
        found[f"{name}: {what}, 95 %"] = f"{np.quantile(change, 0.95):.5f}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="*")
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS)
    parser.add_argument("--most", type=int, default=80)
    parser.add_argument("--first", type=int, help="pairs from the beginning of a file")
    parser.add_argument("--keep", action="store_true", help="write the figures into results/figures")
    arguments = parser.parse_args()
    work = {
        "made of the demo's texts": (made_scores, demo_texts()),
        "made of the calibration's": (made_scores, calibration_texts()),
        **{path.name: (real_scores, read(path, arguments.most, arguments.first)) for path in arguments.pairs},
    }
    rows: dict[str, dict[str, Any]] = {
        form: {"head": "format", "workload": form, "cells": {}} for form in arguments.forms
    }
    with tempfile.TemporaryDirectory(prefix="quantization-") as folder:
        bundles = {form: write_rounded(form, Path(folder, form)) for form in arguments.forms}
        for name, (scores, given) in work.items():
            after = {form: scores(bundle, given) for form, bundle in bundles.items()}  # type: ignore[operator]
            before = scores("default", given)  # type: ignore[operator]
            print("\n".join(table(name, before, after)), flush=True)
            short = {"made of the demo's texts": "made", "made of the calibration's": ""}.get(name, "real")
            for form, changed in after.items() if short else ():
                rows[form]["cells"] |= cells(short, before, changed)
    if arguments.keep:
        with Scorer.open("default", device="cpu") as scorer:
            signatures = {"ours default:cpu": scorer.signature}
        print(
            keep(
                "quantization_changes", [row | {"signatures": signatures} for row in rows.values()], place=ANY
            )
        )


if __name__ == "__main__":
    main()
