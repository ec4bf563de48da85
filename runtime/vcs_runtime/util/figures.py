"""Figures as files without dates: the same data give the same bytes (extra `report`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vcs_runtime.util.atomic import replaced
from vcs_runtime.util.extras import require


def require_matplotlib() -> None:
    """Raise MissingExtraError unless matplotlib is installed."""
    require("matplotlib.figure", "report", "drawing figures")


def new_figure(panels: int, height: float = 4.5) -> tuple[Any, list[Any]]:
    """Return a matplotlib Figure with axes side by side, each 5.5 inches wide, and the axes."""
    # `Figure` itself, not pyplot: no global state, and no display is looked for.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * panels, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, panels)))


#: What a file of each kind would hold of this run.
_UNDATED = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def save_figure(figure: Any, path: Path, dpi: int = 120) -> Path:
    """Write a figure as PNG, SVG or PDF by its suffix, its folder included; returns `path`."""
    import matplotlib

    path.parent.mkdir(parents=True, exist_ok=True)
    suffix = path.suffix.lower() if path.suffix.lower() in _UNDATED else ".png"
    with matplotlib.rc_context({"svg.hashsalt": "vcs-runtime"}), replaced(path) as file:
        figure.savefig(file, format=suffix[1:], dpi=dpi, metadata=_UNDATED[suffix])
    return path
