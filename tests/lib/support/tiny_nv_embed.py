"""Bundles around a random NV-Embed of a few hundred kilobytes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from support.checkpoints.nv_embed import write_tiny_nv_embed
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import TextSettings, build_nv_embed_bundle
from vcs_export.write import BundleInfo

T = TypeVar("T")


def build_tiny_nv_embed_bundle(
    folder: Path, *, checkpoint: Path | None = None, **options: Any
) -> Path:
    """Build `folder/bundle` from `checkpoint`, or from a tiny one that is written to
    `folder/checkpoint`.

    `options` are fields of `Build`, or of its `BundleInfo` and `Quantization`, or of
    `TextSettings`.
    """
    source = checkpoint or write_tiny_nv_embed(folder / "checkpoint")
    about: dict[str, Any] = {
        "name": "tiny-nv-embed",
        "licence": "CC0-1.0",
        "source": "random numbers",
        "precision": "fp32",
    }
    # Few random numbers: a match that changes moves the mean of all pairs.
    about["most_change"] = 1.0
    options = {**about, **options}

    def take(kind: type[T]) -> T:
        return kind(
            **{item.name: options.pop(item.name) for item in fields(kind) if item.name in options}
        )  # type: ignore[arg-type]

    info, quantization, text = take(BundleInfo), take(Quantization), take(TextSettings)
    return build_nv_embed_bundle(
        Build(source, folder / "bundle", info, quantization, **options), text
    )
