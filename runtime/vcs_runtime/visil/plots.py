"""Plots of correlation and selection as PNG files. Drawing needs matplotlib (extra `report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vcs_runtime.util.figures import new_figure, save_figure
from vcs_runtime.visil.correlation import Correlation
from vcs_runtime.visil.selection import Step


def correlation(scores: Sequence[float], correct: Sequence[int], result: Correlation, path: Path) -> Path:
    """Plot answers against scores, with the logistic curve if there is one.

    Parameters
    ----------
    scores
        ViSIL scores in nats.
    correct
        One answer per score, 1 or 0.
    result
        Correlation of both.
    path
        The PNG file to write.

    Returns
    -------
    Path
        `path`.
    """
    figure, [axes] = new_figure(1)
    axes.scatter(scores, correct, alpha=0.5, s=14)
    if result.logit:
        x = np.linspace(min(scores), max(scores), 200)
        axes.plot(x, 1 / (1 + np.exp(-(result.logit.b0 + result.logit.b1 * x))), color="tab:red")
    title = f"r {result.r:.3f}, p {result.p:.4f}, n {result.n}"
    axes.set(xlabel="ViSIL (nats)", ylabel="correct", title=title)
    return save_figure(figure, path)


def trade_off(
    candidates: Mapping[str, Sequence[tuple[str, float, float]]], chosen: Sequence[Sequence[Step]], path: Path
) -> Path:
    """Plot scores against tokens, one colour per name, with the mean choice as alpha grows.

    Parameters
    ----------
    candidates
        Summaries of each video: `(name, score, tokens)`.
    chosen
        The frontier of each video, in the same order.
    path
        The PNG file to write.

    Returns
    -------
    Path
        `path`.
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
