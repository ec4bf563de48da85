"""The tier in int8, made from the default bundle and the project's constants."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from vcs_export.families.int8 import build_int8
from vcs_export.families.static import fetch_made
from vcs_runtime import Scorer
from vcs_runtime.bundle.opening import open_bundle

MODEL = "92287855eb58b88fc272733fffdbdd446ea55ad46795747c9d1980a172a34c4f"
EXAMPLES = Path(__file__).parents[2] / "docs/examples/pairs.jsonl"


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fetch_made("int8", build_int8, target=tmp_path_factory.mktemp("made") / "int8")


def test_its_bytes_are_the_recorded_ones_on_every_machine(int8: Path) -> None:
    assert open_bundle(int8).digests(["embedder/model.int8.onnx"]) == [MODEL]


def test_scores_are_near_the_defaults_and_vectors_the_same_in_any_batch(int8: Path) -> None:
    pairs = [json.loads(line) for line in EXAMPLES.read_text("utf-8").splitlines()]
    texts = [(pair["reference"], pair["generated"]) for pair in pairs]
    sentences = sorted({s for pair in texts for text in pair for s in text.split(". ")})
    with Scorer.open(int8, "cpu") as scorer, Scorer.open("default", "cpu") as default:
        results, others = scorer.score_many(texts), default.score_many(texts)
        vectors, near = scorer.embedder.embed(sentences), default.embedder.embed(sentences)
    with Scorer.open(int8, "cpu", cache_mb=0) as fresh:
        alone = np.concatenate([fresh.embedder.embed([sentence]) for sentence in sentences])
        np.testing.assert_array_equal(fresh.embedder.embed(sentences[::-1])[::-1], alone)
    np.testing.assert_array_equal(vectors, alone)
    assert (vectors * near).sum(axis=1).min() > 0.985
    assert max(abs(a.vcs - b.vcs) for a, b in zip(results, others, strict=True)) < 0.1
    assert "emb:all-minilm-l6-v2-int8@" in results[0].signature
    assert "prec:int8" in results[0].signature
