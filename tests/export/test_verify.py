"""Looking at a bundle's embedder: what holds is said to hold, and what does not is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

from support.checkpoints.nv_embed import write_tiny_nv_embed
from support.tiny_bert import build_tiny_bundle
from support.tiny_decoder import write_tiny_decoder
from support.tiny_nv_embed import build_tiny_nv_embed_bundle
from vcs_export.checks.verify import verify_embedder
from vcs_export.errors import ExportError
from vcs_export.families.build import Build
from vcs_export.families.decoder import DecoderOptions, build_decoder_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Embedder
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli import cli

CARD = """
# A model
```python
def last(states): return states
```
```python
from somewhere import encode
task_name_to_instruct = {{"example": "Describe the scene",}}
prefix = "Instruct: "+task_name_to_instruct["example"]+"\\nQuery: "
queries = ['two cats', 'the dog runs']
passages = ["a young woman", "the river", "red"]
model = encode("name")
# {scores}
```
"""


@pytest.fixture(scope="module", params=["bert", "decoder"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    if request.param == "bert":
        return build_tiny_bundle(folder)
    checkpoint = write_tiny_nv_embed(folder / "checkpoint", positions=2048)
    return build_tiny_nv_embed_bundle(folder, checkpoint=checkpoint)


def test_a_sound_bundle_passes(bundle: Path) -> None:
    checks = list(verify_embedder(open_bundle(bundle)))
    assert len(checks) == 4
    assert all(check.holds for check in checks), checks


@pytest.mark.parametrize(("window", "count"), [(12, 3), (13, 4), (32, 4)])
def test_a_short_window_is_not_overrun(tmp_path: Path, window: int, count: int) -> None:
    folder = write_tiny_decoder(tmp_path / "qwen3", "qwen3")
    options = DecoderOptions(max_tokens=window)
    build = Build(folder, tmp_path / "bundle", BundleInfo("x", "MIT", "y"))
    bundle = build_decoder_bundle(build, options)
    checks = list(verify_embedder(open_bundle(bundle)))
    assert len(checks) == count
    assert all(check.holds for check in checks), checks


def test_what_does_not_hold_is_noticed(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed = Embedder.embed

    def spoilt(self: Embedder, texts: list[str]) -> NDArray[np.float32]:
        return embed(self, texts) * np.float32(1 + 0.01 * len(texts))

    monkeypatch.setattr(Embedder, "embed", spoilt)
    wrong = {check.name for check in verify_embedder(open_bundle(bundle)) if not check.holds}
    assert wrong == {"unit length", "alone and in a batch"}


def test_the_scores_of_a_card_must_come_out(tmp_path: Path) -> None:
    bundle = open_bundle(build_tiny_nv_embed_bundle(tmp_path))
    with Embedder.open(bundle, device="cpu") as embedder:
        left = embedder.embed(["two cats", "the dog runs"], "Instruct: Describe the scene\nQuery: ")
        right = embedder.embed(["a young woman", "the river", "red"])
    scores = 100 * left @ right.T
    card = tmp_path / "README.md"
    for off, holds in ((0, True), (1, False)):
        card.write_text(CARD.format(scores=(scores + off).tolist()), "utf-8")
        [check] = [c for c in verify_embedder(bundle, card=card) if c.name == "the card's scores"]
        assert check.holds is holds
    for text in (
        "",
        CARD.format(scores="[[1.0]]"),
        CARD.format(scores="[[").replace("queries", "asked"),
    ):
        card.write_text(text, "utf-8")
        with pytest.raises(ExportError, match=r"README\.md: the file has no example"):
            list(verify_embedder(bundle, card=card))


def test_the_command_tells_and_fails(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke(cli, ["export", "verify", str(bundle)])
    assert run.exit_code == 0, run.output
    assert run.stdout.count("ok ") == 5
    monkeypatch.setattr("vcs_export.checks.verify.TOLERANCES", {"fp32": -1.0})
    run = CliRunner().invoke(cli, ["export", "verify", str(bundle)])
    assert run.exit_code == 1
    assert "FAILED alone and in a batch" in run.stdout
