"""Graphs for CUDA of encoders, computed by an interpreter in NumPy and by ONNX Runtime on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from support import stand_in
from support.checkpoints.bert import tiny_tokenizer, write_tiny_checkpoint
from support.cuda_kernels import session
from support.embedders import spec_of, vectors_of
from support.numpy_bert import encode
from support.numpy_onnx import names, run
from support.rounding import FP32_NOISE, PROBABILITIES, ROUNDOFF
from support.stories import story
from support.tiny_boundary import build_tiny_words, write_updates
from support.tiny_modernbert import write_tiny_modernbert
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from support.tiny_sat import boundary, build_tiny_sat_bundle
from support.tiny_sentence import write_sentence_files, write_tiny_family
from vcs_export.families.build import CUDA_FILE, MODEL_FILE, Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import DeviceError, Embedder, Scorer, Segmenter
from vcs_runtime.bundle.merge import merge
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import TOKEN_BUDGET, batches
from vcs_runtime.inference.token_vectors import TokenVectors

INFO = BundleInfo("tiny", "CC0-1.0", "random numbers")
# The last one in windows.
TEXTS = [story(i, 1 + i % 4)[: 20 + 9 * i] for i in range(12)] + [story(50, 9)]
KINDS = ["bert", "xlm-roberta", "distilbert"]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in.put_in(monkeypatch)
    monkeypatch.setitem(TOKEN_BUDGET, "ort-cuda", 64)


def build(folder: Path, kind: str, pooling: str = "mean_tokens") -> Path:
    """A bundle, and a BERT with the same numbers in the folder `bert`."""
    checkpoint = folder / "bert"
    if kind == "modernbert":
        write_tiny_modernbert(checkpoint)
    elif kind == "bert":
        write_tiny_checkpoint(checkpoint)
    else:
        checkpoint = write_tiny_family(folder, kind)
    write_sentence_files(checkpoint, 32, pooling=f"pooling_mode_{pooling}")
    return build_sentence_bundle(Build(checkpoint, folder / "bundle", INFO))


def ids_of(texts: list[str]) -> list[list[int]]:
    return [encoding.ids[:32] for encoding in tiny_tokenizer().encode_batch(texts)]


@pytest.mark.parametrize("kind", KINDS)
def test_without_rounding_the_graph_computes_the_encoder(tmp_path: Path, kind: str) -> None:
    bundle = build(tmp_path, kind)
    rows = ids_of(TEXTS)
    [batch] = batches(rows, 10_000, "varlen", mixed=True)
    got = run(bundle / CUDA_FILE, batch.inputs, exact=True)
    want = np.stack([encode(tmp_path / "bert", rows[row]) for row in batch.rows])
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        *((kind, "mean_tokens") for kind in KINDS),
        ("bert", "cls_token"),
        ("xlm-roberta", "lasttoken"),
    ],
)
def test_vectors_are_those_of_the_other_graph_to_rounding(
    cuda: None, tmp_path: Path, kind: str, pooling: str
) -> None:
    bundle = build(tmp_path, kind, pooling)
    want = vectors_of(bundle, TEXTS).astype(np.float64)
    for invariant in (False, True):
        with Embedder.open(bundle, "cuda:0", batch_invariant=invariant) as embedder:
            distances = np.linalg.norm(want - embedder.embed(TEXTS), axis=1)
            assert FP32_NOISE < distances.max() < 10 * ROUNDOFF["fp16"]
            assert "prec:fp16" in embedder.signature_fields
            [engine] = [
                field for field in embedder.signature_fields if field.startswith("engine:ort-cuda@")
            ]
            assert engine[-4:] in embedder.cache_identity


def test_a_pad_that_a_text_spells_out_takes_no_position(tmp_path: Path) -> None:
    bundle = build(tmp_path, "xlm-roberta")
    rows = [[2, 7, 1, 9, 1, 1, 12, 3], [2, 11, 9, 3], [1, 8, 1, 3]]
    [unpadded] = batches(rows, 100, "varlen", mixed=True)
    got = session(bundle / CUDA_FILE).run(None, unpadded.inputs)[0]
    for batch in batches(rows, 100):
        [want] = ort.InferenceSession(bundle / MODEL_FILE).run(None, batch.inputs)
        np.testing.assert_allclose(
            got[[unpadded.rows.index(row) for row in batch.rows]],
            want,
            rtol=0,
            atol=4 * ROUNDOFF["fp16"],
        )


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_in_fp32_cuda_runs_the_other_graph(cuda: None, tmp_path: Path, kind: str) -> None:
    bundle = build(tmp_path, kind)
    with Embedder.open(bundle, "cuda:0:fp32") as embedder:
        assert {"prec:fp32", "engine:ort-cuda"} <= set(embedder.signature_fields)
        np.testing.assert_allclose(
            embedder.embed(TEXTS), vectors_of(bundle, TEXTS), rtol=0, atol=FP32_NOISE
        )
        identity = f"{open_bundle(bundle).model_hash(embedder.spec)}|ort-cuda|ort:"
        assert embedder.cache_identity.startswith(identity)


def test_a_model_of_halves_is_refused_in_fp32(cuda: None, tmp_path: Path) -> None:
    bundle = build_tiny_nv_embed_bundle(tmp_path, precision="fp16")
    with pytest.raises(DeviceError, match=r"cuda:0:fp32: .* is in fp16"):
        Embedder.open(bundle, "cuda:0:fp32")


@pytest.mark.parametrize("case", [("mpnet",), ("modernbert",), ("bert", "max_tokens")])
def test_other_models_keep_their_graph(cuda: None, tmp_path: Path, case: tuple[str, ...]) -> None:
    bundle = build(tmp_path, *case)
    assert spec_of(bundle).cuda is None
    assert not (bundle / CUDA_FILE).exists()
    with Embedder.open(bundle, "cuda:0") as embedder:
        assert {"prec:fp32", "engine:ort-cuda"} <= set(embedder.signature_fields)


def segmenters(folder: Path) -> Iterator[Path]:
    for precision in ("fp32", "fp16"):
        yield build_tiny_sat_bundle(folder / precision, precision=precision, layers=2)
    updates = write_updates(write_tiny_checkpoint(folder / "words"), folder / "updates.safetensors")
    yield build_tiny_words(folder / "words", updates, folder / "words-bundle")


def test_a_learned_segmenter_has_such_a_graph(cuda: None, tmp_path: Path) -> None:
    for bundle in segmenters(tmp_path):
        spec = boundary(bundle)
        assert spec.cuda is not None
        with Segmenter.open(bundle, "cpu") as segmenter:
            want = np.concatenate(segmenter.boundary_probabilities(TEXTS))
        for invariant in (False, True):
            with Segmenter.open(bundle, "cuda:0", batch_invariant=invariant) as segmenter:
                got = np.concatenate(segmenter.boundary_probabilities(TEXTS))
                assert "/fp16/ort-cuda@" in segmenter.signature_fields[1]
            assert 0 < np.abs(got - want).max() < PROBABILITIES["fp16"]
            assert np.ptp(want) > 0.1


def test_a_learned_segmenter_with_lookahead_or_integers_has_none(tmp_path: Path) -> None:
    for number, options in enumerate(({"lookahead": 48}, {"precision": "int8"})):
        assert boundary(build_tiny_sat_bundle(tmp_path / str(number), **options)).cuda is None


def test_vectors_of_tokens_are_those_of_the_other_graph(cuda: None, tmp_path: Path) -> None:
    bundle = build(tmp_path, "bert")
    found: list[dict[str, TokenVectors]] = []
    for device in ("cpu", "cuda:0"):
        with Embedder.open(bundle, device) as embedder:
            for layer in (0, 1, None):
                found.append(embedder.token_vectors(TEXTS, embedder.show_tokens(layer)))
    for want, got in zip(found[:3], found[3:], strict=True):
        for text in TEXTS:
            np.testing.assert_array_equal(want[text].ids, got[text].ids)
            bound = 10 * ROUNDOFF["fp16"] * np.abs(want[text].vectors).max()
            np.testing.assert_allclose(want[text].vectors, got[text].vectors, rtol=0, atol=bound)


def test_both_graphs_share_their_weights(cuda: None, tmp_path: Path) -> None:
    updates = write_updates(
        write_tiny_checkpoint(tmp_path / "bert"), tmp_path / "updates.safetensors"
    )
    build_tiny_words(tmp_path / "bert", updates, tmp_path / "bundle")
    sat = build_tiny_sat_bundle(tmp_path / "sat")
    merge(tmp_path / "bundle", sat, tmp_path / "merged")
    for bundle in (tmp_path / "bundle", tmp_path / "merged"):
        opened = open_bundle(bundle)
        for spec in (opened.part("embedder"), opened.part("segmenter")):
            assert spec is not None
            assert spec.cuda is not None
            places = [
                {
                    (tensor.name, *(item.value for item in tensor.external_data))
                    for tensor in onnx.load(
                        bundle / file, load_external_data=False
                    ).graph.initializer
                    if tensor.external_data
                }
                for file in (spec.model, spec.cuda.model)
            ]
            assert places[0] - places[1] == {
                place for place in places[0] if "attention.self.key.bias" in place[0]
            }
            assert places[1] <= places[0]
            assert "Softmax" not in names(bundle / spec.cuda.model)
        with Scorer.open(bundle, device="cuda:0") as scorer:
            result = scorer.score(TEXTS[-1], TEXTS[-2])
            assert "prec:fp16" in result.signature
