"""Outputs of commands, damaged and read again by `report`, `compare`, `explain` and others."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, changed, does_nothing, run, snapshot
from attack.drawn import cases, chance, damaged, exchanged

SCORES = "scores.jsonl scores.jsonl scores.jsonl scores.csv scores.tsv scores.parquet".split()
#: A damaged file, and a command that reads it; unrecognised scores are taken for pairs.
READINGS = (
    ("SCORES", "report HERE/SCORES -o HERE/out/r.html ENGINE"),
    ("SCORES", "report HERE/SCORES HERE/other.jsonl -o HERE/out/PAGE ENGINE"),
    ("SCORES", "report HERE/SCORES --pairs HERE/pairs.jsonl -o HERE/out/r.html ENGINE"),
    ("pairs.jsonl", "report HERE/SCORES --pairs HERE/pairs.jsonl -o HERE/out/r.html ENGINE"),
    ("SCORES", "compare HERE/SCORES HERE/other.jsonl --resamples 100"),
    ("SCORES", "compare HERE/SCORES HERE/other.jsonl --resamples 100 --format FORMAT --all-pairs"),
    (
        "SCORES",
        "compare HERE/other.jsonl HERE/SCORES --resamples 100 --ignore-signatures --moved 2",
    ),
    ("pairs.jsonl", "explain HERE/pairs.jsonl ENGINE MORE"),
    ("visil.jsonl", "visil select HERE/visil.jsonl --alpha 0.1"),
    ("visil.jsonl", "visil correlate HERE/visil.jsonl --answers HERE/answers.jsonl --shuffles 100"),
    (
        "answers.jsonl",
        "visil correlate HERE/visil.jsonl --answers HERE/answers.jsonl --shuffles 100",
    ),
    ("visil.jsonl", "visil report HERE/visil.jsonl --answers HERE/answers.jsonl"),
    ("answers.jsonl", "visil report HERE/visil.jsonl --answers HERE/answers.jsonl"),
    (
        "systems/a.json",
        (
            "experiment rank --references HERE/references.json --predictions HERE/systems -o"
            " HERE/out/rank --resamples 100 --workers 1 ENGINE"
        ),
    ),
)
CHOICES = st.fixed_dictionaries(
    {
        "SCORES": st.sampled_from(SCORES),
        "PAGE": st.just("r.html"),
        "FORMAT": st.sampled_from(("markdown", "latex", "csv", "json")),
        "MORE": st.sampled_from(("", "--json", "--id v1")),
    }
)


@st.composite
def twisted(draw: st.DrawFn, content: bytes) -> bytes:
    """JSON lines with values exchanged, doubled or removed; other formats with damaged bytes."""
    try:
        lines: Any = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        return draw(damaged(content))
    if chance(draw, 40):
        return draw(damaged(content))
    for _ in range(draw(st.sampled_from((1, 1, 2, 3)))):
        lines = draw(st.permutations(lines)) if chance(draw, 10) else draw(exchanged(lines))
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@cases(14)
@given(reading=st.sampled_from(READINGS), choices=CHOICES, data=st.data())
def test_a_damaged_result_is_read_or_refused(
    files: Path,
    engine: Sequence[str],
    reading: tuple[str, str],
    choices: dict[str, str],
    data: st.DataObject,
) -> None:
    named, command = reading
    with case_folder(files) as folder:
        (folder / "out").mkdir()
        path = folder / choices.get(named, named)
        whole = chance(data.draw, 5)
        if not whole:
            path.write_bytes(data.draw(twisted(path.read_bytes())))
        for word, value in {**choices, "HERE": str(folder), "ENGINE": " ".join(engine)}.items():
            command = command.replace(word, value)
        before = snapshot(folder)
        names = (
            path.name,
            "--pairs",
            "other.jsonl",
            "scores",
            "systems",
            "visil.jsonl",
            "answers.jsonl",
        )
        done = run(*command.split(), names=names)
        made = changed(before, folder)
        assert all(name == "out" or name.startswith("out/") for name in made)
        assert not (made and command.startswith("report") and done.code == 2)
        assert done.code != 2 or not whole, done


def check_resuming(
    files: Path, engine: Sequence[str], content: bytes, pairs: bytes | None = None
) -> None:
    """A damaged output is refused and not touched, or completed to exactly what it was."""
    right = (files / "scores.jsonl").read_bytes()
    with case_folder(files) as folder:
        output, source = folder / "scores.jsonl", folder / "pairs.jsonl"
        output.write_bytes(content)
        same = pairs is None or pairs == source.read_bytes()
        if pairs is not None:
            source.write_bytes(pairs)
        before = snapshot(folder)
        done = run(
            "score", source, "-o", output, "--resume", *engine, names=(output.name, source.name)
        )
        left = output.read_bytes()
        assert set(changed(before, folder)) <= {output.name}
        if done.code == 2:
            assert left == content
            return
        assert left.startswith(content[: content.rfind(b"\n") + 1]), (
            "lines of the earlier run were changed"
        )
        if same:
            # Not `splitlines`: a carriage return is a space between two values of JSON.
            ids = [json.loads(line)["id"] for line in left.split(b"\n") if line.strip()]
            assert ids == [f"v{i}" for i in range(6)]
        if same and right.startswith(content):
            assert left == right, "completed with other bytes than those of an undisturbed run"


@cases(10)
@given(data=st.data())
def test_a_damaged_output_is_completed_or_left_alone(
    files: Path, engine: Sequence[str], data: st.DataObject
) -> None:
    lines = (files / "scores.jsonl").read_bytes().splitlines(keepends=True)
    content = b"".join(lines[: data.draw(st.integers(0, len(lines)))])
    if data.draw(st.booleans()):
        content += data.draw(st.sampled_from(lines))[: data.draw(st.integers(0, 200))]
    if chance(data.draw, 80):
        content = data.draw(twisted(content))
    pairs = (
        data.draw(twisted((files / "pairs.jsonl").read_bytes())) if chance(data.draw, 20) else None
    )
    check_resuming(files, engine, content, pairs)


def test_a_torn_line_that_stays_is_seen(files: Path, engine: Sequence[str], plant: Any) -> None:
    first, second, *_ = (files / "scores.jsonl").read_bytes().splitlines(keepends=True)
    plant("vcs_runtime.jobs.output.OutputFile.end_last_line", does_nothing)
    with pytest.raises(ValueError, match="delimiter"):
        check_resuming(files, engine, first + second[:50])


def test_a_damaged_score_that_is_taken_is_seen(
    files: Path, engine: Sequence[str], plant: Any
) -> None:
    first = (files / "scores.jsonl").read_bytes().splitlines(keepends=True)[0]
    plant("vcs_runtime.jobs.score_files.check_line", does_nothing)
    with pytest.raises(AssertionError, match="wrong exit code"):
        check_resuming(files, engine, re.sub(rb'"vcs": [\d.]+', b'"vcs": []', first))
