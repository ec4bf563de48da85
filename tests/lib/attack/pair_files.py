"""Files of pairs in every format, drawn, and read again by other means than the product's."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attack.damage import STRINGS, text, value
from support.sheets import write_sheet

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".xlsx")
Row = dict[str, Any]


def draw_rows(rng: random.Random, *, plain: bool) -> list[Row]:
    """Rows of pairs; `plain`: of texts alone, with ids that differ, as any format can hold them."""
    rows: list[Row] = []
    for number in range(rng.choice((1, 1, 2, 3, 5, 8))):
        row: Row = {"id": f"{rng.choice(('a', 'b-', 'scene ', '門', '[/x]', '=1+1 '))}{number}"}
        row |= {"reference": text(rng), "generated": text(rng)}
        if not plain:
            if rng.random() < 0.2:
                row["id"] = rng.choice((number, None, value(rng)))
            if rng.random() < 0.2:
                row["reference"] = rng.choice(([text(rng) for _ in range(rng.randrange(4))], value(rng)))
            if rng.random() < 0.1:
                row["generated"] = value(rng)
            if rng.random() < 0.1:
                row[rng.choice(STRINGS)] = value(rng)
            if rng.random() < 0.05:
                del row[rng.choice(("id", "reference", "generated"))]
        rows.append(row)
    return rows


def encode_rows(rng: random.Random, rows: list[Row], suffix: str, folder: Path) -> bytes:
    """Write rows in a format. Raises ValueError or TypeError where it cannot hold them."""
    if suffix in (".jsonl", ".ndjson"):
        ascii_only = rng.random() < 0.5
        lines = [json.dumps(row, ensure_ascii=ascii_only) for row in rows]
        return ("\n".join(lines) + rng.choice(("\n", ""))).encode("utf-8", "surrogatepass")
    if suffix == ".json":
        by_id = rng.random() < 0.3 and all(isinstance(row.get("id"), str) for row in rows)
        found = {row["id"]: {k: v for k, v in row.items() if k != "id"} for row in rows} if by_id else rows
        return json.dumps(found, indent=rng.choice((None, 2))).encode()
    if suffix in (".csv", ".tsv"):
        stream = io.StringIO(newline="")
        separator = "\t" if suffix == ".tsv" else rng.choice((",", ";"))
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(stream, names, delimiter=separator, lineterminator=rng.choice(("\n", "\r\n")))
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue().encode("utf-8", "surrogatepass")
    if suffix == ".parquet":
        stream_ = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), stream_, compression=rng.choice(("snappy", "none")))
        return stream_.getvalue()
    names = list(dict.fromkeys(name for row in rows for name in row))
    path = folder / "sheet.tmp"
    cells = [[row.get(name, "") for name in names] for row in rows]
    for cell in (*names, *(cell for line in cells for cell in line)):
        if not isinstance(cell, str | int | float) or any(c < " " or c in "\ufffe\uffff" for c in str(cell)):
            raise ValueError("XML holds no such text")
    write_sheet(path, [names, *cells])
    content = path.read_bytes()
    path.unlink()
    return content


def read_again(content: bytes, suffix: str) -> list[Row]:
    """The rows of a file, by other means. Raises an exception where there are none."""
    if suffix in (".jsonl", ".ndjson"):
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        rows = [
            {"place": f"line {number}", **json.loads(line.decode(), object_pairs_hook=_once)}
            for number, line in enumerate(lines, 1)
            if line and not line.isspace()
        ]
    elif suffix == ".json":
        found = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once)
        if isinstance(found, dict):
            found = [{"id": name, **entry} for name, entry in found.items()]
        rows = [{"place": f"entry {number}", **row} for number, row in enumerate(found, 1)]
    elif suffix == ".parquet":
        table = pq.read_table(io.BytesIO(content), columns=None)
        rows = [{"place": f"row {number}", **row} for number, row in enumerate(table.to_pylist(), 1)]
    else:
        csv.field_size_limit(1 << 30)
        decoded = content.decode("utf-8-sig")
        header = decoded.splitlines()[0]
        separator = "\t" if suffix == ".tsv" else max(",;", key=header.count)
        reader = csv.DictReader(io.StringIO(decoded, newline=""), delimiter=separator, strict=True)
        rows = [{"place": f"line {reader.line_num}", **row} for row in reader]
    for row in rows:
        if "reference" not in row or "generated" not in row or None in row or not _is_id(row.get("id")):
            raise ValueError("no pair")
    names = [str(name_of(row)) for row in rows]
    if len(set(names)) < len(names) or not names:
        raise ValueError("ids twice, or nothing")
    return rows


def name_of(row: Row) -> Any:
    """The id of a row, or its place."""
    return row["place"] if row.get("id") is None else row["id"]


def _is_id(name: Any) -> bool:
    return name is None or (isinstance(name, str | int) and not isinstance(name, bool))


def _once(items: list[tuple[str, Any]]) -> Row:
    if len(dict(items)) < len(items):
        raise ValueError("a key twice")
    return dict(items)
