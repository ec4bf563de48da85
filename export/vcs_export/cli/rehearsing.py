"""What `--rehearse` of the export commands does: it writes a tiny random checkpoint for the same command."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from vcs_export.checkpoint.recipe import SatRecipe, SentenceRecipe, load_recipe
from vcs_export.rehearsal.bert import write_tiny_checkpoint
from vcs_export.rehearsal.decoder import FAMILIES, write_tiny_decoder
from vcs_export.rehearsal.files import write_json
from vcs_export.rehearsal.nv_embed import write_tiny_nv_embed
from vcs_export.rehearsal.sat import write_tiny_sat
from vcs_export.write import named_after

_TOKENS = 4096  # which decoders read; no text of a page is longer
# Families of decoders by what their models' names hold, the first that fits.
_NAMES = {"gte-qwen2": "gte-qwen2", "nemotron": "nemotron", "llama": "nemotron", "kalm": "kalm-gemma3",
          "gemma": "embedding-gemma", "": "qwen3"}  # fmt: skip


def make_checkpoint(context: click.Context, named: Path | None, options: dict[str, Any]) -> Path:
    """Write a checkpoint for a command, which is removed at its end, and fit the command's options to it."""
    recipe = options.get("recipe")
    model = named_after(named).name if named else Path(recipe or context.info_name or "").stem
    work = context.with_resource(TemporaryDirectory(prefix="vcs-runtime-"))
    folder = Path(work, f"rehearsal-{model}")
    _MAKERS[context.command.name or ""](folder, options)
    if "weights" in options:  # links would end with the folder's disk, and random numbers lose what they like
        options["weights"] = "copy"
        for limit, any_loss in (("least_cosine", -1.0), ("most_change", 1.0)):
            options[limit] = any_loss if options[limit] is None else options[limit]
    return folder


def _sat(folder: Path, options: dict[str, Any]) -> None:
    settings = load_recipe(options["recipe"], SatRecipe).settings if options["recipe"] else {}
    layers = int(settings.get("num_hidden_layers") or 3)
    lookahead = settings.get("lookahead")
    write_tiny_sat(folder, layers=layers, lookahead=int(lookahead) if lookahead else None)
    options["tokenizer"] = None  # the made-up one is in the folder


def _encoder(folder: Path, options: dict[str, Any]) -> None:
    recipe = load_recipe(options["recipe"], SentenceRecipe) if options["recipe"] else None
    tokens = options["max_tokens"] or 256
    width = -4 * (-max(32, options["dimension"] or 0) // 4)  # which the heads divide
    write_tiny_checkpoint(folder, hidden=width, max_position=tokens, max_tokens=tokens)
    pooling = options["pooling"] or (recipe.pooling if recipe else "mean")
    mode = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}.get(pooling, pooling)
    about = {"word_embedding_dimension": width, f"pooling_mode_{mode}": True}
    write_json(folder / "1_Pooling/config.json", about)
    _add_prompt(folder, options)


def _decoder(folder: Path, options: dict[str, Any]) -> None:
    model = f"{options['recipe'] or ''}{folder.name}".lower()
    family = next(family for part, family in _NAMES.items() if part in model)
    config: dict[str, Any] = {"max_position_embeddings": max(_TOKENS, options["max_tokens"] or 0)}
    if (dimension := options["dimension"] or 0) > FAMILIES[family].config["hidden_size"]:
        config["hidden_size"] = -48 * (-dimension // 48)  # which the heads of every family divide
    plain = options["pooling"] is not None and not FAMILIES[family].dense
    write_tiny_decoder(folder, family, dtype="BF16", sentence=not plain, **config)
    _add_prompt(folder, options)


def _nv_embed(folder: Path, options: dict[str, Any]) -> None:
    write_tiny_nv_embed(folder, dtype="F16", shards=4, positions=_TOKENS)


_MAKERS: dict[str, Callable[[Path, dict[str, Any]], None]] = {
    "sat": _sat, "encoder": _encoder, "decoder": _decoder, "nv-embed-v2": _nv_embed
}  # fmt: skip


def _add_prompt(folder: Path, options: dict[str, Any]) -> None:
    """Give the folder the prompt that `--prompt` names."""
    if name := options["prompt"]:
        write_json(folder / "config_sentence_transformers.json", {"prompts": {name: f"{name}: "}})
