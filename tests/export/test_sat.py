"""From a SaT folder to a bundle: what is refused, recipes, the command."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as replace_fields
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from support.checkpoints.sat import WORDS, write_tiny_sat
from support.json_files import change_json
from support.tiny_sat import boundary
from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, SatRecipe, load_recipe
from vcs_export.checkpoint.settings import read_json
from vcs_export.checkpoint.transformer import CONFIG
from vcs_export.checkpoint.xlm_roberta import sat_config
from vcs_export.errors import CheckpointError, ExportError
from vcs_export.families.build import Build, Quantization
from vcs_export.families.sat import (
    MODEL_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    SatOptions,
    build_sat_bundle,
)
from vcs_export.write import BundleInfo, named_after
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.manifest import LearnedSegmenterSpec, RulesSpec
from vcs_runtime.bundle.opening import open_bundle

TEXTS = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(0, len(WORDS), 9)]


@pytest.fixture
def copy(sat: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sat, tmp_path / "copy"))


def build(checkpoint: Path, target: Path, **options: Any) -> Path:
    info = BundleInfo(
        options.pop("name", "tiny"), "CC0-1.0", "random", replace=options.pop("replace", False)
    )
    quantization = Quantization(options.pop("precision", None), options.pop("texts", ()))
    described = Build(checkpoint, target, info, quantization, options.pop("rules", None))
    return build_sat_bundle(described, SatOptions(**{"threshold": 0.025, **options}))


def from_recipe(recipe: SatRecipe, checkpoint: Path, target: Path, **options: Any) -> Path:
    info = named_after(checkpoint, options.pop("replace", False))
    return build_sat_bundle(Build(checkpoint, target, info), SatOptions(**options), recipe)


def test_the_manifest_says_how_to_run_it(sat: Path, tmp_path: Path) -> None:
    bundle = build(sat, tmp_path / "bundle", stride=100, rules=RulesSpec("sentencex", "en"))
    opened = open_bundle(bundle)
    assert opened.manifest.embedder is None
    assert opened.manifest.segmenter is not None
    assert opened.manifest.segmenter.rules == RulesSpec("sentencex", "en")
    assert replace_fields(boundary(bundle), proof=None) == LearnedSegmenterSpec(
        name="tiny",
        kind="sat",
        model=MODEL_FILE,
        weights=(WEIGHTS_FILE,),
        tokenizer=TOKENIZER_FILE,
        special_tokens=(0, 2),
        max_tokens=512,
        stride=100,
        threshold=0.025,
        precision="fp32",
    )


def test_the_tokenizer_cuts_and_pads_nothing(sat: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(build(sat, tmp_path / "bundle") / TOKENIZER_FILE))
    assert (tokenizer.truncation, tokenizer.padding) == (None, None)
    assert len(tokenizer.encode(" ".join(WORDS), add_special_tokens=False).ids) == len(WORDS)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("lookahead_split_layers", 1, "lookahead_split_layers 1 is not supported"),
        ("lookahead", -1, "lookahead must not be negative"),
        ("lookahead", "48", "lookahead must be of type int"),
        ("model_type", "bert", "model_type 'bert' is not supported"),
        ("pad_token_id", 0, "pad_token_id 0 is not supported"),
        ("num_hidden_layers", 13, "num_hidden_layers 13 is not supported, only 1 to 12"),
        ("num_hidden_layers", 2, r"encoder\.layer\.2\.\S+ does not belong"),
        ("hidden_act", "relu", "hidden_act 'relu'"),
        ("hidden_size", 30, "hidden_size 30 is not a multiple"),
        ("intermediate_size", 65, r"intermediate\.dense\.weight has the shape \(64, 32\)"),
        (
            "id2label",
            {"0": "a"},
            r"classifier\.weight has the shape \(3, 32\), config.json implies \(1, 32\)",
        ),
        ("id2label", None, "id2label must name"),
        ("vocab_size", 400, r"tokenizer\.json: it has 368 tokens, but the model has 400"),
        ("max_position_embeddings", 4, "max_position_embeddings 4 leaves no room"),
    ],
)
def test_settings_that_do_not_hold_are_refused_by_name(
    copy: Path, tmp_path: Path, key: str, value: Any, message: str
) -> None:
    change_json(copy / "config.json", **{key: value})
    with pytest.raises(CheckpointError, match=message) as caught:
        build(copy, tmp_path / "bundle", stride=2 if key == "max_position_embeddings" else 64)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("content", [None, b"[]"])
def test_a_missing_or_damaged_file_is_named(
    copy: Path, tmp_path: Path, name: str, content: bytes | None
) -> None:
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=name):
        build(copy, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("change_tensors", "message"),
    [
        (lambda t: t.pop("classifier.bias"), r"classifier\.bias is missing"),
        (
            lambda t: t.pop("roberta.embeddings.LayerNorm.bias"),
            r"embeddings\.LayerNorm\.bias is missing",
        ),
        (
            lambda t: t.update({"classifier.bias": t["classifier.bias"].astype(np.float64)}),
            "is F64, only F32",
        ),
        (
            lambda t: t.update(
                {"roberta.embeddings.word_embeddings.weight": np.zeros((9, 32), np.float32)}
            ),
            r"word_embeddings\.weight has the shape \(9, 32\), config.json implies \(368, 32\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    copy: Path, tmp_path: Path, change_tensors: Callable[[dict[str, Any]], Any], message: str
) -> None:
    tensors: dict[str, Any] = dict(load_file(copy / "model.safetensors"))
    change_tensors(tensors)
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match=message):
        build(copy, tmp_path / "bundle")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "bf16"}, "precision must be one of fp32, fp16, int8, not 'bf16'"),
        ({"threshold": 0.0}, "threshold must be between 0 and 1"),
        ({"stride": 511}, "stride must be 1 to 510 tokens, not 511"),
        ({"stride": 0}, "stride must be 1 to 510 tokens, not 0"),
        ({"name": "a|b"}, "name 'a|b'"),
    ],
)
def test_options_out_of_range_are_refused(
    sat: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ExportError) as caught:
        build(sat, tmp_path / "bundle", **options)
    assert message in str(caught.value)
    assert not (tmp_path / "bundle").exists()


def test_int8_without_texts_is_measured_on_the_demo_and_agreement_may_be_unknown(
    sat: Path, tmp_path: Path
) -> None:
    measured = boundary(build(sat, tmp_path / "one", precision="int8", threshold=None))
    assert measured.threshold == 0.025
    assert measured.agreement is not None
    assert 0 < measured.agreement <= 1
    silent = build(sat, tmp_path / "two", precision="int8", texts=["the"], threshold=0.999999)
    assert boundary(silent).agreement is None


@pytest.mark.parametrize(
    ("labels", "lookahead", "threshold"), [(1, None, 0.25), (111, 48, 0.025), (111, None, 0.01)]
)
def test_the_authors_thresholds(
    tmp_path: Path, labels: int, lookahead: int | None, threshold: float
) -> None:
    folder = write_tiny_sat(tmp_path / "checkpoint", num_labels=labels, lookahead=lookahead)
    assert sat_config(folder / CONFIG, read_json(folder / CONFIG)).authors_threshold == threshold


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda t: t["model"]["vocab"].insert(9, ["more", -9.0]),
            "it has 369 tokens, but the model has 368",
        ),
        (lambda t: t["model"].update(vocab=3), "not a tokenizer: "),
        (lambda t: t["added_tokens"].append({}), "not a tokenizer: "),
        (
            lambda t: t["model"]["vocab"].insert(0, t["model"]["vocab"].pop(1)),
            "<s> must have the id 0, not 1",
        ),
    ],
)
def test_another_models_tokenizer_is_refused(
    sat: Path, tmp_path: Path, edit: Callable[[dict[str, Any]], Any], message: str
) -> None:
    content = json.loads((sat / "tokenizer.json").read_text("utf-8"))
    content["added_tokens"] = []
    edit(content)
    (tmp_path / "other.json").write_text(json.dumps(content), "utf-8")
    with pytest.raises(CheckpointError, match=rf"other\.json: {message}") as caught:
        build(sat, tmp_path / "bundle", tokenizer=tmp_path / "other.json")
    assert "\n" not in str(caught.value)


def test_int8_carries_its_agreement_with_fp32(sat: Path, tmp_path: Path) -> None:
    agreement = boundary(build(sat, tmp_path / "bundle", precision="int8", texts=TEXTS)).agreement
    assert agreement is not None
    assert 0.8 < agreement <= 1


def test_a_folder_of_graphs_alone_is_refused(copy: Path, tmp_path: Path) -> None:
    (copy / "model.safetensors").rename(copy / "model.onnx")
    for given, message in (
        (copy, r"the folder has no model\.safetensors"),
        (copy / "model.onnx", "no such folder"),
    ):
        with pytest.raises(CheckpointError, match=message):
            build(given, tmp_path / "bundle")


@pytest.fixture
def recipe(sat: Path) -> SatRecipe:
    return SatRecipe(
        name="tiny",
        licence="CC0-1.0",
        source="random",
        threshold=0.1,
        stride=32,
        config={"num_hidden_layers": 3, "lookahead": 48},
        sha256={name: sha256_of(sat / name) for name in ("model.safetensors", "tokenizer.json")},
        copyright="(c) nobody",
        licence_text=b"text",
    )


class TestRecipes:
    def test_a_recipe_fills_the_bundle(self, recipe: SatRecipe, sat: Path, tmp_path: Path) -> None:
        bundle = from_recipe(recipe, sat, tmp_path / "bundle")
        assert (boundary(bundle).threshold, boundary(bundle).stride) == (0.1, 32)
        assert (bundle / "LICENSES/CC0-1.0.txt").read_bytes() == b"(c) nobody\n\ntext"
        again = from_recipe(recipe, sat, bundle, threshold=0.2, replace=True)
        assert boundary(again).threshold == 0.2

    def test_another_model_is_refused_by_its_settings(
        self, recipe: SatRecipe, copy: Path, tmp_path: Path
    ) -> None:
        change_json(copy / "config.json", lookahead=None)
        message = r"config\.json: lookahead is None, but 48 in the recipe tiny: this is another"
        with pytest.raises(CheckpointError, match=message):
            from_recipe(recipe, copy, tmp_path / "bundle")

    @pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
    def test_another_file_is_refused_by_its_hash(
        self, recipe: SatRecipe, copy: Path, tmp_path: Path, name: str
    ) -> None:
        with (copy / name).open("ab") as file:
            file.write(b" ")
        with pytest.raises(CheckpointError, match=rf"{name} is not the file of the recipe tiny"):
            from_recipe(recipe, copy, tmp_path / "bundle")

    def test_a_tokenizer_of_another_name_is_checked_too(
        self, recipe: SatRecipe, copy: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "xlm-roberta-base.json"
        (copy / "tokenizer.json").rename(other)
        from_recipe(recipe, copy, tmp_path / "bundle", tokenizer=other)
        other.write_text(other.read_text("utf-8") + " ", "utf-8")
        with pytest.raises(CheckpointError, match="is not the file"):
            from_recipe(recipe, copy, tmp_path / "other", tokenizer=other)

    @pytest.mark.parametrize(
        ("name", "layers", "lookahead", "threshold"),
        [("sat-3l-sm", 3, None, 0.25), ("sat-12l-sm", 12, None, 0.25), ("sat-3l", 3, 48, 0.025)],
    )
    def test_the_projects_recipes_say_what_the_models_are(
        self, name: str, layers: int, lookahead: int | None, threshold: float
    ) -> None:
        recipe = load_recipe(name, SatRecipe)
        assert recipe.name == name
        assert recipe.licence == "MIT"
        assert recipe.threshold == threshold
        assert recipe.stride == 64
        assert recipe.settings["num_hidden_layers"] == layers
        assert recipe.settings["lookahead"] == lookahead
        assert (recipe.legal_text or b"").startswith(b"Copyright (c) 2024 Benjamin Minixhofer")
        assert b"Permission is hereby granted" in (recipe.legal_text or b"")

    def test_an_encoders_recipe_is_refused_and_the_other_way_round(self) -> None:
        with pytest.raises(ExportError, match="all-minilm-l6-v2"):
            load_recipe(DEFAULT, SatRecipe)
        with pytest.raises(ExportError, match="sat-3l-sm"):
            load_recipe("sat-3l-sm", EncoderRecipe)
