"""Bundles around a random BERT of a few kilobytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.checkpoints.bert import tiny_tokenizer, write_tiny_checkpoint
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime.bundle.manifest import RulesSpec


def token_ids(text: str) -> list[int]:
    """The ids of a whole text, special tokens included."""
    tokenizer = tiny_tokenizer()
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return list(tokenizer.encode(text).ids)


def build_tiny_bundle(folder: Path, name: str = "tiny-bert", **checkpoint: Any) -> Path:
    """A bundle `folder/bundle` of a tiny checkpoint `folder/checkpoint` with these arguments."""
    source = write_tiny_checkpoint(folder / "checkpoint", **checkpoint)
    info = BundleInfo(name, "CC0-1.0", "random numbers")
    return build_sentence_bundle(
        Build(source, folder / "bundle", info, rules=RulesSpec("sentencex", "en"))
    )
