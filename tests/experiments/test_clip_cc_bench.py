"""`experiment clip-cc-bench`: the published table, other judges, added systems, submissions."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from scipy import stats

from support import clip_cc
from support.command_line import Finished, assert_refused, vcs
from support.experiments import write_json
from support.stories import read_lines, story
from support.terminal import on_terminal
from vcs_experiments.datasets.clip_cc import read_published
from vcs_runtime.jobs.bootstrap import mean_interval

# Rank, name, Borda points and mean HM-CF of the paper's Table 2 (arXiv:2608.04302).
TABLE_2 = """
VideoLLaMA3 80 .67, mPLUG-Owl3 75 .66, LLaVA-OneVision 67 .64, ViLAMP 67 .64, LongVU 61 .63, \
Qwen2.5-72B 55 .62,
Qwen2.5-32B 48 .61, VideoChat-Flash 42 .60, MiniCPM-V 42 .60, Video-XL 36 .59, ShareGPT4Video 29 \
.58, InternVL2 27 .58,
TimeChat 20 .56, LLaVA-NeXT-Video 16 .55, TS-LLaVA 9 .53, Oryx 6 .52, LongVA 0 .48
"""


def published(*arguments: object) -> Any:
    done = vcs("experiment", "clip-cc-bench", *arguments, "--published", "--json")
    assert done.code == 0, done.stderr
    return json.loads(done.stdout)


def test_the_published_table_comes_out_cell_by_cell() -> None:
    found = published()
    rows = [f"{row['name']} {row['borda']} {row['mean_hm_cf']:.2f}" for row in found["systems"]]
    assert rows == " ".join(TABLE_2.split()).replace(" .", " 0.").split(", ")
    assert [row["rank"] for row in found["systems"]] == list(range(1, 18))
    assert found["judges"] == ["gte-qwen2-7b", "kalm", "nemo", "nv-embed", "qwen3-8b"]
    assert found["max_borda"] == 80
    means = {
        judge: {row["system"]: row["judges"][judge]["hm_cf"] for row in found["systems"]}
        for judge in found["judges"]
    }
    assert {row["system"]: row["borda"] for row in found["systems"]} == clip_cc.borda(means)
    table = vcs("experiment", "clip-cc-bench", "--published").stdout
    assert "1     VideoLLaMA3          80  0.6714" in table


def result(coarse: float, fine: float, hm_cf: float, **more: Any) -> dict[str, Any]:
    return {
        "total_evaluations": 199,
        "error_rate": 0.0,
        "coarse_grained_stats": {"mean": coarse},
        "fine_grained_stats": {"f1": {"mean": fine}},
        "hybrid_stats": {"hm_cf": {"mean": hm_cf}},
        **more,
    }


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The published results as the benchmark's checkout has them."""
    means, names, _ = read_published(None)
    for judge, own in means.items():
        for system, values in own.items():
            folder = tmp_path / "results/embedding_models/aggregated_results" / judge
            write_json(folder / f"{system}.json", result(*values))
    models = {system: {"display": name} for system, name in names.items()}
    write_json(tmp_path / "results/leaderboard/models.json", {"models": models})
    return tmp_path


def test_a_checkout_gives_the_same_table(checkout: Path) -> None:
    assert published(checkout)["systems"] == published()["systems"]
    results = checkout / "results/embedding_models/aggregated_results"
    done = vcs("experiment", "clip-cc-bench", "--published", results, "--json")
    assert [row["borda"] for row in json.loads(done.stdout)["systems"]][:3] == [80, 75, 67]


def test_additions_of_a_checkout_are_ranked_with_the_others(checkout: Path) -> None:
    for judge in published()["judges"]:
        write_json(
            checkout / "results/leaderboard/additions" / judge / "mine.json", result(0.9, 0.9, 0.9)
        )
    rows = published(checkout)["systems"]
    assert (rows[0]["system"], rows[0]["borda"], rows[1]["borda"]) == ("mine", 85, 80)


@pytest.mark.parametrize(
    ("judge", "system", "content", "message"),
    [
        (
            "kalm",
            "oryx",
            result(0.5, 0.5, 0.7899),
            "judge kalm: .* have the same mean HM-CF, 0.7899",
        ),
        (
            "kalm",
            "oryx",
            result(0.5, 0.5, 0.5, error_rate=0.01),
            "oryx.json: error_rate must be 0, not 0.01",
        ),
        ("kalm", "oryx", {"total_evaluations": 199}, "oryx.json: not a result of a judge"),
        (
            "kalm",
            "oryx",
            result(0.5, 0.5, 0.5, total_evaluations=198),
            "has results of 19[89] clips",
        ),
        ("sixth", "oryx", result(0.5, 0.5, 0.5), "judge sixth: no results of Qwen2.5-32B, "),
    ],
)
def test_results_that_cannot_be_ranked_are_refused(
    judge: str, system: str, content: Any, message: str, checkout: Path
) -> None:
    folder = checkout / "results/embedding_models/aggregated_results"
    if "0.7899" in message:
        top = json.loads((folder / "kalm/videollama3.json").read_text())["hybrid_stats"]["hm_cf"][
            "mean"
        ]
        content = result(0.5, 0.5, top)
        message = message.replace("0.7899", str(top))
    write_json(folder / judge / f"{system}.json", content)
    done = vcs("experiment", "clip-cc-bench", checkout, "--published")
    assert done.code == 2
    assert re.search(message, done.stderr), done.stderr
    assert vcs("experiment", "clip-cc-bench", folder / "nowhere", "--published").code == 2


CLIPS = [f"{i:03}" for i in range(1, 9)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four systems on eight clips, and a ninth clip that no system describes."""
    folder = tmp_path_factory.mktemp("bench") / "data"
    references = [{"id": clip, "summary": story(i)} for i, clip in enumerate([*CLIPS, "126"])]
    write_json(folder / "references.json", references)
    for k, system in enumerate(("oryx", "longva", "mplug", "own")):
        texts = {clip: story(i if i % 4 < k else 50 + 9 * k + i) for i, clip in enumerate(CLIPS)}
        write_json(folder / "predictions" / f"{system}.json", texts)
    return folder


@pytest.fixture(scope="module")
def judges(tiny_bundle: Path) -> list[object]:
    named = [part for name in ("first", "second") for part in ("--judge", f"{name}={tiny_bundle}")]
    return [*named, "--device", "cpu", "--resamples", 200]


@pytest.fixture(scope="module")
def scored(data: Path, judges: list[object]) -> Path:
    """The output of a job that is through, which nobody changes."""
    done = vcs("experiment", "clip-cc-bench", data, *judges, "-o", data.parent / "scored")
    assert (done.code, done.stderr) == (0, "")  # the clip that nobody describes is no problem
    return data.parent / "scored"


@pytest.fixture
def bench(data: Path, judges: list[object], tmp_path: Path) -> Any:
    def run(*arguments: object, data: Path = data, **environment: str) -> Finished:
        out = ("-o", tmp_path / "out")
        return vcs("experiment", "clip-cc-bench", data, *judges, *out, *arguments, **environment)

    return run


@pytest.fixture
def out(scored: Path, tmp_path: Path) -> Path:
    """The output of `bench`, where the job is through already."""
    return Path(shutil.copytree(scored, tmp_path / "out"))


def test_every_system_is_scored_by_every_judge_and_ranked(scored: Path) -> None:
    tables = json.loads((scored / "results.json").read_text())["tables"]
    lines = {
        judge: {
            path.stem: read_lines(path) for path in sorted((scored / "scores" / judge).iterdir())
        }
        for judge in ("first", "second")
    }
    assert [row["id"] for row in lines["first"]["own"]] == CLIPS
    means = {
        judge: {
            system: float(np.mean([row["hm_cf"] for row in rows])) for system, rows in own.items()
        }
        for judge, own in lines.items()
    }
    points = clip_cc.borda(means)
    board = tables["leaderboard"]
    names = {"oryx": "Oryx", "longva": "LongVA", "mplug": "mPLUG-Owl3", "own": "own"}
    assert [(row["rank"], row["system"], row["Borda"]) for row in board] == [
        (rank, names[system], points[system])
        for rank, system in enumerate(sorted(points, key=lambda own: -points[own]), 1)
    ]
    best = max(points, key=lambda own: points[own])
    values = np.mean([[row["hm_cf"] for row in lines[judge][best]] for judge in lines], axis=0)
    assert board[0]["HM-CF"] == pytest.approx(values.mean(), abs=1e-6)
    assert [board[0]["low"], board[0]["high"]] == pytest.approx(mean_interval(values).tolist())
    assert board[0]["to the next"] > 0
    assert len(tables["judges"]) == 8
    assert [tables["agreement"][0][name] for name in ("Kendall tau-b", "low", "high")] == [1.0] * 3
    known = [system for system in points if system != "own"]
    theirs = read_published(None)[0]["kalm"]
    [row] = [
        row
        for row in tables["published"]
        if (row["judge"], row["score"], row["published judge"]) == ("first", "LAS", "kalm")
    ]
    las = [float(np.mean([line["las"] for line in lines["first"][system]])) for system in known]
    expected = stats.kendalltau(las, [theirs[system].hm_cf for system in known]).statistic
    assert row["Kendall tau-b"] == pytest.approx(expected)
    assert row["systems"] == 3
    assert -1 <= row["low"] <= row["high"] <= 1
    [row] = [
        row
        for row in tables["published"]
        if (row["judge"], row["score"], row["published judge"])
        == ("first", "HM-CF", "all, by Borda")
    ]
    ranking = {"mplug": 2, "oryx": 16, "longva": 17}
    own = [-means["first"][system] for system in ranking]
    assert row["Kendall tau-b"] == pytest.approx(
        stats.kendalltau(own, list(ranking.values())).statistic
    )


def test_files_for_the_benchmark_have_its_schema_and_its_numbers(scored: Path) -> None:
    rows = read_lines(scored / "scores/second/mplug.jsonl")
    found = json.loads((scored / "submission/second/mplug.json").read_text())
    fields = (
        "decoder_name model_name total_evaluations successful_evaluations error_rate"
        " coarse_grained_stats timestamp fine_grained_stats hybrid_stats"
    )
    assert list(found) == fields.split()
    assert [found[name] for name in list(found)[:5]] == ["second", "mplug", 8, 8, 0.0]
    parts = {
        "coarse": found["coarse_grained_stats"],
        **{f"fine_{part}": own for part, own in found["fine_grained_stats"].items()},
        "hm_cf": found["hybrid_stats"]["hm_cf"],
    }
    assert list(parts) == ["coarse", "fine_precision", "fine_recall", "fine_f1", "hm_cf"]
    for name, own in parts.items():
        values = [row[name] for row in rows]
        assert own == {
            "mean": round(np.mean(values), 6),
            "std": round(np.std(values), 6),
            "min": round(min(values), 6),
            "max": round(max(values), 6),
        }
    # They can be read again as published results are.
    done = vcs("experiment", "clip-cc-bench", "--published", scored / "submission", "--json")
    board = json.loads((scored / "results.json").read_text())["tables"]["leaderboard"]
    bordas = [row["borda"] for row in json.loads(done.stdout)["systems"]]
    assert bordas == [row["Borda"] for row in board]


def test_a_stopped_job_continues_and_an_added_system_gets_its_place(
    bench: Any, out: Path, tmp_path: Path
) -> None:
    whole = {path: path.read_bytes() for path in (out / "scores").rglob("*.jsonl")}
    half = out / "scores/second/longva.jsonl"
    half.write_bytes(b"".join(whole[half].splitlines(keepends=True)[:3]) + b'{"id": "00')
    (out / "scores/second/mplug.jsonl").unlink()
    assert bench().code == 2  # it would destroy what is there
    write_json(tmp_path / "mine.json", {clip: story(i) for i, clip in enumerate(CLIPS)})
    done = bench("--resume", "--add", tmp_path / "mine.json")
    assert done.code == 0, done.stderr
    assert {path: path.read_bytes() for path in whole} == whole
    assert "mine is number 1 of 5" in done.stdout
    write_json(tmp_path / "Own.json", {})
    assert (
        "a system is already called Own" in bench("--resume", "--add", tmp_path / "Own.json").stderr
    )


def test_a_wrong_bundle_is_found_before_any_judge_begins(
    bench: Any, tiny_bundle: Path, sat_bundle: Path, tmp_path: Path
) -> None:
    bare = Path(shutil.copytree(tiny_bundle, tmp_path / "bare"))  # as `export decoder` makes it
    manifest = json.loads((bare / "bundle.json").read_text())
    content = {key: own for key, own in manifest.items() if key != "segmenter"}
    write_json(bare / "bundle.json", content)
    for bundle, message in (
        (tmp_path, "bundle.json"),
        (sat_bundle, "it holds no embedder"),
        (bare, "it holds no segmenter: choose one, such as --segmenter default"),
    ):
        done = bench("--judge", f"third={bundle}")
        assert_refused(done, message)
        assert not (tmp_path / "out").exists()


def test_the_scores_of_earlier_judges_stay_if_one_fails(
    bench: Any, tiny_bundle: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(tiny_bundle, tmp_path / "broken"))
    manifest = json.loads((broken / "bundle.json").read_text())
    model = broken / manifest["embedder"]["model"]
    graph = onnx.load(model, load_external_data=False)
    graph.graph.node[0].op_type = "Nonsense"  # is found when a session is opened
    onnx.save(graph, model)
    for entry in manifest["files"]:
        if broken / entry["path"] == model:
            content = model.read_bytes()
            entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    write_json(broken / "bundle.json", manifest)
    done = bench("--judge", f"third={broken}")
    assert done.code == 2
    assert re.search(
        "judge third: .*Nonsense.*; finished output is kept: continue with --resume",
        done.stderr,
    ), done.stderr
    scores = tmp_path / "out/scores"
    whole = {path: path.read_bytes() for path in scores.rglob("*.jsonl")}
    assert len(whole) == 8
    assert bench("--resume").code == 0
    assert {path: path.read_bytes() for path in scores.rglob("*.jsonl")} == whole


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_one_bar_shows_the_whole_job_and_what_is_scored(
    data: Path, judges: list[object], out: Path
) -> None:
    (out / "scores/second/longva.jsonl").unlink()
    shown = on_terminal("experiment", "clip-cc-bench", data, *judges, "-o", out, "--resume")
    counts = [int(count) for count in re.findall(r"(\d+)/64", shown)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 64)
    # The first judge, and all but the file that is missing, are there already.
    assert {32, 56} < set(counts)
    assert "opening second" in shown
    assert "second, longva" in shown


def test_clips_that_lack_a_score_are_left_out_of_all_means_and_named(
    bench: Any, data: Path, tmp_path: Path
) -> None:
    other = Path(shutil.copytree(data, tmp_path / "data"))
    texts = json.loads((other / "predictions/longva.json").read_text())
    del texts["003"]
    write_json(other / "predictions/longva.json", texts)
    done = bench(data=other)
    assert done.code == 1
    assert "no prediction for 003" in done.stderr
    assert "clips left out of all means, because a score is missing: 003" in done.stderr
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert found["counts"]["clips of all systems"] == 7
    assert (
        json.loads((tmp_path / "out/submission/first/longva.json").read_text())["total_evaluations"]
        == 7
    )


@pytest.mark.slow
def test_plots_and_json(bench: Any, out: Path) -> None:
    pytest.importorskip("matplotlib")
    done = bench("--plots", "--json", "--resume")
    found = json.loads(done.stdout)
    assert [row["rank"] for row in found["systems"]] == [1, 2, 3, 4]
    assert set(found["systems"][0]["judges"]) == {"first", "second"}
    picture = (out / "leaderboard.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    bench("--plots", "--json", "--resume")
    assert (out / "leaderboard.png").read_bytes() == picture


@pytest.mark.slow
@pytest.mark.usefixtures("out")
def test_a_narrow_terminal_gets_fewer_columns_of_whole_cells(bench: Any) -> None:
    def rows(shown: str, title: str) -> list[list[str]]:
        lines = shown.partition(f"\n{title}\n")[2].partition("Not shown here")[0].splitlines()[-3:]
        assert shown is wide or max(map(len, lines)) <= 44
        return [line.split() for line in lines]

    wide, narrow = bench("--resume").stdout, bench("--resume", COLUMNS="44").stdout
    for title in ("Leaderboard", "By judge"):
        for full, cells in zip(rows(wide, title), rows(narrow, title), strict=True):
            assert 4 <= len(cells) < len(full)
            assert cells == full[: len(cells)]


def test_wrong_usage_is_named(bench: Any, data: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    assert "two judges are called 'first'" in bench("--judge", f"first={tiny_bundle}").stderr
    assert "'=x' is not NAME=BUNDLE" in bench("--judge", "=x").stderr
    for arguments in ([], [data]):
        assert "DATA and --output" in vcs("experiment", "clip-cc-bench", *arguments).stderr
    both = vcs("experiment", "clip-cc-bench", data, "--published", data, "-o", tmp_path / "x")
    assert "--published does not score" in both.stderr
    empty = vcs("experiment", "clip-cc-bench", tmp_path / "nothing", "-o", tmp_path / "x")
    assert "neither data/ground_truth/clip_cc_dataset.json" in empty.stderr
