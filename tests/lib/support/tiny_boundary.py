"""Random updates for the tiny BERT: a learned segmenter of the kind "words" that nobody trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from vcs_export.checkpoint.recipe import SegmenterRecipe
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.integrity import sha256_of

RANK = 2
LINEAR = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)


def write_updates(checkpoint: Path, path: Path, layers: int = 2, seed: int = 0) -> Path:
    """Write updates for every linear layer and normalisation of `layers` layers of a checkpoint."""
    rng = np.random.default_rng(seed)
    base = load_file(checkpoint / "model.safetensors")
    hidden = base["embeddings.LayerNorm.weight"].size

    def normal(*shape: int, scale: float = 0.3) -> NDArray[np.float16]:
        return (scale * rng.standard_normal(shape)).astype(np.float16)

    tensors = {
        "capitals.weight": normal(4, hidden, scale=1.0),
        "classifier.weight": normal(1, hidden),
        "classifier.bias": normal(1),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        prefix = f"encoder.layer.{layer}."
        norms += [f"{prefix}attention.output.LayerNorm", f"{prefix}output.LayerNorm"]
        for name in LINEAR:
            out, inputs = base[f"{prefix}{name}.weight"].shape
            tensors[f"{prefix}{name}.up"] = normal(out, RANK)
            tensors[f"{prefix}{name}.down"] = normal(RANK, inputs)
            tensors[f"{prefix}{name}.bias"] = normal(out)
    for name in norms:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = (
            normal(hidden) + np.float16(1),
            normal(hidden),
        )
    facts = {"base": sha256_of(checkpoint / "model.safetensors"), "layers": layers}
    save_file(tensors, path, {"vcs": json.dumps(facts)})
    return path


def build_tiny_words(checkpoint: Path, updates: Path, target: Path) -> Path:
    """Build a bundle of the checkpoint as an embedder, and of its learned segmenter."""
    info = BundleInfo("tiny", "MIT", "drawn at random")
    return build_sentence_bundle(Build(checkpoint, target, info), learned=tiny_boundary(updates))


def tiny_boundary(updates: Path, threshold: float = 0.5) -> SegmenterRecipe:
    """How the runtime runs it: windows of 16 tokens, so that texts of a few sentences overlap."""
    return SegmenterRecipe("tiny-words", updates, max_tokens=16, stride=8, threshold=threshold)
