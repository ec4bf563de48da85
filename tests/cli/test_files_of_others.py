"""Files as others write them: what was assumed of them is printed, what cannot be read is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import Finished
from support.stories import read_lines, story, write_pairs

Score = Callable[..., Finished]
IDS = ("bakery", "lake")
REFERENCES = {name: story(i, 4) for i, name in enumerate(IDS)}
PREDICTIONS = {name: story(i + 9, 4) for i, name in enumerate(IDS)}


def dump(path: Path, value: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def scored(run: Finished, output: Path) -> dict[str, float]:
    """Return the VCS of each id of a command that succeeded."""
    assert run.code == 0, run.stderr
    return {line["id"]: line["vcs"] for line in read_lines(output)}


@pytest.fixture
def references(tmp_path: Path) -> Path:
    return dump(tmp_path / "references.json", REFERENCES)


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    return dump(tmp_path / "predictions.json", PREDICTIONS)


@pytest.mark.parametrize(
    "sentence",
    [
        "Failed to obtain answer via API.",
        "Failed to obtain answer via API. ",
        "Failed to obtain answer via API. 429 Too Many Requests",
        "Failed to obtain answer.",
        "Failed to obtain answer",
        "Video videos/a.mp4\nvideos/b.mp4 can not load, check the source",
    ],
)
def test_a_failed_request_of_a_toolkit_is_an_error_of_its_pair(
    score: Score, tmp_path: Path, sentence: str
) -> None:
    texts = [story(1), sentence, "Failed to obtain answer from the man, she leaves."]
    rows = [
        {"id": i, "reference": story(0), "generated": text, "index": i, "answer": story(0)}
        for i, text in enumerate(texts)
    ]
    for row in rows:
        row["prediction"] = row["generated"]
    write_pairs(tmp_path / "a.jsonl", rows)
    dump(tmp_path / "a.json", rows)
    for arguments in (["a.jsonl"], ["a.json", "--format", "vlmevalkit"]):
        name, *options = arguments
        output = tmp_path / f"{name}.scores.jsonl"
        run = score(tmp_path / name, *options, "-o", output)
        assert run.code == 1
        assert "(id 1): generated: a toolkit's failed request, not a description" in run.stderr
        assert ["error" in line for line in read_lines(output)] == [False, True, False]
