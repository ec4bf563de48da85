"""`ScorerConfig`: made of a bundle, and made absolute for other processes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from vcs_runtime import ScorerConfig
from vcs_runtime.bundle.opening import open_bundle


def test_a_bundle_stands_for_a_config_with_the_callers_defaults() -> None:
    assert ScorerConfig.of("models/a", device="cpu") == ScorerConfig("models/a", "cpu")
    assert ScorerConfig.of(Path("models/a")) == ScorerConfig(Path("models/a"))
    config = ScorerConfig("models/a", "cuda:1")
    assert ScorerConfig.of(config, device="cpu") is config


def test_paths_become_absolute_and_words_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "default").mkdir()  # does not change what "default" means
    assert ScorerConfig().absolute() == ScorerConfig()
    config = ScorerConfig(Path("a"), "cpu", "vectors", segmenter="b", threads=3).absolute()
    paths = (str(tmp_path / name) for name in ("a", "vectors", "b"))
    assert (config.bundle, config.cache, config.segmenter) == tuple(paths)
    assert (config.device, config.threads) == ("cpu", 3)
    assert ScorerConfig(segmenter="rules").absolute().segmenter == "rules"


def test_an_opened_bundle_becomes_its_folder(tiny_bundle: Path) -> None:
    bundle = open_bundle(tiny_bundle)
    config = ScorerConfig(bundle, segmenter=bundle).absolute()
    assert config == ScorerConfig(str(tiny_bundle.resolve()), segmenter=str(tiny_bundle.resolve()))
    assert pickle.loads(pickle.dumps(config)) == config
