"""Long texts through a decoder's graphs, compared with NumPy at every border of length."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from support.checkpoints.nv_embed import VOCABULARY, write_tiny_nv_embed
from support.numpy_nv_embed import embed
from support.random_decoder import GEMMA, PARTS, random_rows, write_random_decoder
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.graph.cpu_layouts import WIDEST
from vcs_export.graph.decoder_model import write_decoder_model
from vcs_runtime import Embedder
from vcs_runtime.inference.batching import TOKEN_BUDGET, batches
from vcs_runtime.inference.device import choose_device
from vcs_runtime.inference.onnx_session import open_session, run_session

# More than a batch of a CPU holds, and no multiple of the step to which texts are padded.
POSITIONS = 2302
LENGTHS = (1025, 2049, 2302)
STATUS = Path("/proc/self/status")
WORDS = [token for token in ("▁the", "▁a", "▁dog", "▁man", "▁red") if token in VOCABULARY]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "checkpoint"
    return write_tiny_nv_embed(folder, layers=1, positions=POSITIONS)


def text_of(tokens: int) -> str:
    """A text of so many tokens with its two special ones, in which no place is like another."""
    draw = np.random.default_rng(tokens)
    return " ".join(WORDS[i].removeprefix("▁") for i in draw.integers(0, len(WORDS), tokens - 2))


def peak_bytes() -> int:
    """The most memory that this process has had."""
    [found] = re.findall(r"VmHWM:\s+(\d+) kB", STATUS.read_text())
    return 1024 * int(found)


@pytest.mark.slow
def test_long_texts_are_those_of_numpy(checkpoint: Path, tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=checkpoint)
    with Embedder.open(bundle, device="cpu") as embedder:
        for tokens in LENGTHS:
            [ids] = embedder._tokenizer.sequences([text_of(tokens)], "", POSITIONS).ids
            assert len(ids) == tokens
            [vector] = embedder.embed([text_of(tokens)])
            np.testing.assert_allclose(vector, embed(checkpoint, list(ids)), rtol=0, atol=2e-6)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_long_text_has_the_same_bits_in_any_company(
    checkpoint: Path, tmp_path: Path, precision: str
) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=checkpoint, precision=precision)
    texts = [text_of(tokens) for tokens in (1024, 1025, 1025, 9, 1023)] + [f"{text_of(1025)}"[:-4]]
    with Embedder.open(bundle, device="cpu") as embedder:
        together = embedder.embed(texts)
        np.testing.assert_array_equal(
            together, np.concatenate([embedder.embed([text]) for text in texts])
        )


@pytest.mark.parametrize(("tokens", "rows"), [(7, 2), (1024, 2), (1025, 1), (2303, 1)])
def test_a_text_that_is_alone_in_every_batch_has_no_filler(tokens: int, rows: int) -> None:
    """A filler is padded to the text's length, and its attention takes as much memory."""
    [batch] = batches([[5] * tokens], TOKEN_BUDGET["ort-cpu"], "packed")
    assert batch.inputs["gather"].shape == (rows, tokens)
    assert batch.fillers == rows - 1


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.is_file(), reason="this system does not tell the peak of a process")
def test_scores_of_a_long_text_take_bounded_memory(tmp_path: Path) -> None:
    """All scores at once would take 4.3 GB. A process never has less than its peak."""
    tokens, heads = 8192, 16
    checkpoint = write_tiny_nv_embed(
        tmp_path / "checkpoint", layers=1, heads=heads, head_dim=2, positions=tokens
    )
    bundle = build_tiny_nv_embed_bundle(tmp_path, checkpoint=checkpoint)
    with Embedder.open(bundle, device="cpu") as embedder:
        before = peak_bytes()
        embedder.embed([text_of(tokens)])
        assert peak_bytes() - before < heads * tokens * tokens * np.float32().nbytes / 2


@pytest.mark.slow
@pytest.mark.parametrize("part", ["causal", "causal windows", "Gemma"])
def test_causal_models_and_windows_are_those_of_numpy(tmp_path: Path, part: str) -> None:
    """Texts that are just long enough for blocks of queries, and for three blocks."""
    settings = (GEMMA if part == "Gemma" else PARTS[part]) | {"max_position_embeddings": 3000}
    decoder = write_random_decoder(tmp_path, **settings | {"num_attention_heads": 2})
    rows = random_rows(2900, WIDEST + 1)
    model = tmp_path / "model.onnx"
    write_decoder_model(decoder.model("mean"), model, "fp32", link=False)
    session = open_session(model, choose_device("cpu"))
    got = [
        run_session(session, ["embedding"], batch.inputs)[0][0]
        for batch in batches(rows, WIDEST, "packed")
    ]
    np.testing.assert_allclose(got, decoder.vectors(rows, "mean"), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_long_texts_may_share_a_batch(tmp_path: Path) -> None:
    """Fixed shapes bring texts of several lengths together, and rows of padding."""
    decoder = write_random_decoder(
        tmp_path, local=PARTS["windows"]["local"], max_position_embeddings=4100
    )
    rows = random_rows(2400, 2100, 7)
    model = tmp_path / "model.onnx"
    write_decoder_model(decoder.model("mean"), model, "fp32", link=False)
    session = open_session(model, choose_device("cpu"))
    [batch] = batches(rows, 20000, "packed", mixed=True)
    [got] = run_session(session, ["embedding"], batch.inputs)
    np.testing.assert_allclose(got, decoder.vectors(rows, "mean"), rtol=0, atol=1e-5)
