"""Plots of correlation and selection, as PNG files without dates: the same bytes again (extra `report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vcs_runtime.util.figures import new_figure, save_figure
from vcs_runtime.visil.correlation import Correlation
from vcs_runtime.visil.selection import Step


def correlation(scores: Sequence[float], correct: Sequence[int], found: Correlation, path: Path) -> Path:
    """A point an answer, and the logistic curve where there is one."""
    figure, [axes] = new_figure(1)
    axes.scatter(scores, correct, alpha=0.5, s=14)
    if found.logit:
        x = np.linspace(min(scores), max(scores), 200)
        axes.plot(x, 1 / (1 + np.exp(-(found.logit.b0 + found.logit.b1 * x))), color="tab:red")
    axes.set(xlabel="ViSIL (nats)", ylabel="correct", title=f"r {found.r:.3f}, p {found.p:.4f}, n {found.n}")
    return save_figure(figure, path)


def trade_off(
    candidates: Mapping[str, Sequence[tuple[str, float, float]]], chosen: Sequence[Sequence[Step]], path: Path
) -> Path:
    """A point a summary, by its name's colour; and the means of the choices as alpha grows.

    candidates  the summaries of each video;  chosen  the frontier of each video, in the same order
    """
    figure, [axes] = new_figure(1)
    names = dict.fromkeys(name for listed in candidates.values() for name, _, _ in listed)
    for name in names:
        points = [(t, s) for listed in candidates.values() for n, s, t in listed if n == name]
        axes.scatter(*zip(*points, strict=True), alpha=0.5, s=14, label=name)
    alphas = sorted({step.alpha for steps in chosen for step in steps})
    means = []
    for alpha in alphas:
        taken = [max((s for s in steps if s.alpha <= alpha), key=lambda s: s.alpha) for steps in chosen]
        means.append((np.mean([s.tokens for s in taken]), np.mean([s.score for s in taken])))
    axes.plot(*zip(*means, strict=True), color="black", marker=".", label="chosen, means over videos")
    axes.set(xlabel="tokens", ylabel="ViSIL (nats)")
    axes.legend()
    return save_figure(figure, path)
