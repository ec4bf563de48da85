"""From a ModernBERT's folder to a bundle: layers with a window, settings, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load_file, save_file

from support.checkpoints.bert import WORDS
from support.checkpoints.files import write_safetensors
from support.embedders import spec_of, vectors_of
from support.json_files import change_json
from support.rounding import SUMS
from support.tiny_bert import token_ids
from support.tiny_modernbert import POSITIONS, WINDOW, encode, hidden_states, write_tiny_modernbert
from support.tiny_sentence import write_sentence_files
from vcs_export.checks.verify import verify_embedder
from vcs_export.errors import CheckpointError
from vcs_export.families.build import Build
from vcs_export.families.sentence_encoder import build_sentence_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder
from vcs_runtime.bundle.opening import open_bundle

# In tokens, special ones included: whole, at the edge of what a block sees, and in several blocks.
LENGTHS = (
    3,
    4,
    WINDOW,
    2 * WINDOW - 1,
    2 * WINDOW,
    2 * WINDOW + 1,
    3 * WINDOW,
    41,
    POSITIONS - 1,
    POSITIONS,
)


def words(tokens: int) -> str:
    """A text of so many tokens, special ones included."""
    drawn = np.random.default_rng(tokens).choice(WORDS, tokens - 2)
    return " ".join(drawn)


TEXTS = [words(tokens) for tokens in LENGTHS]


def build(checkpoint: Path, target: Path) -> Path:
    return build_sentence_bundle(Build(checkpoint, target, BundleInfo("tiny", "CC0-1.0", "random")))


def refusal(folder: Path, target: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        build(folder, target)
    assert not target.exists()
    return str(caught.value)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_modernbert(tmp_path / "checkpoint")


def test_texts_of_all_lengths_get_the_vectors_of_numpy(checkpoint: Path, tmp_path: Path) -> None:
    assert [len(token_ids(text)) for text in TEXTS] == list(LENGTHS)
    bundle = build(checkpoint, tmp_path / "bundle")
    want = np.stack([encode(checkpoint, token_ids(text)) for text in TEXTS])
    np.testing.assert_allclose(vectors_of(bundle, TEXTS), want, rtol=0, atol=SUMS)
    spec = spec_of(bundle)
    assert (spec.max_tokens, spec.dimension, spec.precision) == (POSITIONS, 32, "fp32")


def test_every_token_is_pooled_where_the_folder_says_so(checkpoint: Path, tmp_path: Path) -> None:
    write_sentence_files(checkpoint, 32, POSITIONS)
    want = np.stack([hidden_states(checkpoint, token_ids(text)).mean(axis=0) for text in TEXTS])
    want /= np.linalg.norm(want, axis=1, keepdims=True)
    np.testing.assert_allclose(
        vectors_of(build(checkpoint, tmp_path / "bundle"), TEXTS), want, rtol=0, atol=SUMS
    )


def test_vectors_do_not_depend_on_batch_order_or_padding(checkpoint: Path, tmp_path: Path) -> None:
    bundle = build(checkpoint, tmp_path / "bundle")
    assert all(check.holds for check in verify_embedder(open_bundle(bundle)))
    texts = [words(tokens) for tokens in (37, 38, 39, 40, 22, 21)] * 3
    with Embedder.open(bundle, device="cpu") as embedder:
        alone = np.concatenate([embedder.embed([text]) for text in texts])
        assert np.array_equal(embedder.embed(texts), alone)


def test_layers_with_a_window_have_no_scores_of_all_pairs(checkpoint: Path, tmp_path: Path) -> None:
    """The largest intermediate array grows with the length of a text where no layer is global."""
    settings = {"global_attn_every_n_layers": 1000, "max_position_embeddings": 4096}
    change_json(checkpoint / "config.json", **settings)
    write_sentence_files(checkpoint, 32, 4096, "pooling_mode_cls_token", ())
    bundle = build(checkpoint, tmp_path / "bundle")
    most = {
        tokens: largest_array(bundle / "embedder/model.onnx", tokens) for tokens in (1000, 4000)
    }
    assert most[4000] < 5 * most[1000]


def test_a_row_without_tokens_is_zero_and_changes_no_other(
    checkpoint: Path, tmp_path: Path
) -> None:
    bundle = build(checkpoint, tmp_path / "bundle")
    session = onnxruntime.InferenceSession(
        bundle / "embedder/model.onnx", providers=["CPUExecutionProvider"]
    )
    ids = np.array([token_ids(TEXTS[-1])] * 2, np.int64)
    mask = np.stack([np.ones_like(ids[0]), np.zeros_like(ids[0])])
    [vectors] = session.run(None, {"input_ids": ids, "attention_mask": mask})
    np.testing.assert_allclose(
        vectors[0], encode(checkpoint, token_ids(TEXTS[-1])), rtol=0, atol=SUMS
    )
    assert not vectors[1].any()


def largest_array(model: Path, tokens: int) -> int:
    """The size of the largest array that a run computes on one text; the first layer is global."""
    proto = onnx.load(model)
    names = [out for node in proto.graph.node if node.op_type == "Softmax" for out in node.output][
        1:
    ]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    onnx.save(proto, model.with_name("all.onnx"), save_as_external_data=True, location="all.data")
    session = onnxruntime.InferenceSession(
        model.with_name("all.onnx"), providers=["CPUExecutionProvider"]
    )
    ids = np.ones((1, tokens), np.int64)
    return max(
        array.size for array in session.run(names, {"input_ids": ids, "attention_mask": ids})
    )


def test_names_of_a_model_with_a_head_and_half_precision(tmp_path: Path) -> None:
    plain = write_tiny_modernbert(tmp_path / "plain")
    head = write_tiny_modernbert(tmp_path / "head", prefix="model.")
    tensors = {
        name: tensor.astype(np.float16)
        for name, tensor in load_file(head / "model.safetensors").items()
    }
    save_file(
        {**tensors, "head.dense.weight": np.zeros((32, 32), np.float16)}, head / "model.safetensors"
    )
    rounded = {
        name.removeprefix("model."): tensor.astype(np.float32) for name, tensor in tensors.items()
    }
    save_file(rounded, plain / "model.safetensors")
    vectors = vectors_of(build(plain, tmp_path / "a"), TEXTS)
    np.testing.assert_array_equal(vectors_of(build(head, tmp_path / "b"), TEXTS), vectors)


def test_bfloat16_weights_are_widened(checkpoint: Path, tmp_path: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    halves = {
        name: (tensor.view(np.uint32) >> 16).astype(np.uint16) for name, tensor in tensors.items()
    }
    widened = {
        name: (half.astype(np.uint32) << 16).view(np.float32) for name, half in halves.items()
    }
    save_file(widened, checkpoint / "model.safetensors")
    vectors = vectors_of(build(checkpoint, tmp_path / "a"), TEXTS)
    write_safetensors(checkpoint / "model.safetensors", widened, "BF16")
    np.testing.assert_array_equal(vectors_of(build(checkpoint, tmp_path / "b"), TEXTS), vectors)


def test_settings_as_newer_releases_spell_them(checkpoint: Path, tmp_path: Path) -> None:
    before = vectors_of(build(checkpoint, tmp_path / "a"), TEXTS)
    change_json(
        checkpoint / "config.json",
        global_attn_every_n_layers=...,
        global_rope_theta=...,
        local_rope_theta=...,
        layer_types=[
            "full_attention",
            *["sliding_attention"] * 2,
            "full_attention",
            "sliding_attention",
        ],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
        },
    )
    np.testing.assert_array_equal(vectors_of(build(checkpoint, tmp_path / "b"), TEXTS), before)


GLOBAL = {"rope_type": "default", "rope_theta": 160000.0}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"hidden_activation": "silu"}, "hidden_activation 'silu' is not supported, only 'gelu'"),
        ({"attention_bias": True}, "attention_bias True is not supported, only False"),
        ({"mlp_bias": True}, "mlp_bias True is not supported"),
        ({"norm_bias": True}, "norm_bias True is not supported"),
        (
            {"rope_scaling": {"type": "yarn"}},
            "rope_scaling {'type': 'yarn'} is not supported, only None",
        ),
        ({"norm_eps": ...}, "norm_eps must be of type float, not None"),
        ({"local_attention": -1}, "local_attention must be positive, not -1"),
        ({"local_rope_theta": None}, "local_rope_theta must be of type float, not None"),
        (
            {"global_attn_every_n_layers": ...},
            "global_attn_every_n_layers must be of type int, not None",
        ),
        (
            {"layer_types": ["full_attention"] * 5},
            "layer_types contradicts global_attn_every_n_layers 3",
        ),
        (
            {
                "layer_types": ["full_attention"] * 4 + [["chunked"]],
                "global_attn_every_n_layers": ...,
            },
            "layer_types must be 5 times full_attention or sliding_attention",
        ),
        (
            {"rope_parameters": {"full_attention": GLOBAL}},
            "rope_parameters has no object sliding_attention",
        ),
        (
            {"rope_parameters": {"full_attention": {**GLOBAL, "rope_type": "linear"}}},
            "rope_parameters.full_attention.rope_type 'linear' is not supported, only 'default'",
        ),
        (
            {"rope_parameters": {"full_attention": {**GLOBAL, "factor": 2.0}}},
            "rope_parameters.full_attention: factor is not supported",
        ),
        ({"num_attention_heads": 32}, "attention heads of odd size cannot be rotated"),
        ({"num_attention_heads": 3}, "hidden_size 32 is not a multiple of num_attention_heads 3"),
        (
            {"num_hidden_layers": 4},
            "the tensor layers.4.attn.Wo.weight does not belong to the model",
        ),
        ({"num_hidden_layers": 6}, "the tensor layers.5.attn_norm.weight is missing"),
        (
            {"intermediate_size": 32},
            "mlp.Wi.weight has the shape (96, 32), config.json implies (64, 32)",
        ),
        (
            {"max_position_embeddings": 32},
            "max_seq_length 64 is more than the 32 positions of the model",
        ),
    ],
)
def test_other_settings_are_refused_by_name(
    checkpoint: Path, tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    change_json(checkpoint / "config.json", **settings)
    assert says in refusal(checkpoint, tmp_path / "bundle")


def test_a_norm_before_the_first_attention_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    tensors["layers.0.attn_norm.weight"] = tensors["layers.1.attn_norm.weight"].copy()
    save_file(tensors, checkpoint / "model.safetensors")
    assert "layers.0.attn_norm.weight does not belong to the model" in refusal(
        checkpoint, tmp_path / "bundle"
    )
