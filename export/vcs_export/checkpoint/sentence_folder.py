"""Settings that sentence-transformers stores beside a transformer: pooling, dense layers, prompts.

All settings are read. A step that the graph does not implement is refused by name, so that no step
is skipped silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vcs_export.checkpoint.safetensors_reader import WEIGHTS, check_tensor, read_header
from vcs_export.checkpoint.settings import only, positive, read_json, value
from vcs_export.checkpoint.transformer import CONFIG, TOKENIZER, loaded_tokenizer
from vcs_export.errors import CheckpointError

POOLINGS = ("mean", "cls", "max", "lasttoken")
MODULES = "modules.json"
LENGTHS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
TOKENIZER_SETTINGS = "tokenizer_config.json"
_FEWEST_TOKENS = 3

# Spelling of the poolings in `1_Pooling/config.json`. Newer files have one key with the plain name.
_SWITCHES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {"Identity": None, "Tanh": "Tanh", "ReLU": "Relu", "Sigmoid": "Sigmoid"}
# Settings of newer files about how texts are read, with the values that older files imply.
_READING: dict[str, object] = {
    "transformer_task": "feature-extraction",
    "module_output_name": "token_embeddings",
    "processing_kwargs": {},
    "query_expansion": None,
}
_AFTER_POOLING = ("Dense", "Normalize")


@dataclass(frozen=True)
class Dense:
    """A linear layer on the pooled vector."""

    weight: NDArray[np.float32]  # `(out, in)`
    bias: NDArray[np.float32]  # `(out,)`
    activation: str | None  # the ONNX operator after it


@dataclass(frozen=True)
class SentenceFolder:
    """How token vectors become a text's vector, and how texts are fed."""

    pooling: str  # one of `POOLINGS`
    steps: tuple[Dense | None, ...]  # after pooling; None stands for normalisation
    width: int  # length of a token's vector
    dimension: int  # length of a text's vector
    max_tokens: int | None  # special tokens included; None if the folder does not specify it
    lower_case: bool
    instruction: str  # before every text
    shortened: int | None = None  # length to which the folder shortens vectors


def read_sentence_folder(
    folder: Path, prompt: str | None = None, instruction: str | None = None
) -> SentenceFolder:
    """Read the modules of a sentence-transformers folder. Raises CheckpointError.

    `prompt` names a prompt in place of the folder's default; `instruction` replaces any prompt.
    """
    path = folder / MODULES
    modules = read_json(path)
    if not isinstance(modules, list) or not all(isinstance(item, dict) for item in modules):
        raise CheckpointError(f"{path} must be a list of modules")
    # The class is named with its module, which has moved between releases of sentence-transformers.
    kinds = [str(item.get("type")).rpartition(".")[2] for item in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= set(_AFTER_POOLING):
        raise CheckpointError(
            f"{path}: the modules {', '.join(kinds)} are not supported, only Transformer, Pooling, "
            f"then any of {', '.join(_AFTER_POOLING)}"
        )
    if modules[0].get("path", "") != "":
        # The transformer's files would lie elsewhere. No published folder today has them there.
        raise CheckpointError(
            f"{path}: the path {modules[0]['path']!r} of Transformer is not supported, only ''"
        )
    if instruction is None:
        instruction = read_prompt(folder, prompt)
    pooling, width = _pooling(_inside(folder, modules[1]) / "config.json", instruction)
    steps: list[Dense | None] = []
    dimension = width
    for item, kind in zip(modules[2:], kinds[2:], strict=True):
        if kind == "Normalize":
            steps.append(None)
            continue
        dense = _dense(_inside(folder, item), dimension)
        steps.append(dense)
        dimension = len(dense.bias)
    max_tokens, lower_case = _feeding(folder / LENGTHS)
    shortened = _shortened(folder / PROMPTS)
    return SentenceFolder(
        pooling, tuple(steps), width, dimension, max_tokens, lower_case, instruction, shortened
    )


def other_heads(folder: Path) -> list[str]:
    """Return the names of files with further heads, such as bge-m3's sparse and ColBERT heads."""
    return sorted(path.name for path in folder.glob("*_linear.pt"))


def check_width(folder: Path, sentence: SentenceFolder, hidden: int) -> None:
    """Raise CheckpointError unless the pooling expects vectors of the transformer's length."""
    if sentence.width != hidden:
        raise CheckpointError(
            f"{folder}: the pooling expects vectors of {sentence.width} numbers, {CONFIG} has"
            f" {hidden}"
        )


def sentence_tokenizer(
    folder: Path, sentence: SentenceFolder, vocab_size: int
) -> tuple[bytes, Tokenizer]:
    """Read a folder's tokenizer, and check its ids and its lower-casing. Raises CheckpointError.

    Added tokens for which the model has no vector are left out, such as Gemma's for images. A text
    that spells such a token is read like any other text, where the originals fail.
    """
    path = folder / TOKENIZER
    content, tokenizer = loaded_tokenizer(path, vocab_size)
    # The ids of the special tokens around a text need not be in the vocabulary.
    largest = max([*tokenizer.get_vocab().values(), *tokenizer.encode("").ids], default=0)
    if largest >= vocab_size:
        raise CheckpointError(
            f"{path}: it has the token id {largest}, but the model has {vocab_size} tokens"
            " (vocab_size): use the model's own tokenizer"
        )
    if sentence.lower_case and not _lower_cases(tokenizer):
        raise CheckpointError(
            f"{folder / LENGTHS}: do_lower_case True is not supported: {TOKENIZER} does not"
            " lower-case"
        )
    return content, tokenizer


def _lower_cases(tokenizer: Tokenizer) -> bool:
    normalizer = tokenizer.normalizer
    # Some normalizers also strip accents.
    return normalizer is not None and normalizer.normalize_str("AZÉ") in ("azé", "aze")


def longest_input(folder: Path, sentence: SentenceFolder, capacity: int | None) -> int:
    """Return the longest input in tokens, special tokens included.

    The folder's limit applies, or else the smaller of the tokenizer's and the model's limit.
    `capacity` is the number of positions, if it is known. Raises CheckpointError.
    """
    most = sentence.max_tokens
    if most is None:
        most = _smaller_limit(folder, capacity)
    elif capacity is not None and most > capacity:
        raise CheckpointError(
            f"{folder / LENGTHS}: max_seq_length {most} is more than "
            f"the {capacity} positions of the model"
        )
    if most < _FEWEST_TOKENS:
        raise CheckpointError(f"{folder}: an input of {most} tokens has no room for a text")
    return most


def _smaller_limit(folder: Path, capacity: int | None) -> int:
    """Return the smaller of the tokenizer's and the model's limit in tokens."""
    path = folder / TOKENIZER_SETTINGS
    data = read_json(path) if path.is_file() else {}
    length = data.get("model_max_length") if isinstance(data, dict) else None
    # "No limit" is saved as a huge float.
    limits = [n for n in (length, capacity) if isinstance(n, int) and 0 < n < 1 << 20]
    if not limits:
        raise CheckpointError(f"{folder / LENGTHS}: max_seq_length is missing")
    return min(limits)


def _inside(folder: Path, module: dict[str, Any]) -> Path:
    """Return a module's folder, which must be a sub-folder of the checkpoint."""
    name = module.get("path")
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name:
        raise CheckpointError(
            f"{folder / MODULES}: the path {name!r} is not a folder of the checkpoint"
        )
    return folder / name


def _object(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must be a JSON object")
    return data


def _pooling(path: Path, instruction: str) -> tuple[str, int]:
    """Return the pooling and the length of a token vector."""
    data = _object(path)
    # Newer files have the shorter key.
    key = "embedding_dimension"
    width = positive(path, data, key if key in data else f"word_{key}")
    pooling = _pooling_mode(path, data)
    if instruction and pooling != "lasttoken":
        # sentence-transformers counts a prompt's tokens differently from the runtime.
        only(path, data, "include_prompt", True, True)
    return pooling, width


def _pooling_mode(path: Path, data: Any) -> str:
    if "pooling_mode" in data:
        chosen = value(path, data, "pooling_mode", str)
        if chosen not in POOLINGS:
            raise CheckpointError(
                f"{path}: pooling_mode {chosen!r} is not supported, only one of"
                f" {', '.join(POOLINGS)}"
            )
        return chosen
    switches = [key for key in data if key.startswith("pooling_mode_") and data[key] is not False]
    if len(switches) != 1 or switches[0] not in _SWITCHES or data[switches[0]] is not True:
        raise CheckpointError(
            f"{path}: {' with '.join(switches) or 'no pooling'} is not supported, "
            f"only one of {', '.join(_SWITCHES)}"
        )
    return _SWITCHES[switches[0]]


def _dense(folder: Path, width: int) -> Dense:
    path = folder / "config.json"
    data = _object(path)
    only(path, data, "module_input_name", "sentence_embedding", "sentence_embedding")
    only(path, data, "in_features", width, None)
    out = positive(path, data, "out_features")
    name = value(path, data, "activation_function", str)
    activation = name.rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{path}: activation_function {name!r} is not supported, only {', '.join(_ACTIVATIONS)}"
        )
    weights = folder / WEIGHTS
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (out, width)}
    if data.get("bias", True):
        shapes["linear.bias"] = (out,)
    stored = {tensor.name: tensor for tensor in read_header(weights)}
    tensors = {"linear.bias": np.zeros(out, np.float32)}
    for tensor, shape in shapes.items():
        tensors[tensor] = check_tensor(stored.get(tensor), weights, tensor, shape).rows()
    return Dense(tensors["linear.weight"], tensors["linear.bias"], _ACTIVATIONS[activation])


def _feeding(path: Path) -> tuple[int | None, bool]:
    """Return the longest input, and whether texts are lower-cased."""
    if not path.is_file():
        return None, False
    data = _object(path)
    present = {key: setting for key, setting in data.items() if setting is not None}
    for key, supported in _READING.items():
        only(path, present, key, supported, supported)
    lower_case = value(path, {"do_lower_case": False, **data}, "do_lower_case", bool)
    longest = None
    if "max_seq_length" in present:
        longest = positive(path, data, "max_seq_length")
    return longest, lower_case


def _shortened(path: Path) -> int | None:
    """Return the length to which vectors are shortened, if there is one."""
    data = _object(path) if path.is_file() else {}
    if data.get("truncate_dim") is None:
        return None
    return positive(path, data, "truncate_dim")


def read_prompt(folder: Path, prompt: str | None = None) -> str:
    """Return a folder's prompt of that name, or its default prompt, or "".

    Raises CheckpointError.
    """
    path = folder / PROMPTS
    data = _object(path) if path.is_file() else {}
    key, name = "prompt", prompt
    if name is None:
        key = "default_prompt_name"
        name = data.get(key)
    if name is None:
        return ""
    prompts = data.get("prompts") or {}
    if not isinstance(prompts, dict):
        prompts = {}
    text = prompts.get(name)
    if not isinstance(text, str):
        known = ", ".join(prompts) or "none"
        raise CheckpointError(f"{path}: {key} {name!r} is not one of the prompts: {known}")
    return text
