"""CSV files that spreadsheets open: texts that they would take for formulas."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

# A spreadsheet runs what begins so, or drops the first two and runs the rest.
_BEGINNINGS: Final = ("\t", "\r", "=", "+", "-", "@")
_SAFE: Final[ContextVar[bool]] = ContextVar("safe", default=False)


@contextmanager
def formulas_as_text() -> Iterator[None]:
    """Write CSV files in the block whose texts no spreadsheet runs."""
    token = _SAFE.set(True)
    try:
        yield
    finally:
        _SAFE.reset(token)


def cell(value: Any) -> Any:
    """Return a value for a CSV file: within `formulas_as_text`, a text like a formula begins with `'`."""
    if _SAFE.get() and isinstance(value, str) and value.startswith(_BEGINNINGS):
        return f"'{value}"
    return value
