"""`experiment usefulness`: its table against SciPy on the files of `vcs-runtime score`, and bad inputs."""

from __future__ import annotations

import json
import sys
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from support.command_line import Finished, vcs
from support.experiments import comparison, write_json
from support.stories import read_lines, story, write_pairs

MODELS = ("copy", "half", "noise", "other")
SCORES = {"VCS": "vcs", "margin": "margin", "LAS": "las", "GAS": "gas", "NAS": "nas"}
SETTINGS = list(product((1, 2), (0.0, 1.0)))
COMPUTED = [(1, 0.0), (2, 1.0)]  # each size and each tolerance once
# Every comparison of two systems is SciPy's exact test, which takes a second for a row of the table. A test that is not
# about the table has one setting.
ONE = ("--chunk-size", 1, "--lct", 0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four systems on nine ids, of which id 8 is a sentence that all systems repeat."""
    references: dict[str, Any] = {str(i): story(i) for i in range(9)}
    texts = {
        "copy": {i: references[i] if int(i) % 4 else story(40 + int(i)) for i in references},
        "half": {i: references[i] if int(i) % 2 else story(60 + int(i)) for i in references},
        "noise": {i: story(80 + int(i), 4) for i in references},
        "other": {i: story(100 + int(i), 9) for i in references},
    }
    references["8"] = story(8, 1)
    for model, own in texts.items():
        write_json(tmp_path / "models" / f"{model}.json", own | {"8": references["8"]})
    write_json(tmp_path / "references.json", references)
    (tmp_path / "ranking.txt").write_text("half\ncopy\nother\nnoise\n")
    comparison(tmp_path / "rewrites")
    return tmp_path


def usefulness(data: Path, bundle: Path, *arguments: object, out: str = "out", **other: Path) -> Finished:
    sources = {"references": data / "references.json", "predictions": data / "models"} | other
    given = [part for name, path in sources.items() for part in (f"--{name}", path)]
    return vcs("experiment", "usefulness", *given, "-o", data / out,
               "--bundle", bundle, "--device", "cpu", *arguments)  # fmt: skip


def tables(data: Path, out: str = "out") -> Any:
    return json.loads((data / out / "results.json").read_text())["tables"]


def scored(data: Path, bundle: Path, chunk_size: int, lct: float) -> dict[str, dict[str, Any]]:
    """The lines of `vcs-runtime score` for all texts: MODEL/ID, and +SCENE/CASE or -SCENE/CASE."""
    references = json.loads((data / "references.json").read_text())
    pairs = [
        {"id": f"{model}/{name}", "reference": references[name], "generated": text}
        for model in MODELS
        for name, text in json.loads((data / "models" / f"{model}.json").read_text()).items()
    ]
    for path in (data / "rewrites" / "comparison").glob("*.json"):
        scene = json.loads(path.read_text())
        for case in scene["categories"][0]["test_cases"]:
            name = f"{'+' if case['id'] == '1.1' else '-'}{path.stem}/{case['id']}"
            pairs.append({"id": name, "reference": scene["ground_truth"], "generated": case["description"]})
    write_pairs(data / "pairs.jsonl", pairs)
    out = data / "scores.jsonl"
    done = vcs("score", data / "pairs.jsonl", "-o", out, "--overwrite", "--bundle", bundle, "--device", "cpu",
               "--chunk-size", chunk_size, "--lct", lct)  # fmt: skip
    assert done.code == 0, done.stderr
    return {line["id"]: line for line in read_lines(out)}


def rejected_by_holm(p: list[float]) -> int:
    """The number of hypotheses that Holm's method rejects: step by step, as it is defined."""
    for step, value in enumerate(sorted(p)):
        if value >= 0.05 / (len(p) - step):
            return step
    return len(p)


@pytest.mark.slow
def test_the_table_is_that_of_scipy_on_score_files(data: Path, tiny_bundle: Path) -> None:
    settings = ("--chunk-size", 1, "--chunk-size", 2)
    done = usefulness(
        data, tiny_bundle, "--ranking", data / "ranking.txt", "--data", data / "rewrites", *settings
    )
    assert done.code == 0, done.stderr
    assert "systems: 4, pairs of systems: 6, ids of all systems: 9, valid: 3, corrupted: 9" in done.stdout
    rows = tables(data)["scores"]
    places = {(row["score"], row["chunk size"], row["LCT"]) for row in rows}
    assert places == {
        *((name, *setting) for name in ("VCS", "margin", "NAS") for setting in SETTINGS),
        ("LAS", 1, "all"), ("LAS", 2, "all"), ("GAS", "all", "all"),
    }  # fmt: skip
    seen = set()
    for size, lct in COMPUTED:
        lines = scored(data, tiny_bundle, size, lct)
        unjudged = np.mean(
            [bool({"order_undefined", "single_chunks"} & set(line["flags"]))
             for name, line in lines.items() if name[0] not in "+-"]
        )  # fmt: skip
        for row in rows:
            if row["chunk size"] not in (size, "all") or row["LCT"] not in (lct, "all"):
                continue
            own = {name: line[SCORES[row["score"]]] for name, line in lines.items()}
            values = {m: np.array([own[f"{m}/{i}"] for i in range(9)]) for m in MODELS}
            p = [
                stats.wilcoxon(a, b).pvalue if (a != b).any() else 1.0
                for a, b in combinations(values.values(), 2)
            ]
            means = [values[model].mean() for model in ("half", "copy", "other", "noise")]
            good, bad = ([value for name, value in own.items() if name[0] == sign] for sign in "+-")
            expected = {
                "zero": np.mean([value == 0 for value in np.concatenate(list(values.values()))]),
                "not judged": None if row["score"] in ("LAS", "GAS") else pytest.approx(unjudged),
                "told apart": sum(value < 0.05 for value in p),
                "with Holm": rejected_by_holm(p),
                "Kendall tau-b": pytest.approx(stats.kendalltau(means, [4, 3, 2, 1]).statistic),
                "Spearman rho": pytest.approx(stats.spearmanr(means, [4, 3, 2, 1]).statistic),
                "AUC": pytest.approx(np.mean([(g > b) + (g == b) / 2 for g in good for b in bad])),
            }
            assert {name: row[name] for name in expected} == expected, (row, p)
            seen.add((row["told apart"], row["with Holm"], row["zero"] > 0))
            if row["score"] == "VCS":
                assert 0 < row["not judged"] < 1
    assert {zero for *_, zero in seen} == {True, False}
    assert any(apart > holm > 0 for apart, holm, _ in seen)


@pytest.mark.slow
def test_systems_have_means_and_zeros_at_the_first_setting(data: Path, tiny_bundle: Path) -> None:
    references = json.loads((data / "references.json").read_text())
    references |= {i: [references[i], story(300 + int(i))] for i in "0246"}  # of several, the best one counts
    write_json(data / "references.json", references)
    done = usefulness(data, tiny_bundle, "--chunk-size", 1, "--lct", 1, "--lct", 0)
    assert done.code == 0, done.stderr
    lines = scored(data, tiny_bundle, 1, 1.0)
    rows = tables(data)["systems"]
    assert [row["mean margin"] for row in rows] == sorted((row["mean margin"] for row in rows), reverse=True)
    assert {row["system"] for row in rows} == set(MODELS)
    for row in rows:
        own = [line for name, line in lines.items() if name.startswith(row["system"])]
        assert row["mean VCS"] == pytest.approx(np.mean([line["vcs"] for line in own]))
        assert row["mean margin"] == pytest.approx(np.mean([line["margin"] for line in own]))
        assert row["zeros"] == sum(line["vcs"] == 0 for line in own)
        assert row["not judged"] == sum(
            bool(line["flags"]) and "single_chunks" in line["flags"] for line in own
        )
    assert not {"AUC", "Kendall tau-b"} & set(tables(data)["scores"][0])


def test_only_ids_of_all_systems_count(data: Path, tiny_bundle: Path) -> None:
    path = data / "models" / "noise.json"
    texts = json.loads(path.read_text())
    path.write_text(json.dumps({name: text for name, text in texts.items() if name != "3"}))
    texts = json.loads((data / "models" / "half.json").read_text())
    write_json(data / "models" / "half.json", texts | {"5": "no sentence ends here"})
    done = usefulness(data, tiny_bundle, *ONE)
    assert done.code == 1
    assert "noise.json: no prediction for 3" in done.stderr
    assert "half/5: generated: the text has no sentence punctuation" in done.stderr
    assert "ids of all systems: 7" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("experiment", ["usefulness", "parameters"])
def test_vectors_are_kept_in_the_cache(experiment: str, data: Path, tiny_bundle: Path) -> None:
    def run(out: str) -> dict[str, bytes]:
        if experiment == "usefulness":
            done = usefulness(data, tiny_bundle, *ONE, "--cache", data / "vectors", out=out)
        else:
            done = vcs("experiment", "parameters", "--data", data / "rewrites", "--cache", data / "vectors",
                       "-o", data / out, "--bundle", tiny_bundle, "--device", "cpu")  # fmt: skip
        assert done.code == 0, done.stderr
        return {path.name: path.read_bytes() for path in (data / out).iterdir()}

    first = run("deep/a")
    [cache] = (data / "vectors").glob("*.sqlite")
    size = cache.stat().st_size
    assert {"results.json", "results.md"} < first.keys()
    assert "vectors" not in first
    assert run("deep/b") == first
    assert cache.stat().st_size == size


def refused(done: Finished, words: str) -> None:
    assert done.code == 2, done.stdout
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 or done.stderr.startswith("Usage:"), done.stderr


def test_bad_inputs_are_refused_in_one_line(
    data: Path, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(data / "one" / "copy.json", json.loads((data / "models" / "copy.json").read_text()))
    refused(usefulness(data, tiny_bundle, predictions=data / "one"), "only one system (copy)")
    write_json(data / "valid" / "comparison" / "1.json", {"ground_truth": story(1), "categories": [
        {"test_cases": [{"id": "1.1", "name": "a", "description": story(1)}]}]})  # fmt: skip
    refused(usefulness(data, tiny_bundle, "--data", data / "valid"), f"{data / 'valid'}: the AUC needs")
    refused(usefulness(data, tiny_bundle, "--data", data / "nowhere"), "no such folder")
    refused(usefulness(data, tiny_bundle, "--ranking", data / "nowhere.txt"), "nowhere.txt")
    refused(usefulness(data, tiny_bundle, "--chunk-size", 2, "--chunk-size", 2), "a value is repeated")
    refused(usefulness(data, tiny_bundle, out="models"), "it lies in the input")
    refused(usefulness(data, tiny_bundle, out="ranking.txt"), "ranking.txt")
    write_json(data / "apart" / "a.json", {"1": story(1)})
    write_json(data / "apart" / "b.json", {"2": story(2)})
    done = usefulness(data, tiny_bundle, predictions=data / "apart")
    assert (done.code, done.stderr.splitlines()[-1]) == (
        2, "vcs-runtime: no id that every system has a score for: nothing to compare",
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "scipy", None)
    refused(usefulness(data, tiny_bundle), "vcs-runtime[experiments]")
