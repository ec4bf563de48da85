"""What sentence-transformers writes beside a transformer, for tiny checkpoints of any family."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from support.checkpoints.bert import tiny_tokenizer, write_modules, write_tiny_checkpoint
from support.checkpoints.files import write_json

# DistilBERT's and MPNet's names of what BERT's checkpoints hold, layer by layer.
_DISTIL = {
    "attention.self.query": "attention.q_lin",
    "attention.self.key": "attention.k_lin",
    "attention.self.value": "attention.v_lin",
    "attention.output.dense": "attention.out_lin",
    "attention.output.LayerNorm": "sa_layer_norm",
    "intermediate.dense": "ffn.lin1",
    "output.dense": "ffn.lin2",
    "output.LayerNorm": "output_layer_norm",
}
_MPNET = {
    "attention.self.query": "attention.attn.q",
    "attention.self.key": "attention.attn.k",
    "attention.self.value": "attention.attn.v",
    "attention.output.dense": "attention.attn.o",
    "attention.output.LayerNorm": "attention.LayerNorm",
}


def write_sentence_files(
    folder: Path,
    hidden: int,
    max_tokens: int | None = 32,
    pooling: str = "pooling_mode_mean_tokens",
    modules: Sequence[str] = ("Normalize",),
    dense: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None,
    prompt: str | None = None,
) -> None:
    """Write tokenizer, modules, pooling and lengths beside a transformer that is in `folder`.

    modules  what follows the pooling: "Normalize", "Dense";  dense  the weight and bias of its Dense, tanh
    prompt   the default prompt
    """
    tiny_tokenizer().save(str(folder / "tokenizer.json"))
    chain = ["Transformer", "Pooling", *modules]
    write_modules(folder, chain)
    data = {"word_embedding_dimension": hidden, pooling: True}
    write_json(folder / "1_Pooling/config.json", data)
    content = {"max_seq_length": max_tokens, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", content)
    if prompt is not None:
        write_json(
            folder / "config_sentence_transformers.json",
            {"prompts": {"query": prompt}, "default_prompt_name": "query"},
        )
    if dense is not None:
        place = folder / f"{chain.index('Dense')}_Dense"
        weight, bias = dense
        write_json(
            place / "config.json",
            {
                "in_features": weight.shape[1],
                "out_features": weight.shape[0],
                "bias": True,
                "activation_function": "torch.nn.modules.activation.Tanh",
            },
        )
        save_file({"linear.weight": weight, "linear.bias": bias}, place / "model.safetensors")


def write_tiny_family(folder: Path, kind: str) -> Path:
    """A tiny checkpoint of the family `kind` whose numbers are those of a tiny BERT beside it,
    `bert`.

    The BERT is in `folder / "bert"`, the checkpoint in `folder / kind`. Token types are all alike
    in the BERT, so that families without them compute the same; positions begin two rows later
    where a family counts from the pad; MPNet's bias is zero. Returns the checkpoint.
    """
    bert, target = folder / "bert", folder / kind
    write_tiny_checkpoint(bert)
    tensors = load_file(bert / "model.safetensors")
    tensors["embeddings.token_type_embeddings.weight"][:] = 0
    save_file(tensors, bert / "model.safetensors")
    config = json.loads((bert / "config.json").read_text("utf-8"))
    config["model_type"] = kind
    if kind in ("mpnet", "xlm-roberta"):
        positions = tensors["embeddings.position_embeddings.weight"]
        tensors["embeddings.position_embeddings.weight"] = np.pad(positions, ((2, 0), (0, 0)))
        config |= {"max_position_embeddings": len(positions) + 2, "pad_token_id": 1}
    if kind in ("mpnet", "distilbert"):
        del tensors["embeddings.token_type_embeddings.weight"], config["type_vocab_size"]
    if kind == "mpnet":
        tensors["encoder.relative_attention_bias.weight"] = np.zeros((32, 4), np.float32)
        tensors = {_renamed(name, _MPNET): tensor for name, tensor in tensors.items()}
    if kind == "distilbert":
        for ours, theirs in (
            ("hidden_size", "dim"),
            ("num_hidden_layers", "n_layers"),
            ("num_attention_heads", "n_heads"),
            ("intermediate_size", "hidden_dim"),
            ("hidden_act", "activation"),
        ):
            config[theirs] = config.pop(ours)
        del config["layer_norm_eps"]
        tensors = {
            _renamed(name, _DISTIL).replace("encoder.layer", "transformer.layer"): tensor
            for name, tensor in tensors.items()
        }
    target.mkdir(exist_ok=True)
    save_file(tensors, target / "model.safetensors")
    write_json(target / "config.json", config)
    write_sentence_files(target, 32)
    return target


def _renamed(name: str, names: dict[str, str]) -> str:
    return next(
        (name.replace(ours, theirs) for ours, theirs in names.items() if ours in name), name
    )
