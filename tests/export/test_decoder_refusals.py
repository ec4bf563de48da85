"""Decoders that cannot be exported are refused in one line that names the file and the setting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from support.checkpoints.files import write_json
from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.checkpoints.tokenizers import gemma_tokenizer, qwen_tokenizer
from support.command_line import vcs
from support.json_files import change_json
from support.tiny_decoder import write_tiny_decoder
from support.tiny_sentence import write_tiny_family

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


def refusal(folder: Path, target: Path, *arguments: str, named: str | None = None) -> str:
    """Export, and return the one line of the error, which names the folder or what `named` says."""
    run = vcs("export", "decoder", "--from", str(folder), "-o", str(target), *arguments)
    assert run.code == 2, run.stderr
    assert not target.exists()
    lines = run.stderr.splitlines()
    assert (named or str(folder)) in lines[-1]
    assert sum(line.startswith("error") for line in lines) <= 1
    return lines[-1]


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        (
            "qwen3",
            {"model_type": "qwen4"},
            "model_type 'qwen4' is not supported, only qwen3, qwen2, llama",
        ),
        ("qwen3", {"hidden_act": "gelu"}, "hidden_act 'gelu' is not supported, only 'silu'"),
        ("qwen3", {"attention_bias": True}, "attention_bias True"),
        ("qwen3", {"use_sliding_window": True}, "use_sliding_window True"),
        (
            "qwen3",
            {"layer_types": ["full_attention", "linear_attention"]},
            "layer_types linear_attention",
        ),
        ("qwen3", {"layer_types": 3}, "layer_types 3 is not supported"),
        (
            "qwen3",
            {"rope_scaling": {"rope_type": ["linear"]}},
            "rope_type ['linear'] is not supported",
        ),
        (
            "qwen3",
            {"rope_scaling": YARN},
            "rope_type 'yarn' is not supported, only default, linear, llama3",
        ),
        (
            "qwen3",
            {"rope_scaling": {"rope_type": "linear", "factor": 2.0, "attention_factor": 0.9}},
            "attention_factor of rope_type 'linear'",
        ),
        ("qwen3", {"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor must be above 0"),
        (
            "qwen3",
            {"rope_scaling": {"type": "linear", "rope_type": "default"}},
            "'default' and 'linear'",
        ),
        ("qwen3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ("qwen3", {"head_dim": None}, "head_dim must be of type int"),
        (
            "qwen3",
            {"quantization_config": {"bits": 4}},
            "quantization_config {'bits': 4} is not supported",
        ),
        ("qwen3", {"vision_config": {"depth": 32}}, "vision_config {'depth': 32} is not supported"),
        (
            "qwen3",
            {"auto_map": {"AutoModel": "my.Model"}},
            "auto_map runs the model's own code 'my.Model'",
        ),
        ("qwen3", {"use_bidirectional_attention": True}, "use_bidirectional_attention True"),
        ("qwen3", {"is_causal": "yes"}, "is_causal must be of type bool, not 'yes'"),
        ("qwen3", {"rms_norm_eps": 0.0}, "rms_norm_eps must be above 0"),
        ("gte-qwen2", {}, "name the model (--recipe) or the attention (--attention)"),
        (
            "gte-qwen2",
            {"auto_map": {"AutoModel": "x--modeling_qwen.Other"}},
            "'x--modeling_qwen.Other'",
        ),
        ("nemotron", {"is_causal": True}, "is_causal True is not supported, only False"),
        (
            "nemotron",
            {"use_bidirectional_attention": False},
            "use_bidirectional_attention False is not supported",
        ),
        ("nemotron", {"pooling": "cls"}, "pooling 'cls' is not supported, only 'avg'"),
        ("nemotron", {"mlp_bias": True}, "mlp_bias True"),
        (
            "nemotron",
            {"rope_scaling": LLAMA3},
            "original_max_position_embeddings must be of type int",
        ),
        (
            "nemotron",
            {"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}},
            "low_freq_factor 4.0 must be below",
        ),
        ("embedding-gemma", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping 50.0"),
        ("embedding-gemma", {"layer_types": ["full_attention"]}, "layer_types must be 4 times"),
        (
            "embedding-gemma",
            {"layer_types": ["chunked_attention"] * 4},
            "layer_types must be 4 times",
        ),
        ("embedding-gemma", {"sliding_window": 7}, "sliding_window 7 is odd"),
        ("embedding-gemma", {"hidden_activation": "silu"}, "hidden_activation 'silu'"),
        ("embedding-gemma", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar must be above 0"),
        (
            "embedding-gemma",
            {"rope_local_base_freq": None},
            "rope_local_base_freq must be of type float",
        ),
        ("kalm-gemma3", {"model_type": "gemma3"}, "model_type 'gemma3' is not supported"),
    ],
)
def test_settings_that_no_graph_has_are_named(
    tmp_path: Path, family: str, settings: dict[str, Any], message: str
) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", family)
    path = folder / "config.json"
    change_json(path, **settings)
    line = refusal(folder, tmp_path / "bundle")
    assert message in line
    assert "config.json" in line


@pytest.mark.parametrize(
    ("family", "rotations", "message"),
    [
        ("qwen3", {"rope_type": "yarn", "rope_theta": 1e4}, "rope_type 'yarn'"),
        ("qwen3", {"rope_type": "default"}, "rope_theta must be of type float, not None"),
        ("qwen3", [], "rope_parameters must be an object"),
        (
            "embedding-gemma",
            {"full_attention": {"rope_theta": 1e4}},
            "has nothing for sliding_attention",
        ),
    ],
)
def test_the_spelling_of_transformers_5_is_checked_too(
    tmp_path: Path, family: str, rotations: object, message: str
) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", family, spelling=5)
    path = folder / "config.json"
    change_json(path, rope_parameters=rotations)
    assert message in refusal(folder, tmp_path / "bundle")


def test_two_spellings_that_differ_are_refused(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3", spelling=5)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    write_json(path, config | {"rope_theta": 5.0})
    assert "rope_theta 5.0 differs from rope_parameters, 10000.0" in refusal(
        folder, tmp_path / "bundle"
    )
    write_json(path, config | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}})
    assert "both rope_parameters and rope_scaling" in refusal(folder, tmp_path / "bundle")


def _tied(tensors: dict[str, Any]) -> None:
    tensors["lm_head.weight"] = tensors.pop("model.embed_tokens.weight")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.pop("model.layers.1.self_attn.q_norm.weight"),
            "layers.1.self_attn.q_norm.weight is missing",
        ),
        (
            lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": np.zeros(64, np.float32)}),
            "layers.0.self_attn.q_proj.bias does not belong to the model",
        ),
        (
            lambda t: t.update({"model.layers.2.input_layernorm.weight": np.zeros(32, np.float32)}),
            "does not",
        ),
        (
            lambda t: t.update({"model.norm.weight": np.zeros(32, np.int32)}),
            "model.norm.weight is I32, only F32",
        ),
        (
            lambda t: t.update({"model.norm.weight": np.zeros(31, np.float32)}),
            "has the shape (31,)",
        ),
        (_tied, "embed_tokens.weight is missing; lm_head.weight, to which it may"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3", prefix="model.")
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    assert message in refusal(folder, tmp_path / "bundle")


def test_numbers_beyond_fp16_are_named(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    tensors = load_file(folder / "model.safetensors")
    tensors["layers.1.mlp.up_proj.weight"][3, 4] = 7e4
    save_file(tensors, folder / "model.safetensors")
    line = refusal(folder, tmp_path / "bundle", "--precision", "fp16")
    assert "layers.1.mlp.up_proj.weight has numbers that do not fit into float16" in line


def test_files_of_another_kind_are_named(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3", shards=2)
    (folder / "adapter_config.json").write_text("{}", "utf-8")
    assert "adapter_config.json: LoRA adapters are not supported" in refusal(
        folder, tmp_path / "bundle"
    )
    (folder / "adapter_config.json").unlink()
    next(folder.glob("model-00002*")).unlink()
    assert "model-00002-of-00002.safetensors: no such file, but" in refusal(
        folder, tmp_path / "bundle"
    )
    for path in folder.glob("model*"):
        path.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert "pytorch_model.bin: pickled weights are not supported" in refusal(
        folder, tmp_path / "bundle"
    )


def test_another_tokenizer_is_named(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    gemma_tokenizer().save(str(folder / "tokenizer.json"))
    assert "use the model's own tokenizer" in refusal(folder, tmp_path / "bundle")
    # The token at the end has no vector.
    qwen_tokenizer().save(str(folder / "tokenizer.json"))
    ending = qwen_tokenizer().token_to_id("<|endoftext|>")
    write_tiny_decoder(folder, "qwen3", vocab_size=ending)
    assert f"it has the token id {ending}, but the model has {ending} tokens" in refusal(
        folder, tmp_path / "bundle"
    )


@pytest.mark.parametrize(("family", "model_type"), [("qwen3", "qwen3"), ("gte-qwen2", "qwen2")])
def test_a_text_whose_last_token_is_pooled_needs_an_end(
    tmp_path: Path, family: str, model_type: str
) -> None:
    """An early Qwen3 had no end token; a Qwen2 without gte's code names none."""
    folder = write_tiny_decoder(tmp_path / "folder", family, auto_map=None)
    assert json.loads((folder / "config.json").read_text("utf-8"))["model_type"] == model_type
    qwen_tokenizer(template=False).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").unlink()
    line = refusal(folder, tmp_path / "bundle", "--max-tokens", "20")
    assert "tokenizer.json: it adds no token after a text" in line
    assert "--end-token TOKEN" in line
    done = vcs(
        "export", "decoder", "--from", folder, "-o", tmp_path / "b", "--end-token", "<|endoftext|>"
    )
    assert done.code == 0, done.stderr


@pytest.mark.parametrize("added", [["<image>"], [{"content": "<image>"}]])
def test_added_tokens_without_ids_are_named(tmp_path: Path, added: list[Any]) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    path = folder / "tokenizer.json"
    change_json(path, added_tokens=added)
    assert "tokenizer.json: its added_tokens have no ids" in refusal(folder, tmp_path / "bundle")


def test_the_command_for_another_kind_of_model_is_named(tmp_path: Path) -> None:
    decoder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    run = vcs("export", "encoder", "--from", str(decoder), "-o", str(tmp_path / "bundle"))
    assert "config.json: for model_type 'qwen3' use `vcs-runtime export decoder`" in run.stderr
    encoder = write_tiny_family(tmp_path, "mpnet")
    assert "for model_type 'mpnet' use `vcs-runtime export encoder`" in refusal(
        encoder, tmp_path / "bundle"
    )
    embedder = write_tiny_nv_embed(tmp_path / "nv-embed")
    assert "for model_type 'nvembed' use `vcs-runtime export nv-embed-v2`" in refusal(
        embedder, tmp_path / "bundle"
    )


def test_poolings_of_other_models_are_named(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    pooling = folder / "1_Pooling/config.json"
    write_json(pooling, {"word_embedding_dimension": 32, "pooling_mode": "cls"})
    assert "the pooling cls of a decoder is not supported" in refusal(folder, tmp_path / "bundle")
    write_json(pooling, {"word_embedding_dimension": 33, "pooling_mode": "lasttoken"})
    assert "the pooling expects vectors of 33 numbers" in refusal(folder, tmp_path / "bundle")


def test_an_unknown_recipe_is_told_the_known_ones(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    message = refusal(folder, tmp_path / "bundle", "--recipe", "qwen3", named="'qwen3'")
    assert (
        "there is no recipe 'qwen3' for this kind of model, only embeddinggemma-300m, " in message
    )
    assert "nv-embed-v2" not in message
    assert message.endswith("; or name a TOML file")


def test_a_recipe_of_another_kind_of_model_is_told_the_known_ones(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    message = refusal(folder, tmp_path / "bundle", "--recipe", "bge-m3", named="'bge-m3'")
    assert (
        "there is no recipe 'bge-m3' for this kind of model, only embeddinggemma-300m, " in message
    )


def test_own_weights_need_a_recipe_that_has_others(tmp_path: Path) -> None:
    folder = write_tiny_decoder(tmp_path / "folder", "qwen3")
    line = refusal(folder, tmp_path / "bundle", "--own-weights", named="--own-weights")
    assert "--own-weights needs --recipe" in line
