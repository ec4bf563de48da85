"""The example of docs/guide/models.md that needs another package, with a stand-in for it."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from support.snippets import run_snippet


class Encoder:
    """Counts letters, in place of sentence-transformers' models."""

    def __init__(self, name: str) -> None:
        self.name = name

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array(
            [[text.lower().count(letter) for letter in "abcdefghij"] for text in texts], float
        )


def test_a_model_of_sentence_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("sentence_transformers")
    package.SentenceTransformer = Encoder  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", package)
    text = "A cab had a big jade badge. A black cage hid a beach."
    names = run_snippet(
        "docs/guide/models.md", "sentence-transformers", reference=text, generated=text
    )
    assert names["result"].vcs == pytest.approx(1)
    assert "emb:paraphrase-multilingual-MiniLM-L12-v2" in names["result"].signature
