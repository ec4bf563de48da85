"""Numbers of the public API: values out of range are refused by the argument's name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vcs_numba
from vcs_runtime import Params, Scorer, ScorerConfig
from vcs_runtime.scoring.verdicts import Thresholds
from vcs_runtime.serve.limits import Limits
from vcs_runtime.training.scorer import TrainingScorer
from vcs_runtime.triton.repository import Deployment
from vcs_runtime.util.json_http import Client
from vcs_visil.asking import VisilOptions
from vcs_visil.selection import select_summary

WRONG = (math.nan, math.inf, -math.inf, 10**400, "1", b"1", True, 1j, [1.0])
# Takes infinity: no deadline.
ENDLESS = "deadline_s"
CLASSES = (Params, ScorerConfig, Thresholds, Limits, VisilOptions, TrainingScorer, Deployment)


def arguments(kind: type, *types: str) -> Iterator[str]:
    for parameter in inspect.signature(kind).parameters.values():
        if any(one in types for one in str(parameter.annotation).split(" | ")):
            yield parameter.name


NUMBERS = [(kind, name) for kind in CLASSES for name in arguments(kind, "float")]
COUNTS = [(kind, name) for kind in CLASSES for name in arguments(kind, "int")]


def test_the_table_has_the_arguments_that_take_numbers() -> None:
    names = {name for _, name in NUMBERS}
    assert set("lct support gpu_memory_gb max_pair_gb timeout_s floor unscorable".split()) <= names
    assert {"threads", "cache_mb", "max_pairs", "top", "chunk_size", "instances"} <= {
        name for _, name in COUNTS
    }


@pytest.mark.parametrize(
    ("kind", "name"), NUMBERS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_float_is_finite(kind: Callable[..., Any], name: str, tiny_bundle: Path) -> None:
    for wrong in WRONG:
        if (name, wrong) == (ENDLESS, math.inf):
            continue
        with pytest.raises(ValueError, match=f"^{name} must be ") as error:  # noqa: PT012
            made = kind(**{name: wrong})
            # A name of a device may be checked when it is opened.
            Scorer.from_config(ScorerConfig(tiny_bundle, "cpu", gpu_memory_gb=made.gpu_memory_gb))
        assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("kind", "name"), COUNTS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_count_is_a_whole_number(kind: Callable[..., Any], name: str) -> None:
    for wrong in (math.nan, math.inf, 1.5, "1", True, -1):
        with pytest.raises(ValueError, match=f"^{name} must be "):
            kind(**{name: wrong})


@pytest.mark.parametrize("wrong", [each for each in WRONG if each is not True])
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("gas", lambda number: vcs_numba.score_similarity([[0.5]], number)),
        ("coarse", lambda number: vcs_numba.hm_cf([[0.5]], number)),
        (
            "gas",
            lambda number: vcs_numba.recombine(
                vcs_numba.score_similarity([[0.5]], 0.5), gas=number
            ),
        ),
        ("alpha", lambda number: select_summary([("a", 1.0, 2.0)], number)),
        ("timeout", lambda number: Client("http://127.0.0.1:9", number)),
    ],
)
def test_a_number_of_a_function_is_finite(
    name: str, call: Callable[[Any], Any], wrong: Any
) -> None:
    with pytest.raises(ValueError, match=f"^{name}:? "):
        call(wrong)
