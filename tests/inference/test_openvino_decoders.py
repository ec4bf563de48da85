"""Decoders on OpenVINO, in every precision of weights, against the published formula in NumPy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.numpy_decoder import embed, token_ids
from support.numpy_nv_embed import embed as embed_by_nv
from support.outliers import plant
from support.processes import run_python
from support.rounding import ROUNDOFF
from support.tiny_decoder import write_tiny_decoder
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.families.build import Build, Quantization
from vcs_export.families.decoder import DecoderOptions, build_decoder_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import DeviceError, Embedder
from vcs_runtime.bundle.opening import Bundle, open_bundle

pytest.importorskip("openvino")

DEVICES = ("openvino:fp32", "openvino")
TEXTS = [
    "the dog runs",
    "a young woman opens the door and looks at the river while two cats run",
    "Zwei Katzen – 猫.",
    "a dog",
]
IN_BF16 = 4 * ROUNDOFF["bf16"]
# The largest difference of a number of a unit vector, by the precision of the weights: in fp32 and
# in bf16. Levels of 8 bits lose more than either.
TOLERANCES = {
    "fp32": (1e-5, IN_BF16),
    "fp16": (2 * ROUNDOFF["fp16"], IN_BF16),
    "bf16": (IN_BF16, IN_BF16),
    "int8": (0.025, 0.025),
}


def bundle_of(
    folder: Path, target: Path, precision: str, causal: bool | None = None, **options: Any
) -> Path:
    build = Build(
        folder,
        target,
        BundleInfo("tiny", "CC0-1.0", "random numbers"),
        Quantization(precision, texts=TEXTS[:1], least_cosine=-1, most_change=1),
        **options,
    )
    return build_decoder_bundle(build, DecoderOptions(causal=causal))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "precision"),
    [
        ("qwen3", "fp32"),
        ("gte-qwen2", "fp16"),
        ("nemotron", "int8"),
        ("embedding-gemma", "int8"),
    ],
)
def test_vectors_are_those_of_the_published_formula_alone_and_in_a_batch(
    tmp_path: Path, family: str, precision: str
) -> None:
    folder = write_tiny_decoder(tmp_path / "checkpoint", family)
    bundle = bundle_of(
        folder, tmp_path / "bundle", precision, False if family == "gte-qwen2" else None
    )
    expected = np.array([embed(folder, token_ids(folder, text)) for text in TEXTS])
    for device, tolerance in zip(DEVICES, TOLERANCES[precision], strict=True):
        with Embedder.open(bundle, device) as embedder:
            vectors = embedder.embed(TEXTS)
            assert np.array_equal(
                vectors, np.concatenate([embedder.embed([text]) for text in TEXTS])
            )
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_nv_embed_with_outliers_keeps_its_vectors(tmp_path: Path, precision: str) -> None:
    """One channel is about 400 times as large as the others, as in a real Mistral."""
    folder = write_tiny_nv_embed(
        tmp_path / "checkpoint", change=lambda tensors: plant(tensors, 1, "every"), dtype="F16"
    )
    bundle = build_tiny_nv_embed_bundle(
        tmp_path,
        checkpoint=folder,
        precision=precision,
        texts=TEXTS[:1],
        least_cosine=-1,
        most_change=1,
    )
    with Embedder.open(bundle, "cpu") as embedder:
        rows = embedder._tokenizer.sequences(TEXTS, "", 64).ids
    expected = np.array([embed_by_nv(folder, list(row)) for row in rows])
    for device, tolerance in zip(DEVICES, TOLERANCES[precision], strict=True):
        with Embedder.open(bundle, device) as embedder:
            np.testing.assert_allclose(embedder.embed(TEXTS), expected, rtol=0, atol=tolerance)


def test_a_token_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    """OpenVINO itself reads what lies behind the table."""
    bundle = open_bundle(build_tiny_nv_embed_bundle(tmp_path))
    tokenizer = Tokenizer.from_file(str(bundle.root / "embedder/tokenizer.json"))
    rows = tokenizer.get_vocab_size()
    tokenizer.add_tokens(["one-more"])
    tokenizer.save(str(bundle.root / "embedder/tokenizer.json"))
    refused = pytest.raises(
        DeviceError, match=f"input_ids holds {rows}, but the model's table has {rows} rows"
    )
    with Embedder.open(Bundle(bundle.root, bundle.manifest), "openvino") as embedder, refused:
        embedder.embed(["a dog one-more"])


_MEASURED = """
import re, sys
from pathlib import Path
from vcs_runtime import Embedder

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

opened = [Embedder.open(sys.argv[1], "openvino:fp32", proof=False)]
for bundle in sys.argv[2:]:
    before = anonymous()
    opened.append(Embedder.open(bundle, "openvino:fp32", proof=False))
    print(anonymous() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_stay_in_their_file_until_the_first_run(tmp_path: Path) -> None:
    """OpenVINO's own reader would copy integers, and widen halves to twice their size."""
    small = write_tiny_decoder(tmp_path / "small", "qwen3")
    large = write_tiny_decoder(
        tmp_path / "large", "qwen3", hidden_size=128, intermediate_size=1 << 15
    )
    bundles = [
        bundle_of(folder, tmp_path / precision / folder.name, precision, weights="copy")
        for folder, precision in ((small, "fp16"), (large, "fp16"), (large, "int8"))
    ]
    run = run_python("-c", _MEASURED, *bundles, check=True)
    for bundle, taken in zip(bundles[1:], run.stdout.split(), strict=True):
        weights = (bundle / "embedder/model.onnx.data").stat().st_size
        assert int(taken) < 0.6 * weights
