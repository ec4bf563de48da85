"""Tests over several lists of values, of which not every combination shows something new."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def matrix(names: str, *axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrise a test by the longest axis, and by each combination of the others."""
    lists = [list(axis) for axis in axes]
    longest = max(range(len(lists)), key=lambda place: len(lists[place]))
    values = lists.pop(longest)
    others = list(product(*lists))
    cases = []
    for number in range(max(len(values), len(others))):
        case = list(others[number % len(others)])
        case.insert(longest, values[number % len(values)])
        cases.append(tuple(case))
    return pytest.mark.parametrize(names, cases)
