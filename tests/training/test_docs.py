"""The examples of docs/guide/training.md that need no library, or a small stand-in."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from support.snippets import run_snippet
from support.stories import story
from vcs_runtime import Scorer
from vcs_runtime.scoring.result import Results

PAGE = "docs/guide/training.md"


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
        PAGE,
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


def test_trackers_get_the_worst_outputs_with_what_can_be_seen_in_them(
    tiny_bundle: Path, scorer: Scorer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outputs = [story(1), story(9), "", "A dog | runs.\nA cat sits. A man walks."]
    references = [story(1), [story(7), story(2)], story(3), story(4)]
    names = {
        "bundle": tiny_bundle,
        "references": references,
        "outputs": outputs,
        "ids": ["a", "b", "c", "d"],
    }
    rows = run_snippet(PAGE, "worst", **names)["rows"]
    results = scorer.score_many(list(zip(references, outputs, strict=True)))
    order = sorted((0, 1, 3), key=lambda i: results[i].margin)  # "" has no scores
    assert [row["id"] for row in rows] == [names["ids"][i] for i in order]
    assert [row["margin"] for row in rows] == [results[i].margin for i in order]
    for row, i in zip(rows, order, strict=True):
        assert row["reason"] == scorer.explain(references[i], outputs[i]).conclusion
        assert row["generated"] == outputs[i]
    [several] = [row for row in rows if row["id"] == "b"]
    assert several["reference"] == references[1][results[1].reference_index]

    logged: dict[str, Any] = {}
    wandb, mlflow, board = map(ModuleType, ("wandb", "mlflow", "torch.utils.tensorboard"))
    wandb.Table = SimpleNamespace  # type: ignore[attr-defined]
    wandb.log = lambda tables, step: logged.update(wandb=(tables["val/worst"], step))  # type: ignore[attr-defined]
    mlflow.log_table = lambda table, artifact_file: logged.update(mlflow=(table, artifact_file))  # type: ignore[attr-defined]

    class SummaryWriter:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def __enter__(self) -> SummaryWriter:
            return self

        def __exit__(self, *error: object) -> None:
            logged["closed"] = self.folder

        def add_text(self, tag: str, text: str, step: int) -> None:
            logged["tensorboard"] = (tag, text, step)

    board.SummaryWriter = SummaryWriter  # type: ignore[attr-defined]
    for name in ("torch", "torch.utils"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for module in (wandb, mlflow, board):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for title in ("wandb", "mlflow", "tensorboard"):
        run_snippet(PAGE, title, rows=rows, step=50, folder=tmp_path)
    columns = ["id", "reference", "generated", "margin", "reason"]
    table, step = logged["wandb"]
    assert (table.columns, step) == (columns, 50)
    assert table.data == [list(row.values()) for row in rows]
    by_column, file = logged["mlflow"]
    assert list(by_column) == columns
    assert (by_column["id"], file) == ([row["id"] for row in rows], "worst/000050.json")
    tag, text, step = logged["tensorboard"]
    assert (tag, step, logged["closed"]) == ("val/worst", 50, tmp_path)
    assert [line.replace("\\|", "").count("|") for line in text.split("\n")] == [6] * (
        2 + len(rows)
    )


def test_the_worst_outputs_need_as_many_pairs_and_a_score_that_ranks(scorer: Scorer) -> None:
    pairs = [(story(1), story(1)), (story(2), story(8))]
    results = scorer.score_many(pairs)
    [first] = results.worst(1, pairs)
    assert first["id"] == min((0, 1), key=lambda i: results[i].margin)
    assert Results().worst(3, []) == []
    for arguments, keywords, message in (
        ((1, pairs[:1]), {}, "pairs must have the length 2, not 1"),
        ((1, pairs), {"ids": ["a"]}, "ids must have the length 2, not 1"),
        ((0, pairs), {}, "n must be 1 or more, not 0"),
        ((1, pairs), {"score": "substitution"}, "score: pairs are not ranked by 'substitution'"),
        (
            (1, pairs),
            {"score": "hm_cf"},
            "score: the results have no 'hm_cf': score them with `also`",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            results.worst(*arguments, **keywords)
