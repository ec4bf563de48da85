"""Random training results of the fast tier, for the tiny BERT: a map and a learned segmenter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from vcs_export.families.static import open_token_encoder
from vcs_runtime.bundle.opening import open_bundle

STEPS = (1, 3)


def write_fast_training(
    bundle: Path, path: Path, seed: int = 0, base: str = "", without: str = ""
) -> Path:
    encoder = open_token_encoder(open_bundle(bundle))
    rng = np.random.default_rng(seed)
    linear = {"words": (6, 8), "classifier": (1, 6), "rows": (8,), "norm": (6,)}
    for block in range(len(STEPS)):
        linear |= {f"{block}.norm": (6,), f"{block}.near": (6, 18), f"{block}.out": (6, 6)}
    shapes = {f"ends.{name}.weight": shape for name, shape in linear.items()}
    shapes |= {f"ends.{name}.bias": shape[:1] for name, shape in linear.items()}
    shapes |= {"map": (encoder.width, 8), "bias": (8,), "ends.capitals.weight": (4, 6)}
    tensors = {
        name: rng.standard_normal(shape).astype(np.float16) for name, shape in shapes.items()
    }
    tensors["weights"] = rng.random(encoder.count).astype(np.float16)
    tensors.pop(without, None)
    facts = {"base": base or encoder.digest, "steps": STEPS, "threshold": 0.4}
    save_file(tensors, path, metadata={"vcs": json.dumps(facts)})
    return path
