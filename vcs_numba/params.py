"""The parameters of the metric, one frozen value (docs/reference/vcs.md, 4, 6 to 9, 11)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from vcs_numba.checks import check_number

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
TIMED: Final = 8  # whether windows are by time, which depends on the pair, so `Params` says no


@dataclass(frozen=True)
class Params:
    """The parameters of the metric, with the reference package's defaults (docs/reference/vcs.md).

    Parameters
    ----------
    lct
        Local chronology tolerance, at least 0, in heights of a mapping window (sections 6 and 7).
    context_cutoff
        Similarity in [0, 1] below which a best match has no context band (section 4).
    context_window
        Divisor of the context band, above 0: the larger, the narrower the band (section 4).
    lct_penalty
        "full" charges the whole offset of a match beyond the tolerance, "excess" only the part that
        exceeds the tolerance (section 6).
    small_text
        Scores where the reference package divides by zero: "paper" for what the paper's text says,
        "reference" for the numbers of the package (section 9).
    regularizer
        "window" (reference package 1.0.0) or "length" (the authors' unreleased version; section 8).
    nas_blend_factor
        Blend of the length regulariser's two penalties, in [-1, 1]; "length" only.
    nas_coverage_cutoff
        Coverage in [0, 1] at which the length regulariser's window penalty is 1; "length" only.

    Raises
    ------
    ValueError
        A value is out of range, NaN, infinite, a bool or not a number. The message names the field.
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
        check_number(self, "lct", low=0.0)
        check_number(self, "context_cutoff", low=0.0, high=1.0)
        check_number(self, "context_window", low=0.0, low_is_open=True)
        check_number(self, "nas_blend_factor", low=-1.0, high=1.0)
        check_number(self, "nas_coverage_cutoff", low=0.0, high=1.0)
        self._check_choice("lct_penalty", ("full", "excess"))
        self._check_choice("small_text", ("paper", "reference"))
        self._check_choice("regularizer", ("window", "length"))

    def _check_choice(self, name: str, choices: tuple[str, ...]) -> None:
        value: Any = getattr(self, name)
        if not isinstance(value, str) or value not in choices:
            allowed = " or ".join(repr(choice) for choice in choices)
            raise ValueError(f"{name} must be {allowed}, not {value!r}")

    def __getstate__(self) -> dict[str, Any]:
        # Without `packed`: an array from shared memory would arrive read-only, and the kernels
        # refuse that.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def packed(self) -> npt.NDArray[np.float64]:
        """The parameters for the kernels: float64 (9,), computed once for each `Params`."""
        values = np.zeros(9)
        values[LCT] = self.lct
        values[CONTEXT_CUTOFF] = self.context_cutoff
        values[CONTEXT_WINDOW] = self.context_window
        values[EXCESS_PENALTY] = self.lct_penalty == "excess"
        values[REFERENCE_SMALL_TEXT] = self.small_text == "reference"
        values[LENGTH_REGULARIZER] = self.regularizer == "length"
        values[NAS_BLEND_FACTOR] = self.nas_blend_factor
        values[NAS_COVERAGE_CUTOFF] = self.nas_coverage_cutoff
        return values


DEFAULT_PARAMS: Final = Params()


def checked_params(params: object) -> Params:
    """Return `params`; ValueError if it is not a `Params`."""
    if not isinstance(params, Params):
        raise ValueError(f"params must be a vcs_numba.Params, not {type(params).__name__}")
    return params
