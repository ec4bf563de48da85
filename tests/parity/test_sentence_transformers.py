"""Encoders as published, in tiny: sentence-transformers against our bundles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the oracles' imports have to say
    import sentence_transformers
    import transformers

from support import stand_in
from support.checkpoints.bert import write_modules
from support.checkpoints.files import write_json
from support.drawn_texts import drawn_texts
from support.rounding import FP32_NOISE, ROUNDOFF
from support.tiny_tokenizers import modernbert_tokenizer, xlm_roberta_tokenizer
from vcs_export.checks.verify import verify_embedder
from vcs_export.families.build import Build, EmbedderOptions
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import TOKEN_BUDGET

TOLERANCE = 1e-5
HIDDEN = 48
WINDOW = 320  # tokens, special ones included
TEXTS = drawn_texts(24, 120)


@dataclass(frozen=True)
class Published:
    """What a publisher's folder holds.

    config     `config.json`, with its `model_type`;  tokenizer  makes its tokenizer
    pooling    the pooling's switch;  steps  the modules behind it;  special  names of special tokens
    """

    config: Mapping[str, Any]
    tokenizer: Callable[[], Tokenizer]
    pooling: str
    steps: tuple[str, ...]
    special: Mapping[str, str] = field(default_factory=dict)


_SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 72,
}
_MODERN = _SIZES | {
    "model_type": "modernbert",
    "max_position_embeddings": WINDOW,
    "local_attention": 24,
    "global_attn_every_n_layers": 3,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}
_XLM_R = _SIZES | {
    "model_type": "xlm-roberta",
    "max_position_embeddings": WINDOW + 2,
    "type_vocab_size": 1,
    "pad_token_id": 1,
}
_BERT = _SIZES | {"model_type": "bert", "max_position_embeddings": WINDOW, "type_vocab_size": 2}
_BRACKETS = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
_ANGLES = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
CLS, MEAN = "pooling_mode_cls_token", "pooling_mode_mean_tokens"
FOLDERS = {
    "gte-modernbert-base": Published(_MODERN, modernbert_tokenizer, CLS, (), _BRACKETS),
    "modernbert-embed-base": Published(
        _MODERN, modernbert_tokenizer, MEAN, ("Normalize",), _BRACKETS
    ),
    "bge-m3": Published(_XLM_R, xlm_roberta_tokenizer, CLS, ("Normalize",), _ANGLES),
    "multilingual-e5-base": Published(_XLM_R, xlm_roberta_tokenizer, MEAN, ("Normalize",), _ANGLES),
    "multilingual-e5-small": Published(_BERT, xlm_roberta_tokenizer, MEAN, ("Normalize",), _ANGLES),
}


def write_folder(folder: Path, name: str, max_tokens: int = WINDOW) -> Path:
    """Write the random checkpoint `name` as sentence-transformers stores it."""
    published = FOLDERS[name]
    tokenizer = published.tokenizer()
    special = {role: tokenizer.token_to_id(token) for role, token in published.special.items()}
    ids = {
        "pad_token_id": special["pad_token"],
        "bos_token_id": special["cls_token"],
        "eos_token_id": special["sep_token"],
        "cls_token_id": special["cls_token"],
        "sep_token_id": special["sep_token"],
    }
    config = {**ids, **published.config, "vocab_size": tokenizer.get_vocab_size()}
    kind = transformers.CONFIG_MAPPING[config.pop("model_type")]
    made = transformers.AutoModel.from_config(kind(**config), dtype=torch.float32)
    generator = torch.Generator().manual_seed(7)
    # Livelier than the usual initialisation, so that errors show.
    for parameter in made.parameters():
        shift = 1.0 if parameter.dim() == 1 and parameter.mean() > 0.5 else 0.0
        parameter.data = shift + 0.3 * torch.randn(parameter.shape, generator=generator)
    made.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    data = {
        **published.special,
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": WINDOW,
    }
    write_json(folder / "tokenizer_config.json", data)
    write_modules(folder, ["Transformer", "Pooling", *published.steps])
    content = {"word_embedding_dimension": HIDDEN, published.pooling: True}
    write_json(folder / "1_Pooling/config.json", content)
    write_json(
        folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False}
    )
    return folder


def originals(folder: Path, prompt: str, texts: list[str] = TEXTS) -> NDArray[np.float32]:
    """The unit vectors of sentence-transformers, which pads texts of several lengths together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = sentence_transformers.SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            model_kwargs={"attn_implementation": "eager"},
        )
        found = model.encode(texts, prompt=prompt, batch_size=8, normalize_embeddings=True)
    return np.asarray(found, np.float32)


def build(folder: Path, **options: Any) -> Path:
    described = Build(folder, folder / "bundle", BundleInfo("tiny", "CC0-1.0", "random"))
    return build_sentence_bundle(described, **options)


@pytest.mark.parametrize("name", FOLDERS)
def test_published_folders_give_the_vectors_of_sentence_transformers(
    tmp_path: Path, name: str
) -> None:
    bundle = build(write_folder(tmp_path, name))
    for prompt in ("", "query: "):
        with Embedder.open(bundle, device="cpu") as embedder:
            found = embedder.embed(TEXTS, prompt)
        difference = float(np.abs(found - originals(tmp_path, prompt)).max())
        print(f"{name}, {prompt!r}: {difference:.1e}")
        assert difference <= TOLERANCE
    assert all(check.holds for check in verify_embedder(open_bundle(bundle)))


@pytest.mark.parametrize("name", ["bge-m3", "multilingual-e5-base", "multilingual-e5-small"])
def test_graphs_for_cuda_give_them_to_half_precision(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = build(write_folder(tmp_path, name))
    want = originals(tmp_path, "").astype(np.float64)
    stand_in.put_in(monkeypatch)
    monkeypatch.setitem(TOKEN_BUDGET, "ort-cuda", 1024)
    with Embedder.open(bundle, device="cuda:0") as embedder:
        distances = np.linalg.norm(want - embedder.embed(TEXTS), axis=1)
    print(f"{name}: {distances.mean():.1e}, {distances.max():.1e}")
    assert FP32_NOISE < distances.mean() < 10 * ROUNDOFF["fp16"]


@pytest.mark.parametrize("name", ["gte-modernbert-base", "bge-m3"])
def test_long_texts_are_cut_as_sentence_transformers_cuts_them(tmp_path: Path, name: str) -> None:
    bundle = build(
        write_folder(tmp_path, name, max_tokens=20),
        options=EmbedderOptions(long_text="truncate_text"),
    )
    with Embedder.open(bundle, device="cpu") as embedder:
        found = embedder.embed(TEXTS, "query: ")
        lengths = [len(ids) for ids in embedder._tokenizer.sequences(TEXTS, "query: ", 20).ids]
    assert max(lengths) == 20
    np.testing.assert_allclose(found, originals(tmp_path, "query: "), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["gte-modernbert-base", "multilingual-e5-small"])
def test_folders_that_sentence_transformers_saved_again(tmp_path: Path, name: str) -> None:
    """New releases spell pooling, modules, lengths and rotations in other ways."""
    published = write_folder(tmp_path / "published", name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sentence_transformers.SentenceTransformer(
            str(published), device="cpu", local_files_only=True
        ).save_pretrained(str(tmp_path / "again"))
    vectors = []
    for folder in (published, tmp_path / "again"):
        with Embedder.open(build(folder), device="cpu") as embedder:
            vectors.append(embedder.embed(TEXTS))
    assert np.array_equal(*vectors)
