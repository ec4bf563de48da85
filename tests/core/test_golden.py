"""Against numbers of the reference package 1.0.0, made by tests/parity/make_core_golden.py."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import vcs_numba
from support.core_cases import drawn_case, flat_alignment, matrix, params
from support.processes import run_python
from vcs_numba.jit.kernel import numba_config

TOLERANCE = 1e-12
#: Without compilation every tenth case has to do.
STEP = 10 if numba_config.DISABLE_JIT else 1


@pytest.fixture(scope="module")
def golden() -> dict[str, npt.NDArray[np.float64]]:
    with np.load(Path(__file__).with_name("golden.npz")) as stored:
        return {name: stored[name] for name in stored.files}


def published(scores: vcs_numba.Scores) -> list[float]:
    """The scores that the reference package has."""
    return list(scores.to_reference_dict().values())


def detailed_case(
    golden: dict[str, npt.NDArray[np.float64]], number: int
) -> dict[str, npt.NDArray[np.float64]]:
    arrays = {}
    for name, counts in golden.items():
        key, _, kind = name.partition(":")
        if kind == "counts":
            first = int(counts[:number].sum())
            arrays[key] = golden[f"{key}:values"][first : first + int(counts[number])]
    return arrays


def test_golden_cases_cover_what_the_metric_distinguishes(
    golden: dict[str, npt.NDArray[np.float64]],
) -> None:
    assert len(golden["scores"]) >= 4000
    assert golden["breakdown"].sum() > 100
    assert (~golden["breakdown"]).sum() > 3000
    for side in ("precision", "recall"):
        assert set(golden[f"{side}.reason:values"]) == {0, 1, 2}
        assert set(golden[f"{side}.segment_method:values"]) == {0, 1, 2}
        assert golden[f"{side}.in_lct_zone:values"].sum() > 100
    vcs = golden["scores"][:, 0]
    assert 0.05 < (vcs > 0).mean() < 0.95


def test_scores_equal_the_reference_where_it_is_copied(
    golden: dict[str, npt.NDArray[np.float64]],
) -> None:
    for seed in range(0, len(golden["scores"]), STEP):
        case = drawn_case(seed)
        ours = vcs_numba.score_similarity(matrix(case), float(golden["gas"][seed]), params(case))
        theirs = golden["scores"][seed]
        np.testing.assert_allclose(
            published(ours), theirs, rtol=0, atol=TOLERANCE, err_msg=str(case)
        )


def test_paper_mode_differs_only_where_the_reference_divides_by_zero(
    golden: dict[str, npt.NDArray[np.float64]],
) -> None:
    differing = 0
    for seed in range(0, len(golden["scores"]), STEP):
        case = drawn_case(seed)
        ours = vcs_numba.score_similarity(
            matrix(case), float(golden["gas"][seed]), params(case, small_text="paper")
        )
        if golden["breakdown"][seed]:
            differing += not np.allclose(
                published(ours), golden["scores"][seed], rtol=0, atol=TOLERANCE
            )
        else:
            np.testing.assert_allclose(
                published(ours), golden["scores"][seed], rtol=0, atol=TOLERANCE, err_msg=str(case)
            )
    assert differing > 0


def test_every_intermediate_result_equals_the_reference(
    golden: dict[str, npt.NDArray[np.float64]],
) -> None:
    for number in range(0, len(golden["las:counts"]), STEP):
        case = drawn_case(number)
        alignment = vcs_numba.align(matrix(case), params(case))
        ours = flat_alignment(alignment)
        theirs = detailed_case(golden, number)
        assert ours.keys() == theirs.keys()
        for key, expected in theirs.items():
            np.testing.assert_allclose(
                np.atleast_1d(ours[key]),
                expected,
                rtol=0,
                atol=TOLERANCE,
                err_msg=f"{key} of {case}",
            )


def test_batch_equals_single_calls_bit_for_bit(golden: dict[str, npt.NDArray[np.float64]]) -> None:
    seeds = list(range(0, 1000, STEP))
    parameters = vcs_numba.Params(lct=0.5)
    matrices = [matrix(drawn_case(seed)) for seed in seeds]
    batch = vcs_numba.score_batch(matrices, golden["gas"][seeds], parameters)
    for one, similarity, seed in zip(batch, matrices, seeds, strict=True):
        assert tuple(one) == vcs_numba.score_similarity(
            similarity, float(golden["gas"][seed]), parameters
        )


@pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="is the inner run")
def test_plain_python_gives_the_same_results() -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = "-m pytest -q -p no:cacheprovider --no-header".split()
    finished = run_python(*command, __file__, env=environment, cwd=Path(__file__).parents[2])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "5 passed" in finished.stdout
