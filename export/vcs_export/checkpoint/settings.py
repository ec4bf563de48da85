"""Reading the settings of a checkpoint from its JSON files, every value checked."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeVar

from vcs_export.errors import CheckpointError
from vcs_runtime.errors import InputError
from vcs_runtime.util.reading import read_whole

SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
)
"""The sizes of a transformer, by their names in `config.json`."""

# No model has more. The names of a billion layers would take all memory.
_MOST_LAYERS = 1000

_T = TypeVar("_T", str, int, float, bool)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file. Raises CheckpointError, which names the file."""
    try:
        return json.loads(read_whole(path))
    except InputError as error:
        raise CheckpointError(str(error)) from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None


def value(path: Path, data: Any, key: str, kind: type[_T]) -> _T:
    """Return the setting `key`; an int is accepted as a float. Raises CheckpointError."""
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must be a JSON object")
    setting = data.get(key)
    # Python's bool is an int, but true is no number in JSON.
    truth = isinstance(setting, bool)
    if kind is float and isinstance(setting, int) and not truth:
        setting = float(setting)
    if not isinstance(setting, kind) or (truth and kind is not bool):
        raise CheckpointError(f"{path}: {key} must be of type {kind.__name__}, not {setting!r}")
    return setting


def positive(path: Path, data: Any, key: str) -> int:
    """Return the setting `key`, an int above 0. Raises CheckpointError."""
    setting = value(path, data, key, int)
    if setting < 1:
        raise CheckpointError(f"{path}: {key} must be positive, not {setting}")
    if key == "num_hidden_layers" and setting > _MOST_LAYERS:
        raise CheckpointError(f"{path}: {key} must be at most {_MOST_LAYERS}, not {setting}")
    return setting


def positives(path: Path, data: Any, *keys: str) -> dict[str, int]:
    """Return settings that are ints above 0, by name. Raises CheckpointError."""
    return {key: positive(path, data, key) for key in keys}


def above_zero(path: Path, data: Any, key: str) -> float:
    """Return the setting `key`, a finite float above 0. Raises CheckpointError."""
    setting = value(path, data, key, float)
    if not 0 < setting < math.inf:
        raise CheckpointError(f"{path}: {key} must be above 0, not {setting}")
    return setting


def only(path: Path, data: Any, key: str, supported: object, default: object) -> None:
    """Raise CheckpointError unless a setting has the value that the graph implements.

    A missing setting has the value `default`.
    """
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} must be a JSON object")
    setting = data.get(key, default)
    if setting != supported:
        raise CheckpointError(f"{path}: {key} {setting!r} is not supported, only {supported!r}")
