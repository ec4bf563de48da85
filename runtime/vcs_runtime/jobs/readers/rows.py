"""A row of an input file, and what a row that cannot be used raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Row = tuple[str, Any]
"""A place ("line 7", "row 7" of a table, "entry 7" of a JSON file), and what is there."""

Pick = Callable[[list[str], str], list[str] | None]
"""Takes the columns of a table and their place, and returns those to read; None: all."""

#: The name of a text whose id is its key in a JSON object, or its line.
TEXT = "text"


class RowError(Exception):
    """A row that cannot be used. The message begins with the place."""


def quoted(names: Iterable[object]) -> str:
    """List names in quotes, or say that there are none."""
    return ", ".join(repr(name) for name in names) or "nothing"
