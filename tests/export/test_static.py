"""The fast tier from a tiny default bundle: the table, its graph, and `vcs-runtime fetch fast`."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from support.checkpoints.bert import VOCABULARY
from support.numpy_bert import gelu, linear, load, norm, transform
from support.tiny_fast import STEPS, write_fast_training
from vcs_export.errors import CheckpointError
from vcs_export.families.static import build_static, fetch_made, open_token_encoder
from vcs_runtime import Scorer
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.embedder import Embedder

CLS, SEP = VOCABULARY["[CLS]"], VOCABULARY["[SEP]"]
TEXTS = [
    "the dog runs",
    "a man opens the red door. he looks at the river",
    "onion",
    "knife knife bread",
    "",
]


@pytest.fixture(scope="module")
def training(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fast_training(tiny_bundle, tmp_path_factory.mktemp("map") / "fast.safetensors")


@pytest.fixture(scope="module")
def fast(tiny_bundle: Path, training: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("built") / "fast"
    return build_static(open_bundle(tiny_bundle), training, target, log=lambda line: None)


def test_vectors_of_tokens_alone_are_those_of_a_second_implementation(
    checkpoint: Path, tiny_bundle: Path
) -> None:
    encoder = open_token_encoder(open_bundle(tiny_bundle))
    config, tensors = load(checkpoint, "")
    ids = np.array([VOCABULARY["dog"], VOCABULARY["[UNK]"], VOCABULARY["##s"]])
    expected = [
        transform(tensors, config, [CLS, i, SEP], [0, 1, 2], np.ones((3, 3), bool)).mean(axis=0)
        for i in ids
    ]
    np.testing.assert_allclose(encoder.vectors(ids), expected, atol=2e-6)


def test_a_text_is_the_unit_mean_of_its_words_rows_in_any_batch(
    fast: Path, tiny_bundle: Path, training: Path
) -> None:
    encoder = open_token_encoder(open_bundle(tiny_bundle))
    trained = {name: tensor.astype(np.float64) for name, tensor in load_file(training).items()}
    mapped = encoder.vectors(np.arange(encoder.count)) @ trained["map"] + trained["bias"]
    table = mapped * trained["weights"][:, None]
    table[[CLS, SEP]] = mapped[[CLS, SEP]] * 1e-3
    tokenizer = Tokenizer.from_file(str(fast / "embedder/tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    sums = np.array([table[tokenizer.encode(text).ids].sum(axis=0) for text in TEXTS])
    with Embedder.open(fast, "cpu") as embedder:
        vectors = embedder.embed(TEXTS)
        alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
        reversed_ = embedder.embed(TEXTS[::-1])[::-1]
    np.testing.assert_allclose(
        vectors, sums / np.linalg.norm(sums, axis=1, keepdims=True), atol=2e-3
    )
    assert np.array_equal(vectors, alone)
    assert np.array_equal(vectors, reversed_)


def test_logits_of_its_segmenter_are_those_of_a_second_implementation_in_any_batch(
    fast: Path, training: Path
) -> None:
    ends = {
        name.removeprefix("ends."): tensor.astype(float)
        for name, tensor in load_file(training).items()
    }
    table = np.fromfile(fast / "embedder/model.onnx.data", np.float16).reshape(-1, 8).astype(float)
    rng = np.random.default_rng(1)
    ids, capitals = rng.integers(5, 80, (3, 16)), rng.integers(0, 4, (3, 16))
    mask = (np.arange(16) < [[2], [9], [16]]).astype(np.int64)
    inputs = {"input_ids": ids, "attention_mask": mask, "capitals": capitals}
    session = ort.InferenceSession(
        str(fast / "embedder/segmenter.onnx"), providers=["CPUExecutionProvider"]
    )
    [logits] = session.run(None, inputs)
    epsilon = {"layer_norm_eps": 1e-5}
    for row, length in enumerate(mask.sum(axis=1)):
        x = linear(norm(table[ids[row, :length]], ends, "rows", epsilon), ends, "words")
        x += ends["capitals.weight"][capitals[row, :length]]
        for block, step in enumerate(STEPS):
            seen = np.pad(norm(x, ends, f"{block}.norm", epsilon), ((step, step), (0, 0)))
            near = np.hstack([seen[i * step :][:length] for i in range(3)])
            x += linear(gelu(linear(near, ends, f"{block}.near")), ends, f"{block}.out")
        want = linear(norm(x, ends, "norm", epsilon), ends, "classifier")
        np.testing.assert_allclose(logits[row, :length], want, rtol=0, atol=2e-4)


def test_fetch_builds_it_once_and_again_for_another_map(
    tiny_bundle: Path, training: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    target = tmp_path / "fast"
    # onnx-ir refuses files with several links, which `bundle make` makes.
    source = shutil.copytree(tiny_bundle, tmp_path / "source")
    (tmp_path / "link").hardlink_to(source / "embedder/model.onnx.data")

    def fetch(trained: Path) -> bytes:
        fetch_made(
            "fast", build_static, log=said.append, source=source, training=trained, target=target
        )
        return (target / "embedder/model.onnx.data").read_bytes()

    first = fetch(training)
    assert said[-1] == f"wrote {target}"
    assert fetch(training) == first
    assert said[-1] == f"{target} exists already and is complete"
    other = write_fast_training(tiny_bundle, tmp_path / "other.safetensors", seed=1)
    assert fetch(other) != first
    with Scorer.open(target, device="cpu") as scorer:
        result = scorer.score(
            "The dog runs. A man sits. The door opens.", "The dog runs. A man sits. A door closes."
        )
    assert 0 < result.las < 1
    assert "+boundary-fast@" in result.signature
    assert "emb:fast@" in result.signature


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"base": "0" * 64}, "trained on the word vectors 00000000, not on"),
        ({"without": "map"}, "fast.safetensors: the tensor map is missing"),
        (
            {"without": "ends.0.near.bias"},
            "fast.safetensors: the tensor ends.0.near.bias is missing",
        ),
    ],
)
def test_a_map_for_other_weights_or_a_part_is_refused(
    tiny_bundle: Path, tmp_path: Path, change: dict[str, str], says: str
) -> None:
    foreign = write_fast_training(tiny_bundle, tmp_path / "fast.safetensors", **change)
    with pytest.raises(CheckpointError, match=says):
        build_static(open_bundle(tiny_bundle), foreign, tmp_path / "fast")
    assert not (tmp_path / "fast").exists()
