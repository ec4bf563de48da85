"""`make_predict_fn` as Spark calls it. Spark itself: tests/spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.stories import story
from vcs_runtime import Options, Scorer, ScorerConfig
from vcs_runtime.spark import make_predict_fn

TEXTS = [(story(i, 1 + i % 6), story(100 + i)) for i in range(40)]
TEXTS[5] = (TEXTS[5][0], "")


@pytest.fixture(scope="module")
def expected(scorer: Scorer) -> list[float]:
    return [result.vcs for result in scorer.score_many(TEXTS)]


def column(side: int) -> Any:
    return np.array([pair[side] for pair in TEXTS], object)


def test_one_column_is_an_array(tiny_bundle: Path, expected: list[float]) -> None:
    # How it gets to a worker.
    make = pickle.loads(pickle.dumps(partial(make_predict_fn, tiny_bundle)))
    scored = make()(column(0), column(1))
    assert scored.dtype == np.float64
    assert np.array_equal(scored, expected, equal_nan=True)
    assert np.isnan(scored[5])


def test_the_margin_ranks_pairs_whose_vcs_is_0_and_the_flags_say_why(
    tiny_bundle: Path, scorer: Scorer
) -> None:
    margin = make_predict_fn(tiny_bundle, columns="margin")(column(0), column(1))
    both = make_predict_fn(tiny_bundle, columns=("margin", "flags"))(column(0), column(1))
    results = list(scorer.score_many(TEXTS))
    expected = [result.scores.margin if result.scores else np.nan for result in results]
    assert np.array_equal(margin, expected, equal_nan=True)
    assert isinstance(both, dict)
    assert np.array_equal(both["margin"], expected, equal_nan=True)
    assert both["flags"].tolist() == [",".join(result.flags) for result in results]
    zeros = [result.scores.margin for result in results if result.scores and result.vcs == 0.0]
    assert len(set(zeros)) > 1
    assert max(zeros) <= 0.0


def test_several_columns_are_a_dictionary(tiny_bundle: Path, scorer: Scorer) -> None:
    names = ("vcs", "n_ref", "error", "signature")
    predict = make_predict_fn(
        ScorerConfig(tiny_bundle, "cpu"), Options(chunk_size=2), columns=names
    )
    scored = predict(
        np.array([TEXTS[0][0], None, "a."], object), np.array([TEXTS[0][1], "a b.", "."], object)
    )
    assert isinstance(scored, dict)
    assert tuple(scored) == names
    one = scorer.score(*TEXTS[0], chunk_size=2)
    assert (scored["vcs"][0], scored["n_ref"][0], scored["error"][0]) == (one.vcs, one.n_ref, "")
    assert list(scored["error"][1:]) == [
        "reference: the text is null",
        "generated: the text has only punctuation",
    ]
    assert set(scored["signature"]) == {one.signature}


def test_a_worker_uses_one_cpu_unless_the_config_says_otherwise(
    tiny_bundle: Path, calls_of: Callable[[Any, str], list[Any]]
) -> None:
    opened = calls_of(Scorer, "from_config")
    make_predict_fn(tiny_bundle)
    make_predict_fn(ScorerConfig(tiny_bundle, "auto"))
    make_predict_fn(ScorerConfig(tiny_bundle, "cpu", threads=2))
    assert [(config.device, config.threads) for (config,) in opened] == [
        ("cpu", 1),
        ("auto", 1),
        ("cpu", 2),
    ]


def test_an_unknown_column_is_refused(tiny_bundle: Path) -> None:
    with pytest.raises(ValueError, match="columns must be one of 'vcs', .*, not 'score'"):
        make_predict_fn(tiny_bundle, columns=["vcs", "score"])
