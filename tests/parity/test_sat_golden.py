"""Recorded results of wtpsplit 2.2.2 (PyTorch, fp32) on random checkpoints: `golden.json` beside
each.

The checkpoints lie outside the repository, in `VCS_RUNTIME_GOLDEN`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from support.golden import GOLDEN
from vcs_export.families.build import Build
from vcs_export.families.sat import SatOptions, build_sat_bundle
from vcs_export.write import BundleInfo
from vcs_runtime import Segmenter

TOLERANCE = 2e-3
# Splits are compared where rounding moves no probability across the threshold.
CLEAR = 0.005

Case = dict[str, Any]


@pytest.fixture(scope="module", params=["sat-tiny-3l-sm", "sat-tiny-3l"])
def golden(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Segmenter, list[Case]]]:
    folder = GOLDEN / request.param
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there: set VCS_RUNTIME_GOLDEN")
    info = BundleInfo(request.param, "CC0-1.0", "random numbers")
    build = Build(folder, tmp_path_factory.mktemp("golden") / "bundle", info)
    bundle = build_sat_bundle(build, SatOptions(threshold=0.25))
    with Segmenter.open(bundle, device="cpu") as segmenter:
        yield segmenter, json.loads((folder / "golden.json").read_text("utf-8"))


def test_probabilities(golden: tuple[Segmenter, list[Case]], record_property: Any) -> None:
    segmenter, cases = golden
    found = segmenter.boundary_probabilities([case["text"] for case in cases])
    largest = max(
        np.abs(values - case["proba"]).max() for values, case in zip(found, cases, strict=True)
    )
    record_property("largest_difference", float(largest))
    print(f"{len(cases)} texts: probabilities differ by at most {largest:.1e}")
    assert largest <= TOLERANCE


def test_splits(golden: tuple[Segmenter, list[Case]]) -> None:
    segmenter, cases = golden
    clear = [case for case in cases if case["gap"] is None or case["gap"] >= CLEAR]
    for case in clear:
        assert segmenter.split([case["text"]], case["threshold"]) == [case["split"]]
    same = sum(
        segmenter.split([case["text"]], case["threshold"]) == [case["split"]] for case in cases
    )
    print(f"{len(clear)} clear cases equal; of all {len(cases)}: {same}")
