"""What tests ask of the embedder of a bundle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vcs_runtime import Embedder
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.bundle.opening import open_bundle


def spec_of(bundle: Path) -> EmbedderSpec:
    spec = open_bundle(bundle).manifest.embedder
    assert spec is not None
    return spec


def vectors_of(
    bundle: Path, texts: list[str], instruction: str | None = None
) -> NDArray[np.float32]:
    """Vectors of texts, computed on the CPU."""
    with Embedder.open(bundle, device="cpu") as embedder:
        return embedder.embed(texts, instruction)
