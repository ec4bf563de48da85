"""The Python API with any values: documented errors, scores in range, later calls as before."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import chdir
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import fails
from attack.drawn import ANYTHING, PARAMS, TEXTS, cases, mostly
from support.stories import story
from vcs_runtime import Options, Params, Result, Scorer, ScorerConfig, VcsError
from vcs_runtime.scoring.verdicts import Thresholds

PROBE = (story(1), story(2))
METRICS = ("hm-cf",), ("substitution",), ["substitution", "hm-cf"]

TEXT = mostly(TEXTS, st.lists(TEXTS, max_size=3), ANYTHING, times=6)
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "params": mostly(PARAMS.map(lambda drawn: lambda: Params(**drawn)), ANYTHING),
    "chunk_size": mostly(st.sampled_from((1, 2, 3, 50)), ANYTHING, times=2),
    "also": mostly(st.sampled_from(METRICS), ANYTHING, times=2),
}
AGGREGATE = {"aggregate": mostly(st.sampled_from(("max", "mean")), ANYTHING, times=2)}
PAIRS = mostly(
    st.lists(st.tuples(TEXT, TEXT), max_size=4),
    st.builds(lambda odd, pair: [odd, pair], ANYTHING, st.tuples(TEXT, TEXT)),
    times=9,
)


def call(name: str, *arguments: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]) -> Any:
    drawn = st.fixed_dictionaries({}, optional={**OPTIONS, **named})
    return st.tuples(st.just(name), st.tuples(*arguments), drawn)


CALLS = mostly(
    call("score", TEXT, TEXT, **AGGREGATE),
    call("score_short", TEXT, TEXT),
    call("score_many", PAIRS, **AGGREGATE),
    call("score_many", PAIRS, **AGGREGATE),
    call("explain", TEXT, TEXT),
    st.tuples(
        st.just("score_many"),
        st.just(()),
        st.fixed_dictionaries(
            {"references": st.lists(TEXT, max_size=3), "predictions": st.lists(TEXT, max_size=3)},
            optional={"short": mostly(st.booleans(), ANYTHING)},
        ),
    ),
    times=2,
)
CONFIG = st.sets(
    st.sampled_from([field.name for field in fields(ScorerConfig)]), min_size=1, max_size=2
)


def check(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Call a function: it returns a score, or raises a documented error with a message."""
    try:
        named = {
            name: value() if name == "params" and callable(value) and value is not float else value
            for name, value in named.items()
        }
        answer = function(*arguments, **named)
    except (ValueError, TypeError, VcsError) as error:
        if not str(error):
            raise AssertionError(f"an empty message: {error!r}") from error
        return None
    for result in answer if isinstance(answer, list) else [answer]:
        if isinstance(result, Result) and result.error is None:
            shown = {name: getattr(result.scores, name) for name in ("vcs", "gas", "las", "nas")}
            assert all(
                math.isfinite(score) and -1e-9 <= score <= 1 + 1e-9 for score in shown.values()
            ), shown
    return answer


@cases(130)
@given(CALLS)
def test_calls_with_anything_score_or_say_what_is_wrong(
    scorer: Scorer, drawn: tuple[str, tuple[Any, ...], dict[str, Any]]
) -> None:
    name, arguments, options = drawn
    answer = check(getattr(scorer, name), *arguments, **options)
    if name == "score_many" and answer is not None:
        pairs = arguments[0] if arguments else options["references"]
        assert len(answer) == len(pairs)
    elif name == "explain" and answer is not None:
        answer.to_dict()


@cases(4)
@given(st.lists(CALLS, min_size=1, max_size=10))
def test_a_scorer_has_the_same_scores_after_any_calls(scorer: Scorer, calls: list[Any]) -> None:
    right = scorer.score(*PROBE)
    for name, arguments, options in calls:
        check(getattr(scorer, name), *arguments, **options)
    assert scorer.score(*PROBE) == right


@cases(10)
@given(kind=st.sampled_from((Options, Thresholds)), values=st.lists(ANYTHING, max_size=6))
def test_options_of_any_kind_are_taken_or_refused(kind: Any, values: list[Any]) -> None:
    check(kind, *values)


@cases(5)
@given(names=CONFIG, data=st.data())
def test_a_configuration_of_any_kind_opens_a_scorer_or_is_refused(
    tiny_bundle: Path, names: set[str], data: st.DataObject
) -> None:
    changes = {name: data.draw(ANYTHING, name) for name in sorted(names)}
    if isinstance(changes.get("threads"), int) and changes["threads"] > 64:
        del changes["threads"]  # they would be started
    usual = {"bundle": tiny_bundle, "device": "cpu", "words": tiny_bundle}

    def score() -> Result:
        with chdir(tiny_bundle.parent), Scorer.from_config(ScorerConfig(**usual | changes)) as own:
            return own.score(*PROBE, also=METRICS[1])

    check(score)


def test_an_error_that_is_not_documented_is_seen(scorer: Scorer, plant: Any) -> None:
    plant("vcs_runtime.scoring.scorer.as_pairs", fails)
    with pytest.raises(KeyError):
        check(scorer.score_many, [PROBE])
