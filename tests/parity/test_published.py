"""The default's scores beside the published ones; the texts are in `VCS_RUNTIME_DATA`."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from vcs_experiments.statistics import spearman
from vcs_runtime import Scorer

FOLDER = Path(os.environ.get("VCS_RUNTIME_DATA") or "data-folder-not-named") / "vcs-eval-159"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason=f"{FOLDER} is not there: set VCS_RUNTIME_DATA"
)
EVERY = 20  # scenes: a sample that two cores score in half a minute


def sample() -> list[tuple[str, str, float]]:
    """Return references, rewrites and published VCS (LCT 0) of a sample of scenes."""
    cases = []
    for path in sorted((FOLDER / "comparison").glob("*.json"))[::EVERY]:
        scene = json.loads(path.read_text("utf-8"))
        with (FOLDER / "comparison-published" / f"{path.stem}.csv").open(
            encoding="utf-8", newline=""
        ) as file:
            published = next(row for row in csv.DictReader(file) if row["Metric"] == "VCS_LCT0")
        for category in scene["categories"]:
            for case in category["test_cases"]:
                cases.append(
                    (scene["ground_truth"], case["description"], float(published[case["name"]]))
                )
    return cases


def test_the_default_orders_rewrites_as_the_published_scores_do() -> None:
    """The figures of eight scenes (rho of all is .956); rounding moves their fourth digits."""
    cases = sample()
    with Scorer.open("default", "cpu") as scorer:
        ours = [result.vcs for result in scorer.score_many([case[:2] for case in cases])]
    theirs = [case[2] for case in cases]
    rho = spearman(ours, theirs)
    error = np.abs(np.array(ours) - theirs).mean()
    print(f"{len(cases)} pairs, rho {rho:.4f}, mean absolute error {error:.4f}")
    assert len(cases) > 150
    assert rho == pytest.approx(0.964, abs=0.005)
    assert error == pytest.approx(0.051, abs=0.003)
