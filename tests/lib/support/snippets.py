"""Examples out of the documentation, so that they are run and cannot rot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def snippet(page: str, title: str) -> Any:
    """The code block with this title on a page, compiled; lines of errors are those of the page."""
    text = (ROOT / page).read_text("utf-8")
    [found] = re.finditer(rf'^```python title="{re.escape(title)}"\n(.*?)^```$', text, re.M | re.S)
    before = text[: found.start(1)].count("\n")
    return compile("\n" * before + found[1], str(ROOT / page), "exec")


def run_snippet(page: str, title: str, **names: Any) -> dict[str, Any]:
    """Run a code block with `names` defined; returns all that is defined afterwards."""
    names["__name__"] = "snippet"
    exec(snippet(page, title), names)
    return names
