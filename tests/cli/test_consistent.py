"""`--segmenter consistent`: one decision for a whole job, kept by `--resume`, and refused where no job is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.command_line import vcs
from support.stories import read_lines, story, stripped, write_pairs

BY_RULES = "vcs-runtime: --segmenter consistent: rules split all texts\n"
BY_MODEL = "--segmenter consistent: the learned segmenter splits all texts, because rules cannot split "


@pytest.fixture
def engine(whole_bundle: Path) -> tuple[object, ...]:
    return ("--bundle", whole_bundle, "--device", "cpu")


def row(i: int, generated: str | None = None) -> dict[str, Any]:
    return {"id": f"p{i}", "reference": story(i), "generated": generated or story(i + 50)}


def segmenters(path: Path) -> list[str]:
    return [line["segmenter"] for line in read_lines(path)]


def test_a_job_is_split_by_rules_unless_a_text_needs_the_model(
    engine: tuple[object, ...], tmp_path: Path
) -> None:
    source = tmp_path / "p.jsonl"
    write_pairs(source, [row(0), row(1)])
    done = vcs("score", source, "-o", tmp_path / "o.jsonl", "--segmenter", "consistent", *engine)
    assert (done.code, done.stderr) == (0, BY_RULES)
    assert vcs("score", source, "-o", tmp_path / "r.jsonl", "--segmenter", "rules", *engine).code == 0
    assert (tmp_path / "o.jsonl").read_bytes() == (tmp_path / "r.jsonl").read_bytes()
    write_pairs(source, [row(0), row(1, stripped(9, 5))])
    done = vcs(
        "score", source, "-o", tmp_path / "o.jsonl", "--overwrite", "--segmenter", "consistent", *engine
    )
    assert (done.code, done.stderr) == (0, f"vcs-runtime: {BY_MODEL}{source} line 2 (id p1)\n")
    assert "Pairs were split" not in done.stdout
    assert vcs("score", source, "-o", tmp_path / "l.jsonl", "--segmenter", "learned", *engine).code == 0
    assert (tmp_path / "o.jsonl").read_bytes() == (tmp_path / "l.jsonl").read_bytes()
    auto = vcs("score", source, "-o", tmp_path / "a.jsonl", *engine)
    assert segmenters(tmp_path / "a.jsonl") == ["sentencex", "tiny-sat"]
    assert "Pairs were split as follows: 1 by rules (sentencex), 1 by the learned segmenter (tiny-sat)." in (
        auto.stdout
    )


def test_standard_input_several_references_and_one_pair_decide_too(
    engine: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "p.jsonl"
    write_pairs(source, [row(0), row(1) | {"reference": [story(1), stripped(2, 5)]}])
    with source.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        done = vcs("score", "-", "--json", "--segmenter", "consistent", *engine)
    assert done.stderr == f"vcs-runtime: {BY_MODEL}standard input line 2 (id p1)\n"
    assert "|seg:tiny-sat@" in json.loads(done.stdout)["signature"]
    texts = [tmp_path / "r.txt", tmp_path / "g.txt"]
    texts[0].write_text(story(1))
    texts[1].write_text(story(2))
    pair = ("--reference", texts[0], "--generated", texts[1], "--json", "--segmenter", "consistent")
    assert "|seg:sentencex@" in json.loads(vcs("score", *pair, *engine).stdout)["signature"]
    short = vcs("score", source, "--json", "--short", "--segmenter", "consistent", *engine)
    assert short.stderr == ""
    assert "|seg:none|" in json.loads(short.stdout)["signature"]


def test_all_systems_of_a_command_have_one_segmenter(engine: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "systems").mkdir()
    (tmp_path / "refs.json").write_text(json.dumps({"a": story(1), "b": story(2)}))
    (tmp_path / "systems" / "bare.json").write_text(json.dumps({"a": story(3), "b": stripped(4, 5)}))
    (tmp_path / "systems" / "written.json").write_text(json.dumps({"a": story(5), "b": story(6)}))
    files = ("--references", tmp_path / "refs.json", "--predictions", tmp_path / "systems")
    done = vcs("score", *files, "-o", f"{tmp_path}/o/", "--segmenter", "consistent", *engine)
    assert done.code == 0
    assert done.stderr.count("consistent") == 1
    for name in ("bare", "written"):
        assert segmenters(tmp_path / "o" / f"{name}.jsonl") == ["tiny-sat", "tiny-sat"]
    report = tmp_path / "r.html"
    scores = [tmp_path / "o" / f"{name}.jsonl" for name in ("bare", "written")]
    done = vcs("report", *scores, *files, "-o", report, "--segmenter", "consistent", *engine)
    assert done.code == 0, done.stderr


def test_an_interrupted_job_goes_on_and_decides_alike(engine: tuple[object, ...], tmp_path: Path) -> None:
    source, output = tmp_path / "p.jsonl", tmp_path / "o.jsonl"
    write_pairs(source, [row(0), row(1), row(2, stripped(9, 5))])
    job = ("score", source, "-o", output, "--segmenter", "consistent", *engine)
    assert vcs(*job).code == 0
    whole = output.read_bytes()
    first, second, *_ = whole.splitlines(keepends=True)
    output.write_bytes(first + second[:30])
    done = vcs(*job, "--resume")
    assert (done.code, output.read_bytes()) == (0, whole)


def test_new_lines_that_change_the_decision_are_refused(engine: tuple[object, ...], tmp_path: Path) -> None:
    source, output = tmp_path / "p.jsonl", tmp_path / "o.jsonl"
    job = ("score", source, "-o", output, "--resume", "--segmenter", "consistent", *engine)
    write_pairs(source, [row(0)])
    assert vcs(*job).code == 0
    before = output.read_bytes()
    write_pairs(source, [row(0), row(1)])  # it decides alike
    assert vcs(*job).code == 0
    assert output.read_bytes().startswith(before)
    before = output.read_bytes()
    write_pairs(source, [row(0), row(1), row(2, stripped(9, 5))])
    done = vcs(*job)
    assert done.code == 2
    assert f"{BY_MODEL}{source} line 3 (id p2)" in done.stderr
    assert re.search(r"which differ in seg and cut: .* The input has changed since: now the learned segmenter "
                     r"splits all of its texts", done.stderr)  # fmt: skip
    assert output.read_bytes() == before
    other = vcs(
        *job[: -len(engine)][:-1], "rules", "--lct", "1", *engine
    )  # another option than the segmenter
    assert (other.code, "The input has changed" in other.stderr) == (2, False)


def test_removed_markup_does_not_decide(engine: tuple[object, ...], tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    write_pairs(source, [row(0, f"<think>{stripped(9, 40)}</think>{story(3)}")])
    job = ("score", source, "--segmenter", "consistent", *engine)
    assert vcs(*job).stderr.startswith(f"vcs-runtime: {BY_MODEL}")
    assert vcs(*job, "--clean", "think").stderr == BY_RULES


def test_a_pair_that_cannot_be_scored_does_not_decide(engine: tuple[object, ...], tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    write_pairs(source, [row(0), row(1, "...") | {"reference": stripped(9, 5)}])
    done = vcs("score", source, "--segmenter", "consistent", *engine)
    assert (done.code, done.stderr.startswith(BY_RULES)) == (1, True)
    assert "1 scored, 1 failed" in done.stdout


def test_explain_splits_a_pair_as_its_whole_file(engine: tuple[object, ...], tmp_path: Path) -> None:
    source = tmp_path / "p.jsonl"
    write_pairs(source, [row(0), row(1, stripped(9, 5))])
    done = vcs("explain", source, "--id", "p0", "--json", "--segmenter", "consistent", *engine)
    assert "|seg:tiny-sat@" in json.loads(done.stdout)["signature"]


def test_servers_refuse_it(engine: tuple[object, ...], tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    for command in (("serve", "--port", 0), ("triton", "export", tmp_path / "models")):
        done = vcs(*command, "--segmenter", "consistent", *engine)
        assert done.code == 2
        assert (
            "decided from all texts of a job, and a server does not know the requests to come" in done.stderr
        )
