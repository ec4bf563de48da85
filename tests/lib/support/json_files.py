"""JSON files that tests write and change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_json(path: Path, data: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data), encoding="utf-8")


def change_json(path: Path, **values: Any) -> None:
    """Set fields of the object in a file; `...` leaves one out."""
    data = {**json.loads(path.read_text("utf-8")), **values}
    write_json(path, {key: value for key, value in data.items() if value is not ...})
