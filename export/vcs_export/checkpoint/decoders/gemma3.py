"""Gemma 3 without images, such as EmbeddingGemma and KaLM-Embedding-Gemma3.

A layer has four norms, whose weights are stored less 1. Embeddings are scaled. Most layers have a
window, and another rotation than the others.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from vcs_export.checkpoint.decoder import LocalAttention, decoder_config
from vcs_export.checkpoint.decoders.family import FamilySettings, remote_code, rotation
from vcs_export.checkpoint.settings import above_zero, only, positive, value
from vcs_export.errors import CheckpointError

_BOTH = "use_bidirectional_attention"
_LOCAL, _GLOBAL = "sliding_attention", "full_attention"
_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern")


def read(path: Path, data: Any, attention: bool | None) -> FamilySettings:
    """Read a `config.json`, as `checkpoint.decoders.opening.Reader` says."""
    remote_code(path, data)
    only(path, data, "attn_logit_softcapping", None, None)
    only(path, data, "is_causal", None, None)
    both = data.get(_BOTH) is not None and value(path, data, _BOTH, bool)
    positive(path, data, "head_dim")
    config = decoder_config(
        path,
        data,
        rotation(path, data, _GLOBAL),
        causal=not both,
        local=_windows(path, data, not both),
        qk_norm=True,
        activation="gelu_tanh",
        sandwich=True,
        norm_offset=1.0,
        embedding_scale=math.sqrt(positive(path, data, "hidden_size")),
        attention_scale=1 / math.sqrt(above_zero(path, data, "query_pre_attn_scalar")),
        # The model cards say that float16 overflows.
        fp16=False,
    )
    return FamilySettings(config)


def _windows(path: Path, data: Any, causal: bool) -> LocalAttention | None:
    count = positive(path, data, "num_hidden_layers")
    names = [key for key in _PATTERNS if data.get(key) is not None]
    kinds = data.get("layer_types")
    if kinds is None:
        # Of every so many layers, the last one has no window.
        every = positive(path, data, names[0]) if names else 6
        kinds = [_GLOBAL if (layer + 1) % every == 0 else _LOCAL for layer in range(count)]
    known = isinstance(kinds, list) and set(map(str, kinds)) <= {_LOCAL, _GLOBAL}
    if not known or len(kinds) != count:
        raise CheckpointError(
            f"{path}: layer_types must be {count} times {_LOCAL} or {_GLOBAL}, one for each layer"
        )
    local = tuple(kind == _LOCAL for kind in kinds)
    if not any(local):
        return None
    window = positive(path, data, "sliding_window")
    if not causal and window % 2:
        # Releases of transformers 4 saved half of the number plus 1, and would halve it once more.
        raise CheckpointError(
            f"{path}: sliding_window {window} is odd, so it was halved when it was saved: "
            f"write the published number, probably {2 * (window - 1)}"
        )
    reach = window - 1 if causal else window // 2
    return LocalAttention(local, reach, rotation(path, data, _LOCAL, "rope_local_base_freq"))
