"""The papers' tables: their settings, authors, human ratings, and what a terminal shows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.experiments import comparison, table, write_json
from support.stories import read_lines, story, write_pairs
from vcs_numba import Params
from vcs_runtime import Scorer


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_vcs_before_the_metrics_beside_it(
    experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printed = experiment("corruption", "--data", comparison(tmp_path / "data", 1)).stdout
    lines = printed.splitlines()[:-3]  # the signature and the name of the folder are not broken
    assert max(map(len, lines)) <= width
    cases = next(line for line in lines if line.startswith("case  "))
    assert cases.split()[:6] == ["case", "valid", "n", "VCS_LCT0", "VCS_LCT1", "margin_LCT0"]
    first = lines.index(next(line for line in lines if line.startswith("cases ")))
    assert [line.split()[1] for line in lines[first + 1 : first + 3]] == ["VCS_LCT0", "VCS_LCT1"]


def test_presets_are_the_settings_of_the_papers(experiment: Any, tmp_path: Path) -> None:
    data = ("--data", comparison(tmp_path / "data", 1))
    for i, (arguments, settings, columns) in enumerate(
        [
            (("--preset", "tables"), "|chunk:1|lct:0|", {"VCS_LCT0", "VCS_LCT1"}),
            (("--preset", "paper"), "|chunk:3|lct:0.1|", {"VCS_LCT0.1"}),
            (
                ("--preset", "paper", "--lct", 0.5, "--chunk-size", 2),
                "|chunk:2|lct:0.5|",
                {"VCS_LCT0.5"},
            ),
        ]
    ):
        out = tmp_path / str(i)
        assert experiment("corruption", *data, *arguments, out=out).exit_code in (0, 1)
        assert settings in json.loads((out / "results.json").read_text())["signature"]
        assert {
            name for name in table(out, "cases")[0] if name.startswith("VCS") and "sd" not in name
        } == columns


def test_authors_are_compared_in_both_directions(
    experiment: Any, scorer: Scorer, tmp_path: Path
) -> None:
    data = {str(i): {f"A{k}": story(10 * i + k) for k in (1, 2, 3)} for i in range(2)}
    write_json(tmp_path / "a.json", data)
    (tmp_path / "p.csv").write_text("scene,Comparison,LAS,BLEU-1\n0,A1-A2,2.0,\n1,A1-A2,1.0,0.5\n")
    out = tmp_path / "out"
    done = experiment("authors", "--data", tmp_path / "a.json", "--published", tmp_path / "p.csv")
    assert done.exit_code == 1
    assert "0/A1-A2, BLEU-1: '' is not a number: left out" in done.stderr
    assert "scenes: 2, published scenes: 2" in done.stdout
    published = {row["metric"]: row for row in table(out, "published")}
    assert (published["LAS"]["pairs"], published["BLEU-1"]["pairs"]) == (2, 1)
    means = {row["authors"]: row for row in table(out, "published_means")}
    assert means["A1-A2"]["LAS published"] == 1.5
    assert means["A2-A1"]["LAS"] is None
    rows = table(out, "authors")
    assert [row["authors"] for row in rows] == "A1-A2 A1-A3 A2-A1 A2-A3 A3-A1 A3-A2".split()
    expected = [scorer.score(story(10 * i + 3), story(10 * i + 1)).vcs for i in range(2)]
    assert rows[4]["VCS_LCT0"] == pytest.approx(np.mean(expected))
    # LAS does not care which is the reference.
    assert rows[0]["LAS"] == pytest.approx(rows[2]["LAS"])
    consistency = {row["metric"]: row for row in table(out, "consistency")}
    for metric in ("VCS_LCT0", "VCS_LCT1", "Cosine"):
        own, given = [row[metric] for row in rows], consistency[metric]
        assert (given["lowest mean"], given["highest mean"]) == (min(own), max(own))
        assert (given["pairs"], given["not above 0.8"]) == (6, sum(mean <= 0.8 for mean in own))
    assert consistency["VCS_LCT0"]["not above 0.8"] > 0


@pytest.mark.slow
def test_vatex_takes_the_first_and_all_references(
    experiment: Any, scorer: Scorer, tmp_path: Path
) -> None:
    videos = [
        {
            "vid": f"v{i}",
            "refs": [[story(100 * i + k, 1) for k in range(9)]],
            "cands": [story(100 * i + k, 1) for k in (0, 8, 20)],
            "scores": [[5, 4, 5], [4, 4, 3], [1, 2, float("nan") if i == 2 else 1]],
        }
        for i in range(4)
    ]
    write_pairs(tmp_path / "v.jsonl", videos)
    done = experiment("vatex", "--data", tmp_path / "v.jsonl", "--resamples", 100)
    assert done.exit_code == 1
    assert "candidate 2 is left out, because its ratings [1, 2, nan]" in done.stderr
    lines = {line["id"]: line for line in read_lines(tmp_path / "out" / "pairs.jsonl")}
    assert len(lines) == 11
    references, candidate = videos[1]["refs"][0], videos[1]["cands"][1]  # type: ignore[index]
    for lct in (0, 1):
        single = [
            scorer.score_short(reference, candidate, params=Params(lct=lct))
            for reference in references
        ]
        assert lines["v1/1"][f"VCS_LCT{lct} 1ref"] == single[0].vcs
        assert lines["v1/1"][f"VCS_LCT{lct} 9ref"] == max(result.vcs for result in single)
        assert lines["v1/1"]["SAS 1ref"] == single[0].scores.sas  # type: ignore[union-attr]
        assert lines["v1/1"]["LAS 9ref"] == max(
            result.scores.las for result in single if result.scores
        )
        nas = max(result.scores.nas_l for result in single if result.scores)
        assert lines["v1/1"][f"NAS-L_LCT{lct} 9ref"] == nas
    assert any(line["VCS_LCT0 1ref"] != line["VCS_LCT1 1ref"] for line in lines.values())
    assert lines["v1/1"]["ROUGE-1 9ref"] == 1.0
    rows = {
        (row["metric"], row["references"]): row for row in table(tmp_path / "out", "correlation")
    }
    row = rows["ROUGE-1", "9ref"]
    assert row["Kendall tau-b low"] <= row["Kendall tau-b"] <= row["Kendall tau-b high"]
    assert row["Kendall tau-b"] == pytest.approx(
        np.mean([row[f"Kendall tau-b rater {i}"] for i in (1, 2, 3)])
    )
