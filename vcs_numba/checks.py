"""Input checks. Every refusal is a ValueError that names the argument."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

FLOAT64: Final = np.dtype(np.float64)
FLOAT32: Final = np.dtype(np.float32)

#: A cosine of two float32 unit vectors may exceed 1 by rounding; a percentage or a logit is a mistake.
GAS_LIMIT: Final = 1.0 + 1e-3


def as_float_array(values: Any, name: str, ndim: int) -> npt.NDArray[Any]:
    """Return `values` as an array of native float32 or float64 with `ndim` axes; other types are copied.

    Raises ValueError that starts with `name`, also for an empty axis.
    """
    try:
        array = np.asarray(values)
    except Exception as error:
        raise ValueError(f"{name}: not an array: {error}") from error
    if array.dtype != FLOAT64 and array.dtype != FLOAT32:
        if array.dtype.kind == "f":
            # float16 fits float32 exactly; long double and foreign byte orders become float64.
            array = array.astype(FLOAT32 if array.dtype.itemsize <= 4 else FLOAT64)
        elif array.dtype.kind in "iu":
            array = array.astype(FLOAT64)
        else:
            raise ValueError(f"{name}: expected float32 or float64 values, not {array.dtype}")
    if array.ndim != ndim:
        raise ValueError(f"{name}: expected {ndim} axes, not {array.ndim} (shape {array.shape})")
    if 0 in array.shape:
        raise ValueError(f"{name}: an axis is empty (shape {array.shape})")
    return array


def checked_gas(gas: Any, name: str = "gas") -> float:
    """Return `gas` as a float in [-1, 1]; a small excess by rounding is accepted."""
    if isinstance(gas, (bool, np.bool_)):
        raise ValueError(f"{name}: expected a number, not {gas!r}")
    try:
        finite = math.isfinite(gas)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: expected a number, not {gas!r}") from error
    if not finite:
        raise ValueError(f"{name}: must be finite, not {gas!r}")
    value = float(gas)
    if not -GAS_LIMIT <= value <= GAS_LIMIT:
        raise ValueError(f"{name}: a cosine lies between -1 and 1, not {value!r}")
    return value


def not_finite_error(name: str) -> ValueError:
    """Return the error for a matrix in which a kernel found NaN or infinity."""
    return ValueError(f"{name}: holds NaN or infinity")


def overflow_error(name: str) -> ValueError:
    """Return the error for finite values so large that a sum or product of them is infinite."""
    return ValueError(f"{name}: values too large for a similarity: the scores overflow")
