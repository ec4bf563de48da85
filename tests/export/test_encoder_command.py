"""`vcs-runtime export encoder`: recipes, prompts, shorter vectors and windows, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from support.checkpoints.files import write_json
from support.command_line import vcs
from support.embedders import spec_of, vectors_of
from support.numpy_bert import load, transform
from support.tiny_modernbert import write_tiny_modernbert
from support.tiny_sentence import write_sentence_files, write_tiny_family
from support.tiny_tokenizers import xlm_roberta_tokenizer
from vcs_export.checkpoint.modernbert import modernbert_config
from vcs_export.checkpoint.recipe import SentenceRecipe, load_recipe
from vcs_export.errors import CheckpointError
from vcs_runtime.bundle.manifest import Manifest
from vcs_runtime.bundle.opening import open_bundle

TEXT = "a man opens the door"
RECIPE = """
kind = "encoder"
name = "tiny"
licence = "MIT"
copyright = "Copyright (c) 2026 someone"
source = "someone/tiny"
instruction = "the "
pooling = "cls"
dimensions = [8]
[config]
hidden_size = 32
local_attention = 10
"""


def export(checkpoint: Path, target: Path, *options: str) -> tuple[int, str]:
    run = vcs("export", "encoder", "--from", checkpoint, "-o", target, *options)
    return run.code, run.stderr


def exported(checkpoint: Path, target: Path, *options: str) -> Path:
    code, errors = export(checkpoint, target, *options)
    assert code == 0, errors
    return target


def refusal(checkpoint: Path, target: Path, *options: str) -> str:
    code, errors = export(checkpoint, target, *options)
    assert code == 2
    assert not target.exists()
    return errors


def manifest_of(bundle: Path) -> Manifest:
    return open_bundle(bundle).manifest


def embed(bundle: Path, text: str = TEXT, instruction: str | None = None) -> NDArray[np.float32]:
    return vectors_of(bundle, [text], instruction)[0]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_tiny_modernbert(tmp_path / "checkpoint")


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE, "utf-8")
    (tmp_path / "licences").mkdir()
    (tmp_path / "licences/MIT.txt").write_text("Permission is granted.", "utf-8")
    return path


def test_a_recipe_names_the_licence_and_the_instruction(
    checkpoint: Path, recipe: Path, tmp_path: Path
) -> None:
    code, errors = export(
        checkpoint, tmp_path / "bundle", "--recipe", str(recipe), "--dimension", "8"
    )
    assert code == 0, errors
    assert "the weights of someone/tiny are licensed under MIT" in errors
    manifest, spec = manifest_of(tmp_path / "bundle"), spec_of(tmp_path / "bundle")
    assert (manifest.name, manifest.licence, manifest.source) == ("tiny", "MIT", "someone/tiny")
    assert (spec.name, spec.instruction, spec.dimension) == ("tiny", "the ", 8)
    notice = (tmp_path / "bundle/LICENSES/MIT.txt").read_text("utf-8")
    assert notice == "Copyright (c) 2026 someone\n\nPermission is granted."
    other = exported(checkpoint, tmp_path / "other", "--recipe", str(recipe), "--instruction", "")
    assert (spec_of(other).instruction, spec_of(other).dimension) == ("", 32)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "local_attention = 10",
            "local_attention = 12",
            "is not someone/tiny: local_attention is 10, not 12",
        ),
        (
            "local_attention = 10",
            "type_vocab_size = 2",
            "is not someone/tiny: type_vocab_size is 0, not 2",
        ),
        ("local_attention = 10", "lookahead = 2", "lookahead are not settings of an encoder"),
        ('"cls"', '"mean"', "is not someone/tiny: its pooling is cls, not mean"),
        ('"cls"', '"lasttoken"', "Invalid enum value 'lasttoken'"),
        ("[8]", "[16, 24]", "dimension 8: someone/tiny gives vectors of 16, 24 numbers"),
        ("dimensions = [8]", "", "dimension 8: someone/tiny gives vectors of 32 numbers"),
    ],
)
def test_another_model_than_the_recipes_is_refused(
    checkpoint: Path, recipe: Path, tmp_path: Path, old: str, new: str, says: str
) -> None:
    recipe.write_text(RECIPE.replace(old, new), "utf-8")
    assert says in refusal(
        checkpoint, tmp_path / "bundle", "--recipe", str(recipe), "--dimension", "8"
    )


def test_another_family_than_the_recipes_is_refused(
    checkpoint: Path, recipe: Path, tmp_path: Path
) -> None:
    python = ("--optimum-python", "python")
    assert "cannot be combined" in refusal(
        checkpoint, tmp_path / "b", "--recipe", str(recipe), *python
    )
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    write_json(checkpoint / "config.json", {**config, "model_type": "electra"})
    says = refusal(checkpoint, tmp_path / "b", "--recipe", str(recipe))
    assert "is not someone/tiny: model_type is electra" in says
    other = write_tiny_family(tmp_path, "xlm-roberta")
    says = refusal(other, tmp_path / "b", "--recipe", str(recipe))
    assert "is not someone/tiny: local_attention is None, not 10" in says


def test_recipes_of_one_structure_tell_it_by_its_settings(checkpoint: Path) -> None:
    recipe = load_recipe("gte-modernbert-base", SentenceRecipe)
    assert (recipe.pooling, recipe.licence, recipe.instruction) == ("cls", "Apache-2.0", "")
    assert b"Apache License" in (recipe.legal_text or b"")
    sizes = {
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "vocab_size": 50368,
        "max_position_embeddings": 8192,
        "local_attention": 128,
        "local_rope_theta": 10000.0,
    }
    path = checkpoint / "config.json"
    published = {**json.loads(path.read_text("utf-8")), **sizes}
    recipe.check_config(path, modernbert_config(path, published))
    with pytest.raises(CheckpointError, match="global_rope_theta is 80000.0, not 160000.0"):
        recipe.check_config(
            path, modernbert_config(path, {**published, "global_rope_theta": 80000.0})
        )


def test_prompts_and_instructions_stand_before_every_text(checkpoint: Path, tmp_path: Path) -> None:
    data = {"prompts": {"query": "the ", "passage": "two "}, "default_prompt_name": "query"}
    write_json(checkpoint / "config_sentence_transformers.json", data)
    bundles = {
        instruction: exported(checkpoint, tmp_path / name, *options)
        for name, instruction, options in (
            ("default", "the ", ()),
            ("named", "two ", ("--prompt", "passage")),
            ("written", "a ", ("--instruction", "a ")),
            ("none", "", ("--instruction", "")),
        )
    }
    for instruction, bundle in bundles.items():
        assert spec_of(bundle).instruction == instruction
        assert np.array_equal(embed(bundle), embed(bundles[""], instruction + TEXT, ""))
    both = refusal(checkpoint, tmp_path / "b", "--prompt", "query", "--instruction", "a ")
    assert "prompt and instruction cannot be combined" in both
    assert "prompt 'other' is not one of the prompts" in refusal(
        checkpoint, tmp_path / "b", "--prompt", "other"
    )


@pytest.mark.parametrize("modules", [(), ("Normalize",)])
def test_shorter_vectors_are_the_first_numbers_at_unit_length(
    checkpoint: Path, tmp_path: Path, modules: tuple[str, ...]
) -> None:
    write_sentence_files(checkpoint, 32, 64, "pooling_mode_cls_token", modules)
    full = embed(exported(checkpoint, tmp_path / "full"))[:20]
    bundle = exported(checkpoint, tmp_path / "bundle", "--dimension", "20")
    np.testing.assert_allclose(embed(bundle), full / np.linalg.norm(full), rtol=0, atol=1e-6)
    assert "dimension must be 1 to 32, not 33" in refusal(
        checkpoint, tmp_path / "b", "--dimension", "33"
    )


def test_the_window_may_be_smaller(checkpoint: Path, tmp_path: Path) -> None:
    options = ("--max-tokens", "6", "--long-text", "truncate_text")
    bundle = exported(checkpoint, tmp_path / "bundle", *options)
    assert spec_of(bundle).max_tokens == 6
    short = exported(checkpoint, tmp_path / "whole")
    np.testing.assert_allclose(embed(bundle), embed(short, "a man opens the"), rtol=0, atol=1e-6)
    assert "max_tokens must be 3 to 64, not 65" in refusal(
        checkpoint, tmp_path / "b", "--max-tokens", "65"
    )
    config = checkpoint / "sentence_bert_config.json"
    write_json(config, {"max_seq_length": 16, "do_lower_case": False})
    assert spec_of(exported(checkpoint, tmp_path / "as it says")).max_tokens == 16
    assert spec_of(exported(checkpoint, tmp_path / "more", "--max-tokens", "40")).max_tokens == 40


def test_pickled_weights_are_refused_with_advice(checkpoint: Path, tmp_path: Path) -> None:
    (checkpoint / "model.safetensors").rename(checkpoint / "pytorch_model.bin")
    says = refusal(checkpoint, tmp_path / "bundle")
    assert "its weights are only in pytorch_model.bin, and pickled files are never opened" in says
    assert "convert them to model.safetensors on a machine with PyTorch" in says


def test_heads_that_give_no_vector_are_named_and_left_out(checkpoint: Path, tmp_path: Path) -> None:
    for name in ("sparse_linear.pt", "colbert_linear.pt"):
        (checkpoint / name).write_bytes(b"never opened")
    _, errors = export(checkpoint, tmp_path / "bundle")
    assert (
        "left out, because they are not part of a text's vector: colbert_linear.pt, sparse_linear.pt"
        in errors
    )
    assert not [
        file.path for file in manifest_of(tmp_path / "bundle").files if "linear" in file.path
    ]


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta"])
def test_a_tokenizer_of_likely_pieces(tmp_path: Path, kind: str) -> None:
    """As in bge-m3 and multilingual-e5: the small one is a BERT with the words of XLM-R."""
    write_tiny_family(tmp_path, "xlm-roberta")
    folder = tmp_path / kind
    tokenizer = xlm_roberta_tokenizer()
    tensors, config = load(folder, "bert.")[::-1]
    few = config["vocab_size"]
    tokenizer_json = json.loads(tokenizer.to_str())
    # As many pieces as the tiny model has words: the likeliest stand first.
    tokenizer_json["model"]["vocab"] = tokenizer_json["model"]["vocab"][:few]
    write_json(folder / "tokenizer.json", tokenizer_json)
    if kind == "bert":
        for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes((tmp_path / "xlm-roberta" / name).read_bytes())
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("a man, 犬").ids
    assert (ids[0], ids[-1]) == (0, 2)
    places = [i + (2 if kind == "xlm-roberta" else 0) for i in range(len(ids))]
    visible = np.ones((len(ids), len(ids)), bool)
    want = transform(tensors, config, ids, places, visible).mean(axis=0)
    bundle = exported(folder, tmp_path / "bundle")
    np.testing.assert_allclose(
        embed(bundle, "a man, 犬"), want / np.linalg.norm(want), rtol=0, atol=2e-6
    )


def test_a_plain_transformer_has_the_pooling_that_the_user_names(tmp_path: Path) -> None:
    write_tiny_family(tmp_path, "xlm-roberta")
    folder = tmp_path / "xlm-roberta"
    whole = exported(folder, tmp_path / "whole")
    assert "the pooling is mean, not cls" in refusal(
        folder, tmp_path / "bundle", "--pooling", "cls"
    )
    for name in ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json"):
        (folder / name).unlink()
    says = refusal(folder, tmp_path / "bundle")
    assert "there is no modules.json with the pooling: give --pooling" in says
    plain = exported(folder, tmp_path / "plain", "--pooling", "mean")
    np.testing.assert_array_equal(embed(plain), embed(whole))
    says = refusal(
        folder, tmp_path / "bundle", "--pooling", "mean", "--recipe", "multilingual-e5-base"
    )
    assert "--recipe and --pooling cannot be combined" in says
