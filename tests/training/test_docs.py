"""The example of docs/guide/training.md that needs no library; the others are run by tests/parity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.snippets import run_snippet
from support.stories import story
from vcs_runtime import Scorer


def test_the_plain_loop_logs_every_evaluation_with_the_scores_of_its_step(
    tiny_bundle: Path, scorer: Scorer
) -> None:
    step = 0
    logged: list[tuple[int, dict[str, float]]] = []

    def train(batch: Any) -> None:
        nonlocal step
        step += 1

    references = [[story(1), story(2)], [story(3)]]
    run_snippet(
        "docs/guide/training.md",
        "plain loop",
        bundle=tiny_bundle,
        training=range(160),
        train=train,
        validation=[(len(part), part) for part in references],
        generate=lambda count: [story(step + i) for i in range(count)],
        log=lambda at, scores: logged.append((at, scores)),
    )
    assert [at for at, _ in logged] == [50, 100, 150]
    for evaluated, scores in logged:
        pairs = [(text, story(evaluated + i)) for part in references for i, text in enumerate(part)]
        expected = sum(scorer.score(*pair).vcs for pair in pairs) / 3
        assert abs(scores["vcs"] - expected) < 1e-15
        assert scores["count"] == 3
