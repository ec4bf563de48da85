"""Recorded vectors of NV-Embed's own code (PyTorch, fp32) on a random checkpoint: `golden.npz` beside it.

The checkpoint lies outside the repository, in `VCS_RUNTIME_GOLDEN`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.golden import GOLDEN
from support.numpy_onnx import run
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import build_nv_embed_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import batches
from vcs_runtime.inference.tokenizer import TextTokenizer, load_tokenizer

FOLDER = GOLDEN / "nv-embed-tiny"
TOLERANCE = 1e-5
CUDA_TOLERANCE = 1e-3
INSTRUCTIONS = {
    "none": "",
    "nospace": "Instruct: Describe the scene:",
    "query": "Instruct: Given a question, retrieve passages that answer the question\nQuery: ",
    "sts": "Instruct: Retrieve semantically similar text.\nQuery: ",
}
SHORT = 16  # tokens, for the text that is cut


@pytest.fixture(scope="module", params=["link", "copy"])
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is not there: set VCS_RUNTIME_GOLDEN")
    build = Build(
        FOLDER,
        tmp_path_factory.mktemp("golden") / "bundle",
        BundleInfo(FOLDER.name, "CC0-1.0", "random numbers"),
        Quantization("fp32"),
        # The golden folder may be on another file system than the temporary one.
        weights=request.param
        if os.stat(FOLDER).st_dev == os.stat(tmp_path_factory.getbasetemp()).st_dev
        else "copy",
    )
    bundle = build_nv_embed_bundle(build)
    with Embedder.open(bundle, device="cpu") as opened:
        yield opened


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_vectors(embedder: Embedder, name: str, record_property: Any) -> None:
    texts = json.loads((FOLDER / "texts.json").read_text("utf-8"))
    wanted = np.load(FOLDER / "golden.npz")[name]
    found = embedder.embed(texts, instruction=INSTRUCTIONS[name], max_length=512)
    largest = float(np.abs(found - wanted).max())
    record_property("largest_difference", largest)
    print(f"{name}: {len(texts)} texts differ by at most {largest:.1e}")
    assert largest <= TOLERANCE


def test_a_text_that_is_cut_loses_its_end(embedder: Embedder) -> None:
    text = json.loads((FOLDER / "texts.json").read_text("utf-8"))[1]
    wanted = np.load(FOLDER / "golden.npz")["trunc"]
    found = embedder.embed([text], instruction=INSTRUCTIONS["sts"], max_length=SHORT)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_graph_for_cuda_by_an_interpreter(tmp_path: Path, name: str) -> None:
    """Its operators have no kernels for a CPU. Rounded where CUDA's kernels round, it is as near as fp16 on a CPU."""
    if not FOLDER.is_dir():
        pytest.skip(f"{FOLDER} is not there: set VCS_RUNTIME_GOLDEN")
    info = BundleInfo(FOLDER.name, "CC0-1.0", "random numbers")
    build = Build(FOLDER, tmp_path / "bundle", info, Quantization("fp16"), weights="copy")
    path = build_nv_embed_bundle(build)
    texts = json.loads((FOLDER / "texts.json").read_text("utf-8"))
    wanted = np.load(FOLDER / "golden.npz")[name]
    bundle = open_bundle(path)
    spec = bundle.manifest.embedder
    assert spec is not None
    assert spec.cuda is not None
    tokenizer = TextTokenizer(load_tokenizer(bundle.path(spec.tokenizer)), spec)
    sequences = tokenizer.sequences(texts, INSTRUCTIONS[name], 512)
    largest = {}
    for exact in (True, False):
        found = np.empty(wanted.shape)
        for batch in batches(sequences.ids, 16384, spec.cuda.layout, sequences.skip, mixed=True):
            found[batch.rows] = run(bundle.path(spec.cuda.model), batch.inputs, exact=exact)
        largest[exact] = float(np.abs(found - wanted).max())
    with Embedder.open(bundle, device="cpu") as embedder:
        cpu = np.abs(embedder.embed(texts, instruction=INSTRUCTIONS[name], max_length=512) - wanted).max()
    print(f"{name}: exact {largest[True]:.1e}, rounded {largest[False]:.1e}, fp16 on a CPU {cpu:.1e}")
    assert largest[True] <= CUDA_TOLERANCE  # weights are rounded to fp16
    assert largest[False] <= 2 * max(cpu, largest[True])
