"""The same lines of Python with Numba's compiler, and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def printed_with_and_without_numba(script: str) -> tuple[str, str]:
    """What a script prints with compiled kernels, and what with the same kernels in plain
    Python."""
    compiled, plain = (
        subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"NUMBA_DISABLE_JIT": off},
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        ).stdout
        for off in ("0", "1")
    )
    return compiled, plain
