"""Pairs from columns, and results as columns."""

from __future__ import annotations

import numpy as np
import pytest

from support.stories import story
from vcs_numba import Scores
from vcs_runtime import Options, Scorer
from vcs_runtime.scoring.columns import COUNTS, TEXTS, names_of, pairs_of, to_columns
from vcs_runtime.scoring.result import Result


def test_rows_become_pairs_and_arrays_become_lists_of_references() -> None:
    reference = ["a", np.array(["b", "c"], object), None]
    assert list(pairs_of(reference, ["x", "y", "z"])) == [
        ("a", "x"),
        (["b", "c"], "y"),
        (None, "z"),
    ]
    with pytest.raises(ValueError, match="shorter"):
        list(pairs_of(reference, ["x", "y"]))


def test_results_become_one_typed_column_for_each_name(scorer: Scorer) -> None:
    references = [story(1), story(2)]
    results = scorer.score_many([(references, story(2)), (story(3), ""), (story(4), story(5))])
    columns = to_columns(results)
    assert tuple(columns) == names_of(Options())
    for name in Scores._fields:
        assert columns[name].dtype == np.float64
        expected = [getattr(result.scores, name, np.nan) for result in results]
        np.testing.assert_array_equal(columns[name], expected)
    assert np.isnan(columns["vcs"]).tolist() == [False, True, False]
    assert all(columns[name].dtype == np.int64 for name in COUNTS)
    assert columns["reference_index"].tolist() == [1, 0, 0]
    assert columns["n_references"].tolist() == [2, 1, 1]
    assert all(columns[name].dtype == object for name in TEXTS)
    assert columns["error"].tolist() == ["", "generated: the text is empty", ""]
    assert columns["segmenter"].tolist() == ["sentencex", "", "sentencex"]
    assert columns["signature"].tolist() == [scorer.signature] * 3


def test_several_flags_are_one_text_separated_by_commas() -> None:
    nothing = Result(Scores(*[0.0] * len(Scores._fields)), 5, 5, "signature")
    assert to_columns([nothing])["flags"].tolist() == ["zero_content,zero_order"]


def test_no_results_are_empty_columns() -> None:
    assert {len(column) for column in to_columns([]).values()} == {0}
