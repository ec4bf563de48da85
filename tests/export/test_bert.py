"""A checkpoint is exported right or refused by the name of what is wrong in it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.checkpoints.bert import write_tiny_checkpoint
from support.json_files import change_json
from vcs_export.checkpoint.encoders import open_encoder
from vcs_export.checkpoint.transformer import expected_shapes
from vcs_export.errors import CheckpointError


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def test_config_and_tensors_are_read(checkpoint: Path) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    opened = open_encoder(checkpoint)
    assert (opened.config.hidden_size, opened.config.num_hidden_layers) == (32, 2)
    for name, shape in expected_shapes(opened.config).items():
        tensor = opened.tensor(name)
        assert tensor.shape == shape
        assert tensor.dtype == np.float32
        np.testing.assert_array_equal(tensor, stored[name])


def test_names_may_carry_the_prefix_of_a_model_with_a_head(checkpoint: Path, copy: Path) -> None:
    tensors = load_file(checkpoint / "model.safetensors")
    save_file(
        {f"bert.{name}": tensor for name, tensor in tensors.items()}, copy / "model.safetensors"
    )
    name = "encoder.layer.1.output.dense.weight"
    np.testing.assert_array_equal(
        open_encoder(checkpoint).tensor(name), open_encoder(copy).tensor(name)
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "albert"),
        ("hidden_act", "relu"),
        ("hidden_act", "gelu_new"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("num_attention_heads", 5),
        ("num_hidden_layers", 0),
        ("num_hidden_layers", 10**9),
        ("hidden_size", "32"),
        ("layer_norm_eps", 0),
        ("vocab_size", None),
    ],
)
def test_settings_that_no_graph_implements_are_refused_by_name(
    tmp_path: Path, key: str, value: Any
) -> None:
    folder = write_tiny_checkpoint(tmp_path, **{key: value})
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{key}"):
        open_encoder(folder)


NORM, LINEAR = "embeddings.LayerNorm.weight", "encoder.layer.0.output.dense.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(LINEAR), r"encoder\.layer\.0\.output\.dense\.weight is missing"),
        (
            lambda t: t.update({LINEAR: t[LINEAR].T.copy()}),
            r"output\.dense\.weight has the shape \(128, 32\).*\(32, 128\)",
        ),
        (
            lambda t: t.update({NORM: t[NORM].astype(np.float64)}),
            r"embeddings\.LayerNorm\.weight is F64",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    copy: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    tensors: dict[str, Any] = dict(load_file(copy / "model.safetensors"))
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        open_encoder(copy)


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
def test_a_weight_that_is_no_number_is_refused(copy: Path, wrong: float) -> None:
    tensors = dict(load_file(copy / "model.safetensors"))
    tensors[NORM] = np.full_like(tensors[NORM], wrong)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=rf"model.safetensors: the tensor {NORM} holds NaN or infinity"
    ):
        open_encoder(copy).tensor(NORM)


def test_layers_that_the_config_does_not_count_are_refused(copy: Path) -> None:
    change_json(copy / "config.json", num_hidden_layers=1)
    with pytest.raises(CheckpointError, match=r"encoder\.layer\.1\.\S+ does not belong"):
        open_encoder(copy)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", None),
        *(("config.json", content) for content in (b"[1]", b"{", b"3")),
        ("model.safetensors", None),
        *(
            ("model.safetensors", content)
            for content in (b"", b"\x08\0\0\0\0\0\0\0{}", b"\xff" * 64)
        ),
    ],
)
def test_a_missing_or_damaged_file_is_named(copy: Path, name: str, content: bytes | None) -> None:
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        open_encoder(copy)


def test_truncated_weights_are_refused(copy: Path) -> None:
    content = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(content[:-1])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged"):
        open_encoder(copy)
