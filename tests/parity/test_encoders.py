"""Sentence encoders against PyTorch: random small models of transformers, pooled as
sentence-transformers does.

The route by optimum is tested where optimum is installed, by the session `optimum` of `make nox`.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer

from support.checkpoints.bert import VOCABULARY, WORDS
from support.tiny_sentence import write_sentence_files
from vcs_export.checks.verify import verify_embedder
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder
from vcs_runtime.bundle.opening import open_bundle

HIDDEN, LAYERS, HEADS, INNER = 32, 3, 4, 64
TOKENS = 300  # further apart than the distances that MPNet tells apart
TOLERANCE = 1e-5

TEXTS = [
    "a",
    "Ω",  # unknown: in our tokenizer its id is RoBERTa's pad
    "two boys and a Ω dog Ω under the table.",
    *(" ".join(WORDS[i : i + 7]) for i in range(0, 60, 5)),
    *(
        " ".join((WORDS * 5)[i : i + n])
        for i, n in enumerate((18, 40, 75, 130, 180, 260, TOKENS - 3))
    ),
]


def model(kind: str) -> Any:
    names = {
        "vocab_size": len(VOCABULARY),
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
    }
    if kind == "distilbert":
        config = transformers.DistilBertConfig(
            vocab_size=len(VOCABULARY),
            dim=HIDDEN,
            n_layers=LAYERS,
            n_heads=HEADS,
            hidden_dim=INNER,
            max_position_embeddings=TOKENS,
        )
        made = transformers.DistilBertModel(config)
    elif kind == "electra":
        config = transformers.ElectraConfig(
            **names, embedding_size=16, max_position_embeddings=TOKENS
        )
        made = transformers.ElectraModel(config)
    elif kind == "bert":
        made = transformers.BertModel(
            transformers.BertConfig(**names, max_position_embeddings=TOKENS)
        )
    else:
        classes = {
            "xlm-roberta": (transformers.XLMRobertaConfig, transformers.XLMRobertaModel),
            "roberta": (transformers.RobertaConfig, transformers.RobertaModel),
            "mpnet": (transformers.MPNetConfig, transformers.MPNetModel),
        }
        config_of, model_of = classes[kind]
        further = {} if kind == "mpnet" else {"type_vocab_size": 1}
        config = config_of(**names, **further, max_position_embeddings=TOKENS + 2, pad_token_id=1)
        made = model_of(config)
    generator = torch.Generator().manual_seed(7)
    # Livelier than the usual initialisation, so that errors show.
    for parameter in made.parameters():
        shift = 1.0 if parameter.dim() == 1 and parameter.mean() > 0.5 else 0.0
        parameter.data = shift + 0.3 * torch.randn(parameter.shape, generator=generator)
    return made.eval()


def oracle(made: Any, ids: list[int], pooling: str) -> torch.Tensor:
    """One text, without padding."""
    with torch.inference_mode():
        row = torch.tensor([ids])
        hidden = made(input_ids=row, attention_mask=torch.ones_like(row)).last_hidden_state[0]
    pooled = {
        "mean": hidden.mean(0),
        "cls": hidden[0],
        "max": hidden.max(0).values,
        "lasttoken": hidden[-1],
    }
    return pooled[pooling]


def compare(folder: Path, made: Any, pooling: str, prompt: str, dense: Any = None) -> float:
    made.save_pretrained(folder)
    switch = {"lasttoken": "pooling_mode_lasttoken", "cls": "pooling_mode_cls_token"}
    write_sentence_files(
        folder,
        HIDDEN,
        TOKENS,
        switch.get(pooling, f"pooling_mode_{pooling}_tokens"),
        ["Dense", "Normalize"] if dense else ["Normalize"],
        dense,
        prompt or None,
    )
    build = Build(folder, folder / "bundle", BundleInfo("tiny", "CC0-1.0", "random"))
    bundle = build_sentence_bundle(build)
    tokenizer = Tokenizer.from_file(str(bundle / "embedder/tokenizer.json"))
    wanted = []
    for text in TEXTS:
        ids = tokenizer.encode(prompt + text).ids
        assert len(ids) <= TOKENS
        vector = oracle(made, ids, pooling)
        if dense:
            vector = torch.tanh(torch.from_numpy(dense[0]) @ vector + torch.from_numpy(dense[1]))
        wanted.append(torch.nn.functional.normalize(vector, dim=0).numpy())
    with Embedder.open(bundle, device="cpu") as embedder:
        found: NDArray[np.float32] = embedder.embed(TEXTS)
    assert all(check.holds for check in verify_embedder(open_bundle(bundle)))
    return float(np.abs(found - np.stack(wanted)).max())


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "mpnet", "distilbert"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_families_without_pytorch(tmp_path: Path, kind: str, pooling: str) -> None:
    difference = compare(tmp_path, model(kind), pooling, "")
    print(f"{kind}, {pooling}: {difference:.1e}")
    assert difference <= TOLERANCE


@pytest.mark.parametrize("pooling", ["max", "lasttoken"])
def test_poolings_dense_and_prompt(tmp_path: Path, pooling: str) -> None:
    rng = np.random.default_rng(3)
    dense = tuple(rng.normal(size=shape).astype(np.float32) / 4 for shape in ((20, HIDDEN), (20,)))
    difference = compare(tmp_path, model("xlm-roberta"), pooling, "the ", dense)
    print(f"{pooling}: {difference:.1e}")
    assert difference <= TOLERANCE


@pytest.mark.skipif(not find_spec("optimum"), reason="needs optimum: make nox ARGS='-s optimum'")
def test_the_route_by_optimum(tmp_path: Path) -> None:
    difference = compare(tmp_path, model("electra"), "mean", "")
    print(f"electra by optimum: {difference:.1e}")
    assert difference <= TOLERANCE
