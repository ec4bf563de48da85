"""Figures as PNG files without dates: the same data give the same bytes (extra `report`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

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


def save_figure(figure: Any, path: Path) -> Path:
    """Write a figure as PNG, its folder included; returns `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png", dpi=120, metadata={"Software": None})
    return path
