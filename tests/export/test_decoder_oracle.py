"""The NumPy decoders that exports are compared with: each part of a family matters."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.checkpoints.decoder import FAMILIES, PREFIXES, write_dense
from support.matrix import matrix
from support.numpy_decoder import Settings, embed, settings, token_ids
from support.tiny_decoder import SPELLINGS, write_tiny_decoder

TEXT = (
    "two boys and a dog walk slowly near the river, then собака идёт over the street while 门 opens"
    " at 12: a woman holds the red cup, he turns and looks at the camera, and the café closes. Next"
    " scene, two cats."
)
NOTICED = 0.01
"""By how much a number of a unit vector changes at least if a part is missing."""


def _plain(given: Settings) -> Any:
    """The frequencies of the first base, unscaled, for all layers."""
    size = given.head_size
    return (10000.0 ** -(np.arange(0, size, 2) / size),) * len(given.frequencies)


# What a graph may get wrong, by family, as the settings that it would then have.
_EVERY: dict[str, Any] = {
    "another rotation": lambda s: {"frequencies": tuple(1.3 * f for f in s.frequencies)},
    "another scale of attention": lambda s: {"attention_scale": 1.5 * s.attention_scale},
    "tokens that see otherwise": lambda s: {"causal": not s.causal},
    "another activation": lambda s: {
        "activation": "silu" if s.activation != "silu" else "gelu_tanh"
    },
}
_GROUPS: dict[str, Any] = {"heads that share keys otherwise": lambda s: {"groups": 1}}
_GEMMA: dict[str, Any] = {
    "no norms of heads": lambda s: {"qk_norms": False},
    "no window": lambda s: {"windows": (math.inf,) * len(s.windows)},
    "a window in every layer": lambda s: {"windows": (min(s.windows),) * len(s.windows)},
    "a window wider by one": lambda s: {"windows": tuple(w + 1 for w in s.windows)},
    "one rotation for all layers": lambda s: {
        "frequencies": (s.frequencies[2],) * len(s.frequencies)
    },
    "embeddings as stored": lambda s: {"embedding_scale": 1.0},
    "the scale of a head's size": lambda s: {"attention_scale": s.head_size**-0.5},
    "weights of norms as stored": lambda s: {"norm_offset": 0.0},
}
PARTS: dict[str, dict[str, Any]] = {
    "qwen3": _GROUPS | {"no norms of heads": lambda s: {"qk_norms": False}},
    "gte-qwen2": _GROUPS | {"no biases": lambda s: {"biases": False}},
    "nemotron": (
        _GROUPS
        | {
            "no scaled rotation": lambda s: {
                "frequencies": (1000.0 ** -(np.arange(0, 8, 2) / 8),) * 2
            },
            "all frequencies divided": lambda s: {
                "frequencies": (1000.0 ** -(np.arange(0, 8, 2) / 8) / 8,) * 2
            },
        }
    ),
    "embedding-gemma": _GEMMA,
    "kalm-gemma3": (
        _GROUPS
        | _GEMMA
        | {
            "no scaled rotation": lambda s: {
                "frequencies": (*s.frequencies[:2], _plain(s)[0], s.frequencies[3])
            }
        }
    ),
}
CASES = [(family, part) for family, parts in PARTS.items() for part in _EVERY | parts]


@pytest.mark.parametrize(("family", "part"), CASES)
def test_a_part_that_is_missing_is_noticed(tmp_path: Path, family: str, part: str) -> None:
    folder = write_tiny_decoder(tmp_path, family)
    changed = (_EVERY | PARTS[family])[part](settings(folder))
    ids = token_ids(folder, TEXT)
    assert len(ids) > 48  # many windows
    difference = np.abs(embed(folder, ids, **changed) - embed(folder, ids)).max()
    assert difference > NOTICED


@pytest.mark.parametrize("family", ["embedding-gemma", "kalm-gemma3"])
def test_norms_behind_the_layers_are_noticed(tmp_path: Path, family: str) -> None:
    folder = write_tiny_decoder(tmp_path, family)
    ids = token_ids(folder, TEXT)
    # The norm before the feed-forward layer has another name then, too.
    changed = embed(folder, ids, sandwich=False)
    assert np.abs(changed - embed(folder, ids)).max() > NOTICED


@pytest.mark.parametrize("family", FAMILIES)
def test_special_tokens_pooling_and_dense_layers_are_noticed(tmp_path: Path, family: str) -> None:
    folder = write_tiny_decoder(tmp_path, family)
    ids = token_ids(folder, TEXT)
    exact = embed(folder, ids)
    special = ids[1:] if family in ("nemotron", "kalm-gemma3") else ids[:-1]
    other = "mean" if FAMILIES[family].pooling == "lasttoken" else "lasttoken"
    assert np.abs(embed(folder, special) - exact).max() > NOTICED
    assert np.abs(embed(folder, ids, pooling=other) - exact).max() > NOTICED
    if FAMILIES[family].dense:
        write_dense(folder, 48, (80, 48), seed=1)
        assert np.abs(embed(folder, ids) - exact).max() > NOTICED


@matrix("family, prefix, spelling", FAMILIES, PREFIXES, SPELLINGS)
def test_a_checkpoint_means_the_same_in_each_spelling(
    tmp_path: Path, family: str, prefix: str, spelling: int
) -> None:
    first = write_tiny_decoder(tmp_path / "first", family)
    second = write_tiny_decoder(
        tmp_path / "second", family, prefix=prefix, spelling=spelling, shards=3, lm_head=True
    )
    ids = token_ids(first, TEXT)
    np.testing.assert_array_equal(embed(first, ids), embed(second, ids))
    config = json.loads((second / "config.json").read_text("utf-8"))
    assert ("rope_theta" in config, "rope_parameters" in config) == (spelling == 4, spelling == 5)


def test_a_pattern_stands_for_the_kinds_of_layers(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "named", "kalm-gemma3")
    pattern = write_tiny_decoder(tmp_path / "pattern", "kalm-gemma3", without=["layer_types"])
    first, second = settings(folder), settings(pattern)
    assert first.windows == second.windows == (12, 12, math.inf, 12)
    assert replace(first, frequencies=()) == replace(second, frequencies=())


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_numbers_of_two_bytes_are_rounded_ones(tmp_path: Path, dtype: str) -> None:
    exact = write_tiny_decoder(tmp_path / "exact", "embedding-gemma")
    rounded = write_tiny_decoder(tmp_path / "rounded", "embedding-gemma", dtype=dtype)
    ids = token_ids(exact, TEXT)
    difference = np.abs(embed(exact, ids) - embed(rounded, ids)).max()
    assert 0 < difference < 0.05
