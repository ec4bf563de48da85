"""The default bundle against PyTorch: `BertModel`, mean pooling and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer

from vcs_export.checkpoint.encoders import encoder_config
from vcs_export.checkpoint.sentence_folder import read_sentence_folder
from vcs_runtime.bundle.opening import Bundle

TOLERANCE = 1e-5
MAX_TOKENS = 256

SUBJECTS = (
    "A young woman",
    "The goalkeeper",
    "An old fisherman",
    "A street vendor",
    "Two children",
    "The robot",
)
ACTIONS = (
    "slices a lemon on a wooden board",
    "runs towards the camera and waves",
    "lifts a heavy box, hesitates, and sets it down again",
    "pours tea into a chipped blue cup",
    "repairs the chain of a bicycle",
    "points at the departing train",
)
PLACES = (
    "in a dim kitchen",
    "beside the harbour",
    "under a flickering street lamp",
    "near the window",
)
SPECIAL = (
    "a",
    "I",
    ".",
    "7",
    "?",
    "é",
    "中",
    "😀",
    "#",
    "Ω",
    "Yes.",
    "No one knows why.",
    "THE SIGN SAYS: DO NOT ENTER!",
    "mixed CaSe WoRdS",
    "Ein Mädchen läuft über die Straße und grüßt den Bäcker.",
    "Une fillette traverse la rue en courant ; il pleut déjà.",
    "El niño lanza la pelota. ¿La atrapa su hermano? ¡Sí!",
    "一个男人在厨房里切洋葱。",
    "男の子が犬と公園を走る。",
    "소녀가 자전거를 탄다.",
    "Девочка открывает старую дверь.",
    "الولد يركض نحو البحر",
    "कुत्ता गेंद के पीछे दौड़ता है",
    "The cat 🐈 jumps over the fence 🚧 and lands 🎉🎉",
    "👩‍👩‍👧‍👦 wave 👋🏽",
    "cafe\u0301 with a combining accent",
    "ﬁne ligatures, ½ cup, 10 m²",
    "naïve façade — “quoted” … ‘text’",
    "3.14159, 2,718 and 1e-9; 50 % off; $12.99 (approx.)",
    "https://example.org/watch?v=abc#t=10s",
    "one\ttab  two   spaces\nand a new line\r\n",
    "\u200bzero\u200dwidth\ufeff marks",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "x" * 99,
    "y" * 150,
    "-" * 40,
    "the the the the the the the the",
    "[CLS] typed by hand [SEP] [MASK]",
    "<b>not markup</b> &amp; \\n",
)


def texts() -> list[str]:
    """Short, odd, and ever longer ones: the longest fill the model's window."""
    sentences = [
        f"{SUBJECTS[i % 6]} {ACTIONS[(i * 5 + i // 6) % 6]} {PLACES[(i * 3 + i // 4) % 4]}."
        for i in range(48)
    ]
    growing = [
        " ".join(sentences[start : start + size])
        for start, size in enumerate((2, 3, 5, 8, 11, 14, 18, 30))
    ]
    return [*SPECIAL, *sentences[:24], *growing]


@pytest.fixture(scope="module")
def token_ids(bundle: Bundle) -> list[list[int]]:
    """By the bundle's tokenizer, cut at the model's window."""
    assert bundle.manifest.embedder is not None
    tokenizer = Tokenizer.from_file(str(bundle.path(bundle.manifest.embedder.tokenizer)))
    tokenizer.enable_truncation(MAX_TOKENS)
    return [item.ids for item in tokenizer.encode_batch(texts())]


@pytest.fixture(scope="module")
def oracle(checkpoint: Path, token_ids: list[list[int]]) -> NDArray[np.float32]:
    """One text at a time, without padding, the way sentence-transformers pools and normalises."""
    model = transformers.BertModel.from_pretrained(
        checkpoint, attn_implementation="eager", local_files_only=True, dtype=torch.float32
    ).eval()
    vectors = []
    with torch.inference_mode():
        for ids in token_ids:
            mask = torch.ones(1, len(ids), dtype=torch.int64)
            hidden = model(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state
            weights = mask[..., None].float()
            mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
            vectors.append(torch.nn.functional.normalize(mean, dim=1)[0].numpy())
    return np.stack(vectors)


def embed(
    bundle: Bundle, rows: Sequence[list[int]], length: int | None = None
) -> NDArray[np.float32]:
    assert bundle.manifest.embedder is not None
    path = bundle.path(bundle.manifest.embedder.model)
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ids, mask = np.zeros((2, len(rows), length or max(map(len, rows))), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    vectors: NDArray[np.float32] = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
    return vectors


def test_the_texts_are_many_and_reach_the_window(token_ids: list[list[int]]) -> None:
    lengths = [len(ids) for ids in token_ids]
    assert len(texts()) == len(set(texts())) >= 64
    assert min(lengths) == 3
    assert max(lengths) == MAX_TOKENS
    assert sum(length > 128 for length in lengths) >= 4


def test_token_ids_equal_those_of_transformers(
    checkpoint: Path, token_ids: list[list[int]]
) -> None:
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(checkpoint / "tokenizer.json")
    )
    theirs = tokenizer(texts(), truncation=True, max_length=MAX_TOKENS, padding=False)["input_ids"]
    assert token_ids == theirs


@pytest.mark.parametrize("batch", [False, True])
def test_vectors_of_single_texts_and_of_a_padded_batch(
    bundle: Bundle,
    token_ids: list[list[int]],
    oracle: NDArray[np.float32],
    record_property: Any,
    batch: bool,
) -> None:
    groups = [token_ids] if batch else [[ids] for ids in token_ids]
    got = np.concatenate([embed(bundle, ids, MAX_TOKENS if batch else None) for ids in groups])
    record_property("largest_difference", float(np.abs(got - oracle).max()))
    print(
        f"batch {batch}: {np.abs(got - oracle).max():.2e}, cosine {(got * oracle).sum(1).min():.9f}"
    )
    np.testing.assert_allclose(got, oracle, rtol=0, atol=TOLERANCE)


def test_vectors_of_the_embedder(
    bundle: Bundle, token_ids: list[list[int]], oracle: NDArray[np.float32]
) -> None:
    """The whole way from text, for texts that fit into the window."""
    from vcs_runtime import Embedder

    tokenizer = Tokenizer.from_file(str(bundle.path("embedder/tokenizer.json")))
    fitting = [i for i, text in enumerate(texts()) if len(tokenizer.encode(text).ids) <= MAX_TOKENS]
    assert len(fitting) >= 64
    got = Embedder.open(bundle.root, device="cpu").embed([texts()[i] for i in fitting])
    print(f"embedder: {np.abs(got - oracle[fitting]).max():.2e}")
    np.testing.assert_allclose(got, oracle[fitting], rtol=0, atol=TOLERANCE)


def test_the_settings_are_those_of_the_checkpoint(bundle: Bundle, checkpoint: Path) -> None:
    spec = bundle.manifest.embedder
    assert spec is not None
    length = read_sentence_folder(checkpoint).max_tokens
    assert (spec.dimension, spec.max_tokens) == (encoder_config(checkpoint).hidden_size, length)
    assert spec.name == "all-minilm-l6-v2"
    assert spec.max_tokens == MAX_TOKENS
    assert spec.long_text == "window_mean"
