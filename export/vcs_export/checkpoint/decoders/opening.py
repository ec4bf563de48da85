"""Opening a decoder checkpoint of any family: settings and tensors, all assumptions checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.decoder import decoder_shapes
from vcs_export.checkpoint.decoders import gemma3, llama, qwen2, qwen3
from vcs_export.checkpoint.decoders.family import FamilySettings, check_plain
from vcs_export.checkpoint.encoders import FAMILIES as ENCODERS
from vcs_export.checkpoint.modernbert import KIND as MODERNBERT
from vcs_export.checkpoint.safetensors_reader import StoredTensor, open_shards, stored_names
from vcs_export.checkpoint.settings import read_json
from vcs_export.checkpoint.transformer import CONFIG
from vcs_export.errors import CheckpointError

Reader = Callable[[Path, Any, bool | None], FamilySettings]
"""A function that reads `config.json`, given its path, content and causal (None if unknown).

It raises CheckpointError, whose message names the file and the setting.
"""

FAMILIES: Mapping[str, Reader] = {
    "qwen3": qwen3.read,
    "qwen2": qwen2.read,
    "llama": llama.read,
    llama.BIDIRECTIONAL: llama.read,
    "gemma3_text": gemma3.read,
}
"""The families by the `model_type` in `config.json`."""

# The commands for other kinds of models.
_ELSEWHERE = {**dict.fromkeys((*ENCODERS, MODERNBERT), "encoder"), "nvembed": "nv-embed-v2"}
_PREFIXES = ("", "model.", "language_model.model.", "language_model.")
_EMBEDDINGS = "embed_tokens.weight"
# Tensors of decoders that generate text.
_UNUSED = ("lm_head.weight",)
_ADAPTERS = ("adapter_config.json", "adapter_model.safetensors")
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class DecoderCheckpoint:
    """An opened checkpoint of a decoder."""

    folder: Path
    settings: FamilySettings
    tensors: Mapping[str, StoredTensor]
    prefix: str  # of the tensors' names


def open_decoder(folder: Path, attention: bool | None = None) -> DecoderCheckpoint:
    """Open the checkpoint of a decoder of one of `FAMILIES`. Only settings and headers are read.

    `attention` is whether it is causal, None if the caller does not say. Raises CheckpointError,
    which names the file and the problem.
    """
    path = folder / CONFIG
    data = read_json(path)
    kind = str(data.get("model_type")) if isinstance(data, dict) else ""
    if command := _ELSEWHERE.get(kind):
        raise CheckpointError(f"{path}: for model_type {kind!r} use `vcs-runtime export {command}`")
    if kind not in FAMILIES:
        raise CheckpointError(
            f"{path}: model_type {kind!r} is not supported, only {', '.join(FAMILIES)}"
        )
    for name in _ADAPTERS:
        if (folder / name).exists():
            raise CheckpointError(
                f"{folder / name}: LoRA adapters are not supported: merge them first"
            )
    check_plain(path, data)
    settings = FAMILIES[kind](path, data, attention)
    if attention is not None and attention != settings.config.causal:
        words = {True: "causal", False: "bidirectional"}
        raise CheckpointError(
            f"{path}: the attention of this model is {words[settings.config.causal]}, not"
            f" {words[attention]}"
        )
    return DecoderCheckpoint(folder, settings, *_tensors(folder, settings))


def _tensors(folder: Path, settings: FamilySettings) -> tuple[dict[str, StoredTensor], str]:
    """Return the decoder's tensors, and the prefix of their names."""
    try:
        names = stored_names(folder)
    except CheckpointError as error:
        if pickled := next((name for name in _PICKLED if (folder / name).exists()), None):
            raise CheckpointError(
                f"{folder / pickled}: pickled weights are not supported: save them as safetensors"
            ) from None
        raise error
    prefix = next((prefix for prefix in _PREFIXES if f"{prefix}norm.weight" in names), "")
    if f"{prefix}{_EMBEDDINGS}" not in names and set(_UNUSED) & names:
        raise CheckpointError(
            f"{folder}: the tensor {prefix}{_EMBEDDINGS} is missing; lm_head.weight, to which it"
            " may be tied, is not used: save the model with its embeddings"
        )
    return open_shards(folder, decoder_shapes(settings.config, prefix), _UNUSED), prefix
