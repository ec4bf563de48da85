"""Plots of `visil report` as PNG files. Drawing needs matplotlib (extra `report`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vcs_runtime.util.figures import new_figure, save_figure


def by_format(
    scores: Mapping[str, Sequence[Mapping[str, Any]]], rows: Sequence[Mapping[str, Any]], path: Path
) -> Path:
    """Plot the scores by format, and the known accuracy of answers (`formats.by_format`)."""
    values: dict[str, list[float]] = {row["format"]: [] for row in rows if "visil" in row}
    for parts in scores.values():
        for part in parts:
            values[part.get("format") or part["name"]].append(part["visil"])
    answered = [row for row in rows if "accuracy" in row]
    figure, panels = new_figure(2 if answered else 1)
    panels[0].boxplot(list(values.values()), showfliers=False, positions=range(len(values)))
    draw = np.random.default_rng(0)  # the points of a format stand side by side
    for i, listed in enumerate(values.values()):
        panels[0].scatter(i + draw.uniform(-0.15, 0.15, len(listed)), listed, alpha=0.4, s=12)
    panels[0].set_xticks(range(len(values)), list(values))
    panels[0].set(ylabel="ViSIL (nats)")
    if answered:
        _draw_accuracy(panels[1], answered)
    return save_figure(figure, path)


def _draw_accuracy(axes: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the accuracy of each format with its interval."""
    accuracies = [row["accuracy"] for row in rows]
    ends = np.array([[one["low"], one["share"], one["high"]] for one in accuracies])
    low, share, high = ends.T
    axes.bar(range(len(rows)), share, yerr=[share - low, high - share], capsize=4)
    axes.set_xticks(range(len(rows)), [row["format"] for row in rows])
    axes.set(ylabel="accuracy", ylim=(0, 1))


def frontier_accuracy(points: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> Path:
    """Plot ViSIL against tokens along the frontier and of baselines (`formats.along_frontier`)."""
    figure, [axes] = new_figure(1)
    chosen = points["chosen"]
    axes.plot(
        [p["tokens"] for p in chosen],
        [p["visil"] for p in chosen],
        color="black",
        marker=".",
        label="chosen",
    )
    baselines = points["baselines"]
    for point in baselines:
        axes.scatter(point["tokens"], point["visil"], label=point["name"])
    for point in [*chosen, *baselines]:
        if point["accuracy"] is not None:
            place = (point["tokens"], point["visil"])
            axes.annotate(
                f"{100 * point['accuracy']:.0f} %", place, textcoords="offset points", xytext=(4, 4)
            )
    if all(point["tokens"] > 0 for point in [*chosen, *baselines]):
        axes.set_xscale("log")  # a video has a hundred times the tokens of a text
    axes.set(xlabel="tokens", ylabel="ViSIL (nats)")
    axes.legend()
    return save_figure(figure, path)


def drops(rows: Sequence[Mapping[str, Any]], path: Path) -> Path:
    """Plot the drop of the accuracy by confused summaries, by format and kind (`formats.drops`)."""
    figure, [axes] = new_figure(1)
    kinds = sorted({kind for row in rows for kind in row["confused"]})
    width = 0.8 / max(1, len(kinds))
    for i, kind in enumerate(kinds):
        heights = [-(row["confused"].get(kind, {}).get("drop") or 0.0) for row in rows]
        axes.bar(
            [place + i * width for place in range(len(rows))],
            heights,
            width,
            label=f"confused {kind}",
        )
    axes.set_xticks(
        [place + width * (len(kinds) - 1) / 2 for place in range(len(rows))],
        [row["format"] for row in rows],
    )
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set(ylabel="change of accuracy")
    if kinds:
        axes.legend()
    return save_figure(figure, path)
