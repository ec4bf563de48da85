"""The integrations without their libraries: none is imported, a missing one is named; recipes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.snippets import run_snippet
from support.stories import story
from vcs_runtime import MissingExtraError, Scorer, ScorerConfig, training
from vcs_runtime.training import TextMetric

PAGE = "docs/guide/integrations.md"
LIBRARIES = {"torchmetrics", "evaluate"}


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    training.close()


@pytest.mark.parametrize("library", sorted(LIBRARIES))
def test_a_missing_library_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setitem(sys.modules, f"vcs_runtime.integrations.{library}", None)
    # And monkeypatch forgets the one imported here.
    del sys.modules[f"vcs_runtime.integrations.{library}"]
    module = importlib.import_module(f"vcs_runtime.integrations.{library}")
    with pytest.raises(MissingExtraError, match=rf"needs {library} \(.*\): install `{library}`$"):
        module.VideoComprehensionScore(device="cpu")


def test_the_recipe_for_lmms_eval_scores_samples_and_leaves_what_cannot_be_scored_out_of_means(
    tiny_bundle: Path, scorer: Scorer
) -> None:
    names = run_snippet(PAGE, "lmms-eval", bundle=tiny_bundle)
    # As lmms-eval does: one call a sample, then every value to an aggregation.
    values: dict[str, list[float]] = {}
    for i, output in enumerate([story(20), "", story(22)]):
        for name, value in names["process_results"]({"caption": story(i)}, [output]).items():
            values.setdefault(name, []).append(value)
    expected = [scorer.score(story(i), story(20 + i)) for i in (0, 2)]
    assert values["vcs"] == [result.vcs for result in expected]
    assert values["vcs_margin"] == [result.margin for result in expected]
    assert values["vcs_unscorable"] == [0.0, 1.0, 0.0]
    assert names["share_above_gate"]([0.0, 0.2, 0.0, 0.4]) == 0.5


def test_the_recipe_for_vlmevalkit_reads_the_file_of_predictions(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    # VLMEvalKit reads files with pandas, so that an empty prediction is NaN.
    smp: Any = ModuleType("vlmeval.smp")
    smp.load = lambda path: pandas.read_csv(path, sep="\t")
    monkeypatch.setitem(sys.modules, "vlmeval", ModuleType("vlmeval"))
    monkeypatch.setitem(sys.modules, "vlmeval.smp", smp)
    rows = [
        (story(20), story(0)),
        (story(21), story(1)),
        ("", story(2)),
        ("Failed to obtain answer via API.", story(3)),
    ]
    predictions = tmp_path / "model_captions.tsv"
    pandas.DataFrame(rows, columns=["prediction", "answer"]).to_csv(predictions, sep="\t")

    class Captions(run_snippet(PAGE, "vlmevalkit", bundle=tiny_bundle)["VCSEvaluation"]):  # type: ignore[misc]
        """A data set whose own prompts and videos are not needed here."""

    really, seen = TextMetric.update, []

    def update(self: TextMetric, preds: Any, target: Any) -> None:
        seen.extend(preds)
        really(self, preds, target)

    with monkeypatch.context() as patch:
        patch.setattr(TextMetric, "update", update)
        found = Captions.evaluate(str(predictions), model="exact_matching", nproc=4)
    assert seen == [
        story(20),
        story(21),
        "",
        rows[3][0],
    ]  # and not "nan", which other bundles would score
    expected = TextMetric(ScorerConfig(tiny_bundle, "cpu"))
    expected.update(
        [generated for generated, _ in rows[:2]], [reference for _, reference in rows[:2]]
    )
    assert found == expected.compute() | {"unscorable": 2, "overall": expected.compute()["vcs"]}
