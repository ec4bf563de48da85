"""HM-CF against CLIP-CC-Bench's own code, on given vectors and sentences.

The checkout that `VCS_RUNTIME_CLIP_CC_BENCH` names is run; without it, these tests are left out,
and tests/core/test_hm_cf.py compares with the definition alone.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from vcs_numba import HmCf
from vcs_runtime import Scorer

pytest.importorskip("torch")
CHECKOUT = os.environ.get("VCS_RUNTIME_CLIP_CC_BENCH")
pytestmark = pytest.mark.skipif(not CHECKOUT, reason="VCS_RUNTIME_CLIP_CC_BENCH names no checkout")

#: The class of each judge, by its module.
JUDGES = {
    "qwen_model": "QwenModel",
    "gte_model": "GTEModel",
    "kalm_model": "KaLMModel",
    "nemo_model": "NemoModel",
}


class Drawn:
    """Vectors drawn from the text itself, so that both sides embed alike."""

    identity = "drawn@1"

    def embed(self, texts: list[str]) -> npt.NDArray[np.float32]:
        rows = [
            np.random.default_rng(list(text.encode())).standard_normal(64) + 0.5 for text in texts
        ]
        return np.array([row / np.linalg.norm(row) for row in rows], np.float32)


class Bars:
    """Cuts at bars."""

    identity = "bars@1"

    def split(self, texts: list[str]) -> list[list[str]]:
        return [text.split("|") for text in texts]


@pytest.fixture(params=sorted(JUDGES))
def judge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A judge of the benchmark that embeds and splits as we do."""
    folder = Path(str(CHECKOUT)) / "src/utils"
    monkeypatch.syspath_prepend(str(folder))
    for name, member in (
        ("sentence_transformers", "SentenceTransformer"),
        ("nltk", "sent_tokenize"),
    ):
        stand_in = types.ModuleType(name)
        setattr(stand_in, member, None)
        monkeypatch.setitem(sys.modules, name, stand_in)
    spec = importlib.util.spec_from_file_location(request.param, folder / f"{request.param}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(
        module, "chunk_text_into_sentences", lambda text: [p.strip() for p in text.split("|")]
    )
    model = getattr(module, JUDGES[request.param])("no folder")
    model.encode_texts = lambda texts, *_, **__: Drawn().embed(texts)
    return model


@pytest.mark.parametrize("seed", range(25))
def test_hm_cf_is_the_benchmarks_own(judge: Any, seed: int) -> None:
    draw = np.random.default_rng(seed)
    reference, generated = (
        "|".join(f"sentence {draw.integers(40)}." for _ in range(draw.integers(1, 30)))
        for _ in range(2)
    )
    theirs = judge.compute_similarity(reference, generated)
    with Scorer.open(embedder=Drawn(), segmenter=Bars()) as scorer:
        ours = scorer.score(reference, generated, also=["hm-cf"]).further
    expected = HmCf(
        theirs.cosine_similarity,
        theirs.fine_grained_precision,
        theirs.fine_grained_recall,
        theirs.fine_grained_f1,
        theirs.hm_cf,
    )
    assert ours == pytest.approx(expected, rel=0, abs=1e-6)
