"""Bundles for the GPU tests: tiny ones, and one layer of NV-Embed at full width."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from support.checkpoints.nv_embed import tiny_nv_embed_config, write_tiny_nv_embed
from support.checkpoints.tokenizers import mistral_tokenizer
from support.tiny_bert import build_tiny_bundle
from support.tiny_decoder import write_tiny_decoder
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from support.tiny_sat import build_tiny_sat_bundle
from vcs_export.checkpoint.decoder import Rotation, decoder_config, decoder_shapes
from vcs_export.checkpoint.nv_embed import DECODER_PREFIX, LatentConfig, latent_shapes
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import DecoderOptions, build_decoder_bundle
from vcs_export.write import BundleInfo

LAYERS = 3
# Heads of 128 numbers, a quarter as many groups, as in NV-Embed: kernels depend on both.
NARROW = {
    "hidden": 512,
    "layers": LAYERS,
    "heads": 4,
    "groups": 1,
    "head_dim": 128,
    "intermediate": 1024,
    "latents": 8,
    "cross_heads": 2,
    "cross_size": 64,
    "positions": 1024,
}
DECODER = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "intermediate_size": 1024,
    "max_position_embeddings": 1024,
}
# Qwen2 has no setting for the size of heads: it follows from those above.
_HEADS: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 128},
    "nemotron": {"head_dim": 128},
    "embedding-gemma": {"head_dim": 256, "sliding_window": 64},
    "kalm-gemma3": {"head_dim": 256, "sliding_window": 64},
}
# NV-Embed-v2's own sizes, but for the number of layers and of words, and the size of a head of the
# latents' attention, which export folds away.
WIDE = {
    "hidden": 4096,
    "layers": 1,
    "heads": 32,
    "groups": 8,
    "head_dim": 128,
    "intermediate": 14336,
    "latents": 512,
    "cross_heads": 8,
    "cross_size": 64,
    "positions": 32768,
}
# Each is a token of the tiny NV-Embed, of the tiny SaT and of all-MiniLM-L6-v2.
WORDS = (
    "man woman boy girl dog cat horse bird kitchen street garden river table chair ball cup knife"
    " bread".split()
)
SHAPES = {
    "27 x 600": [600] * 27,
    "630 x 26": [26] * 630,
    "a block": [*range(500, 700, 8), *(5 + (7 * i) % 43 for i in range(600))],
    "a pair": [600] * 2 + [26] * 46,
    "a short text": [9],
}


def texts_of(lengths: list[int], special: int = 2) -> list[str]:
    """Return distinct texts of so many tokens each, special tokens included."""
    rng = random.Random(0)
    words = rng.choices(WORDS, k=1 << 16)
    texts: dict[str, None] = {}
    for length in lengths:
        start = rng.randrange(len(words) - length)
        while (text := " ".join(words[start : start + length - special])) in texts:
            start = rng.randrange(len(words) - length)
        texts[text] = None
    return list(texts)


@dataclass
class GpuBundles:
    """Builds each bundle at its first use, below `folder`."""

    folder: Path

    def nv_embed(self, precision: str, **options: Any) -> Path:
        """Return a tiny NV-Embed of the true architecture."""
        target = self.folder / "-".join(["nv", precision, *map(str, options.values())])
        checkpoint = self.folder / "narrow"
        if not checkpoint.exists():
            write_tiny_nv_embed(checkpoint, dtype="F16", **NARROW)
        if not target.exists():
            target.mkdir()
            options = {"precision": precision, "least_cosine": -1, "most_change": 1, **options}
            build_tiny_nv_embed_bundle(target, checkpoint=checkpoint, **options)
        return target / "bundle"

    def wide(self, precision: str, **options: Any) -> Path:
        """Return one layer of NV-Embed at full width, of repeated numbers: 0.9 GB in fp16."""
        target = self.folder / f"wide-{precision}"
        checkpoint = self.folder / "wide"
        if not checkpoint.exists():
            _write_wide(checkpoint)
        if not target.exists():
            target.mkdir()
            options = {"precision": precision, "least_cosine": -1, "most_change": 1, **options}
            build_tiny_nv_embed_bundle(target, checkpoint=checkpoint, **options)
        return target / "bundle"

    def decoder(self, family: str, precision: str) -> Path:
        """Return a tiny decoder of a published family, with heads of its true sizes."""
        target = self.folder / f"{family}-{precision}"
        checkpoint = self.folder / family
        if not checkpoint.exists():
            write_tiny_decoder(
                checkpoint, family, dtype="BF16", **DECODER, **_HEADS.get(family, {})
            )
        if not target.exists():
            target.mkdir()
            info = BundleInfo(name=family, licence="CC0-1.0", source="random numbers")
            quantization = Quantization(precision=precision, least_cosine=-1, most_change=1)
            options = DecoderOptions(causal=False if family == "gte-qwen2" else None)
            build_decoder_bundle(Build(checkpoint, target / "bundle", info, quantization), options)
        return target / "bundle"

    def bert(self) -> Path:
        """Return a tiny BERT with a window of a document."""
        target = self.folder / "bert"
        if not target.exists():
            build_tiny_bundle(target, max_position=1024, max_tokens=1024)
        return target / "bundle"

    def sat(self, precision: str) -> Path:
        """Return a tiny SaT."""
        target = self.folder / f"sat-{precision}"
        if not target.exists():
            target.mkdir()
            build_tiny_sat_bundle(target, precision=precision, hidden=128, heads=2)
        return target / "bundle"


def _write_wide(folder: Path) -> None:
    """Write a checkpoint of repeated random numbers: only shapes matter to a stand-in."""
    folder.mkdir()
    config = tiny_nv_embed_config(**WIDE)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    mistral_tokenizer().save(str(folder / "tokenizer.json"))
    latent = config["latent_attention_config"]
    text = config["text_config"]
    decoder = decoder_config(
        folder / "config.json", text, Rotation(text["rope_theta"]), causal=False
    )
    shapes = decoder_shapes(decoder, DECODER_PREFIX)
    shapes |= latent_shapes(
        LatentConfig(**{field.name: latent[field.name] for field in fields(LatentConfig)})
    )
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    start = json.dumps(header).encode()
    start += b" " * (-len(start) % 8)
    block = (np.random.default_rng(0).standard_normal(1 << 20) * 0.02).astype(np.float16).tobytes()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(start).to_bytes(8, "little") + start)
        while end > 0:
            end -= file.write(block[:end])
