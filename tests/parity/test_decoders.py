"""Decoders against transformers and sentence-transformers, on tiny checkpoints."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what the oracles' imports have to say
    import sentence_transformers

from support import numpy_decoder
from support.checkpoints.decoder import FAMILIES
from support.command_line import vcs
from support.drawn_texts import drawn_texts
from support.numpy_onnx import run
from support.safetensors_files import Array
from support.tiny_decoder import write_tiny_decoder
from support.torch_decoder import OWN_MASK, open_model, pooled, states
from vcs_runtime import Embedder
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import batches
from vcs_runtime.inference.tokenizer import TextTokenizer, load_tokenizer

TOLERANCE = 1e-5
# 1 - cosine to vectors in float32, at worst.
LOSSES = {
    ("fp16", "cpu"): 1e-5,
    ("fp16", "cuda"): 1e-5,
    ("bf16", "cuda"): 5e-4,
    ("int8", "cpu"): 2e-3,
    ("int8", "cuda"): 2e-3,
}
in_sentence_transformers = pytest.mark.parametrize(
    "oracle", [name for name in FAMILIES if name not in OWN_MASK], indirect=True
)
TEXTS = drawn_texts(16, 90)


def largest(ours: Any, theirs: Any) -> float:
    """The largest difference of a number, relative to the largest of its rows, at least 1."""
    pairs = zip(ours, theirs, strict=True)
    return max(float(np.abs(a - b).max() / max(1.0, np.abs(a).max())) for a, b in pairs)


@dataclass(frozen=True)
class Oracle:
    """A tiny checkpoint, and what is computed by it for `TEXTS`: by NumPy, and by transformers."""

    family: str
    folder: Path
    ids: list[list[int]]
    numpy: list[Array]
    torch: list[Array]


@pytest.fixture(scope="module", params=list(FAMILIES))
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    """Vectors of transformers, pooled in NumPy; texts are padded on the left, as advised."""
    family = request.param
    folder = write_tiny_decoder(tmp_path_factory.mktemp(family), family)
    ids = [numpy_decoder.token_ids(folder, text) for text in TEXTS]
    assert max(map(len, ids)) > 10 * 12  # many windows
    theirs = [
        pooled(folder, family, found) for found in by_transformers(folder, family, ids, "left")
    ]
    return Oracle(family, folder, ids, [numpy_decoder.embed(folder, row) for row in ids], theirs)


def by_transformers(
    folder: Path, family: str, ids: list[list[int]], side: str, causal: bool | None = None
) -> list[Array]:
    """Token vectors of texts, in batches of eight."""
    made = open_model(folder, causal)
    both_ways = family in OWN_MASK and causal is not True
    parts = (states(made, ids[i : i + 8], side, both_ways) for i in range(0, len(ids), 8))
    return [found for part in parts for found in part]


@pytest.mark.parametrize(("spelling", "side"), [(4, "left"), (5, "right")])
def test_numpy_computes_as_transformers(
    oracle: Oracle, tmp_path: Path, spelling: int, side: str
) -> None:
    family = oracle.family
    folder = write_tiny_decoder(tmp_path, family, spelling=spelling)
    ours = [numpy_decoder.token_vectors(folder, row) for row in oracle.ids]
    tokens = largest(ours, by_transformers(folder, family, oracle.ids, side))
    whole = largest(oracle.numpy, oracle.torch)
    print(f"{family}, {side}: tokens {tokens:.1e}, vectors {whole:.1e}")
    assert whole <= TOLERANCE
    assert tokens <= TOLERANCE


@pytest.mark.parametrize("weights", ["link", "copy"])
def test_bundles_compute_as_transformers(oracle: Oracle, weights: str, tmp_path: Path) -> None:
    bundle = export(oracle, tmp_path, "--weights", weights)
    difference = largest(vectors(bundle), oracle.torch)
    print(f"{oracle.family}, {weights}: {difference:.1e}")
    assert difference <= TOLERANCE


@pytest.mark.parametrize("stored", ["F16", "BF16"])
def test_bundles_of_stored_halves_compute_as_transformers(
    oracle: Oracle, stored: str, tmp_path: Path
) -> None:
    family = oracle.family
    folder = write_tiny_decoder(
        tmp_path / "stored", family, dtype=stored, prefix="model.", shards=2
    )
    found = by_transformers(folder, family, oracle.ids, "right")
    theirs = [pooled(folder, family, states) for states in found]
    difference = largest(vectors(export(replace(oracle, folder=folder), tmp_path)), theirs)
    print(f"{family}, {stored}: {difference:.1e}")
    assert difference <= TOLERANCE


@pytest.mark.parametrize("oracle", ["gte-qwen2"], indirect=True)
def test_gte_may_be_causal(oracle: Oracle, tmp_path: Path) -> None:
    """As the code of its smaller size runs it, whatever `config.json` says."""
    found = by_transformers(oracle.folder, oracle.family, oracle.ids, "left", causal=True)
    theirs = [pooled(oracle.folder, oracle.family, states) for states in found]
    assert largest(oracle.torch, theirs) > 100 * TOLERANCE
    ours = vectors(export(oracle, tmp_path, "--attention", "causal"))
    assert largest(ours, theirs) <= TOLERANCE


@pytest.mark.parametrize(("precision", "device"), LOSSES)
def test_what_precisions_lose(oracle: Oracle, precision: str, device: str, tmp_path: Path) -> None:
    """The graph for CUDA is computed by an interpreter, which rounds where CUDA's kernels round."""
    if precision == "fp16" and "gemma" in oracle.family:
        pytest.skip("Gemma's numbers do not fit into float16")
    # Random weights.
    bundle = export(oracle, tmp_path, "--precision", precision, "--most-change", "1")
    found = np.array(vectors(bundle) if device == "cpu" else by_interpreter(bundle))
    lost = 1 - (found * np.array(oracle.torch)).sum(axis=1)
    print(
        f"{oracle.family}, {precision}, {device}: 1 - cosine {lost.mean():.1e}, at worst"
        f" {lost.max():.1e}"
    )
    assert lost.max() <= LOSSES[precision, device]


@pytest.mark.parametrize("prompt", ["", "query"])
@in_sentence_transformers
def test_bundles_compute_as_sentence_transformers(
    oracle: Oracle, tmp_path: Path, prompt: str
) -> None:
    theirs = sentence(oracle.folder).encode(TEXTS, prompt_name=prompt or None)
    bundle = export(oracle, tmp_path, *(["--prompt", prompt] if prompt else []))
    difference = largest(vectors(bundle), theirs)
    print(f"{oracle.family}, prompt {prompt!r}: {difference:.1e}")
    assert difference <= TOLERANCE


@in_sentence_transformers
def test_texts_are_cut_and_vectors_are_shortened_as_by_sentence_transformers(
    oracle: Oracle, tmp_path: Path
) -> None:
    made = sentence(oracle.folder)
    made.max_seq_length = 19
    theirs = made.encode(TEXTS, truncate_dim=20, normalize_embeddings=True)
    assert largest(theirs, made.encode(TEXTS[2:3] * len(TEXTS), truncate_dim=20)) > 0.1
    bundle = export(oracle, tmp_path, "--max-tokens", "19", "--dimension", "20")
    difference = largest(vectors(bundle), theirs)
    print(f"{oracle.family}, cut: {difference:.1e}")
    assert difference <= TOLERANCE


def export(oracle: Oracle, target: Path, *arguments: str) -> Path:
    """The bundle that the command makes of the checkpoint."""
    given = ["--precision", "fp32", *arguments]
    if oracle.family == "gte-qwen2" and "--attention" not in arguments:
        given += ["--attention", "bidirectional"]
    bundle = target / "bundle"
    finished = vcs("export", "decoder", "--from", str(oracle.folder), "-o", str(bundle), *given)
    assert finished.code == 0, finished.stderr
    return bundle


def vectors(bundle: Path) -> Any:
    with Embedder.open(bundle, device="cpu") as embedder:
        return embedder.embed(TEXTS)


def by_interpreter(path: Path) -> Any:
    """Vectors of `TEXTS` by the graph for CUDA."""
    bundle = open_bundle(path)
    spec = bundle.manifest.embedder
    assert spec is not None
    assert spec.cuda is not None
    tokenizer = TextTokenizer(load_tokenizer(bundle.path(spec.tokenizer)), spec)
    sequences = tokenizer.sequences(TEXTS, "", spec.max_tokens)
    found = np.empty((len(TEXTS), spec.dimension))
    for batch in batches(sequences.ids, 512, spec.cuda.layout, sequences.skip, mixed=True):
        found[batch.rows] = run(bundle.path(spec.cuda.model), batch.inputs)
    return found


def sentence(folder: Path) -> Any:
    """The whole folder, in sentence-transformers."""
    return sentence_transformers.SentenceTransformer(
        str(folder),
        device="cpu",
        model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"},
    )
