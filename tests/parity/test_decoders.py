"""Decoders against transformers' own classes and sentence-transformers, on tiny checkpoints as published."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the oracles' imports have to say
    import sentence_transformers
    import transformers

from support import numpy_decoder
from support.drawn_texts import drawn_texts
from support.safetensors_files import StoredTensors
from support.tiny_decoder import FAMILIES, write_tiny_decoder

TOLERANCE = 1e-5
TEXTS = drawn_texts(16, 90)
# Classes for checkpoints whose own code is not part of transformers.
_OWN_CODE = {"llama_bidirec": (transformers.LlamaConfig, transformers.LlamaModel)}
# Code of the family's own lets all tokens see each other; sentence-transformers needs that code.
_OWN_MASK = ("gte-qwen2", "nemotron")
Array = NDArray[np.float64]


def model(folder: Path) -> Any:
    """The transformer in `folder` in PyTorch, float32, with plain arithmetic."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    how = {"dtype": torch.float32, "attn_implementation": "eager"}
    if config["model_type"] in _OWN_CODE:
        config_of, model_of = _OWN_CODE[config["model_type"]]
        config |= {"model_type": config_of.model_type, "auto_map": None}
        return model_of.from_pretrained(folder, config=config_of(**config), **how).eval()
    return transformers.AutoModel.from_pretrained(folder, **how).eval()


def states(made: Any, rows: Sequence[list[int]], side: str, both_ways: bool) -> list[Array]:
    """The last hidden states of texts that run in one batch, padded on one side.

    both_ways  whether padding alone is masked, as code of the families' own does
    """
    longest = max(map(len, rows))
    pads = [[0] * (longest - len(ids)) for ids in rows]
    is_left = side == "left"
    ids = torch.tensor([pad + row if is_left else row + pad for row, pad in zip(rows, pads, strict=True)])
    lengths = torch.tensor([len(row) for row in rows])[:, None]
    places = torch.arange(longest)
    mask = places >= longest - lengths if is_left else places < lengths
    given = mask.long()
    if both_ways:
        hidden = torch.finfo(torch.float32).min
        given = torch.zeros(len(rows), 1, longest, longest).masked_fill(~mask[:, None, None, :], hidden)
    with torch.inference_mode():
        found = made(input_ids=ids, attention_mask=given).last_hidden_state
    return [row[seen].double().numpy() for row, seen in zip(found, mask, strict=True)]


def pooled(folder: Path, family: str, found: Array) -> Array:
    """The unit vector of a text by its token vectors, in NumPy."""
    kind = FAMILIES[family]
    vector: Array = found[-1] if kind.pooling == "lasttoken" else found.mean(axis=0)
    for i in range(len(kind.dense)):
        vector = StoredTensors(folder / f"{i + 2}_Dense")["linear.weight"] @ vector
    return vector / np.linalg.norm(vector)


def largest(ours: Any, theirs: Any) -> float:
    """The largest difference of a number, in units of the largest number of its rows but at least 1."""
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.abs(a - b).max() / max(1.0, np.abs(a).max())) for a, b in pairs)


@dataclass(frozen=True)
class Oracle:
    """A tiny checkpoint, and what NumPy computes by it: token vectors and vectors of `TEXTS`."""

    family: str
    folder: Path
    ids: list[list[int]]
    tokens: list[Array]
    vectors: list[Array]


@pytest.fixture(scope="module", params=list(FAMILIES))
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    folder = write_tiny_decoder(
        tmp_path_factory.mktemp(request.param), request.param, files={"max_tokens": 512}
    )
    ids = [numpy_decoder.token_ids(folder, text) for text in TEXTS]
    assert max(map(len, ids)) > 10 * 12  # many windows
    tokens = [numpy_decoder.token_vectors(folder, row) for row in ids]
    return Oracle(request.param, folder, ids, tokens, [numpy_decoder.embed(folder, row) for row in ids])


@pytest.mark.parametrize(("spelling", "side"), [(4, "left"), (5, "right")])
def test_numpy_computes_as_transformers(oracle: Oracle, tmp_path: Path, spelling: int, side: str) -> None:
    family = oracle.family
    made = model(write_tiny_decoder(tmp_path, family, spelling=spelling))
    theirs: list[Array] = []
    for first in range(0, len(TEXTS), 8):
        theirs += states(made, oracle.ids[first : first + 8], side, family in _OWN_MASK)
    tokens = largest(oracle.tokens, theirs)
    vectors = largest(oracle.vectors, [pooled(oracle.folder, family, found) for found in theirs])
    print(f"{family}, {side}: tokens {tokens:.1e}, vectors {vectors:.1e}")
    assert vectors <= TOLERANCE
    assert tokens <= TOLERANCE


@pytest.mark.parametrize("prompt", ["", "query"])
@pytest.mark.parametrize("oracle", [name for name in FAMILIES if name not in _OWN_MASK], indirect=True)
def test_numpy_computes_as_sentence_transformers(oracle: Oracle, prompt: str) -> None:
    theirs = sentence(oracle.folder)
    texts = TEXTS[:: 3 if prompt else 1]
    ours = oracle.vectors
    if prompt:
        prefix = FAMILIES[oracle.family].prompts[prompt]
        ids = [numpy_decoder.token_ids(oracle.folder, text, prefix) for text in texts]
        ours = [numpy_decoder.embed(oracle.folder, row) for row in ids]
    difference = largest(ours, theirs.encode(texts, prompt_name=prompt or None))
    print(f"{oracle.family}, prompt {prompt!r}: {difference:.1e}")
    assert difference <= TOLERANCE


def sentence(folder: Path) -> Any:
    """The whole folder, in sentence-transformers."""
    return sentence_transformers.SentenceTransformer(
        str(folder), device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"}
    )
