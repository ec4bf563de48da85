"""Corruptions of one's own descriptions: made, scored, and what each does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.experiments import files, table
from support.stories import read_lines, story, write_pairs
from vcs_experiments.datasets import corruptions
from vcs_experiments.datasets.texts import POSITIONS, SERIES


@pytest.mark.slow
def test_corruptions_of_ones_own_are_made_scored_and_made_again(
    experiment: Any, tmp_path: Path
) -> None:
    texts = tmp_path / "texts.jsonl"
    write_pairs(
        texts,
        [{"id": i, "text": story(i, sentences=10)} for i in (10, 2)]
        + [{"id": 3, "text": "Short text."}],
    )
    made, again, other = tmp_path / "made", tmp_path / "again", tmp_path / "other"
    done = experiment("make-corruptions", "--references", texts, "--seed", 1, out=made)
    assert done.exit_code == 1
    assert "description 3: 1 segments, 4 are needed: left out" in done.stderr
    write_pairs(texts, read_lines(texts)[::-1])
    experiment("make-corruptions", "--references", texts, "--seed", 1, out=again)
    experiment("make-corruptions", "--references", texts, "--seed", 2, out=other)
    assert files(made) == files(again)
    assert files(made).keys() == files(other).keys()
    assert files(made) != files(other)
    assert len(files(made)) == 2 * (1 + len(SERIES) * len(POSITIONS)) + 1  # and the record
    assert "exists already" in str(
        experiment("make-corruptions", "--references", texts, out=made).exception
    )
    out = tmp_path / "scored"
    done = experiment("corruption", "--data", made, "--plots", out=out)
    assert done.exit_code == 0, done.output
    assert len(read_lines(out / "pairs.jsonl")) == 2 * (len(corruptions.CASES) + 120)
    assert (out / "severity.png").stat().st_size > 1000
    deletion = [
        row["VCS_LCT0"]
        for row in table(out, "series")
        if (row["kind"], row["position"]) == ("deletion", "end")
    ]
    assert len(deletion) == 10
    assert deletion[0] > deletion[-1]


def source(count: int, seed: int = 0) -> corruptions.Source:
    others = [f"other {i}" for i in range(50)]
    return corruptions.Source([f"s{i}" for i in range(count)], others, np.random.default_rng(seed))


@pytest.mark.parametrize("count", [4, 5, 12, 31])
def test_every_corruption_does_what_its_name_says(count: int) -> None:
    own = source(count).segments
    omitted = corruptions.omission(source(count), 0.5)
    assert len(omitted) == count - round(count * 0.5)
    assert omitted == [segment for segment in own if segment in omitted]
    assert corruptions.inversion(source(count)) == own[::-1]
    assert corruptions.rotation(source(count)) == own[-(-count // 2) :] + own[: -(-count // 2)]
    local = corruptions.local_permutation(source(count))
    assert local[:4] == [
        "s2",
        "s1",
        "s0",
        *(["s3"] if count < 5 else ["s5" if count > 5 else "s4"]),
    ]
    assert sorted(local) == sorted(own)
    for seed in range(5):
        jumbled = corruptions.global_permutation(source(count, seed))
        assert jumbled != own
        assert sorted(jumbled) == sorted(own)
    added = corruptions.hallucination(source(count), 0.8)
    foreign = [segment for segment in added if segment.startswith("other")]
    assert len(foreign) == len(set(foreign)) == round(count * 0.8)
    assert [segment for segment in added if segment in own] == own
    repeated = corruptions.repetition(source(count), 0.5)
    assert len(repeated) == count + round(count * 0.5)
    assert set(repeated) == set(own)


@pytest.mark.parametrize("count", [4, 12, 31])
@pytest.mark.parametrize("position", POSITIONS)
def test_graded_series_grow_step_by_step(count: int, position: str) -> None:
    own = source(count).segments
    added = corruptions.addition(source(count), position)
    gone = corruptions.deletion(source(count), position)
    moved = corruptions.chronology(source(count), position)
    assert len(added) == len(gone) == len(moved) == 10
    assert [len(level) for level in added] == sorted(len(level) for level in added)
    assert len(added[-1]) == 2 * count
    assert [len(level) for level in gone] == sorted((len(level) for level in gone), reverse=True)
    assert len(gone[-1]) == 1
    for before, after in pairwise(gone):
        assert set(after) <= set(before)
    for level in moved:
        assert level != own
        assert sorted(level) == sorted(own)
    assert moved[-1] == own[::-1]
    assert [segment for segment in added[4] if segment in own] == own
    if position in {"beginning", "end"}:
        at = 0 if position == "beginning" else -1
        assert added[0][at].startswith("other")
        assert own[at] not in gone[0]
        assert moved[0][at] != own[at]
