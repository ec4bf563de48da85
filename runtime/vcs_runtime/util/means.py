"""Means that do not depend on the order of what they are of."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


def exact_means(rows: Collection[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of each column. A sum is rounded once, so the order of the rows changes nothing."""
    return tuple(math.fsum(values) / len(rows) for values in zip(*rows, strict=True))
