"""`recombine`: what the scores would be if some of their parts were others (docs/vcs.md, section 8)."""

from __future__ import annotations

from typing import Final

import numpy as np

from vcs_numba.checks import checked_gas
from vcs_numba.combine import combine_alignment, combine_global
from vcs_numba.jit import Kernel, array, types
from vcs_numba.matching import Floats
from vcs_numba.scores import Scores

#: The scores that the others follow from.
PARTS: Final = (
    "gas", "las_precision", "las_recall", "nas_d_precision", "nas_d_recall", "nas_l_precision",
    "nas_l_recall", "window_regularizer",
)  # fmt: skip


def _recombine(out: Floats, gas: float, regularization: float) -> None:
    combine_alignment(out, regularization)
    combine_global(out, gas)


_RECOMBINE: Final = Kernel(_recombine, array(types.float64, 1), types.float64, types.float64)


def recombine(scores: Scores, **parts: float) -> Scores:
    """`scores` with some of `PARTS` replaced, and all that follows from them computed anew.

    Without `parts` these are the same scores, bit for bit. Raises ValueError for a name that is no part, and
    for a number that is not finite.
    """
    for name, value in parts.items():
        if name not in PARTS:
            raise ValueError(f"{name} is no part of the scores; the parts are {', '.join(PARTS)}")
        if not np.isfinite(value):
            raise ValueError(f"{name} must be finite, not {value!r}")
    changed = scores._replace(**parts)
    out = np.array(changed, dtype=np.float64)
    (_RECOMBINE.call or _RECOMBINE.load())(out, checked_gas(changed.gas), changed.window_regularizer)
    return Scores._make(out.tolist())
