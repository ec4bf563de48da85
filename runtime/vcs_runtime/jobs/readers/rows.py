"""A row of an input file, and what a row that cannot be used raises."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = tuple[str, Any]
"""A place ("line 7", "row 7" of a table, "entry 7" of a JSON file), and what is there."""

Pick = Callable[[list[str], str], list[str] | None]
"""Takes the columns of a table and their place, and returns those to read; None: all."""

#: The name of a text whose id is its key in a JSON object, or its line.
TEXT = "text"
# Usual names of a row's video.
_VIDEOS = ("video_id", "image_id", "videoID", "video_name", "video", "vid", "clip_id")

#: A text that looks like a list of texts.
LIST = re.compile(r"""\s*\[\s*['"].*\]\s*""", re.DOTALL)
# Strings side by side, as NumPy writes a list; Python would join them.
_SIDE_BY_SIDE = re.compile(r"""['"]\s+['"]""")


_SHOWN = 5  # names in a message


class RowError(Exception):
    """A row that cannot be used. The message begins with the place, and may end with a remedy."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message + remedy)
        self.remedy = remedy


def quoted(names: Iterable[object]) -> str:
    """List at most five names in quotes, or say that there are none."""
    every = list(names)
    shown = ", ".join(repr(name) for name in every[:_SHOWN]) or "nothing"
    return f"{shown} and {len(every) - _SHOWN} more" if len(every) > _SHOWN else shown


def with_paths(row: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return a row with the values of paths such as `choices.0.message.content` as columns.

    Keys that are columns, and paths that lead nowhere, change nothing. Below null all is null.
    """
    values = {}
    for key in keys:
        if key not in row and "." in key:
            value: Any = row
            try:
                for part in key.split("."):
                    value = None if value is None else _item(value, part)
            except (LookupError, ValueError, TypeError):
                continue
            values[key] = value
    return {**row, **values} if values else row


def _item(value: Any, part: str) -> Any:
    return value[part if isinstance(value, dict) else int(part)]


def video_of(row: Mapping[str, Any]) -> str:
    """Return the usual key of a row's video, or ""."""
    return next((key for key in _VIDEOS if key in row), "")


def listed(value: Any) -> Any:
    """Return the texts of a list that was written as text, by JSON or Python, or the value."""
    if not isinstance(value, str) or not LIST.fullmatch(value):
        return value
    try:
        texts = json.loads(value)
    except (ValueError, RecursionError):
        texts = None if _SIDE_BY_SIDE.search(value) else _literal(value)
    if not isinstance(texts, list) or not all(isinstance(text, str | None) for text in texts):
        return value
    return texts if len(texts) > 1 else texts[0]


def _literal(value: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of "\\d", which is no escape
        try:
            return ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None


def is_missing(value: Any) -> bool:
    """Return whether a cell or an item of a list has no text: null, NaN, or blanks."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or value != value
