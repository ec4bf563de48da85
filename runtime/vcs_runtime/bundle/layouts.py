"""The inputs of the graphs in a bundle, which `vcs_export` builds and this runtime feeds."""

from __future__ import annotations

UNPADDED = ("input_ids", "positions", "starts", "places")
"""Names of the inputs without padding that all models have."""

EMBEDDER_INPUTS = {
    "padded": ("input_ids", "attention_mask"),
    "packed": ("input_ids", "gather", "scatter", "lengths", "skip"),
    "varlen": (*UNPADDED, "pool", "owners", "counts"),
}
"""Names of an embedder's inputs, by input layout. All are int64.

Their shapes are in docs/guide/bundles.md.
"""

SEGMENTER_INPUTS = {
    "sat": ("input_ids", "attention_mask"),
    "words": ("input_ids", "attention_mask", "capitals"),
}
"""Names of a learned segmenter's inputs, by kind. All are `(batch, tokens)`.

Its graph for CUDA has `UNPADDED`, and `capitals` `(tokens,)` in place of the mask.
"""

WORD_SHAPES = 4
"""Number of values of the input `capitals`: how the word of a token is written."""

POOL_GROUP = 16
"""Number of a text's tokens that a "varlen" graph adds in one step of their mean."""

PADDING_STEP = 4
"""Padded lengths are multiples of this number of tokens."""


def padded_length(tokens: int, step: int = PADDING_STEP) -> int:
    """Return the length to which a sequence is padded: the next multiple of `step` tokens."""
    return max(1, -(-tokens // step)) * step
