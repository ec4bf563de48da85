"""The project's learned segmenter: updates merged into a checkpoint, a graph with capitals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from support import numpy_bert
from support.checkpoints.bert import write_tiny_checkpoint
from support.tiny_boundary import LINEAR, build_tiny_words, write_updates
from support.tiny_layouts import build_layout_bundle
from vcs_export.errors import CheckpointError
from vcs_export.families.build import SEGMENTER_FILES, Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder, Segmenter
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec
from vcs_runtime.bundle.merge import merge
from vcs_runtime.bundle.opening import open_bundle


def oracle(
    checkpoint: Path, updates: Path, layers: int, ids: list[int], capitals: list[int]
) -> np.ndarray:
    config, tensors = numpy_bert.load(checkpoint, "bert.")
    config["num_hidden_layers"] = layers
    learnt = {name: value.astype(np.float64) for name, value in load_file(updates).items()}
    for name in [f"encoder.layer.{layer}.{part}" for layer in range(layers) for part in LINEAR]:
        tensors[f"{name}.weight"] = (
            tensors[f"{name}.weight"] + learnt[f"{name}.up"] @ learnt[f"{name}.down"]
        )
    tensors |= {
        name: value for name, value in learnt.items() if not name.endswith((".up", ".down"))
    }
    visible = np.ones((len(ids), len(ids)), bool)
    added = tensors["capitals.weight"][capitals]
    states = numpy_bert.transform(tensors, config, ids, list(range(len(ids))), visible, added)
    return numpy_bert.linear(states, tensors, "classifier")[:, 0]


@pytest.mark.parametrize("layers", [1, 2])
def test_logits_equal_a_plain_forward_pass_of_the_merged_weights(
    tmp_path: Path, layers: int
) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    updates = write_updates(checkpoint, tmp_path / "updates.safetensors", layers, seed=layers)
    bundle = build_tiny_words(checkpoint, updates, tmp_path / "bundle")
    session = ort.InferenceSession(
        str(bundle / SEGMENTER_FILES[0]), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(layers)
    rows = [rng.integers(5, 80, length).tolist() for length in (1, 7, 16)]
    ids, mask, capitals = np.zeros((3, 3, 16), np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
        capitals[i, : len(row)] = rng.integers(0, 4, len(row))
    [logits] = session.run(None, {"input_ids": ids, "attention_mask": mask, "capitals": capitals})
    assert logits.shape == (3, 16, 1)
    for i, row in enumerate(rows):
        want = oracle(checkpoint, updates, layers, row, capitals[i, : len(row)].tolist())
        np.testing.assert_allclose(logits[i, : len(row), 0], want, rtol=0, atol=2e-5)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A bundle with an embedder and a segmenter of one checkpoint, and the embedder alone."""
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    updates = write_updates(checkpoint, tmp_path / "updates.safetensors")
    build_sentence_bundle(
        Build(checkpoint, tmp_path / "embedder", BundleInfo("tiny", "MIT", "drawn at random"))
    )
    return build_tiny_words(checkpoint, updates, tmp_path / "shared")


def learned(bundle: Path) -> LearnedSegmenterSpec:
    spec = open_bundle(bundle).part("segmenter")
    assert isinstance(spec, LearnedSegmenterSpec)
    return spec


def probabilities(bundle: Path) -> list[bytes]:
    texts = ["the dog runs a man walks The Dog sat", "open the door"]
    with Segmenter.open(bundle, "cpu") as segmenter:
        return [row.tobytes() for row in segmenter.boundary_probabilities(texts)]


def test_beside_its_embedder_a_segmenter_stores_no_word_vectors(shared: Path) -> None:
    own, of_embedder = map(open_bundle(shared).path, learned(shared).weights)
    tensors = [
        value.const_value for value in ir.load(own.with_suffix("")).graph.initializers.values()
    ]
    stored = [tensor for tensor in tensors if isinstance(tensor, ir.ExternalTensor)]
    borrowed = {tensor.name for tensor in stored if tensor.location == of_embedder.name}
    assert borrowed == {"embeddings.word_embeddings.weight", "embeddings.position_and_type"}
    # A GPU must hold these for it, too, and nothing of the embedder is another one.
    assert open_bundle(shared).weights_size(learned(shared)) == sum(
        tensor.nbytes for tensor in stored
    )
    for path in (of_embedder, of_embedder.with_suffix("")):
        assert path.read_bytes() == (shared.parent / "embedder/embedder" / path.name).read_bytes()


def test_in_a_combined_bundle_a_segmenter_still_shares_with_its_own_embedder(shared: Path) -> None:
    other = build_layout_bundle(shared.parent / "other", "packed")
    for embedder, folder in (
        (shared, "embedder"),
        (shared.parent / "embedder", "embedder"),
        (other, "segmenter"),
    ):
        made = shared.parent / f"{embedder.name}-made"
        merge(embedder, shared, made)
        assert {Path(path).parent.name for path in learned(made).weights} == {folder}
        assert probabilities(made) == probabilities(shared)
        with Embedder.open(embedder, "cpu") as one, Embedder.open(made, "cpu") as two:
            assert one.embed(["dog"]).tobytes() == two.embed(["dog"]).tobytes()
    sizes = sum(entry.size for entry in open_bundle(shared.parent / "shared-made").manifest.files)
    assert sizes == sum(entry.size for entry in open_bundle(shared).manifest.files)


def test_the_bundle_follows_from_its_sources_alone(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    updates = write_updates(checkpoint, tmp_path / "updates.safetensors")
    first, second = (build_tiny_words(checkpoint, updates, tmp_path / name) for name in "ab")
    assert (first / "bundle.json").read_bytes() == (second / "bundle.json").read_bytes()
    spec = open_bundle(first).manifest.segmenter
    assert spec is not None
    assert spec.model is not None
    assert (spec.model.kind, spec.model.special_tokens, spec.model.stride) == ("words", (2, 3), 8)


def test_updates_are_refused_where_they_do_not_fit(tmp_path: Path) -> None:
    checkpoint = write_tiny_checkpoint(tmp_path / "checkpoint")
    updates = write_updates(checkpoint, tmp_path / "updates.safetensors")

    def refused(match: str, folder: Path = checkpoint) -> None:
        with pytest.raises(CheckpointError, match=match):
            build_tiny_words(folder, updates, tmp_path / "bundle")
        assert not (tmp_path / "bundle").exists()

    refused("trained on the weights", write_tiny_checkpoint(tmp_path / "other", seed=1))
    good = tmp_path / "good.safetensors"
    shutil.copy(updates, good)

    def spoil(
        facts: dict[str, object], drop: str = "", shape: tuple[int, ...] | None = None
    ) -> None:
        tensors = load_file(good)
        with safe_open(good, framework="numpy") as file:
            old = json.loads(file.metadata()["vcs"])
        if drop:
            tensors.pop(drop)
        if shape:
            tensors["classifier.weight"] = np.zeros(shape, np.float16)
        save_file(tensors, updates, {"vcs": json.dumps(old | facts)})

    spoil({"layers": 3})
    refused("3 layers, the checkpoint has fewer")
    spoil({}, drop="capitals.weight")
    refused("capitals.weight is missing")
    spoil({}, shape=(1, 8))
    refused(r"classifier.weight has the shape \(1, 8\)")
    spoil({}, drop="encoder.layer.0.output.dense.up")
    refused("encoder.layer.0.output.dense.up is missing")
    updates.write_bytes(b"nothing")
    refused("damaged")
    updates.unlink()
    refused("cannot be read")
