"""The parameters of the metric: one frozen, validated value (docs/vcs.md, sections 4, 6, 7, 8, 9, 11)."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

LctPenalty = Literal["full", "excess"]
SmallText = Literal["paper", "reference"]
Regularizer = Literal["window", "length"]

#: Positions in `Params.packed`, the form in which the kernels read the parameters.
LCT: Final = 0
CONTEXT_CUTOFF: Final = 1
CONTEXT_WINDOW: Final = 2
EXCESS_PENALTY: Final = 3
REFERENCE_SMALL_TEXT: Final = 4
LENGTH_REGULARIZER: Final = 5
NAS_BLEND_FACTOR: Final = 6
NAS_COVERAGE_CUTOFF: Final = 7


@dataclass(frozen=True)
class Params:
    """How a pair is scored. Defaults are those of the reference package 1.0.0.

    lct: local chronology tolerance, a float >= 0, in units of a mapping window's height (sections 6, 7).
    context_cutoff: in [0, 1]; below this similarity a best match has no context band (section 4).
    context_window: > 0; the larger, the narrower the band of candidates (section 4).
    lct_penalty: "full" charges the whole offset of a match beyond the tolerance, "excess" only what exceeds
        the tolerance (section 6).
    small_text: what to return where the reference divides by zero: "paper", or "reference" for its numbers
        (section 9).
    regularizer: "window" (1.0.0) or "length" (the authors' unreleased head; section 8).
    nas_blend_factor, nas_coverage_cutoff: of the length regulariser only; in [-1, 1] and [0, 1].

    Raises ValueError that names the field if a value is out of range, NaN, infinite, a bool or no number.
    """

    lct: float = 0.0
    context_cutoff: float = 0.6
    context_window: float = 4.0
    lct_penalty: LctPenalty = "full"
    small_text: SmallText = "paper"
    regularizer: Regularizer = "window"
    nas_blend_factor: float = 0.0
    nas_coverage_cutoff: float = 0.5

    def __post_init__(self) -> None:
        self._keep_number("lct", low=0.0)
        self._keep_number("context_cutoff", low=0.0, high=1.0)
        self._keep_number("context_window", low=0.0, low_is_open=True)
        self._keep_number("nas_blend_factor", low=-1.0, high=1.0)
        self._keep_number("nas_coverage_cutoff", low=0.0, high=1.0)
        self._keep_choice("lct_penalty", ("full", "excess"))
        self._keep_choice("small_text", ("paper", "reference"))
        self._keep_choice("regularizer", ("window", "length"))

    def _keep_number(
        self, name: str, *, low: float, high: float = math.inf, low_is_open: bool = False
    ) -> None:
        given = getattr(self, name)
        if isinstance(given, (bool, np.bool_)) or not isinstance(given, numbers.Real):
            raise ValueError(f"{name} must be a number, not {given!r}")
        try:
            value = float(given)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise ValueError(f"{name} must be finite, not {given!r}")
        if value < low or value > high or (low_is_open and value == low):
            if high < math.inf:
                allowed = f"between {low:g} and {high:g}"
            else:
                allowed = f"greater than {low:g}" if low_is_open else f"at least {low:g}"
            raise ValueError(f"{name} must be {allowed}, not {given!r}")
        # A float always, so that 1, 1.0 and numpy's 1 are equal, hash alike and print alike.
        object.__setattr__(self, name, value)

    def _keep_choice(self, name: str, choices: tuple[str, ...]) -> None:
        given: Any = getattr(self, name)
        if not isinstance(given, str) or given not in choices:
            allowed = " or ".join(repr(choice) for choice in choices)
            raise ValueError(f"{name} must be {allowed}, not {given!r}")

    def __getstate__(self) -> dict[str, Any]:
        # Without `packed`: from a process that shares its memory it would come back read-only, which the
        # kernels do not take.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def packed(self) -> npt.NDArray[np.float64]:
        """The parameters as the kernels read them: (8,) float64, made once for each `Params`."""
        return np.array(
            [
                self.lct,
                self.context_cutoff,
                self.context_window,
                self.lct_penalty == "excess",
                self.small_text == "reference",
                self.regularizer == "length",
                self.nas_blend_factor,
                self.nas_coverage_cutoff,
            ],
            dtype=np.float64,
        )


DEFAULT_PARAMS: Final = Params()


def checked_params(params: object) -> Params:
    """`params`, or ValueError if it is something else."""
    if not isinstance(params, Params):
        raise ValueError(f"params must be a vcs_numba.Params, not {type(params).__name__}")
    return params
