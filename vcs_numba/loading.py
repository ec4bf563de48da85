"""Loading ahead what the first score needs, while other things are done."""

from __future__ import annotations

from vcs_numba.batch import _SCORE_GATHERED
from vcs_numba.embeddings import _DOT_PRODUCTS
from vcs_numba.jit.kernel import load_in_background


def load_ahead() -> None:
    """Begin to import Numba and to read the kernels of usual pairs from the cache, in another thread.

    A first score waits for that thread, if need be, and compiles what the cache does not hold.
    """
    load_in_background((_DOT_PRODUCTS, _SCORE_GATHERED["d"]))
