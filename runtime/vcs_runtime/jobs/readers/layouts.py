"""File formats of other programs: lmms-eval's sample logs and VLMEvalKit's result files."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vcs_runtime.jobs.readers.rows import RowError


def _as_is(value: Any) -> Any:
    return value


def _target(value: Any) -> Any:
    """Return a target of lmms-eval, which writes a list of references as Python shows it."""
    if isinstance(value, str) and value.startswith("["):
        try:
            texts = ast.literal_eval(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return value
        if isinstance(texts, list) and texts and all(isinstance(text, str) for text in texts):
            return texts if len(texts) > 1 else texts[0]
    return value


def _response(value: Any) -> Any:
    """Return the response of lmms-eval's `generate_until`: a text, in one list or several."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list):
        raise RowError(
            f"{len(value)} responses to one question: score logs of tasks that generate one text"
        )
    return value


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of a program's files."""

    reference: str = "reference"
    generated: str = "generated"
    id: str = "id"
    read_reference: Callable[[Any], Any] = _as_is
    read_generated: Callable[[Any], Any] = _as_is


OWN: Final = Layout()
#: The layouts that have a name.
LAYOUTS: Final = {
    "lmms-eval": Layout("target", "filtered_resps", "doc_id", _target, _response),
    "vlmevalkit": Layout("answer", "prediction", "index"),
}
