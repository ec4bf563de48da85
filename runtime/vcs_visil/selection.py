"""Selection of a summary: information loss against length (equation 5 of the ViSIL paper)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vcs_runtime.util.numbers import is_finite

# Objectives that differ by rounding only are a tie.
_TIE = 1e-12


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the frontier: the choice from this alpha up to the next step's."""

    alpha: float
    name: str
    score: float
    tokens: float


def select_summary(candidates: Iterable[tuple[str, float, float]], alpha: float) -> str:
    """Choose the candidate with the least `score + alpha * tokens`.

    Ties go to the candidate with fewer tokens, then to the first name.

    Parameters
    ----------
    candidates
        `(name, score, tokens)` of each summary: ViSIL score in nats, and length in tokens.
    alpha
        Price of a token in nats, at least 0.

    Returns
    -------
    str
        Name of the chosen summary.

    Raises
    ------
    ValueError
        An argument cannot be used. The message names the argument.
    """
    if not is_finite(alpha) or alpha < 0:
        raise ValueError(f"alpha must be a number of at least 0, not {alpha!r}")
    return _select(_checked(candidates), alpha)[0]


def frontier(candidates: Iterable[tuple[str, float, float]]) -> list[Step]:
    """Return every choice of `select_summary` as alpha grows from 0.

    Parameters
    ----------
    candidates
        `(name, score, tokens)` of each summary, as for `select_summary`.

    Returns
    -------
    list of Step
        One step per choice, with increasing alpha.

    Raises
    ------
    ValueError
        A candidate cannot be used.
    """
    listed = _checked(candidates)
    alpha, chosen = 0.0, _select(listed, 0.0)
    steps = []
    while True:
        steps.append(Step(alpha, *chosen))
        # The alphas at which a shorter summary equals the chosen one; of several, the shortest wins
        # after it.
        crossings = [
            ((score - chosen[1]) / (chosen[2] - tokens), tokens, name, score)
            for name, score, tokens in listed
            if tokens < chosen[2]
        ]
        if not crossings:
            return steps
        nearest = min(crossings)[0]
        level = [c for c in crossings if c[0] <= nearest * (1 + _TIE)]
        _, tokens, name, score = min(level, key=lambda c: (c[1], c[3], c[2]))
        alpha, chosen = nearest, (name, score, tokens)


def _select(candidates: list[tuple[str, float, float]], alpha: float) -> tuple[str, float, float]:
    level = _least(candidates, lambda c: c[1] + alpha * c[2])
    fewest = min(tokens for _, _, tokens in level)
    # Among equal lengths the score alone decides: next to many tokens its difference is lost in
    # rounding.
    level = _least([c for c in candidates if c[2] == fewest], lambda c: c[1])
    return min(level)


def _least(
    candidates: list[tuple[str, float, float]], value: Callable[[tuple[str, float, float]], float]
) -> list[tuple[str, float, float]]:
    """Return the candidates with the least value."""
    least = min(map(value, candidates))
    margin = _TIE * max(1.0, abs(least))
    return [c for c in candidates if value(c) <= least + margin]


def _checked(candidates: Iterable[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    listed = list(candidates)
    if not listed:
        raise ValueError("candidates: the list is empty")
    names = set()
    for name, score, tokens in listed:
        if name in names:
            raise ValueError(f"candidates: {name!r} occurs twice")
        names.add(name)
        if not is_finite(score):
            raise ValueError(f"candidates: the score of {name!r} must be a number, not {score!r}")
        if not is_finite(tokens) or tokens < 0:
            raise ValueError(
                f"candidates: the tokens of {name!r} must be a number of at least 0, not {tokens!r}"
            )
    return listed
