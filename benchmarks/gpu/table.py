"""Writes the tables of docs/benchmarks/gpu.md from what `measure.py` measured, beside what is calculated.

    python benchmarks/gpu/table.py RESULTS.json      # writes the page; RESULTS.json must lie in benchmarks/results
    python benchmarks/gpu/table.py --none            # the page without measured figures

The tables stand between two comments. The first names the file of results, so that a test can compare page and file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from calculated import GRAPHS, text
from weights import size
from work import SHAPES, Row

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks/gpu.md"
_PATTERN = re.compile(r"<!-- figures of (\S+) -->\n.*?<!-- end of figures -->", re.DOTALL)
_PEERS = ("PyTorch unpadded", "PyTorch unpadded and compiled")
NOTHING = "-"


def rewritten(page: str, name: str, content: dict[str, Any] | None) -> str:
    """Return a page with the tables of the results `content`, or of none."""
    block = f"<!-- figures of {name} -->\n{tables(content)}\n<!-- end of figures -->"
    if not _PATTERN.search(page):
        raise ValueError("the page has no place for figures")
    return _PATTERN.sub(lambda _: block, page)


def tables(content: dict[str, Any] | None) -> str:
    """Return the tables: speed, calculated and measured, and whatever else was measured."""
    if content is None:
        return "\n".join([
            "**No figure of a real GPU exists yet.** Calculated for one H200, NV-Embed-v2, by "
            "`benchmarks/gpu/calculated.py`:", "", *_speed([]),
        ])  # fmt: skip
    rows = content["rows"]
    return "\n".join([*_speed(rows), "", "Everything else of the same run:", "", *_others(rows)])


def _speed(rows: list[Row]) -> list[str]:
    """One line for each graph and shape; tokens a second, or milliseconds of one pair."""
    by_name = {(row["section"], row["what"]): row for row in rows}
    peaks = {
        row["what"].split()[-1]: row["TFLOP/s"] for row in rows if row["what"].startswith("matrix product")
    }
    layers = size(False).shallow().decoder.num_hidden_layers
    lines = _table_start("graph", "texts", "measured", "of the matrix rate", *_PEERS, "calculated")
    for layout, precision in GRAPHS:
        for shape in SHAPES:
            shallow = f"{layout}, {precision}, {layers} layers, {shape}"
            row = by_name.get(
                (layout, f"{layout}, {shape}") if precision == "fp16" else ("precisions", shallow)
            )
            peak = peaks.get("fp8" if precision == "fp8" else "fp16")
            share = f"{row['TFLOP/s'] / peak:.0%}" if row and peak else NOTHING
            peers = [_figure(by_name.get(("peers", f"{peer}, {shape}")), shape) for peer in _PEERS]
            if precision != "fp16":
                row = _whole(
                    row,
                    by_name.get(("precisions", f"{layout}, fp16, {layers} layers, {shape}")),
                    by_name.get((layout, f"{layout}, {shape}")),
                    layers,
                )
            cells = (
                f"{layout}, {precision}",
                shape,
                _figure(row, shape),
                share,
                *peers,
                text(layout, precision, shape),
            )
            lines.append(_line(cells))
    return lines


def _whole(row: Row | None, shallow: Row | None, whole: Row | None, layers: int) -> Row | None:
    """Return what the whole model would take, from its first layers and from both depths in fp16.

    The two depths in fp16 give the seconds a token of everything beside the layers, which no precision changes.
    """
    if row is None or shallow is None or whole is None:
        return None
    few, fp16_few, fp16_all = (1 / each["tokens/s"] for each in (row, shallow, whole))
    depth = size(False).decoder.num_hidden_layers
    rest = fp16_few - layers * (fp16_all - fp16_few) / (depth - layers)
    seconds = rest + depth / layers * (few - rest)
    return {"tokens/s": 1 / seconds, "ms": 1e3 * seconds * sum(SHAPES["one pair"])}


def _figure(row: Row | None, shape: str) -> str:
    if row is None:
        return NOTHING
    if "tokens/s" not in row:
        return "failed" if "failed" in row else "not measured"
    return f"{row['ms']:.0f} ms" if shape == "one pair" else f"{row['tokens/s'] / 1e3:.1f}k"


def _others(rows: list[Row]) -> list[str]:
    lines = _table_start("section", "what", "figures")
    for row in rows:
        figures = [
            f"{_number(value)} {key}" if not isinstance(value, str) else f"{key}: {value}"
            for key, value in row.items()
            if key not in ("section", "what", "costliest")
        ]
        lines.append(
            _line((row["section"], row["what"], "; ".join(figures).replace("|", "/").replace("\n", " ")))
        )
    return lines


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table_start(*names: str) -> list[str]:
    return [_line(names), _line(["---"] * len(names)).replace(" ", "")]


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", nargs="?", type=Path, help="file of results, in benchmarks/results")
    parser.add_argument("--none", action="store_true", help="no measured figures")
    parser.add_argument(
        "--page", type=Path, default=PAGE, help="page to write [default: docs/benchmarks/gpu.md]"
    )
    arguments = parser.parse_args()
    if arguments.none == (arguments.results is not None):
        parser.error("either a file of results or --none")
    name, content = "none", None
    if arguments.results:
        name, content = arguments.results.name, json.loads(arguments.results.read_text("utf-8"))
        if content["tiny"]:
            sys.exit(f"{arguments.results} has figures of a small model on a CPU")
    page = arguments.page.read_text("utf-8")
    arguments.page.write_text(rewritten(page, name, content), "utf-8")


if __name__ == "__main__":
    main()
