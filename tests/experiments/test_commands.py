"""The experiments as wholes: their files, resuming, the same bytes again, and their commands."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from support.command_line import vcs
from support.experiments import CASES, comparison, files, sentences, table, write_json
from support.stories import read_lines, story, write_pairs
from vcs_numba import Params
from vcs_runtime import Scorer
from vcs_runtime.cli import cli
from vcs_runtime.comparing.statistics import holm, paired_difference
from vcs_runtime.errors import InputError, MissingExtraError

METRICS = (
    "VCS_LCT0 VCS_LCT1 margin_LCT0 margin_LCT1 Cosine LAS NAS_LCT0 NAS_LCT1 BLEU-1"
    " BLEU-4 ROUGE-1 ROUGE-4 ROUGE-L ROUGE-Lsum CIDEr BERTScore-P BERTScore-R"
    " BERTScore-F1"
).split()


def test_corruption_leaves_pairs_tables_and_plots(
    experiment: Any, scorer: Scorer, tmp_path: Path
) -> None:
    data, out = comparison(tmp_path / "data"), tmp_path / "out"
    done = experiment("corruption", "--data", data, "--plots")
    assert done.exit_code == 0, done.output
    with (out / "pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[: 2 + len(METRICS)] == ["scene", "case", *METRICS]
    assert [(row["scene"], row["case"]) for row in rows] == [
        (str(s), case) for s in range(3) for case in CASES
    ]
    for row in rows:
        scene = int(row["scene"])
        if row["case"] == "Reverse Segments Order":
            parts = sentences(scene)
            result = scorer.score(" ".join(parts), " ".join(parts[::-1]), params=Params(lct=1.0))
            assert float(row["VCS_LCT1"]) == result.vcs
    cases = table(out, "cases")
    assert [(row["case"], row["valid"], row["n"]) for row in cases[:2]] == [
        ("Synonym Substitution", "valid", 3),
        ("Deletion (~50%)", "invalid", 3),
    ]
    assert cases[0]["VCS_LCT0"] == pytest.approx(1.0)
    values = [float(row["BLEU-1"]) for row in rows if row["case"] == CASES[1]]
    assert cases[1]["BLEU-1"] == pytest.approx(np.mean(values))
    assert cases[1]["BLEU-1 sd"] == pytest.approx(np.std(values, ddof=1))
    [bleu] = [row for row in table(out, "published") if row["metric"] == "BLEU-1"]
    assert bleu["pairs"] == 12
    assert bleu["equal to 3 decimals"] >= 6  # the copy and the reversal score 1.000 in both
    results = json.loads((out / "results.json").read_text())
    assert results["signature"].startswith("vcs|def:1.0.0|chunk:1|lct:0|")
    assert "|lcts:0,1|bleu:nltk@" in results["signature"]
    assert results["signature"] in (out / "results.md").read_text()
    assert {"distribution.png", "published.png", "classification.csv"} <= set(files(out))


def test_the_same_data_give_the_same_bytes_resumed_or_not(experiment: Any, tmp_path: Path) -> None:
    data = comparison(tmp_path / "data")
    outs = [tmp_path / "a", tmp_path / "b"]
    for out in outs:
        assert experiment("corruption", "--data", data, "--plots", out=out).exit_code == 0
    whole = files(outs[0])
    assert files(outs[1]) == whole
    lines = (outs[1] / "pairs.jsonl").read_bytes().splitlines(keepends=True)
    (outs[1] / "pairs.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:20])
    refused = experiment("corruption", "--data", data, out=outs[1])
    assert isinstance(refused.exception, InputError)
    assert "--resume" in str(refused.exception)
    done = experiment("corruption", "--data", data, "--plots", "--resume", out=outs[1])
    assert done.exit_code == 0
    assert files(outs[1]) == whole


def test_resuming_refuses_other_options_and_other_data(experiment: Any, tmp_path: Path) -> None:
    data, out = comparison(tmp_path / "data"), tmp_path / "out"
    assert experiment("corruption", "--data", data).exit_code == 0
    other = experiment("corruption", "--data", data, "--lct", 0.5, "--resume")
    assert "line 1: its signature has lct:" in str(other.exception)
    scene = data / "comparison" / "0.json"
    text = scene.read_text()
    scene.write_text(text.replace(".", "!", 1))
    other = experiment("corruption", "--data", data, "--resume")
    assert ": the texts of id '0/" in str(other.exception)
    fewer = json.loads(text)
    fewer["categories"][0]["test_cases"].pop(0)
    scene.write_text(json.dumps(fewer))
    other = experiment("corruption", "--data", data, "--resume")
    assert "of another input" in str(other.exception)
    scene.unlink()  # without its reference every idf is another
    other = experiment("corruption", "--data", data, "--resume")
    assert "of another input" in str(other.exception)
    # Published, but not here.
    assert experiment("corruption", "--data", data, "--overwrite").exit_code == 1
    assert len(read_lines(out / "pairs.jsonl")) == 8


def test_what_is_left_out_is_counted_and_the_exit_code_is_1(
    experiment: Any, tmp_path: Path
) -> None:
    data, out = comparison(tmp_path / "data"), tmp_path / "out"
    path = data / "comparison" / "1.json"
    scene = json.loads(path.read_text())
    scene["categories"][0]["test_cases"][0]["description"] = "no sentence ends here"
    scene["categories"][0]["test_cases"][1]["description"] = ""
    path.write_text(json.dumps(scene))
    (data / "comparison" / "2.json").unlink()
    done = experiment("corruption", "--data", data)
    assert done.exit_code == 1
    problems = json.loads((out / "results.json").read_text())["problems"]
    assert len(problems) == 4
    assert f"scene 1, {CASES[1]}: description: the text is empty: left out" in problems
    assert any(
        f"1/{CASES[0]}: generated: the text has no sentence punctuation" in problem
        for problem in problems
    )
    assert f"1/{CASES[1]} has published scores, but no text here" in problems
    assert "published scenes without texts here: 1 (2)" in problems
    assert all(problem in done.stderr for problem in problems)
    assert "4 left out" in done.stderr
    assert table(out, "cases")[0]["n"] == 1


@pytest.mark.parametrize("name", ["pairs.jsonl", "results.json", "table.csv"])
def test_no_result_replaces_the_data(experiment: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    data, result = tmp_path / "data", tmp_path / "out" / name
    rows = [{"vid": "v", "refs": [["one"] * 9], "cands": ["two"] * 3, "scores": [[1, 2, 3]] * 3}]
    write_pairs(data, rows)
    result.symlink_to(data)
    before = data.read_bytes()
    done = experiment("vatex", "--data", data, "--overwrite")
    assert isinstance(done.exception, InputError)
    assert str(done.exception) == f"{result} is the input {data}: choose another output"
    assert data.read_bytes() == before
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


def test_neither_models_nor_published_scores_are_replaced(experiment: Any, tmp_path: Path) -> None:
    models = tmp_path / "models"
    authors = tmp_path / "authors.json"
    published = tmp_path / "pairs.csv"
    write_json(tmp_path / "refs.json", {"a": story(1)})
    write_json(models / "results.json", {"a": story(2)})
    write_json(authors, {"1": {"A": story(1), "B": story(2)}})
    published.write_text("scene,Comparison,VCS\n1,A vs B,0.5\n")
    rank = ("rank", "--references", tmp_path / "refs.json", "--predictions", models)
    compared = ("authors", "--data", authors, "--published", published)
    for job, out, name in ((rank, models, "results.json"), (compared, tmp_path, "pairs.csv")):
        assert f"{name} is the input" in str(experiment(*job, out=out).exception)


def test_rank_orders_models_over_what_all_have(
    experiment: Any, tiny_bundle: Path, tmp_path: Path
) -> None:
    references = {str(i): story(i) for i in range(8)}
    write_json(tmp_path / "references.json", references)
    folder = tmp_path / "predictions"
    write_json(folder / "copy.json", references)
    data = {i: text if int(i) % 2 else story(50 + int(i)) for i, text in references.items()}
    write_json(folder / "Half.json", data)
    write_json(
        folder / "noise.json",
        {i: story(90 + int(i)) for i in references if i != "3"} | {"77": "x."},
    )
    (tmp_path / "ranking.txt").write_text("half\ncopy\nunheard\nNoise\n")
    out = tmp_path / "out"
    arguments = ("--references", tmp_path / "references.json", "--predictions", folder)
    done = experiment("rank", *arguments, "--ranking", tmp_path / "ranking.txt", "--resamples", 200)
    assert done.exit_code == 1
    for part in (
        "noise.json: no prediction for 3",
        "noise.json: 77 is left out, because it has no reference",
        "there are no predictions of model unheard",
    ):
        assert part in done.stderr
    rows = table(out, "ranking")
    assert [row["model"] for row in rows] == ["copy", "Half", "noise"]
    assert rows[0]["VCS_LCT0"] == pytest.approx(1.0)
    lines = {line["id"]: line["VCS_LCT0"] for line in read_lines(out / "pairs.jsonl")}
    common = [i for i in references if i != "3"]
    half, noise = (np.array([lines[f"{model}/{i}"] for i in common]) for model in ("Half", "noise"))
    assert rows[1]["VCS_LCT0"] == pytest.approx(half.mean())
    assert rows[1]["to the next"] == pytest.approx((half - noise).mean())
    assert rows[2]["to the next"] is None
    generated = json.loads((folder / "Half.json").read_text())
    pairs = [{"id": i, "reference": references[i], "generated": generated[i]} for i in common]
    write_pairs(tmp_path / "half.jsonl", pairs)
    command = f"score {tmp_path}/half.jsonl --bundle {tiny_bundle} --device cpu --json".split()
    printed = json.loads(CliRunner().invoke(cli, command).stdout)["scores"]["vcs"]
    assert [rows[1][name] for name in ("VCS_LCT0", "low", "high")] == [
        printed["mean"],
        *printed["ci95"],
    ]
    [agreement] = [row for row in table(out, "agreement") if row["metric"] == "VCS_LCT0"]
    # Of three pairs one is the other way round.
    assert agreement["Kendall tau-b"] == pytest.approx(1 / 3)
    assert [row["zeros"] for row in rows] == [
        (np.array([lines[f"{row['model']}/{i}"] for i in common]) == 0).sum() for row in rows
    ]
    pairs_file = (out / "pairs.csv").read_text().splitlines()
    assert pairs_file[0].startswith("model,id,VCS_LCT0,margin_LCT0,Cosine,LAS,NAS_LCT0,BLEU-1,")
    assert {line.split(",")[0] for line in pairs_file[1:]} == {"copy", "Half", "noise"}
    # Neighbours: two tests, so that the smaller p-value is doubled.
    p = [
        paired_difference(first, second, resamples=200).p_bootstrap
        for first, second in ((np.array([lines[f"copy/{i}"] for i in common]), half), (half, noise))
    ]
    assert [row["p bootstrap"] for row in rows[:2]] == pytest.approx(holm(np.array(p)).tolist())
    assert "p-values corrected by Holm's method over 2 tests" in done.stdout
    assert not (out / "comparison.tex").exists()
    # VCS comes before the metrics beside it, in files and on a terminal.
    [head] = [line for line in done.stdout.splitlines() if line.startswith("rank ")]
    assert "BLEU" not in head
    assert "zeros" in head
    wrong = experiment("rank", *arguments, "--by", "nonsense", out=tmp_path / "o2")
    assert wrong.exit_code == 2
    assert "--by must be one of VCS_LCT0" in wrong.output


def test_rank_compares_with_a_baseline_as_compare_does(
    experiment: Any, tiny_bundle: Path, tmp_path: Path
) -> None:
    references = {str(i): story(i) for i in range(8)}
    write_json(tmp_path / "references.json", references)
    folder = tmp_path / "models"
    write_json(folder / "copy.json", references)
    write_json(folder / "half.json", {i: story(int(i) + 50 * (int(i) % 2)) for i in references})
    write_json(
        folder / "[red]_y.json",
        {i: story(90 + int(i)) for i in references if i != "3"} | {"5": " "},
    )
    arguments = (
        "--references",
        tmp_path / "references.json",
        "--predictions",
        folder,
        "--resamples",
        300,
    )
    done = experiment("rank", *arguments, "--baseline", "half", "--all-pairs", "--by", "VCS_LCT0")
    assert done.exit_code == 1, done.output
    assert "[red]_y" in done.stdout
    out, files = tmp_path / "out", []
    for model in ("half", "copy", "[red]_y"):
        texts = json.loads((folder / f"{model}.json").read_text())
        pairs = [{"id": i, "reference": references[i], "generated": texts[i]} for i in texts]
        write_pairs(tmp_path / "pairs.jsonl", pairs)
        scores = tmp_path / f"{model}.jsonl"
        files.append(scores)
        command = f"score {tmp_path}/pairs.jsonl -o {scores} --bundle {tiny_bundle} --device cpu"
        vcs(*command.split())
    names = ("--name", "half", "--name", "copy", "--name", "[red]_y")
    printed = vcs(
        "compare", *files, *names, *"--format json --score vcs --all-pairs --resamples 300".split()
    )
    expected = json.loads(printed.stdout)
    rows = {row["system"]: row for row in table(out, "comparison")}
    assert {name: (row["failed"], row["missing"]) for name, row in rows.items()} == {
        "copy": (0, 0),
        "half": (0, 0),
        "[red]_y": (0, 2),  # an empty text is no text
    }
    for system in expected["systems"]:
        own = rows[system["name"]]
        assert (own["VCS_LCT0"], own["zeros"]) == (system["scores"]["vcs"]["mean"], system["zeros"])
    tests = {(row["system"], row["against"]): row for row in table(out, "tests")}
    assert len(tests) == len(expected["comparisons"]) == 3
    for test in expected["comparisons"]:
        found = (
            tests.get((test["system"], test["baseline"])) or tests[test["baseline"], test["system"]]
        )
        assert abs(found["difference"]) == pytest.approx(abs(test["difference"]))
        assert found["p permutation"] == pytest.approx(test["p_permutation_corrected"])
        assert found["p bootstrap"] == pytest.approx(test["p_bootstrap_corrected"])
    latex = (out / "comparison.tex").read_text()
    assert "\n{}[red]\\_y & $" in latex
    assert "% Left out, because a system has no score" in latex
    wrong = experiment("rank", *arguments, "--baseline", "nobody", out=tmp_path / "o2")
    assert wrong.exit_code == 2
    assert "--baseline must be one of [red]_y, copy, half, not 'nobody'" in wrong.output


def test_rank_takes_the_margin_where_vcs_is_mostly_zero(experiment: Any, tmp_path: Path) -> None:
    references = {str(i): story(i, 3) for i in range(6)}
    write_json(tmp_path / "references.json", references)
    for name, seed in (("one", 40), ("two", 60)):
        # Two chunks against three are 0 by definition.
        data = {i: story(seed + int(i), 2) for i in references}
        write_json(tmp_path / f"models/{name}.json", data)
    done = experiment(
        *f"rank --references {tmp_path}/references.json --predictions {tmp_path}/models".split(),
        "--resamples",
        100,
    )
    assert done.exit_code == 0, done.output
    sentence = "VCS_LCT0 is 0 for 12 of 12 texts, so the models are ranked by margin_LCT0."
    assert sentence in done.stdout
    out = tmp_path / "out"
    assert sentence in (out / "results.md").read_text("utf-8")
    rows = table(out, "ranking")
    lines = {line["id"]: line["margin_LCT0"] for line in read_lines(out / "pairs.jsonl")}
    means = {name: np.mean([lines[f"{name}/{i}"] for i in references]) for name in ("one", "two")}
    assert [row["model"] for row in rows] == sorted(means, key=lambda name: -means[name])
    margin_lct0s = [row["margin_LCT0"] for row in rows]
    assert margin_lct0s == pytest.approx(sorted(means.values(), reverse=True))
    assert [row["zeros"] for row in rows] == [6, 6]


def test_parameters_are_the_corruption_experiment_at_each_setting(
    experiment: Any, tmp_path: Path
) -> None:
    data, out = comparison(tmp_path / "data"), tmp_path / "out"
    done = experiment(
        "parameters", "--data", data, "--chunk-size", 1, "--chunk-size", 2, "--lct", 0, "--lct", 1
    )
    assert done.exit_code == 0, done.output
    assert "12 pairs: split and embedded in" in done.stderr
    for chunk_size in (1, 2):
        other = tmp_path / f"c{chunk_size}"
        finished = experiment("corruption", "--data", data, "--chunk-size", chunk_size, out=other)
        assert finished.exit_code == 0
        measures = {
            row["metric"]: row for row in table(other, "classification") if row["cases"] == "all"
        }
        means = {row["case"]: row for row in table(other, "cases")}
        for row in table(out, "settings"):
            if row["chunk size"] == chunk_size:
                expected = measures[f"VCS_LCT{row['LCT']:g}"]
                assert all(
                    row[name] == expected[name]
                    for name in ("accuracy", "precision", "recall", "F1", "AUC")
                )
        for row in table(out, "cases"):
            assert row[f"chunk {chunk_size}, LCT 1"] == pytest.approx(
                means[row["case"]]["VCS_LCT1"]
            )


@pytest.mark.slow
def test_parameters_keep_their_vectors_in_the_cache(experiment: Any, tmp_path: Path) -> None:
    data = comparison(tmp_path / "data")

    def run(name: str) -> dict[str, bytes]:
        out = tmp_path / "deep" / name
        done = experiment("parameters", "--data", data, "--cache", tmp_path / "vectors", out=out)
        assert done.exit_code == 0, done.output
        return {path.name: path.read_bytes() for path in out.iterdir()}

    first = run("a")
    [cache] = (tmp_path / "vectors").glob("*.sqlite")
    size = cache.stat().st_size
    assert {"results.json", "results.md"} < first.keys()
    assert "vectors" not in first
    assert run("b") == first
    assert cache.stat().st_size == size


@pytest.mark.parametrize(
    ("missing", "extra"),
    [("scipy", "experiments"), ("nltk", "experiments"), ("matplotlib.figure", "report")],
)
def test_missing_extras_are_named(
    missing: str, extra: str, experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = comparison(tmp_path / "data")
    monkeypatch.setitem(sys.modules, missing, None)
    done = experiment("corruption", "--data", data, "--plots")
    assert isinstance(done.exception, MissingExtraError)
    assert f"vcs-runtime[{extra}]" in str(done.exception)
