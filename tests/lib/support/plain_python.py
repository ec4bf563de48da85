"""The same lines of Python with Numba's compiler, and without it."""

from __future__ import annotations

import os
from pathlib import Path

from support.processes import run_python

ROOT = Path(__file__).parents[3]


def printed_with_and_without_numba(script: str) -> tuple[str, str]:
    """What a script prints with compiled kernels, and with the same kernels in plain Python."""
    compiled, plain = (
        run_python(
            "-c", script, env=os.environ | {"NUMBA_DISABLE_JIT": off}, cwd=ROOT, check=True
        ).stdout
        for off in ("0", "1")
    )
    return compiled, plain
