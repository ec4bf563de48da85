"""A segmenter by punctuation and an embedder by words, as plain functions."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+", text.strip()) if part]


@cache
def _vector(word: str) -> Any:
    return np.random.default_rng(list(word.encode())).normal(size=64)


def embed(texts: list[str]) -> Any:
    """Unit vectors (n, 64), float64: the sum of a random vector for each word, order apart."""
    rows = np.array([sum(map(_vector, re.findall(r"\w+", text.lower()))) for text in texts])
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
