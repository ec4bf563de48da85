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
from vcs_visil.selection import frontier, select_summary
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
    answered = _by_format(scores, answers)
    for parts in scores.values():
        for part in parts:
            values.setdefault(_format(part), []).append(part["visil"])
            if part["tokens"] is not None:
                tokens.setdefault(_format(part), []).append(part["tokens"])
    rows = []
    for name in sorted(values.keys() | answered.keys(), key=_order):
        row: dict[str, Any] = {"format": name}
        if name in values:
            quartiles = np.percentile(values[name], (0, 25, 50, 75, 100)).tolist()
            row["visil"] = _spread(values[name])
            row["visil"] |= zip(("min", "q1", "median", "q3", "max"), quartiles, strict=True)
        if name in tokens:
            row["tokens"] = _spread(tokens[name])
        if name in answered:
            row["accuracy"] = share([answer["correct"] for answer in answered[name]])
            for quantity in QUANTITIES:
                numbers = [answer.get(quantity) for answer in answered[name]]
                known = [number for number in numbers if number is not None]
                if known:
                    row[quantity] = _spread(known)
        rows.append(row)
    return rows


def paired(scores: Scores, answers: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare the accuracy of each two formats over the questions that were answered from both.

    Several answers to one question are one mean. The p-values of the paired permutation tests are
    corrected by Holm's method for the number of tests.
    """
    right: dict[str, dict[tuple[str, str], list[int]]] = {}
    for name, listed in _by_format(scores, answers).items():
        for row in listed:
            if isinstance(row.get("question"), str):
                question = str(row["id"]), row["question"]
                right.setdefault(name, {}).setdefault(question, []).append(row["correct"])
    rows: list[dict[str, Any]] = []
    for first, second in combinations(sorted(right, key=_order), 2):
        both = sorted(right[first].keys() & right[second].keys())
        if len(both) < 2:
            continue
        a = np.array([np.mean(right[first][question]) for question in both])
        b = np.array([np.mean(right[second][question]) for question in both])
        difference = paired_difference(b, a)
        rows.append(
            {
                "formats": [first, second],
                "questions": len(both),
                "difference": difference.mean,
                "low": difference.low,
                "high": difference.high,
                "p": difference.p_permutation,
            }
        )
    corrected = holm(np.array([row["p"] for row in rows]))
    for row, p in zip(rows, corrected, strict=True):
        row["p_holm"] = float(p)
    return rows


def candidates_of(scores: Scores) -> dict[str, list[tuple[str, float, float]]]:
    """Return name, score and tokens of the summaries of each video.

    The full video is a candidate only where there is nothing else. Raises ValueError if the tokens
    of a candidate are unknown.
    """
    candidates = {}
    for name, parts in scores.items():
        summaries = [part for part in parts if part.get("format") != VIDEO] or parts
        _require_tokens(name, summaries)
        candidates[name] = [(part["name"], part["visil"], part["tokens"]) for part in summaries]
    return candidates


def _require_tokens(name: str, parts: Sequence[Mapping[str, Any]]) -> None:
    if any(part["tokens"] is None for part in parts):
        raise ValueError(f"{name}: a summary has no number of tokens: add it to the items")


def along_frontier(
    scores: Scores, answers: Sequence[Mapping[str, Any]] = (), alphas: Sequence[float] = ()
) -> dict[str, list[dict[str, Any]]]:
    """Follow the chosen summaries as a token's price grows, beside each format and a random choice.

    Raises ValueError if tokens are unknown. Without `alphas`, 0 and up to ten at which a choice
    changes.
    """
    for name, parts in scores.items():
        _require_tokens(name, parts)
    candidates = candidates_of(scores)
    points = _Points(scores, answers)
    chosen = []
    for alpha in alphas or _alphas(candidates):
        picked = [[(name, select_summary(listed, alpha))] for name, listed in candidates.items()]
        chosen.append({"alpha": alpha, **points.mean(picked)})
    # The summaries of each format by video, and all of them for the random choice.
    groups: dict[str, dict[str, list[Key]]] = {}
    for name, parts in scores.items():
        for part in parts:
            groups.setdefault(_format(part), {}).setdefault(name, []).append((name, part["name"]))
        groups.setdefault(RANDOM, {})[name] = [(name, one) for one, _, _ in candidates[name]]
    baselines = []
    for name in sorted(groups, key=_order):
        baselines.append({"name": name, **points.mean(list(groups[name].values()))})
    return {"chosen": chosen, "baselines": baselines}


Key = tuple[str, str]
"""The id of a video and the name of a summary."""


class _Points:
    """Means of tokens, scores and accuracy over videos."""

    def __init__(self, scores: Scores, answers: Sequence[Mapping[str, Any]]) -> None:
        self._parts: dict[Key, Mapping[str, Any]] = {}
        for name, parts in scores.items():
            for part in parts:
                self._parts[name, part["name"]] = part
        self._correct: dict[Key, list[int]] = {}  # 1 or 0 for each answer
        for row in answers:
            key = str(row["id"]), row["name"]
            self._correct.setdefault(key, []).append(int(row["correct"]))

    def mean(self, groups: Sequence[Sequence[Key]]) -> dict[str, Any]:
        """Return the means over videos, each of which has a group of equally likely summaries."""
        tokens, visil = [], []
        correct, count = [], []  # expected numbers of right answers, and of all
        for group in groups:
            tokens.append(statistics.fmean(self._parts[key]["tokens"] for key in group))
            visil.append(statistics.fmean(self._parts[key]["visil"] for key in group))
            answers = [self._correct.get(key, []) for key in group]
            correct.append(statistics.fmean(map(sum, answers)))
            count.append(statistics.fmean(map(len, answers)))
        total = math.fsum(count)
        return {
            "videos": len(groups),
            "tokens": statistics.fmean(tokens),
            "visil": statistics.fmean(visil),
            "accuracy": math.fsum(correct) / total if total else None,
        }


def drops(judged: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Compare judgements of true summaries and of confused ones, by format."""
    groups: dict[str, dict[str, list[int]]] = {}
    for row in judged:
        kind = row.get("confused") or "true"
        groups.setdefault(_format(row), {}).setdefault(str(kind), []).append(int(row["correct"]))
    rows = []
    for name in sorted(groups, key=_order):
        by_kind = groups[name]
        true = share(by_kind.pop("true")) if "true" in by_kind else None
        confused = {}
        for kind, values in sorted(by_kind.items()):
            drop = true["share"] - statistics.fmean(values) if true else None
            confused[kind] = {**share(values), "drop": drop}
        rows.append({"format": name, "true": true, "confused": confused})
    return rows


def share(values: Sequence[int]) -> dict[str, Any]:
    """Return number, correct ones, their share, and its 95 % interval by Wilson."""
    n, correct, z = len(values), sum(values), 1.959963984540054
    p = correct / n
    middle = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = max(0.0, (middle - half) / (1 + z * z / n))
    high = min(1.0, (middle + half) / (1 + z * z / n))
    return {"n": n, "correct": correct, "share": p, "low": low, "high": high}


def _alphas(candidates: Mapping[str, Sequence[tuple[str, float, float]]]) -> list[float]:
    """Return 0 and the prices at which choices change; if too many, evenly spaced ones by rank."""
    changes: set[float] = set()
    for listed in candidates.values():
        changes.update(step.alpha for step in frontier(listed))
    prices = sorted(changes)
    if len(prices) <= _ROWS:
        return prices
    return [prices[round(i * (len(prices) - 1) / (_ROWS - 1))] for i in range(_ROWS)]


def _spread(values: Sequence[float]) -> dict[str, Any]:
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {"n": len(values), "mean": statistics.fmean(values), "sd": sd}


def _by_format(
    scores: Scores, answers: Iterable[Mapping[str, Any]]
) -> dict[str, list[Mapping[str, Any]]]:
    """Return answers by the format of their summary, or of the answer if that has no score."""
    formats = {}
    for name, parts in scores.items():
        for part in parts:
            formats[name, part["name"]] = _format(part)
    grouped: dict[str, list[Mapping[str, Any]]] = {}
    for row in answers:
        name = formats.get((str(row["id"]), row["name"])) or _format(row)
        grouped.setdefault(name, []).append(row)
    return grouped


def _format(row: Mapping[str, Any]) -> str:
    """Return the format of a line. A line of another tool may have only a name."""
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
