"""Checks of a caller's numbers, which refuse NaN and infinity, and order-independent means."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from numbers import Real
from typing import Any


def is_finite(value: Any) -> bool:
    """Whether a value is a number, finite as a float64, and no bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    with suppress(OverflowError):  # a whole number of more than 308 digits
        return math.isfinite(value)
    return False


def checked_number(name: str, value: Any, allowed: str, inside: Callable[[float], bool]) -> float:
    """Return a finite number in a range as a float."""
    if not (is_finite(value) and inside(float(value))):
        raise ValueError(f"{name} must be {allowed}, not {value!r}")
    return float(value)


def checked_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Return a whole number from `least` on, up to `most`.

    Raises ValueError, which names the argument.
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        span = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {span}, not {value!r}")
    return int(value)


def digits(value: float) -> str:
    """Return a number in six digits if these are exact, else in the shortest distinct form."""
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def exact_means(rows: Collection[Sequence[float]]) -> tuple[float, ...]:
    """Return the mean of each column.

    A sum is rounded once, so the order of the rows changes nothing.
    """
    return tuple(math.fsum(values) / len(rows) for values in zip(*rows, strict=True))
