"""`--rehearse` of every export command, with every recipe, on made-up checkpoints."""

from __future__ import annotations

import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from vcs_export.checkpoint.recipe import DecoderRecipe, SatRecipe, SentenceRecipe, _names
from vcs_runtime import Scorer
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

RECIPES = [
    *(("sat", name) for name in _names(SatRecipe)),
    *(("encoder", name) for name in _names(SentenceRecipe)),
    *(("decoder", name) for name in _names(DecoderRecipe)),
]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, which is empty after each command."""
    (folder := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def export(tmp_path: Path, name: str, *options: str) -> Any:
    """Rehearse in a folder without any model's files, and return the manifest."""
    with chdir(tmp_path):
        arguments = ["export", name, "--rehearse", "-o", "bundle", *options]
        done = CliRunner().invoke(cli, arguments, standalone_mode=False)
    if done.exception:
        raise done.exception
    assert "a rehearsal with random numbers" in done.stderr
    assert list((tmp_path / "scratch").iterdir()) == []
    return open_bundle(tmp_path / "bundle").manifest


@pytest.mark.parametrize(("command", "recipe"), RECIPES)
def test_every_recipe_can_be_rehearsed(tmp_path: Path, command: str, recipe: str) -> None:
    manifest = export(tmp_path, command, "--recipe", recipe)
    assert manifest.name == f"rehearsal-{recipe}"
    assert manifest.licence == "CC0-1.0"
    assert manifest.source.startswith("a rehearsal of ")
    assert not (tmp_path / "bundle/LICENSES").exists()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_signatures_of_a_rehearsed_nv_embed_v2_say_so(
    tmp_path: Path, tiny_bundle: Path, precision: str
) -> None:
    manifest = export(
        tmp_path, "nv-embed-v2", "--from", "nvidia/NV-Embed-v2", "--precision", precision, "--device", "cpu"
    )
    assert (manifest.name, manifest.embedder.precision) == ("rehearsal-nv-embed-v2", precision)
    with Scorer.open(tmp_path / "bundle", "cpu", segmenter=tiny_bundle) as scorer:
        assert "emb:rehearsal-nv-embed-v2@" in scorer.signature
        assert scorer.score("A man walks. A dog runs.", "A dog runs. A man walks.").n_ref == 2


@pytest.mark.parametrize(
    ("command", "options", "name", "dimension"),
    [
        ("encoder", ["--from", "all-mpnet-base-v2", "--dimension", "250"], "all-mpnet-base-v2", 250),
        ("encoder", ["--prompt", "query", "--max-tokens", "700", "--pooling", "cls"], "encoder", 32),
        (
            "decoder",
            ["--from", "Qwen/Qwen3-Embedding-0.6B", "--dimension", "256"],
            "Qwen3-Embedding-0.6B",
            256,
        ),
        ("decoder", ["--from", "embeddinggemma-300m", "--dimension", "100"], "embeddinggemma-300m", 100),
        ("decoder", ["--pooling", "mean", "--prompt", "query", "--max-tokens", "8192"], "decoder", 32),
        ("decoder", ["--own-weights", "--recipe", "gte-qwen2-7b-instruct"], "gte-qwen2-7b-instruct", 48),
    ],
)
def test_options_of_the_real_export_are_taken(
    tmp_path: Path, command: str, options: list[str], name: str, dimension: int
) -> None:
    manifest = export(tmp_path, command, *options)
    assert manifest.name.startswith(f"rehearsal-{name}")
    assert manifest.embedder.dimension == dimension
    if "--prompt" in options:
        assert manifest.embedder.instruction == "query: "
    if "--max-tokens" in options:
        assert manifest.embedder.max_tokens == int(options[options.index("--max-tokens") + 1])
