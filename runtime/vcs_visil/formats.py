"""Scores, tokens and answers by format of the summaries, and along the frontier."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from vcs_runtime.comparing.statistics import holm, paired_difference
from vcs_visil.jobs.scores import QUANTITIES
from vcs_visil.selection import Step, frontier, select_summary
from vcs_visil.summaries import VIDEO

Scores = Mapping[str, Sequence[Mapping[str, Any]]]
"""Summaries of each video with their scores, as `read_scores` returns them."""
RANDOM = "random"
"""Name of the baseline that takes any summary of a video."""
_ROWS = 11  # of a frontier with many steps


def by_format(scores: Scores, answers: Iterable[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Summarise scores, tokens and answers by format, from few keyframes to the full video."""
    values: dict[str, list[float]] = {}
    tokens: dict[str, list[float]] = {}
    given = _by_format(scores, answers)
    for parts in scores.values():
        for part in parts:
            values.setdefault(_format(part), []).append(part["visil"])
            if part["tokens"] is not None:
                tokens.setdefault(_format(part), []).append(part["tokens"])
    rows = []
    for name in sorted({*values, *given}, key=_order):
        row: dict[str, Any] = {"format": name}
        if name in values:
            low, first, median, third, high = np.percentile(
                values[name], (0, 25, 50, 75, 100)
            ).tolist()
            quartiles = {"min": low, "q1": first, "median": median, "q3": third, "max": high}
            row["visil"] = {**_spread(values[name]), **quartiles}
        if name in tokens:
            row["tokens"] = _spread(tokens[name])
        if name in given:
            row["accuracy"] = share([answer["correct"] for answer in given[name]])
            for quantity in QUANTITIES:
                if listed := [
                    one[quantity] for one in given[name] if one.get(quantity) is not None
                ]:
                    row[quantity] = _spread(listed)
        rows.append(row)
    return rows


def paired(scores: Scores, answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the accuracy of each two formats over the questions that were answered from both.

    Several answers to one question are one mean. The p-values of the paired permutation tests are
    corrected by Holm's method for the number of tests.
    """
    right: dict[str, dict[tuple[str, str], list[int]]] = {}
    for name, given in _by_format(scores, answers).items():
        for row in (row for row in given if isinstance(row.get("question"), str)):
            question = str(row["id"]), row["question"]
            right.setdefault(name, {}).setdefault(question, []).append(row["correct"])
    rows: list[dict[str, Any]] = []
    for first, second in combinations(sorted(right, key=_order), 2):
        both = sorted(right[first].keys() & right[second].keys())
        if len(both) > 1:
            own, other = (
                np.array([np.mean(right[name][key]) for key in both]) for name in (first, second)
            )
            found = paired_difference(other, own)
            rows.append(
                {
                    "formats": [first, second],
                    "questions": len(both),
                    "difference": found.mean,
                    "low": found.low,
                    "high": found.high,
                    "p": found.p_permutation,
                }
            )
    for row, p in zip(rows, holm(np.array([row["p"] for row in rows])), strict=True):
        row["p_holm"] = float(p)
    return rows


def candidates_of(scores: Scores) -> dict[str, list[tuple[str, float, float]]]:
    """Return name, score and tokens of the summaries of each video.

    The full video is no summary: it counts only where there is nothing else.
    """
    summaries = {
        name: [part for part in parts if part.get("format") != VIDEO] or parts
        for name, parts in scores.items()
    }
    _require_tokens(summaries)
    return {
        name: [(part["name"], part["visil"], part["tokens"]) for part in parts]
        for name, parts in summaries.items()
    }


def _require_tokens(scores: Scores) -> None:
    for name, parts in scores.items():
        if any(part["tokens"] is None for part in parts):
            raise ValueError(f"{name}: the tokens of a summary are unknown; add them to the items")


def along_frontier(
    scores: Scores, answers: Sequence[Mapping[str, Any]] = (), alphas: Sequence[float] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Follow the chosen summaries as a token's price grows, beside each format and a random choice.

    Raises ValueError if tokens are unknown. Without `alphas`, 0 and up to ten at which a choice
    changes.
    """
    _require_tokens(scores)
    candidates = candidates_of(scores)
    fronts = [frontier(listed) for listed in candidates.values()]
    right: dict[tuple[str, str], list[int]] = {}
    for row in answers:
        right.setdefault((str(row["id"]), row["name"]), []).append(int(row["correct"]))
    parts_of = {(name, part["name"]): part for name, parts in scores.items() for part in parts}

    def point(groups: Sequence[Sequence[tuple[str, str]]]) -> dict[str, Any]:
        """Return the means over videos, where each takes any one of its group of summaries."""
        means = [
            [statistics.fmean(parts_of[key][field] for key in group) for group in groups]
            for field in ("tokens", "visil")
        ]
        # Expected numbers of correct and of all answers, if each summary of a group is as likely.
        correct = math.fsum(
            statistics.fmean(sum(right.get(key, ())) for key in group) for group in groups
        )
        count = math.fsum(
            statistics.fmean(len(right.get(key, ())) for key in group) for group in groups
        )
        return {
            "videos": len(groups),
            "tokens": statistics.fmean(means[0]),
            "visil": statistics.fmean(means[1]),
            "accuracy": correct / count if count else None,
        }

    chosen = []
    for alpha in alphas or _alphas(fronts):
        picked = [[(name, select_summary(listed, alpha))] for name, listed in candidates.items()]
        chosen.append({"alpha": alpha, **point(picked)})
    groups: dict[str, dict[str, list[tuple[str, str]]]] = {}
    for name, parts in scores.items():
        for part in parts:
            groups.setdefault(_format(part), {}).setdefault(name, []).append((name, part["name"]))
        groups.setdefault(RANDOM, {})[name] = [(name, one) for one, _, _ in candidates[name]]
    baselines = [
        {"name": name, **point([*groups[name].values()])} for name in sorted(groups, key=_order)
    ]
    return {"chosen": chosen, "baselines": baselines}


def drops(judged: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare judgements of true summaries and of confused ones, by format."""
    groups: dict[str, dict[str, list[int]]] = {}
    for row in judged:
        kind = row.get("confused") or "true"
        groups.setdefault(_format(row), {}).setdefault(str(kind), []).append(int(row["correct"]))
    rows = []
    for name in sorted(groups, key=_order):
        true = share(groups[name]["true"]) if "true" in groups[name] else None
        confused = {
            kind: {
                **share(values),
                "drop": true["share"] - statistics.fmean(values) if true else None,
            }
            for kind, values in sorted(groups[name].items())
            if kind != "true"
        }
        rows.append({"format": name, "true": true, "confused": confused})
    return rows


def share(values: Sequence[int]) -> dict[str, Any]:
    """Return number, correct ones, their share, and its 95 % interval by Wilson."""
    n, right, z = len(values), sum(values), 1.959963984540054
    p = right / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    return {"n": n, "correct": right, "share": p, "low": max(0.0, low), "high": min(1.0, high)}


def _alphas(fronts: Iterable[Sequence[Step]]) -> list[float]:
    """Return 0 and the prices at which choices change; of many, some at equal distances by rank."""
    prices = sorted({step.alpha for steps in fronts for step in steps})
    if len(prices) <= _ROWS:
        return prices
    return [prices[round(i * (len(prices) - 1) / (_ROWS - 1))] for i in range(_ROWS)]


def _spread(values: Sequence[float]) -> dict[str, Any]:
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"n": len(values), "mean": statistics.fmean(values), "sd": sd}


def _by_format(
    scores: Scores, answers: Iterable[Mapping[str, Any]]
) -> dict[str, list[Mapping[str, Any]]]:
    """Return answers by the format of their summaries, or by their own without a score."""
    formats = {
        (name, part["name"]): _format(part) for name, parts in scores.items() for part in parts
    }
    given: dict[str, list[Mapping[str, Any]]] = {}
    for row in answers:
        given.setdefault(formats.get((str(row["id"]), row["name"])) or _format(row), []).append(row)
    return given


def _format(row: Mapping[str, Any]) -> str:
    """Return the format of a line; those of other tools may have a name only."""
    return str(row.get("format") or row["name"])


def _order(name: str) -> tuple[int, str]:
    """Order formats from text over images to the video; others follow."""
    known = (
        "text",
        "1-image",
        "1-image only",
        "2-image",
        "2-image only",
        "3-image",
        "3-image only",
        "video",
    )
    return (known.index(name) if name in known else len(known), name)
