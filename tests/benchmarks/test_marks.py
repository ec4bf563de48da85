"""Every table of figures in the manual comes from figures with a date, revision and signature."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

MANUAL = Path(__file__).parents[2] / "docs"
# The only tables of figures that are written by hand: page and first heads, with the reason.
BY_HAND = {
    "benchmarks/parity.md | family | graph for CUDA": "counts that tests/gpu asserts",
    "benchmarks/parity.md | part | original": (
        "differences that the tests of its last column assert"
    ),
    "guide/bundles.md | precision | vectors": (
        "limits, which are chosen between distances that tests/inference/test_proof.py plants"
    ),
    "guide/export.md | figure | limit": "limits, which are chosen",
    "guide/gpu.md | model | shapes": "calculated, as the lines below it say",
    "guide/models.md | judge | memory for weights": "calculated, as its first bullet says",
    "guide/models.md | model | licence": "facts of the models' cards",
    "guide/reading-scores.md | SAS and NAS": "arithmetic of the definition",
    "guide/reading-scores.md | VCS | NAS .4": "arithmetic of the definition",
    "guide/visil.md |  | probability": "a made-up example",
}
KEPT = re.compile(r"<!-- figures .*?<!-- end of figures -->", re.S)
FENCE = re.compile(r"^```.*?^```", re.M | re.S)
TABLE = re.compile(r"^\|.*\n\|[-:| ]+\|\n(?:\|.*\n)+", re.M)
FIGURE = re.compile(r"[*~(]*(?:[-+] ?)?\.?\d")


def tables(page: str) -> Iterator[list[list[str]]]:
    """Cells of the tables that stand outside of marks and code."""
    for found in TABLE.findall(FENCE.sub("", KEPT.sub("", page)) + "\n"):
        yield [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
            for line in found.splitlines()
        ]


def has_figures(table: list[list[str]], share: float) -> bool:
    """Whether more than a share of the cells after the first column begin with a number."""
    cells = [cell for row in table[2:] for cell in row[1:] if cell]
    return sum(bool(FIGURE.match(cell)) for cell in cells) > share * len(cells)


def by_hand() -> list[str]:
    """Tables of figures without marks, by page and the first two heads."""
    # In a guide a table of options may have a number here and there.
    return [
        f"{path.relative_to(MANUAL).as_posix()} | {' | '.join(table[0])}"
        for folder, share in (("benchmarks", 0.0), ("guide", 0.5))
        for path in sorted((MANUAL / folder).glob("*.md"))
        for table in tables(path.read_text("utf-8"))
        if has_figures(table, share)
    ]


def test_every_table_of_figures_is_made_from_kept_figures() -> None:
    found = [table for table in by_hand() if not table.startswith(tuple(BY_HAND))]
    assert found == []


def test_the_tables_by_hand_that_are_named_exist() -> None:
    names = [name for name in BY_HAND if not any(table.startswith(name) for table in by_hand())]
    assert names == []
