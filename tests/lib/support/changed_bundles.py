"""What bundles hold, and bundles that are changed after they were built, with right hashes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import MANIFEST


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder by their paths in it."""
    return {
        p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()
    }


def edit(
    bundle: Path, change: Callable[[dict[str, Any]], object], *, keep_proofs: bool = False
) -> None:
    """Change what `bundle.json` says. Proofs of the unchanged models are dropped."""
    data = json.loads((bundle / MANIFEST).read_text())
    if not keep_proofs:
        for part in (data.get("embedder"), (data.get("segmenter") or {}).get("model")):
            (part or {}).pop("proof", None)
    change(data)
    (bundle / MANIFEST).write_text(json.dumps(data))


def relist(bundle: Path, *, keep_proofs: bool = False) -> None:
    """List and hash whatever is there, as `edit`."""
    paths = sorted(p for p in bundle.rglob("*") if p.is_file() and p.name != MANIFEST)
    files = [
        {"path": p.relative_to(bundle).as_posix(), "size": p.stat().st_size, "sha256": sha256_of(p)}
        for p in paths
    ]
    edit(bundle, lambda data: data.update(files=files), keep_proofs=keep_proofs)


def scale_vectors(bundle: Path, factor: float) -> None:
    """Let the embedder of a bundle multiply its vectors."""
    path = bundle / "embedder/model.onnx"
    model = onnx.load(path, load_external_data=False)
    [output] = model.graph.output
    last = next(node for node in model.graph.node if output.name in node.output)
    last.output[:] = ["unit" if name == output.name else name for name in last.output]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(factor), "factor"))
    model.graph.node.append(onnx.helper.make_node("Mul", ["unit", "factor"], [output.name]))
    path.write_bytes(model.SerializeToString())
    relist(bundle)
