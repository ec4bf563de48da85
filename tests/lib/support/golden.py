"""Recorded answers of original code, in `VCS_RUNTIME_GOLDEN` (see `tests/parity/README.md`)."""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(os.environ.get("VCS_RUNTIME_GOLDEN") or "golden-folder-not-named")
