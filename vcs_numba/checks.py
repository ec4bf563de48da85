"""Input checks. Every refusal is a ValueError that names the argument."""

from __future__ import annotations

import math
import numbers
from typing import Any, Final

import numpy as np
import numpy.typing as npt

FLOAT64: Final = np.dtype(np.float64)
FLOAT32: Final = np.dtype(np.float32)

#: A cosine of two float32 unit vectors may exceed 1 by rounding; a percentage or a logit is a
#: mistake.
COSINE_LIMIT: Final = 1.0 + 1e-3

#: Status of a scored matrix.
OK: Final = 0
NOT_FINITE: Final = 1
NO_COSINES: Final = 2


def readable(values: Any, name: str) -> npt.NDArray[Any]:
    """Return `values` as an array of any type; raises ValueError, which starts with `name`."""
    try:
        return np.asarray(values)
    except Exception as error:
        raise ValueError(f"{name}: not an array: {error}") from error


def as_float_array(values: Any, name: str, ndim: int) -> npt.NDArray[Any]:
    """Return `values` as a native float32 or float64 array with `ndim` axes.

    Other types are copied.

    Raises ValueError that starts with `name`, also for an empty axis.
    """
    array = readable(values, name)
    if array.dtype != FLOAT64 and array.dtype != FLOAT32:
        if array.dtype.kind == "f":
            # float16 fits float32 exactly; long double and foreign byte orders become float64.
            array = array.astype(FLOAT32 if array.dtype.itemsize <= 4 else FLOAT64)
        elif array.dtype.kind in "iu":
            array = array.astype(FLOAT64)
        else:
            raise ValueError(f"{name} must be float32 or float64, not {array.dtype}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, not {array.ndim} (shape {array.shape})")
    if 0 in array.shape:
        raise ValueError(f"{name}: an axis is empty (shape {array.shape})")
    return array


def checked_times(
    times: Any, n_ref: int, n_gen: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the times of the reference's and the generated segments, float64 (n, 2) each."""
    try:
        pair = dict(zip(("times[0]", "times[1]"), times, strict=True))
    except (TypeError, ValueError):
        raise ValueError(
            "times must be two arrays: of the reference and of the generated text"
        ) from None
    checked = []
    for count, (name, values) in zip((n_ref, n_gen), pair.items(), strict=True):
        array = np.ascontiguousarray(as_float_array(values, name, 2), dtype=FLOAT64)
        if array.shape != (count, 2):
            raise ValueError(f"{name} must have the shape ({count}, 2), not {array.shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: holds NaN or infinity")
        if bad := np.flatnonzero(array[:, 0] >= array[:, 1]).tolist():
            raise ValueError(f"{name}: segment {bad[0]} does not end after it starts")
        if bad := np.flatnonzero(np.diff(array[:, 0]) < 0).tolist():
            raise ValueError(f"{name}: segment {bad[0] + 1} starts before the previous segment")
        checked.append(array)
    return checked[0], checked[1]


def checked_gas(gas: Any, name: str = "gas") -> float:
    """Return `gas` as a float in [-1, 1]; a small excess by rounding is accepted."""
    if isinstance(gas, (bool, np.bool_)):
        raise ValueError(f"{name} must be a number, not {gas!r}")
    try:
        finite = math.isfinite(gas)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a number, not {gas!r}") from error
    if not finite:
        raise ValueError(f"{name} must be finite, not {gas!r}")
    value = float(gas)
    if not -COSINE_LIMIT <= value <= COSINE_LIMIT:
        raise ValueError(f"{name} must be a cosine, between -1 and 1, not {value!r}")
    return value


def checked_finite(value: Any, name: str) -> float:
    """Return a finite number as a float; bools and texts are refused."""
    try:
        finite = not isinstance(value, (str, bytes, bool, np.bool_)) and math.isfinite(value)
    except (TypeError, ValueError, OverflowError):
        finite = False
    if not finite:
        raise ValueError(f"{name} must be a finite number, not {value!r}")
    return float(value)


def check_number(
    record: object, name: str, *, low: float, high: float = math.inf, low_is_open: bool = False
) -> None:
    """Make the field `name` of a frozen dataclass a float.

    Raises ValueError unless it is a number in range.
    """
    original = getattr(record, name)
    if isinstance(original, (bool, np.bool_)) or not isinstance(original, numbers.Real):
        raise ValueError(f"{name} must be a number, not {original!r}")
    try:
        value = float(original)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {original!r}")
    if value < low or value > high or (low_is_open and value == low):
        if high < math.inf:
            allowed = f"between {low:g} and {high:g}"
        else:
            allowed = f"greater than {low:g}" if low_is_open else f"at least {low:g}"
        raise ValueError(f"{name} must be {allowed}, not {original!r}")
    # Always a float, so that 1, 1.0 and NumPy's 1 are equal, hash alike and print alike.
    object.__setattr__(record, name, value)


def matrix_error(status: int, name: str) -> ValueError:
    """Return the error for a matrix that a kernel refuses."""
    if status == NOT_FINITE:
        return ValueError(f"{name}: holds NaN or infinity")
    return ValueError(f"{name} must be cosines, between -1 and 1, but the best matches are not")
