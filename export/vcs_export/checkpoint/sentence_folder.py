"""Settings that sentence-transformers stores beside a transformer: pooling, dense layers, prompts.

All of them are read. A step that the graph does not implement is refused by name, so that none is skipped
silently.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vcs_export.checkpoint.settings import only, positive, read_json, value
from vcs_export.checkpoint.transformer import WEIGHTS
from vcs_export.errors import CheckpointError, os_reason

POOLINGS = ("mean", "cls", "max", "lasttoken")
MODULES = "modules.json"
LENGTHS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"

# Spelling of the poolings in `1_Pooling/config.json`. Newer files have one key with the plain name.
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
    """A linear layer on the pooled vector.

    Attributes
    ----------
    weight
        Weight `(out, in)`, float32.
    bias
        Bias `(out,)`, float32.
    activation
        ONNX operator after it; None if there is none.
    """

    weight: NDArray[np.float32]
    bias: NDArray[np.float32]
    activation: str | None


@dataclass(frozen=True)
class SentenceFolder:
    """How token vectors become a text's vector, and how texts are fed.

    Attributes
    ----------
    pooling
        One of `POOLINGS`.
    steps
        The steps after pooling, in order: a Dense, or None for normalisation.
    width
        Length of a token vector.
    dimension
        Length of a text's vector.
    max_tokens
        The longest input, special tokens included; None if the folder does not tell.
    lower_case
        Whether texts are lower-cased before they are tokenised.
    instruction
        Prompt before a text where the caller names none.
    """

    pooling: str
    steps: tuple[Dense | None, ...]
    width: int
    dimension: int
    max_tokens: int | None
    lower_case: bool
    instruction: str


def read_sentence_folder(folder: Path) -> SentenceFolder:
    """Read the modules of a sentence-transformers folder.

    Parameters
    ----------
    folder
        The folder.

    Returns
    -------
    sentence
        Pooling, further steps, and how texts are fed.

    Raises
    ------
    CheckpointError
        A file is missing or damaged, or a step is not supported. The message names the file and the problem.
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
        # The transformer's files would lie elsewhere, as in no published folder today.
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
    # The path must name a sub-folder, and not lead out of the checkpoint.
    if not isinstance(name, str) or name in ("", ".", "..") or "/" in name or "\\" in name:
        raise CheckpointError(f"{folder / MODULES}: the path {name!r} is not a folder of the checkpoint")
    return folder / name


def _object(path: Path) -> dict[str, Any]:
    data = read_json(path)
    if not isinstance(data, dict):
        raise CheckpointError(f"{path}: a JSON object was expected")
    return data


def _pooling(path: Path, instruction: str) -> tuple[str, int]:
    """Return the pooling and the length of a token vector."""
    data = _object(path)
    width = positive(path, data, "embedding_dimension" if "embedding_dimension" in data
                     else "word_embedding_dimension")  # fmt: skip
    if instruction:
        # sentence-transformers counts the tokens of a prompt in another way than the runtime.
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
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (out, width)}
    if data.get("bias", True):
        shapes["linear.bias"] = (out,)
    tensors = {"linear.bias": np.zeros(out, np.float32)}
    try:
        with safe_open(weights, framework="numpy") as file:
            for tensor, shape in shapes.items():
                part = file.get_tensor(tensor) if tensor in file.keys() else None  # noqa: SIM118
                if part is None or part.shape != shape or part.dtype not in (np.float32, np.float16):
                    problem = "is missing" if part is None else f"is {part.dtype} {part.shape}"
                    raise CheckpointError(f"{weights}: the tensor {tensor} {problem}, expected float {shape}")
                tensors[tensor] = part.astype(np.float32)
    except OSError as error:
        raise CheckpointError(f"{weights}: cannot be read: {os_reason(error)}") from None
    except (SafetensorError, TypeError) as error:
        raise CheckpointError(f"{weights}: damaged, or not a safetensors file: {error}") from None
    return Dense(tensors["linear.weight"], tensors["linear.bias"], _ACTIVATIONS[activation])


def _feeding(path: Path) -> tuple[int | None, bool]:
    """Return the longest input, and whether texts are lower-cased."""
    if not path.is_file():
        return None, False
    data = _object(path)
    lower_case = value(path, {"do_lower_case": False, **data}, "do_lower_case", bool)
    limited = data.get("max_seq_length") is not None
    return positive(path, data, "max_seq_length") if limited else None, lower_case


def _instruction(path: Path) -> str:
    """Return the default prompt before every text, or ""."""
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
