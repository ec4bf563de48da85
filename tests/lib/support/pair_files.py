"""Files of pairs as users have them: other keys, in every format."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.sheets import write_sheet
from support.stories import story, write_pairs

Row = dict[str, Any]
ROWS = [
    {
        "video": f"v{i}",
        "gt": story(i, 3),
        "pred": f'{story(i + 9, 2)} "Quoted; said", he said.',
        "genre": "film\tx",
    }
    for i in range(4)
]
KEYS = ("--reference-key", "gt", "--generated-key", "pred", "--id-key", "video")


def write_table(path: Path, rows: list[Row], separator: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=separator)
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: list[Row]) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(rows), path)


def write_xlsx(path: Path, rows: list[Row]) -> None:
    pytest.importorskip("python_calamine")
    write_sheet(path, [list(rows[0]), *(list(row.values()) for row in rows)])


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), "utf-8")


WRITERS: dict[str, Callable[[Path, list[Row]], None]] = {
    "a.jsonl": write_pairs,
    "a.json": write_json,
    "by-id.json": lambda path, rows: write_json(path, {row["video"]: row for row in rows}),
    "a.csv": lambda path, rows: write_table(path, rows, ","),
    "semicolons.csv": lambda path, rows: write_table(path, rows, ";"),
    "a.tsv": lambda path, rows: write_table(path, rows, "\t"),
    "a.parquet": write_parquet,
    "a.xlsx": write_xlsx,
}


def texts_by_id(key: str) -> dict[str, str]:
    return {row["video"]: row[key] for row in ROWS}
