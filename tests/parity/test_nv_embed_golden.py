"""Recorded vectors and token ids of NV-Embed's own code (PyTorch, fp32) on a random checkpoint:
`golden.npz` beside it.

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
from msgspec.structs import replace

from support.golden import GOLDEN
from support.numpy_onnx import run
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import build_nv_embed_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import batches
from vcs_runtime.inference.tokenizer import TextTokenizer, load_tokenizer, own_special_tokens

FOLDER = GOLDEN / "nv-embed-tiny"
TOLERANCE = 1e-5
CUDA_TOLERANCE = 1e-3
INSTRUCTIONS = {
    "none": "",
    "nospace": "Instruct: Describe the scene:",
    "query": "Instruct: Given a question, retrieve passages that answer the question\nQuery: ",
    "sts": "Instruct: Retrieve semantically similar text.\nQuery: ",
}
MAX_TOKENS, SHORT = 512, 16  # the latter for the text that is cut
SPEC = EmbedderSpec(
    name="nv-embed-tiny",
    model="",
    weights=(),
    tokenizer="",
    dimension=64,
    max_tokens=MAX_TOKENS,
    long_text="truncate",
    precision="fp32",
    layout="packed",
    mask_instruction=True,
    special_tokens=((1,), (2,)),
)

pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER} is not there: set VCS_RUNTIME_GOLDEN"
)


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer(load_tokenizer(FOLDER / "tokenizer.json"), SPEC)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(json.loads((FOLDER / "texts.json").read_text("utf-8")))


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    with np.load(FOLDER / "golden.npz") as recorded:
        return dict(recorded)


@pytest.fixture(scope="module", params=["link", "copy"])
def embedder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Embedder]:
    build = Build(
        FOLDER,
        tmp_path_factory.mktemp("golden") / "bundle",
        BundleInfo(FOLDER.name, "CC0-1.0", "random numbers"),
        Quantization("fp32"),
        # The golden folder may be on another file system than the temporary one.
        weights=(
            request.param
            if os.stat(FOLDER).st_dev == os.stat(tmp_path_factory.getbasetemp()).st_dev
            else "copy"
        ),
    )
    bundle = build_nv_embed_bundle(build)
    with Embedder.open(bundle, device="cpu") as opened:
        yield opened


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_ids_and_instruction_lengths(
    tokenizer: TextTokenizer, texts: list[str], golden: dict[str, Any], name: str
) -> None:
    found = tokenizer.sequences(texts, INSTRUCTIONS[name], MAX_TOKENS)
    wanted = [
        ids[mask == 1].tolist()
        for ids, mask in zip(golden[f"ids_{name}"], golden[f"am_{name}"], strict=True)
    ]
    assert [list(ids) for ids in found.ids] == wanted
    assert found.skip == int(golden[f"il_{name}"])


def test_a_truncated_text_loses_its_end_and_keeps_one_place_to_pool(
    tokenizer: TextTokenizer, texts: list[str], golden: dict[str, Any]
) -> None:
    found = tokenizer.sequences([texts[1]], INSTRUCTIONS["sts"], SHORT)
    assert [list(ids) for ids in found.ids] == [golden["ids_sts"][1][:SHORT].tolist()]
    assert found.skip == SHORT - 1


def test_the_tokenizer_alone_would_put_no_end_behind_a_text() -> None:
    loaded = load_tokenizer(FOLDER / "tokenizer.json")
    assert own_special_tokens(loaded) == ((1,), ())
    unframed = TextTokenizer(loaded, replace(SPEC, special_tokens=None))
    assert unframed.sequences(["Rain."], "", MAX_TOKENS).ids[0][-1] != 2


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_vectors(
    embedder: Embedder, texts: list[str], golden: dict[str, Any], name: str, record_property: Any
) -> None:
    found = embedder.embed(texts, instruction=INSTRUCTIONS[name], max_length=MAX_TOKENS)
    largest = float(np.abs(found - golden[name]).max())
    record_property("largest_difference", largest)
    print(f"{name}: {len(texts)} texts differ by at most {largest:.1e}")
    assert largest <= TOLERANCE


def test_a_text_that_is_cut_loses_its_end(
    embedder: Embedder, texts: list[str], golden: dict[str, Any]
) -> None:
    found = embedder.embed(texts[1:2], instruction=INSTRUCTIONS["sts"], max_length=SHORT)
    np.testing.assert_allclose(found, golden["trunc"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_graph_for_cuda_by_an_interpreter(
    tmp_path: Path, texts: list[str], golden: dict[str, Any], name: str
) -> None:
    """A CPU lacks its operators; rounded as CUDA rounds, it is as near as fp16 on a CPU."""
    info = BundleInfo(FOLDER.name, "CC0-1.0", "random numbers")
    build = Build(FOLDER, tmp_path / "bundle", info, Quantization("fp16"), weights="copy")
    bundle, wanted = open_bundle(build_nv_embed_bundle(build)), golden[name]
    spec = bundle.manifest.embedder
    assert spec is not None
    assert spec.cuda is not None
    tokenizer = TextTokenizer(load_tokenizer(bundle.path(spec.tokenizer)), spec)
    sequences = tokenizer.sequences(texts, INSTRUCTIONS[name], MAX_TOKENS)
    largest = {}
    for exact in (True, False):
        found = np.empty(wanted.shape)
        for batch in batches(sequences.ids, 16384, spec.cuda.layout, sequences.skip, mixed=True):
            found[batch.rows] = run(bundle.path(spec.cuda.model), batch.inputs, exact=exact)
        largest[exact] = float(np.abs(found - wanted).max())
    with Embedder.open(bundle, device="cpu") as embedder:
        cpu = np.abs(
            embedder.embed(texts, instruction=INSTRUCTIONS[name], max_length=MAX_TOKENS) - wanted
        ).max()
    print(
        f"{name}: exact {largest[True]:.1e}, rounded {largest[False]:.1e}, fp16 on a CPU {cpu:.1e}"
    )
    assert largest[True] <= CUDA_TOLERANCE  # weights are rounded to fp16
    assert largest[False] <= 2 * max(cpu, largest[True])
