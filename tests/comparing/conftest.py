"""Systems that the tests of this folder compare."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.comparisons import lines
from support.stories import write_pairs


@pytest.fixture
def five(tmp_path: Path) -> list[Path]:
    """Five systems: the second is better, the third far worse, the others differ by chance."""
    draw = np.random.default_rng(3)
    base = draw.uniform(0.3, 0.7, 30)
    values = [base + shift + draw.normal(0, 0.02, 30) for shift in (0.0, 0.03, -0.2, 0.0, 0.0)]
    files = [tmp_path / f"{name}.jsonl" for name in ("one", "two", "three", "four", "five")]
    for path, own in zip(files, values, strict=True):
        write_pairs(path, lines(own.tolist()))
    return files
