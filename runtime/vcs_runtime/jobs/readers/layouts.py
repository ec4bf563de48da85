"""File formats of other programs: lmms-eval's sample logs and VLMEvalKit's result files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from vcs_runtime.jobs.readers.rows import RowError


def _single(value: Any) -> Any:
    """Return the text of a list of one, as result files of COCO captions have it."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _response(value: Any) -> Any:
    """Return the response of lmms-eval's `generate_until`: a text, in one list or several."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list):
        raise RowError(
            f"there are {len(value)} responses to one question: score logs of tasks that generate"
            " one text"
        )
    return value


@dataclass(frozen=True, slots=True)
class Layout:
    """The keys of a program's files."""

    reference: str = "reference"
    generated: str = "generated"
    id: str = "id"
    read_generated: Callable[[Any], Any] = _single


OWN: Final = Layout()
#: The layouts that have a name.
LAYOUTS: Final = {
    "lmms-eval": Layout("target", "filtered_resps", "doc_id", _response),
    "vlmevalkit": Layout("answer", "prediction", "index"),
}
