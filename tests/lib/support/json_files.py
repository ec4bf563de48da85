"""JSON files that tests change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support.checkpoints.files import write_json


def change_json(path: Path, **values: Any) -> None:
    """Set fields of the object in a file; `...` leaves one out."""
    data = {**json.loads(path.read_text("utf-8")), **values}
    write_json(path, {key: value for key, value in data.items() if value is not ...})
