"""Tests of every combination, of which `make test` takes a diagonal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def matrix(names: str, *axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by all combinations of `axes`; all but enough to meet each value once are slow."""
    lists = [list(axis) for axis in axes]
    quick = {tuple(i % len(axis) for axis in lists) for i in range(max(map(len, lists)))}
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(
                *(axis[i] for axis, i in zip(lists, places, strict=True)),
                marks=[] if places in quick else [pytest.mark.slow],
            )
            for places in product(*(range(len(axis)) for axis in lists))
        ],
    )
