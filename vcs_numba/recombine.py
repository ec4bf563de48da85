"""`recombine`: the scores that would result from other parts (docs/reference/vcs.md, section 8)."""

from __future__ import annotations

from typing import Final

import numpy as np

from vcs_numba.checks import checked_finite, checked_gas
from vcs_numba.jit.kernel import Kernel, array, types
from vcs_numba.kernels.combine import combine_alignment, combine_global
from vcs_numba.kernels.matching import Floats
from vcs_numba.scores import Scores

#: The scores from which all others are computed.
PARTS: Final = (
    "gas",
    "las_precision",
    "las_recall",
    "nas_d_precision",
    "nas_d_recall",
    "nas_l_precision",
    "nas_l_recall",
    "window_regularizer",
)


def _recombine(out: Floats, gas: float, regularization: float) -> None:
    combine_alignment(out, regularization)
    combine_global(out, gas)


_RECOMBINE: Final = Kernel(_recombine, array(types.float64, 1), types.float64, types.float64)


def recombine(scores: Scores, **parts: float) -> Scores:
    """Replace some parts of `scores` and recompute every score that depends on them.

    Parameters
    ----------
    scores
        The scores of a pair.
    **parts
        New values of some of `PARTS`. Without any the same scores result, bit for bit.

    Returns
    -------
    Scores
        The scores with the new parts.

    Raises
    ------
    ValueError
        A name is not one of `PARTS`, or a value is not finite.
    """
    for name, value in parts.items():
        if name not in PARTS:
            raise ValueError(
                f"there is no part {name} of the scores; the parts are {', '.join(PARTS)}"
            )
        checked_finite(value, name)
    changed = scores._replace(**parts)
    out = np.array(changed, dtype=np.float64)
    _RECOMBINE.call(out, checked_gas(changed.gas), changed.window_regularizer)
    return Scores._make(out.tolist())
