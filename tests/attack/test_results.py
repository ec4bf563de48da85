"""What commands have written, damaged, and read again by `report`, `compare`, `explain`, `rank`, `visil` and --resume."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, changed, run, snapshot
from attack.drawn import cases, chance, damaged, exchanged
from support.command_line import vcs
from support.stories import story, write_pairs

PAIRS = 6
SCORES = ("scores.jsonl", "scores.jsonl", "scores.jsonl", "scores.csv", "scores.tsv", "scores.parquet")


@pytest.fixture(scope="module")
def results(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pairs, one of which cannot be scored, and the scores of two systems in every format."""
    folder = tmp_path_factory.mktemp("results")
    rows = [{"id": f"v{i}", "reference": story(i, 3), "generated": story(50 + i, 3)} for i in range(PAIRS)]
    rows[2]["generated"] = ""
    other = [{**row, "generated": story(80 + i, 2)} for i, row in enumerate(rows)]
    write_pairs(folder / "pairs.jsonl", rows)
    write_pairs(folder / "other-pairs.jsonl", other)
    engine = ("--bundle", tiny_bundle, "--device", "cpu")
    for name in dict.fromkeys(SCORES):
        assert vcs("score", folder / "pairs.jsonl", "-o", folder / name, *engine).code == 1
    assert vcs("score", folder / "other-pairs.jsonl", "-o", folder / "other.jsonl", *engine).code == 0
    (folder / "systems").mkdir()
    for name, key, of in (
        ("references", "reference", rows),
        ("systems/a", "generated", rows),
        ("systems/b", "generated", other),
    ):
        (folder / f"{name}.json").write_text(json.dumps({row["id"]: row[key] for row in of}))
    summaries = [{"name": f"s{i}", "visil": i / 4, "tokens": 3 + i, "text": story(i)} for i in range(3)]
    write_pairs(
        folder / "visil.jsonl", [{"id": f"v{i}", "signature": "s", "summaries": summaries} for i in range(3)]
    )
    answers = [
        {"id": f"v{i}", "name": f"s{j}", "correct": (i + j) % 2, "total": 2}
        for i in range(3)
        for j in range(3)
    ]
    write_pairs(folder / "answers.jsonl", answers)
    return folder


@st.composite
def twisted(draw: st.DrawFn, content: bytes) -> bytes:
    """JSON lines with values that are exchanged, doubled or removed; what is no JSON lines is damaged."""
    try:
        lines: Any = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        return draw(damaged(content))
    if chance(draw, 40):
        return draw(damaged(content))
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        lines = draw(st.permutations(lines)) if chance(draw, 10) else draw(exchanged(lines))
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@st.composite
def readings(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A file to damage, and a command that reads it; HERE stands for the folder, ENGINE for the bundle."""
    scores = draw(st.sampled_from(SCORES))
    page = draw(st.sampled_from(("r.html", "r.html", "r.html", "r.pdf")))
    style = draw(st.sampled_from(("markdown", "latex", "csv", "json")))
    more = draw(st.sampled_from(("", " --json", " --id v1")))
    pages = "report HERE/{} -o HERE/out/{} ENGINE"
    named, command = draw(st.sampled_from((
        # What is no longer recognised as scores is taken for pairs, which need the models.
        (scores, pages.format(scores, "r.html")),
        (scores, pages.format(f"{scores} HERE/other.jsonl", page)),
        (scores, pages.format(f"{scores} --pairs HERE/pairs.jsonl", "r.html")),
        ("pairs.jsonl", pages.format(f"{scores} --pairs HERE/pairs.jsonl", "r.html")),
        (scores, f"compare HERE/{scores} HERE/other.jsonl --resamples 100"),
        (scores, f"compare HERE/{scores} HERE/other.jsonl --resamples 100 --format {style} --all-pairs"),
        (scores, f"compare HERE/other.jsonl HERE/{scores} --resamples 100 --ignore-signatures --moved 2"),
        ("pairs.jsonl", f"explain HERE/pairs.jsonl ENGINE{more}"),
        ("visil.jsonl", "visil select HERE/visil.jsonl --alpha 0.1"),
        ("visil.jsonl", "visil correlate HERE/visil.jsonl --answers HERE/answers.jsonl --shuffles 100"),
        ("answers.jsonl", "visil correlate HERE/visil.jsonl --answers HERE/answers.jsonl --shuffles 100"),
        ("visil.jsonl", "visil report HERE/visil.jsonl --answers HERE/answers.jsonl"),
        ("answers.jsonl", "visil report HERE/visil.jsonl --answers HERE/answers.jsonl"),
        ("systems/a.json", "experiment rank --references HERE/references.json --predictions HERE/systems -o HERE/out/rank"
                           " --resamples 100 --workers 1 ENGINE"),
    )))  # fmt: skip
    return named, command.split()


@cases(14)
@given(reading=readings(), data=st.data())
def test_a_damaged_result_is_read_or_refused(
    results: Path, engine: Sequence[str], reading: tuple[str, list[str]], data: st.DataObject
) -> None:
    named, words = reading
    with case_folder(results) as folder:
        (folder / "out").mkdir()
        path = folder / named
        whole = chance(data.draw, 5)
        if not whole:
            path.write_bytes(data.draw(twisted(path.read_bytes())))
        arguments: list[str] = []
        for word in words:
            arguments += engine if word == "ENGINE" else [word.replace("HERE", str(folder))]
        before = snapshot(folder)
        names = (path.name, "--pairs", "other.jsonl", "scores", "systems", "visil.jsonl", "answers.jsonl")
        done = run(*arguments, names=names)
        made = changed(before, folder)
        assert not [name for name in made if name != "out" and not name.startswith("out/")], f"{made} changed"
        assert words[0] != "report" or done.code != 2 or not made, f"refused, and yet {made} is there"
        assert not whole or done.code != 2, f"refused, though nothing is damaged: {done}"


def check_resuming(results: Path, engine: Sequence[str], content: bytes, pairs: bytes | None = None) -> None:
    """A damaged output is refused and left alone, or completed: with what it had, and no more or less."""
    right = (results / "scores.jsonl").read_bytes()
    with case_folder(results) as folder:
        output, source = folder / "scores.jsonl", folder / "pairs.jsonl"
        output.write_bytes(content)
        same = pairs is None or pairs == source.read_bytes()
        if pairs is not None:
            source.write_bytes(pairs)
        before = snapshot(folder)
        done = run("score", source, "-o", output, "--resume", *engine, names=(output.name, source.name))
        left = output.read_bytes()
        assert set(changed(before, folder)) <= {output.name}, "another file than the output was changed"
        if done.code == 2:
            assert left == content, f"refused, and yet the output was changed: {done.stderr}"
            return
        if same:
            # Not `splitlines`: a carriage return is a space between two values of JSON.
            ids = [json.loads(line)["id"] for line in left.split(b"\n") if line.strip()]
            assert ids == [f"v{i}" for i in range(PAIRS)], "the completed output has other ids"
        assert left.startswith(content[: content.rfind(b"\n") + 1]), "lines of the earlier run were changed"
        if same and right.startswith(content):
            assert left == right, (
                "a cut output was completed with other bytes than those of an undisturbed run"
            )


@cases(10)
@given(data=st.data())
def test_a_damaged_output_is_completed_or_left_alone(
    results: Path, engine: Sequence[str], data: st.DataObject
) -> None:
    lines = (results / "scores.jsonl").read_bytes().splitlines(keepends=True)
    content = b"".join(lines[: data.draw(st.integers(0, len(lines)))])
    if data.draw(st.booleans()):
        content += data.draw(st.sampled_from(lines))[: data.draw(st.integers(0, 200))]
    if chance(data.draw, 80):
        content = data.draw(twisted(content))
    pairs = data.draw(twisted((results / "pairs.jsonl").read_bytes())) if chance(data.draw, 20) else None
    check_resuming(results, engine, content, pairs)


@pytest.mark.parametrize(
    ("target", "change", "says"),
    [
        ("vcs_runtime.jobs.output.OutputFile.end_last_line", lambda lines: lines[0] + lines[1][:50], "(?s)Extra data|delimiter|other"),
        ("vcs_runtime.jobs.score_files.check_line", lambda lines: re.sub(rb'"vcs": [\d.]+', b'"vcs": []', lines[0]), "wrong exit code"),
    ],
)  # fmt: skip
def test_a_defect_is_seen(
    results: Path, engine: Sequence[str], plant: Any, target: str, change: Any, says: str
) -> None:
    plant(target, lambda _: lambda *arguments, **options: None)
    lines = (results / "scores.jsonl").read_bytes().splitlines(keepends=True)
    with pytest.raises((AssertionError, ValueError), match=says):
        check_resuming(results, engine, change(lines))
