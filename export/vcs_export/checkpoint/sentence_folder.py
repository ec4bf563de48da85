"""What a folder of sentence-transformers says beside the transformer: pooling, dense layers, prompts.

All of it is read, and what the graph would not do is refused by name, so that no step is left out in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vcs_export.checkpoint.transformer import (
    WEIGHTS,
    only,
    positive,
    read_json,
    value,
)
from vcs_export.errors import CheckpointError, os_reason

POOLINGS = ("mean", "cls", "max", "lasttoken")
MODULES = "modules.json"
LENGTHS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"

# How `1_Pooling/config.json` spells them in its switches; newer files have one key with the plain name.
_SWITCHES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {"Identity": None, "Tanh": "Tanh", "ReLU": "Relu", "Sigmoid": "Sigmoid"}
_AFTER_POOLING = ("Dense", "Normalize")


@dataclass(frozen=True)
class Dense:
    """A linear layer on the pooled vector: weight `(out, in)`, bias `(out,)`, float32.

    activation  the ONNX operator behind it; None: nothing
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    activation: str | None


@dataclass(frozen=True)
class SentenceFolder:
    """What becomes of the token vectors, and how texts are fed.

    pooling      one of `POOLINGS`
    steps        what follows it, in order: a Dense, or None, which stands for normalisation
    width        length of a token vector;  dimension  length of a text's vector
    max_tokens   the longest input, special tokens included; None: the folder does not say
    lower_case   texts are lower-cased before they are tokenised
    instruction  the prompt that is put before a text where the caller names none
    """

    pooling: str
    steps: tuple[Dense | None, ...]
    width: int
    dimension: int
    max_tokens: int | None
    lower_case: bool
    instruction: str


def read_sentence_folder(folder: Path) -> SentenceFolder:
    """Read the modules of the sentence-transformers folder `folder`.

    Raises CheckpointError naming the file and what is wrong or not supported in it.
    """
    path = folder / MODULES
    modules = read_json(path)
    if not isinstance(modules, list) or not all(isinstance(item, dict) for item in modules):
        raise CheckpointError(f"{path}: a list of modules was expected")
    # The class is named with its module, which has moved between releases of sentence-transformers.
    kinds = [str(item.get("type")).rpartition(".")[2] for item in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= set(_AFTER_POOLING):
        raise CheckpointError(
            f"{path}: the modules {', '.join(kinds)} are not supported, only Transformer, Pooling, "
            f"then any of {', '.join(_AFTER_POOLING)}"
        )
    if modules[0].get("path", "") != "":
        # The transformer's files would lie elsewhere; no published folder of today does that.
        raise CheckpointError(
            f"{path}: the path {modules[0]['path']!r} of Transformer is not supported, only ''"
        )
    instruction = _instruction(folder / PROMPTS)
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
    return SentenceFolder(pooling, tuple(steps), width, dimension, max_tokens, lower_case, instruction)


def _inside(folder: Path, module: dict[str, Any]) -> Path:
    name = module.get("path")
    # A name of a sub-folder, and nothing that leads out of the checkpoint.
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name:
        raise CheckpointError(f"{folder / MODULES}: the path {name!r} is not a folder of the checkpoint")
    return folder / name


def _object(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: a JSON object was expected")
    return data


def _pooling(path: Path, instruction: str) -> tuple[str, int]:
    """The pooling and the length of what it pools."""
    data = _object(path)
    width = positive(path, data, "embedding_dimension" if "embedding_dimension" in data
                     else "word_embedding_dimension")  # fmt: skip
    if instruction:
        # Which tokens belong to a prompt is counted otherwise there than by the runtime.
        only(path, data, "include_prompt", True, True)
    if "pooling_mode" in data:
        chosen = value(path, data, "pooling_mode", str)
        if chosen not in POOLINGS:
            raise CheckpointError(
                f"{path}: pooling_mode {chosen!r} is not supported, only one of {', '.join(POOLINGS)}"
            )
        return chosen, width
    switches = [key for key in data if key.startswith("pooling_mode_") and data[key] is not False]
    if len(switches) != 1 or switches[0] not in _SWITCHES or data[switches[0]] is not True:
        raise CheckpointError(
            f"{path}: {' with '.join(switches) or 'no pooling'} is not supported, "
            f"only one of {', '.join(_SWITCHES)}"
        )
    return _SWITCHES[switches[0]], width


def _dense(folder: Path, width: int) -> Dense:
    path = folder / "config.json"
    data = _object(path)
    only(path, data, "in_features", width, None)
    out = positive(path, data, "out_features")
    name = value(path, data, "activation_function", str)
    activation = name.rpartition(".")[2]
    if activation not in _ACTIVATIONS:
        raise CheckpointError(
            f"{path}: activation_function {name!r} is not supported, only {', '.join(_ACTIVATIONS)}"
        )
    weights = folder / WEIGHTS
    wanted: dict[str, tuple[int, ...]] = {"linear.weight": (out, width)}
    if data.get("bias", True):
        wanted["linear.bias"] = (out,)
    found = {"linear.bias": np.zeros(out, np.float32)}
    try:
        with safe_open(weights, framework="numpy") as file:
            for tensor, shape in wanted.items():
                part = file.get_tensor(tensor) if tensor in file.keys() else None  # noqa: SIM118
                if part is None or part.shape != shape or part.dtype not in (np.float32, np.float16):
                    have = "is missing" if part is None else f"is {part.dtype} {part.shape}"
                    raise CheckpointError(f"{weights}: the tensor {tensor} {have}, expected float {shape}")
                found[tensor] = part.astype(np.float32)
    except OSError as error:
        raise CheckpointError(f"{weights}: cannot be read: {os_reason(error)}") from None
    except (SafetensorError, TypeError) as error:
        raise CheckpointError(f"{weights}: damaged, or not a safetensors file: {error}") from None
    return Dense(found["linear.weight"], found["linear.bias"], _ACTIVATIONS[activation])


def _feeding(path: Path) -> tuple[int | None, bool]:
    """The longest input, and whether texts are lower-cased."""
    if not path.is_file():
        return None, False
    data = _object(path)
    lower_case = value(path, {"do_lower_case": False, **data}, "do_lower_case", bool)
    return positive(path, data, "max_seq_length") if data.get(
        "max_seq_length"
    ) is not None else None, lower_case


def _instruction(path: Path) -> str:
    """The prompt that is put before every text unless another is asked for, or ""."""
    if not path.is_file():
        return ""
    data = _object(path)
    name = data.get("default_prompt_name")
    if name is None:
        return ""
    prompts = data.get("prompts")
    prompt = prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise CheckpointError(f"{path}: default_prompt_name {name!r} is not one of the prompts")
    return prompt
