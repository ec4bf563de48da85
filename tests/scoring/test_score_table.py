"""The table of scores: complete, and true of what is computed and documented."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import numpy as np

from support.core_cases import drawn_case, matrix
from vcs_numba import HmCf, Scores, score_similarity
from vcs_runtime.scoring import result
from vcs_runtime.scoring.flags import FLAGS
from vcs_runtime.scoring.result import StrictScores
from vcs_runtime.scoring.score_table import (
    ALL,
    DETAIL,
    HEADLINE,
    HM_CF,
    HM_CF_NAMES,
    LABELS,
    NAMES,
    PART,
    SCORES,
    SUBSTITUTION,
    names_with,
    up_to,
)

DEFINITION = Path(__file__).parents[2] / "docs/reference/vcs.md"


def test_it_declares_every_score_once() -> None:
    assert set(SCORES) == set(Scores._fields) == set(NAMES)
    assert Scores._fields == NAMES
    assert tuple(HM_CF) == HM_CF_NAMES == HmCf._fields
    assert tuple(SUBSTITUTION) == StrictScores._fields
    assert tuple(ALL) == (*SCORES, *HM_CF, *SUBSTITUTION) == tuple(LABELS)
    assert len(ALL) == len(SCORES) + len(HM_CF) + len(SUBSTITUTION)
    assert up_to(HEADLINE, ["hm-cf"]) == (*up_to(HEADLINE), "hm_cf")
    assert up_to(HEADLINE, ["substitution"]) == (*up_to(HEADLINE), "substitution", "vcs_strict")
    assert names_with(["substitution", "hm-cf"]) == (*NAMES, *HM_CF, *SUBSTITUTION)
    assert up_to(DETAIL) == tuple(SCORES)
    assert up_to(HEADLINE) == ("vcs", "margin", "gas", "las", "nas")
    assert set(up_to(HEADLINE)) < set(up_to(PART)) < set(SCORES)
    assert len(set(LABELS.values())) == len(LABELS)


def test_editors_know_every_score_of_a_result() -> None:
    [definition] = ast.parse(inspect.getsource(result._ScoresByName)).body
    assert isinstance(definition, ast.ClassDef)
    targets = [line.targets[0] for line in definition.body if isinstance(line, ast.Assign)]
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    assert names == ["__slots__", *ALL]
    assert all(
        vars(result._ScoresByName)[name].__doc__.startswith(ALL[name].meaning) for name in ALL
    )


def test_scores_lie_in_their_ranges() -> None:
    for seed in range(2000):
        case = drawn_case(seed)
        similarity = np.clip(matrix(case), 0, 1)  # LAS of cosines of both signs has no bounds
        scores = score_similarity(similarity, min(case.gas, 1.0)).to_dict()
        for name, info in SCORES.items():
            assert info.low <= scores[name] <= info.high + 1e-12, (seed, name)


def test_the_definition_lists_them_with_range_and_meaning() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", DEFINITION.read_text("utf-8"), re.M
    )
    expected = [
        (name, info.label, f"{info.low:g} to {info.high:g}", info.meaning)
        for name, info in ALL.items()
    ]
    assert [tuple(cell.strip() for cell in row) for row in rows] == expected


def test_the_definition_lists_every_flag() -> None:
    section = DEFINITION.read_text("utf-8").split("\n## 13. ")[1]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|$", section, re.M)
    assert {name: meaning.strip() for name, meaning in rows} == FLAGS


def test_the_definition_has_the_regularisers_of_small_counts() -> None:
    rows = re.findall(r"^\| \*\*(\d)\*\* \| (.+) \|$", DEFINITION.read_text("utf-8"), re.M)
    assert [int(n_ref) for n_ref, _ in rows] == list(range(1, 9))
    for n_ref, cells in rows:
        for n_gen, cell in enumerate(cells.split(" | "), 1):
            regularizer = score_similarity(
                np.full((int(n_ref), n_gen), 0.5), 0.5
            ).window_regularizer
            assert abs(float(cell) - regularizer) <= 0.005, (n_ref, n_gen)
