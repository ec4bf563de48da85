"""Files of pairs in every format, drawn, and read again by other means than the product's."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import assume
from hypothesis import strategies as st

from attack.drawn import HOSTILE, TEXTS, VALUES, chance, damaged
from support.sheets import write_sheet

SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".xlsx")
Row = dict[str, Any]


class PairFile(NamedTuple):
    """A file of pairs; `whole`: nothing in it is damaged."""

    suffix: str
    content: bytes
    whole: bool


_ODD = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(0, 5) | VALUES,
        "reference": st.lists(TEXTS, max_size=3) | VALUES,
        "generated": VALUES,
    },
)


@st.composite
def rows(draw: st.DrawFn, *, plain: bool) -> list[Row]:
    """Rows of pairs; `plain`: of texts alone, with ids that differ, as any format can hold them."""
    drawn: list[Row] = []
    for number in range(draw(st.sampled_from((1, 1, 2, 3, 5, 8)))):
        name = f"{draw(st.sampled_from(('a', 'b-', 'scene ', '門', '[/x]', '=1+1 ')))}{number}"
        row: Row = {"id": name, "reference": draw(TEXTS), "generated": draw(TEXTS)}
        if not plain and chance(draw, 35):
            row |= draw(_ODD)
            row |= draw(st.dictionaries(HOSTILE, VALUES, max_size=1))
            if chance(draw, 15):
                del row[draw(st.sampled_from(("id", "reference", "generated")))]
        drawn.append(row)
    return drawn


@st.composite
def pair_files(draw: st.DrawFn) -> PairFile:
    """A file of pairs in any format, damaged mostly."""
    suffix = draw(st.sampled_from(SUFFIXES))
    plain = suffix not in (".jsonl", ".ndjson", ".json") or draw(st.booleans())
    content = draw(encoded(draw(rows(plain=plain)), suffix))
    whole = chance(draw, 25)
    return PairFile(suffix, content if whole else draw(damaged(content)), whole)


@st.composite
def encoded(draw: st.DrawFn, drawn: list[Row], suffix: str) -> bytes:
    """Rows in a format; a case ends where that cannot hold them."""
    names = list(dict.fromkeys(name for row in drawn for name in row))
    if suffix in (".jsonl", ".ndjson"):
        ascii_only = draw(st.booleans())
        lines = [json.dumps(row, ensure_ascii=ascii_only) for row in drawn]
        return ("\n".join(lines) + draw(st.sampled_from(("\n", "")))).encode(
            "utf-8", "surrogatepass"
        )
    if suffix == ".json":
        by_id = all(isinstance(row.get("id"), str) for row in drawn) and chance(draw, 30)
        data = (
            {row["id"]: {k: v for k, v in row.items() if k != "id"} for row in drawn}
            if by_id
            else drawn
        )
        return json.dumps(data, indent=draw(st.sampled_from((None, 2)))).encode()
    stream: Any = io.BytesIO()
    try:
        if suffix in (".csv", ".tsv"):
            stream = io.StringIO(newline="")
            separator = "\t" if suffix == ".tsv" else draw(st.sampled_from((",", ";")))
            ending = draw(st.sampled_from(("\n", "\r\n")))
            writer = csv.DictWriter(stream, names, delimiter=separator, lineterminator=ending)
            writer.writeheader()
            writer.writerows(drawn)
            return stream.getvalue().encode("utf-8", "surrogatepass")
        if suffix == ".parquet":
            compression = draw(st.sampled_from(("snappy", "none")))
            pq.write_table(pa.Table.from_pylist(drawn), stream, compression=compression)
        else:
            cells = [[row.get(name, "") for name in names] for row in drawn]
            # XML holds no control characters.
            texts = [str(cell) for cell in (*names, *(cell for line in cells for cell in line))]
            assume(not any(c < " " or c in "\ufffe\uffff" for text in texts for c in text))
            write_sheet(stream, [names, *cells])
    except (ValueError, TypeError):
        assume(False)
    return bytes(stream.getvalue())


def read_again(content: bytes, suffix: str) -> tuple[list[Row] | None, Exception | None]:
    """The rows of a file, by other means; or None, and why there are none."""
    try:
        return _rows(content, suffix), None
    except Exception as error:
        return None, error


def _rows(content: bytes, suffix: str) -> list[Row]:
    if suffix in (".jsonl", ".ndjson"):
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        found = [
            {"place": f"line {number}", **json.loads(line.decode(), object_pairs_hook=_once)}
            for number, line in enumerate(lines, 1)
            if line and not line.isspace()
        ]
    elif suffix == ".json":
        parsed = json.loads(content.decode("utf-8-sig"), object_pairs_hook=_once)
        if isinstance(parsed, dict):
            parsed = [{"id": name, **entry} for name, entry in parsed.items()]
        found = [{"place": f"entry {number}", **row} for number, row in enumerate(parsed, 1)]
    elif suffix == ".parquet":
        table = pq.read_table(io.BytesIO(content), columns=None)
        found = [
            {"place": f"row {number}", **row} for number, row in enumerate(table.to_pylist(), 1)
        ]
    else:
        csv.field_size_limit(1 << 30)
        decoded = content.decode("utf-8-sig")
        header = decoded.splitlines()[0]
        separator = "\t" if suffix == ".tsv" else max(",;", key=header.count)
        reader = csv.DictReader(io.StringIO(decoded, newline=""), delimiter=separator, strict=True)
        found = [{"place": f"line {reader.line_num}", **row} for row in reader]
    for row in found:
        if (
            "reference" not in row
            or "generated" not in row
            or None in row
            or not _is_id(row.get("id"))
        ):
            raise ValueError("no pair")
    names = [str(name_of(row)) for row in found]
    if len(set(names)) < len(names) or not names:
        raise ValueError("ids twice, or nothing")
    return found


def name_of(row: Row) -> Any:
    """The id of a row, or its place."""
    return row["place"] if row.get("id") is None else row["id"]


def _is_id(name: Any) -> bool:
    return name is None or (isinstance(name, str | int) and not isinstance(name, bool))


def _once(items: list[tuple[str, Any]]) -> Row:
    if len(dict(items)) < len(items):
        raise ValueError("a key twice")
    return dict(items)


def read_scores_again(output: Path) -> list[Row]:
    """Read a score file by other means than the product's; numbers of tables become numbers."""
    if output.suffix == ".parquet":
        return list(pq.read_table(output).to_pylist())
    if output.suffix == ".jsonl":
        return [json.loads(line) for line in output.read_bytes().splitlines()]
    csv.field_size_limit(1 << 30)
    with output.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file, delimiter="\t" if output.suffix == ".tsv" else ","))
    return [{**row, "vcs": float(row["vcs"])} if row.get("vcs") else row for row in found]
