"""Several systems as users have them: files, folders and columns, for every command alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import assert_refused, vcs
from support.pair_files import KEYS, ROWS, texts_by_id, write_json, write_table
from support.stories import story


@pytest.mark.parametrize("other", ["the same", "another length"])
def test_several_systems_are_one_table_of_80_columns_the_best_first(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    write_json(tmp_path / "refs.json", texts := {str(k): story(k, 6) for k in range(3)})
    names = [f"{name}-{'x' * (23 - len(name))}" for name in ("worse", "best")]
    write_json(tmp_path / f"{names[0]}.json", {key: story(40 + int(key), 6) for key in texts})
    write_json(
        tmp_path / f"{names[1]}.json",
        texts if other == "the same" else {k: story(int(k), 4) for k in texts},
    )
    done = vcs(
        *f"score --references {tmp_path}/refs.json --predictions".split(),
        *(tmp_path / f"{n}.json" for n in names),
        *f"-o {tmp_path}/s/ --worst 1 --bundle {tiny_bundle} --device cpu".split(),
    )
    assert (done.code, done.stderr) == (0, "")
    heading, *rows = done.stdout.splitlines()
    assert heading.split() == ["system", "VCS", "margin", "GAS", "LAS", "NAS", "zeros", "failed"]
    assert [row.split()[0] for row in rows[:2]] == names[::-1]
    assert [len(row.split()) for row in rows[:2]] == [8, 8]
    assert max(len(row) for row in rows if not row.startswith(("vcs|", "next:"))) <= 80
    assert "a VCS of 0. " in done.stdout
    assert "report margin, GAS and LAS" in done.stdout or "eport VCS and margin" in done.stdout
    worst = " ".join(
        rows[rows.index(next(row for row in rows if row.startswith(f"worst: {names[1]}"))) :]
    )
    assert "The whole reference is there" in worst or "It leaves out" in worst
    assert rows[-1] == f"next: vcs-runtime compare {tmp_path}/s/*.jsonl"


def test_explain_and_report_read_the_same(tiny_bundle: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "a.csv", ROWS, ";")
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    write_json(tmp_path / "p.json", texts_by_id("pred"))
    texts = ("--references", tmp_path / "refs.json", "--predictions", tmp_path / "p.json")
    common = ("--bundle", tiny_bundle, "--device", "cpu")
    explained = [
        vcs("explain", *source, "--id", "v2", "--json", *common).stdout
        for source in ((tmp_path / "a.csv", *KEYS), texts)
    ]
    assert explained[0] == explained[1]
    assert json.loads(explained[0])["id"] == "v2"
    assert vcs("score", *texts, "-o", tmp_path / "s.jsonl", *common).code == 0
    for source in (
        (tmp_path / "a.csv", *KEYS),
        texts,
        (tmp_path / "s.jsonl", "--pairs", tmp_path / "a.csv", *KEYS),
        (tmp_path / "s.jsonl", *texts),
    ):
        done = vcs("report", *source, "-o", tmp_path / "r.html", "--overwrite", *common)
        assert done.code == 0, (source, done.stderr)
        assert (tmp_path / "r.html").read_text().count("v2") > 1
    done = vcs(
        "report",
        *texts,
        *f"{tmp_path}/s.jsonl {tmp_path}/s.jsonl -o {tmp_path}/r.html".split(),
        *common,
    )
    assert_refused(done, "no file of texts is called 's', like this")


def test_report_takes_predictions_as_a_shell_expands_them(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    references = ("--references", tmp_path / "refs.json")
    write_json(tmp_path / "refs.json", texts_by_id("gt"))
    (tmp_path / "systems").mkdir()
    systems = [tmp_path / "systems" / name for name in ("a.json", "b.json", "c.json")]
    for path in systems:
        write_json(path, texts_by_id("pred"))
    common = ("--bundle", tiny_bundle, "--device", "cpu")
    finished = vcs(
        "score", *references, "--predictions", *systems, "-o", tmp_path / "scores", *common
    )
    assert finished.code == 0
    scores = [tmp_path / "scores" / f"{name}.jsonl" for name in "abc"]
    output = tmp_path / "r.html"
    done = vcs("report", *scores, *references, "--predictions", *systems, "-o", output, *common)
    assert (done.code, done.stdout) == (0, f"{output}\n")
    refused = vcs("report", *references, "--predictions", *systems, "-o", output, *common)
    assert_refused(refused, "a report on 3 systems needs their score files")


def test_several_generated_columns_are_several_systems(tiny_bundle: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    rows = [{**row, "other": f"Nobody moves here. {row['pred']}"} for row in ROWS]
    write_table(table, rows, ",")
    common = ("--bundle", tiny_bundle, "--device", "cpu")
    keys = ("--reference-key", "gt", "--id-key", "video")
    both = ("--generated-key", "pred", "--generated-key", "other")
    assert vcs("score", table, *keys, *both, "-o", f"{tmp_path}/both/", *common).code == 0
    for name in ("pred", "other"):
        alone = tmp_path / f"{name}.jsonl"
        assert vcs("score", table, *keys, "--generated-key", name, "-o", alone, *common).code == 0
        assert (tmp_path / "both" / f"{name}.jsonl").read_bytes() == alone.read_bytes()
    scores = [tmp_path / "both" / f"{name}.jsonl" for name in ("pred", "other")]
    report = vcs(
        "report", *scores, "--pairs", table, *keys, *both, "-o", tmp_path / "r.html", *common
    )
    assert (report.code, report.stderr) == (0, "")
    for arguments, says in (
        (("explain", table, *keys, *both), "give one system instead of 2 (pred, other)"),
        (("score", table, *keys, *both[:2], *both[:2]), "a column is named twice"),
        (
            ("report", *scores, "--pairs", table, *keys, *both[:2], "-o", tmp_path / "r.html"),
            "no file of texts is called 'pred', like this",
        ),
    ):
        done = vcs(*arguments, *common)
        assert_refused(done, says)


def test_files_of_pairs_are_a_system_each_whose_markup_is_named_by_every_command(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    rows = [{"once the id": "v0"} | row | {"pred": f"# Title\n{row['pred']}"} for row in ROWS]
    files, out = [tmp_path / "a.json", tmp_path / "b.json"], tmp_path / "s"
    for path in files:
        write_json(path, {"samples": rows})
    common = (*KEYS, "--rows", "samples", "--bundle", tiny_bundle, "--device", "cpu")
    scored = vcs("score", *files, *common, "--also", "hm-cf", "-o", out)
    assert (scored.code, [line[0] for line in scored.stdout.splitlines()[1:3]]) == (0, ["a", "b"])
    assert sorted(path.name for path in out.iterdir()) == ["a.jsonl", "b.jsonl"]
    # The report asks for no metric again, nor do report and explain for the columns.
    texts = ("--pairs", files[0], "--pairs", files[1], *common[-4:])
    report = vcs("report", out, *texts, "-o", tmp_path / "r.html")
    with_scores = vcs("explain", files[0], out / "a.jsonl", "--id", "v2", "--json", *common[-4:])
    same = vcs("explain", files[0], *common, "--id", "v2", "--json", "--also", "hm-cf")
    assert (with_scores.stdout, with_scores.stderr) == (same.stdout, same.stderr)
    other = vcs("explain", files[0], out / "a.jsonl", "--id", "v2", "--lct", 1, *common[-4:])
    assert "scored with lct:0, but this run has lct:1: give the same options" in other.stderr
    for done, count in ((scored, 8), (report, 8), (vcs("explain", files[0], *common), 4)):
        said = (
            f"markup is scored as words: {count} of {count} with Markdown ('# Title'). To remove it,"
            " add --clean markdown"
        )
        assert (done.code, said in done.stderr) == (0, True), done.stderr


def test_a_slash_makes_the_output_a_folder(tiny_bundle: Path, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", ROWS, ",")
    done = vcs(
        "score",
        tmp_path / "t.csv",
        *KEYS,
        *f"-o {tmp_path}/s/ --bundle {tiny_bundle} --device cpu".split(),
    )
    assert done.code == 0
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["t.jsonl"]
