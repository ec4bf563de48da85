"""From text to score against the authors' stack: reference package and PyTorch."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
import torch
import transformers
import vcs

from vcs_numba import REFERENCE_NAMES, Params
from vcs_runtime import Scorer
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.text.cleaning import clean_segments, expand_contractions

STORY = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))


@pytest.mark.parametrize(("chunk_size", "lct"), [(1, 0.0), (1, 1.0), (3, 0.1)])
def test_every_score_of_the_demo_is_the_reference_packages(
    checkpoint: Path, bundle: Bundle, chunk_size: int, lct: float
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint, local_files_only=True)
    model = transformers.BertModel.from_pretrained(checkpoint, local_files_only=True).eval()

    def embed(texts: list[str]) -> torch.Tensor:
        with torch.inference_mode():
            batch = tokenizer(texts, padding=True, return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).float()
            return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)

    with Scorer.open(bundle, device="cpu") as scorer:

        def segments(text: str) -> list[str]:
            return clean_segments(scorer.segmenter.sentences(expand_contractions(text), "text"))

        for version in STORY["versions"]:
            pair = (STORY["reference"], version["text"])
            theirs = vcs.compute_vcs_score(
                *pair,
                segments,
                embed,
                embed,
                chunk_size=chunk_size,
                lct=lct,
                return_all_metrics=True,
            )
            ours = scorer.score(*pair, chunk_size=chunk_size, params=Params(lct=lct)).to_dict()
            for name, reference_name in REFERENCE_NAMES.items():
                if reference_name in theirs:
                    assert ours[name] == pytest.approx(theirs[reference_name], abs=1e-5), (
                        version,
                        name,
                    )
            assert {"VCS", "NAS", "LAS"} <= theirs.keys()
