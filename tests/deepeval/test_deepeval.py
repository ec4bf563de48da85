"""The metric for DeepEval in DeepEval itself, without a connection."""

from __future__ import annotations

import asyncio
import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from support.snippets import run_snippet
from support.stories import story
from vcs_numba import Params
from vcs_runtime import Scorer, ScorerConfig, TextError

PAGE = "docs/guide/integrations.md"
# What the library's own code warns of is none of ours.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError(f"a connection was opened: {arguments}")

    monkeypatch.chdir(tmp_path)  # DeepEval keeps a folder where it is imported, and results where it runs
    monkeypatch.setenv("DEEPEVAL_DISABLE_DOTENV", "1")
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def config(tiny_bundle: Path) -> ScorerConfig:
    return ScorerConfig(tiny_bundle, "cpu")


def _case(generated: str | None, reference: str | None) -> Any:
    from deepeval.test_case import LLMTestCase

    return LLMTestCase(input="Describe the video.", actual_output=generated, expected_output=reference)


def _metric(config: ScorerConfig, **options: Any) -> Any:
    from vcs_runtime.integrations.deepeval import VCSMetric

    return VCSMetric(config, **options)


def test_the_example_prints_the_score_and_the_sentences_of_the_explanation(
    tiny_bundle: Path, scorer: Scorer, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run_snippet(PAGE, "deepeval", bundle=tiny_bundle, predictions=[story(1)], references=[story(1)])
    explanation = scorer.explain(story(1), story(1))
    metric = names["metric"]
    assert metric.score == explanation.scores.vcs > 0.5
    assert metric.success is True
    assert metric.reason == " ".join(explanation.sentences.values())
    assert metric.score_breakdown == explanation.scores.to_dict()
    assert capsys.readouterr().out == f"{metric.score} True {metric.reason}\n"


def test_options_choose_the_score_its_threshold_and_how_texts_are_compared(
    config: ScorerConfig, scorer: Scorer
) -> None:
    expected = scorer.score(story(1), story(20), chunk_size=2, params=Params(lct=1.0)).margin
    for threshold in (expected, math.nextafter(expected, 1)):
        metric = _metric(
            config, threshold=threshold, score_name="margin", chunk_size=2, params=Params(lct=1.0)
        )
        assert metric.measure(_case(story(20), story(1))) == expected
        assert metric.is_successful() is metric.success is (threshold == expected)
    assert metric.__name__ == "margin"
    assert (
        _metric(config, short=True).measure(_case("a dog", "a dog"))
        == scorer.score_short("a dog", "a dog").vcs
    )
    with pytest.raises(ValueError, match="score_name must be one of 'vcs'"):
        _metric(config, score_name="window_regularizer")
    with pytest.raises(ValueError, match="chunk_size"):
        _metric(config, chunk_size=0)


@pytest.mark.parametrize(("score_name", "lowest"), [("vcs", 0.0), ("margin", -1.0)])
def test_an_output_that_says_nothing_has_the_lowest_score(
    config: ScorerConfig, score_name: str, lowest: float
) -> None:
    metric = _metric(config, score_name=score_name)
    assert metric.measure(_case("", story(1))) == lowest
    assert (metric.success, metric.reason) == (False, "generated: the text is empty")
    assert (metric.error, metric.score_breakdown) == (None, None)


def test_a_case_that_cannot_be_judged_is_an_error_and_forgets_the_score_before(config: ScorerConfig) -> None:
    from deepeval.errors import MissingTestCaseParamsError

    metric = _metric(config)
    metric.measure(_case(story(1), story(1)))
    with pytest.raises(TextError, match="reference: the text is empty"):
        metric.measure(_case(story(1), ""))
    assert (metric.score, metric.reason, metric.is_successful()) == (None, None, False)
    assert metric.error == "reference: the text is empty"
    with pytest.raises(MissingTestCaseParamsError, match="VCS needs expected_output of the test case"):
        metric.measure(_case(story(1), None))


def test_cases_can_be_measured_at_the_same_time(config: ScorerConfig, scorer: Scorer) -> None:
    async def measure() -> list[float]:
        cases = [_case(story(20 + i), story(i)) for i in range(8)]
        return await asyncio.gather(*(_metric(config).a_measure(case) for case in cases))

    assert asyncio.run(measure()) == [scorer.score(story(i), story(20 + i)).vcs for i in range(8)]


@pytest.mark.parametrize("run_async", [False, True])
def test_deepeval_evaluates_and_asserts(config: ScorerConfig, run_async: bool) -> None:
    from deepeval import assert_test, evaluate
    from deepeval.evaluate import AsyncConfig, DisplayConfig

    assert os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] == "1"  # noxfile.py sets it: evaluate reports otherwise
    metric = _metric(config, threshold=0.9, score_name="las")
    cases = [_case(story(i), story(i)) for i in range(3)] + [_case("", story(3))]
    found = evaluate(
        cases, [metric], async_config=AsyncConfig(run_async=run_async),
        display_config=DisplayConfig(print_results=False),
    )  # fmt: skip
    results = {result.name: result.metrics_data[0] for result in found.test_results}
    assert [results[f"test_case_{i}"].success for i in range(4)] == [True, True, True, False]
    assert [results[f"test_case_{i}"].name for i in range(4)] == ["LAS"] * 4
    assert "VCS is 1.000. Nothing was lost." in results["test_case_0"].reason
    assert_test(cases[0], [metric], run_async=run_async)
    with pytest.raises(AssertionError, match="LAS"):
        assert_test(cases[3], [metric], run_async=run_async)
