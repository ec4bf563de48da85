"""The metrics for torchmetrics and evaluate in the real libraries."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from support.snippets import run_snippet
from support.stories import story
from vcs_numba import Params
from vcs_runtime import ScorerConfig, training
from vcs_runtime.training import TextMetric

PAGE = "docs/guide/integrations.md"
PREDS = [*(story(i) for i in range(20, 26)), "", story(1, 1)]
TARGETS = [*(story(i) for i in range(6)), story(6), story(7, 1)]
# What the libraries' own code warns of is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"a connection was opened: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    training.close()


@pytest.fixture(scope="module")
def config(tiny_bundle: Path) -> ScorerConfig:
    return ScorerConfig(tiny_bundle, "cpu")


@pytest.fixture(scope="module")
def expected(config: ScorerConfig) -> dict[str, float]:
    metric = TextMetric(config)
    metric.update(PREDS, TARGETS)
    means = metric.compute()
    assert (means["count"], means["unscorable"], means["not_judged"]) == (7, 1, 1)
    return means


def _plain(tensors: dict[str, Any]) -> dict[str, float]:
    return {name: value.item() for name, value in tensors.items()}


@pytest.fixture
def metric(config: ScorerConfig) -> Any:
    from vcs_runtime.integrations.torchmetrics import VideoComprehensionScore

    return VideoComprehensionScore(config)


def test_the_example_of_torchmetrics_gives_means_and_counts_as_tensors(
    tiny_bundle: Path, expected: dict[str, float]
) -> None:
    names = run_snippet(
        PAGE, "torchmetrics", bundle=tiny_bundle, predictions=PREDS, references=TARGETS
    )
    assert _plain(names["scores"]) == pytest.approx(expected, rel=1e-14)
    assert list(names["scores"]) == list(expected)
    assert names["scores"]["count"].dtype == torch.int64


def test_updates_add_up_and_a_step_returns_its_own_means(
    metric: Any, expected: dict[str, float]
) -> None:
    first = metric(PREDS[:3], TARGETS[:3])
    assert first["count"] == 3
    metric.update(PREDS[3:], TARGETS[3:])
    assert _plain(metric.compute()) == pytest.approx(expected, rel=1e-14)
    metric.reset()
    metric.update(PREDS[:3], TARGETS[:3])
    assert _plain(metric.compute()) == pytest.approx(_plain(first), rel=1e-14)


def test_clones_pickles_and_checkpoints_hold_what_was_seen(
    metric: Any, config: ScorerConfig
) -> None:
    metric.persistent(True)
    metric.update(PREDS[:4], TARGETS[:4])
    restored = type(metric)(config)
    restored.persistent(True)
    restored.load_state_dict(metric.state_dict())
    metric.update(PREDS[4:], TARGETS[4:])
    for twin in (metric.clone(), pickle.loads(pickle.dumps(metric))):
        assert _plain(twin.compute()) == _plain(metric.compute())
    restored.update(PREDS[4:], TARGETS[4:])
    assert _plain(restored.compute()) == _plain(metric.compute())
    assert torch.nn.ModuleList([metric.clone()]).half()[0].sums.dtype == torch.float64


def test_a_collection_has_the_options_of_each_metric(config: ScorerConfig, metric: Any) -> None:
    from torchmetrics import MetricCollection

    lenient = type(metric)(config, params=Params(lct=1.0), sync_on_compute=False)
    collection = MetricCollection({"strict": metric, "lenient": lenient})
    for start in (0, 4):
        collection.update(PREDS[start : start + 4], TARGETS[start : start + 4])
    found = _plain(collection.compute())
    alone = TextMetric(config, params=Params(lct=1.0))
    alone.update(PREDS, TARGETS)
    lenient_means = {
        name.removeprefix("lenient_"): v for name, v in found.items() if name.startswith("lenient_")
    }
    assert lenient_means == pytest.approx(alone.compute(), rel=1e-14)
    assert found["strict_nas_d"] != found["lenient_nas_d"]


def test_an_unknown_option_is_refused_by_torchmetrics(metric: Any, config: ScorerConfig) -> None:
    with pytest.raises(ValueError, match="chunksize"):
        type(metric)(config, chunksize=3)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder where evaluate keeps texts."""
    from evaluate import config

    monkeypatch.setattr(config, "HF_METRICS_CACHE", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("cache")
def test_the_example_of_evaluate_gives_the_means(
    tiny_bundle: Path, expected: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_snippet(PAGE, "evaluate", bundle=tiny_bundle, predictions=PREDS, references=TARGETS)
    assert names["scores"] == expected
    printed = capsys.readouterr().out
    assert printed.startswith(f"{expected['vcs']} 1 vcs|def:1.0.0|")


def test_evaluate_takes_batches_several_references_and_other_metrics_beside_it(
    config: ScorerConfig, cache: Path
) -> None:
    import evaluate

    from vcs_runtime.integrations.evaluate import VideoComprehensionScore

    several = [[target, story(40)] for target in TARGETS]
    direct = TextMetric(config)
    direct.update(PREDS, several)
    vcs = VideoComprehensionScore(config)
    for start in (0, 4):
        vcs.add_batch(predictions=PREDS[start : start + 4], references=several[start : start + 4])
    assert not list(cache.rglob("*.arrow"))  # texts stayed in memory
    assert vcs.compute() == direct.compute()

    words = VideoComprehensionScore(config, short=True, keep_in_memory=False)
    both = evaluate.combine({"sentences": vcs, "words": words})
    found = both.compute(predictions=PREDS[:2], references=TARGETS[:2])
    assert found["sentences_count"] == found["words_count"] == 2
    assert found["sentences_vcs"] != found["words_vcs"]
    assert isinstance(vcs, evaluate.EvaluationModule)
