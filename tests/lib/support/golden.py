"""Where recorded answers of the original code are, if they are at hand: the folder
`VCS_RUNTIME_GOLDEN`.

They are third-party checkpoints and tokenizers, so they are no part of the repository;
`tests/parity/README.md` says what is in the folder. The same code is tested on checkpoints of our
own wherever the folder is missing.
"""

from __future__ import annotations

import os
from pathlib import Path

GOLDEN = Path(os.environ.get("VCS_RUNTIME_GOLDEN") or "golden-folder-not-named")
