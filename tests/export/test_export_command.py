"""`vcs-runtime export sat`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.checkpoints.sat import WORDS
from support.command_line import assert_refused, vcs
from support.matrix import matrix
from support.tiny_sat import boundary
from vcs_export.checkpoint.recipe import recipes_folder
from vcs_export.checkpoint.settings import read_json
from vcs_export.checkpoint.transformer import CONFIG
from vcs_export.checkpoint.xlm_roberta import sat_config
from vcs_export.errors import CheckpointError
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli
from vcs_runtime.errors import InputError

TEXTS = [" ".join(WORDS[i:] + WORDS[:i]) for i in range(0, len(WORDS), 9)]


def invoke(*arguments: str | Path) -> Any:
    result = CliRunner().invoke(cli, ["export", "sat", *map(str, arguments)], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result


def test_a_checkpoint_of_ones_own(sat: Path, tmp_path: Path) -> None:
    result = invoke("--from", sat, "-o", tmp_path / "mine", "--threshold", "0.5")
    assert result.stdout == f"{tmp_path / 'mine'}\n"
    manifest = open_bundle(tmp_path / "mine").manifest
    assert manifest.name == "checkpoint"
    assert manifest.licence == "NOASSERTION"
    assert manifest.source == "checkpoint"


def test_int8_prints_its_agreement(sat: Path, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("\n\n".join(TEXTS), "utf-8")
    options = ("--threshold", "0.025", "--precision", "int8", "--text", tmp_path / "texts")
    result = invoke("--from", sat, "-o", tmp_path / "mine", *options)
    agreement = boundary(tmp_path / "mine").agreement
    assert f"boundary F1 of int8 against fp32: {agreement:.4f}" in result.stderr


def test_the_threshold_is_the_authors_for_models_of_this_kind(sat: Path, tmp_path: Path) -> None:
    result = invoke("--from", sat, "-o", tmp_path / "sat")
    want = sat_config(sat / CONFIG, read_json(sat / CONFIG)).authors_threshold
    assert boundary(tmp_path / "sat").threshold == want
    assert f"threshold {want:g}" in result.stderr


def test_a_recipe_by_name_or_file_refuses_another_model(sat: Path, tmp_path: Path) -> None:
    for recipe in ("sat-3l-sm", recipes_folder() / "sat-3l-sm.toml"):
        with pytest.raises(CheckpointError, match="in the recipe sat-3l-sm: this is another model"):
            invoke("--from", sat, "-o", tmp_path / "mine", "--recipe", recipe)


@matrix(
    "case, command",
    [
        ("checkpoint", "is the input"),
        ("checkpoint/new", "is in the input"),
        ("link/new", "is in the input"),
        (".", "contains the input"),
        ("text", "is not a folder and"),
        ("precious", "a folder without bundle.json"),
    ],
    ["sat", "encoder", "nv-embed-v2"],
)
def test_an_export_deletes_nothing_but_a_bundle(
    tmp_path: Path, case: tuple[str, str], command: str
) -> None:
    output, reason = case
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint/model.safetensors").write_text("no model, but nobody looks")
    (tmp_path / "link").symlink_to("checkpoint")
    (tmp_path / "text").write_text("thesis")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis").write_text("thesis")
    (tmp_path / "bundle.json").write_text('{"files": [], "licence": "", "schema": 3}')
    before = sorted(tmp_path.rglob("*"))
    done = vcs(
        "export", command, "--from", tmp_path / "checkpoint", "-o", tmp_path / output, "--overwrite"
    )
    assert_refused(done, reason)
    assert len(done.stderr.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("content", [b"\n \n", b"\xff"])
def test_a_file_without_text_is_named(sat: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "texts").write_bytes(content)
    options = ("--threshold", "0.025", "--precision", "int8", "--text", tmp_path / "texts")
    with pytest.raises(InputError, match="texts: "):
        invoke("--from", sat, "-o", tmp_path / "mine", *options)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a device that never ends is needed")
def test_what_never_ends_or_leads_to_itself_is_refused(sat: Path, tmp_path: Path) -> None:
    zero, loop, settings = Path("/dev/zero"), tmp_path / "loop", tmp_path / "settings"
    loop.symlink_to(loop.name)
    (tmp_path / "zero.toml").symlink_to(zero)
    settings.mkdir()
    (settings / CONFIG).symlink_to(zero)
    for kind, checkpoint, options, names in (
        ("sat", sat, ("--text", zero), zero),
        ("sat", sat, ("--recipe", tmp_path / "zero.toml"), tmp_path / "zero.toml"),
        ("sat", loop, (), loop),
        ("encoder", loop, (), loop),
        ("decoder", loop, (), loop),
        ("decoder", settings, (), settings / CONFIG),
    ):
        done = vcs("export", kind, "--from", checkpoint, "-o", tmp_path / "made", *options)
        assert done.code == 2
        assert str(names) in done.stderr.splitlines()[-1]
    assert not (tmp_path / "made").exists()
