"""Comparisons of systems as tables: for people, as Markdown and LaTeX, and with all digits."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vcs_runtime.comparing.latex import Heading, Number, Row, latex_table
from vcs_runtime.comparing.systems import LEVELS, Comparison, PairedTest, System
from vcs_runtime.scoring.flags import beside_points, reference_points
from vcs_runtime.scoring.score_table import LABELS, SMALLER_IS_BETTER
from vcs_runtime.util.atomic import write_whole
from vcs_runtime.util.printable import cell, counted, printable

Cell = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """A table with all digits, and the name of its file."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    note: str = ""
    # Columns that a narrow terminal leaves out first; then others, from the right.
    drop: tuple[str, ...] = ()

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows as JSON objects; NaN and infinity become null."""
        return [dict(zip(self.columns, map(_finite, row), strict=True)) for row in self.rows]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a CSV file as `csv_text` makes it."""
    write_whole(path, csv_text(columns, rows))


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """Return a table as CSV; floats have all digits, and NaN and infinity become empty cells."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(cell, columns))
    writer.writerows([cell(_finite(value)) for value in row] for row in rows)
    return text.getvalue()


def _finite(cell: Any) -> Cell:
    return None if isinstance(cell, float) and not math.isfinite(cell) else cell


def cell_text(cell: Cell) -> str:
    """Return a cell for people: floats with 3 decimals, NaN and infinity as nothing."""
    if isinstance(cell, float):
        return f"{cell:.3f}" if math.isfinite(cell) else ""
    return "" if cell is None else str(cell).replace("|", "\\|").replace("\n", " ")


@dataclass(frozen=True)
class Grid:
    """A table whose cells are ready to print."""

    headings: list[Heading]
    rows: list[list[str | Number]]

    def flat(self) -> list[str]:
        """Return the headings with those of their groups, if there are several groups."""
        several = len({heading.group for heading in self.headings} - {""}) > 1
        return [f"{group} {text}".strip() if several else text for group, text in self.headings]


def grids(comparison: Comparison, scores: Sequence[str], digits: int) -> list[Grid]:
    """Lay a comparison out for people."""
    lists = [_systems(comparison, scores, digits)]
    if comparison.all_pairs:
        lists.append(_pairs(comparison, scores, digits))
    return lists


def _systems(comparison: Comparison, scores: Sequence[str], digits: int) -> Grid:
    left_out = any(system.counts.failed or system.counts.missing for system in comparison.systems)
    counts = ("failed", "missing", "zeros") if left_out else ("zeros",)
    headings = [Heading("", name) for name in ("system", *counts)]
    for score in scores:
        label = _label(score)
        headings.append(Heading(label, "mean" if len(scores) > 1 else label))
        headings += [Heading(label, text) for text in _TESTED]
    rows: list[list[str | Number]] = []
    for system in comparison.ranked:
        row: list[str | Number] = [printable(system.name)]
        row += [Number(str(getattr(system.counts, name))) for name in counts]
        for score in scores:
            middle, low, high = system.means[score]
            row.append(Number(f"{middle:.{digits}f}", interval=_half(low, high, digits)))
            test = comparison.test_of(system.name, score)
            row += _tested(test, digits) if test else ["baseline", ""]
        rows.append(row)
    return Grid(headings, rows)


def _pairs(comparison: Comparison, scores: Sequence[str], digits: int) -> Grid:
    headings = [Heading("", "system"), Heading("", "against")]
    headings += [Heading(_label(score), text) for score in scores for text in _TESTED]
    rows: dict[tuple[str, str], list[str | Number]] = {}
    for test in comparison.tests:
        if test.score in scores:
            names = (test.system, test.baseline)
            rows.setdefault(names, [*map(printable, names)]).extend(_tested(test, digits))
    return Grid(headings, list(rows.values()))


_TESTED: Final = ("difference", "p")


def _label(score: str) -> str:
    label = LABELS.get(score, score)
    return f"{label} (smaller is better)" if score in SMALLER_IS_BETTER else label


def _tested(test: PairedTest, digits: int) -> list[str | Number]:
    d, p = test.difference, max(test.p_bootstrap, test.p_permutation)
    difference = Number(f"{d.mean:+.{digits}f}", _mark(test), _half(d.low, d.high, digits))
    return [difference, Number("" if math.isnan(p) else f"{p:.4f}")]


def _mark(test: PairedTest) -> str:
    p = max(test.p_bootstrap, test.p_permutation)
    if p < LEVELS[1]:
        return "**"
    return "*" if p < LEVELS[0] else ""


def _half(low: float, high: float, digits: int) -> str:
    return "" if math.isnan(low) else f"±{(high - low) / 2:.{digits}f}"


def describe_correction(correction: str, tests: int) -> str:
    """Say how p-values were corrected, over how many tests."""
    corrected = "corrected by Holm's method over" if correction == "holm" else "not corrected, of"
    return f"{corrected} {tests} test{'s' if tests != 1 else ''}"


def _corrected(comparison: Comparison) -> str:
    """Say how p-values were corrected, after a comma; "" for a single test."""
    c = comparison
    if c.family_size <= 1:
        return ""
    over = "of a score" if c.family == "score" else "of all scores"
    return f", {describe_correction(c.correction, c.family_size)} {over}"


def notes(comparison: Comparison) -> list[str]:
    """Return sentences that explain the numbers of a comparison."""
    c = comparison
    labels = ", ".join(map(_label, c.scores))
    pairs = counted(c.pairs, "pair")
    sentences = []
    if c.reason:
        sentences.append(f"{c.reason} To compare VCS, add --score vcs.")
    sentences.append(
        f"{labels} of {len(c.systems)} systems, over the {pairs} that all systems scored."
    )
    if c.left_out:
        sentences.append(
            f"Left out, because a system has no score for them: {len(c.left_out)} more."
        )
    others = ", in the second table from the other system" if c.all_pairs else ""
    sentences += [
        f"Differences are from {printable(c.baseline)}{others}; ± is half of a 95 % bootstrap"
        " interval.",
        f"p is the larger p-value of a paired bootstrap and a permutation test, {c.resamples}"
        f" resamples each{_corrected(c)}.",
    ]
    sentences += _too_few(c)
    sentences += _points(c)
    sentences.append(f"* p < {LEVELS[0]:g}, ** p < {LEVELS[1]:g}.")
    return [*sentences, *c.about_segmenters]


def _too_few(comparison: Comparison) -> list[str]:
    """Return sentences about resamples or pairs that are too few for a significant difference."""
    c = comparison
    family = c.family_size if c.correction == "holm" else 1
    sentences = []
    smallest = 2 / (c.resamples + 1) * family
    if smallest >= LEVELS[0]:
        sentences.append(f"No p can be below {smallest:.2g}: raise --resamples.")
    if 2 / 2**c.pairs * family >= LEVELS[0]:  # all differences of one sign
        sentences.append(f"With {counted(c.pairs, 'pair')} no difference can be significant.")
    return sentences


def _points(comparison: Comparison) -> list[str]:
    """Return sentences that put the means beside those of known texts."""
    c = comparison
    lines = {system.signature for system in c.systems}
    sentences = []
    if len(lines) == 1 and "margin" in c.scores:
        sentences.append(reference_points(*lines))
    for score in c.scores:
        means = {printable(system.name): system.means[score].mean for system in c.ranked}
        sentences.append(beside_points(means, score, lines))
    return [sentence for sentence in sentences if sentence]


def markdown(comparison: Comparison) -> str:
    """Return a comparison as Markdown tables, with what they show."""
    parts = []
    for grid in grids(comparison, comparison.scores, digits=3):
        rule = f"| --- {'| ---: ' * (len(grid.headings) - 1)}|"
        parts.append("\n".join([_markdown_row(grid.flat()), rule, *map(_markdown_row, grid.rows)]))
    parts.append(_escape_markdown(" ".join(notes(comparison))))
    parts += [f"`{line}`" for line in signatures(comparison)]
    return "\n\n".join(parts) + "\n"


def _markdown_row(cells: Iterable[str | Number]) -> str:
    return f"| {' | '.join(_escape_markdown(str(cell)) for cell in cells)} |"


def _escape_markdown(text: str) -> str:
    return re.sub(r"[\\`*\[\]<>|]|\b_|_\b", r"\\\g<0>", text)


def latex(comparison: Comparison, intervals: bool = False) -> str:
    """Return a comparison as a LaTeX table with one column per score.

    With `intervals`, means have theirs. If all pairs of systems were tested, a second table
    follows.
    """
    c = comparison
    label = "-".join(c.scores)
    stars = (
        f"(* p < {LEVELS[0]:g}, ** p < {LEVELS[1]:g}; the larger p of a paired bootstrap and a"
        f" permutation test{_corrected(c)})"
    )
    arrow = ""
    headings = [Heading("", "system"), Heading("", "zeros")]
    for score in c.scores:
        text = LABELS.get(score, score)
        if score in SMALLER_IS_BETTER:
            text += " \u2193"
            arrow = "\u2193: smaller is better. "
        headings.append(Heading("", text))
    spread = ", \u00b1 half of a 95 % bootstrap interval" if intervals and c.pairs > 1 else ""
    caption = (
        f"Means over {counted(c.pairs, 'pair')}{spread}; zeros: pairs with a VCS of 0. {arrow}The"
        f" best mean is bold. Stars: the difference from {printable(c.baseline)} is significant"
        f" {stars}. {_short(c)}"
    )
    comments = [*notes(c), *signatures(c)]
    means = latex_table(
        headings, _means(c, intervals), caption=caption, label=label, comments=comments
    )
    if not c.all_pairs:
        return means
    grid = _pairs(c, c.scores, 3)
    wide = len(c.scores) > 1
    headings = grid.headings
    if not wide:  # one score, which is no group
        headings = [Heading("", text) for _, text in headings]
    caption = (
        f"Differences of all pairs of systems, \u00b1 half of a 95 % bootstrap interval {stars}."
    )
    tests = latex_table(headings, grid.rows, caption=caption, label=f"{label}-pairs", wide=wide)
    return f"{means}\n{tests}"


def _means(comparison: Comparison, intervals: bool) -> list[Row]:
    """Return a row for each system: its zeros and its means, with the best means in bold."""
    c = comparison
    best = {score: max(_better(system, score) for system in c.systems) for score in c.scores}
    rows: list[Row] = []
    for system in c.ranked:
        row: list[str | Number] = [printable(system.name), Number(str(system.counts.zeros))]
        for score in c.scores:
            test = c.test_of(system.name, score)
            mark = _mark(test) if test else ""
            is_best = _better(system, score) == best[score]
            mean, low, high = system.means[score]
            half = _half(low, high, 3) if intervals else ""
            row.append(Number(f"{mean:.3f}", mark, half, is_best))
        rows.append(row)
    return rows


def _better(system: System, score: str) -> float:
    """Return the mean of a score, negated if smaller is better."""
    mean = system.means[score].mean
    return -mean if score in SMALLER_IS_BETTER else mean


def _short(comparison: Comparison) -> str:
    lines = {system.signature for system in comparison.systems}
    return f"Signature: {short_signature(*lines)}." if len(lines) == 1 else ""


def short_signature(signature: str) -> str:
    """Return the fields of a signature that a caption needs; comments hold all of them."""
    names = ("vcs", "chunk", "lct", "emb", "v")
    fields = signature.split("|")
    return "|".join(field for field in fields if field.split(":")[0] in names)


def tables(comparison: Comparison) -> list[Table]:
    """Return a comparison with all digits, as a table with one row per system.

    If all pairs of systems were tested, a second table has one row per test.
    """
    c = comparison
    note = " ".join(notes(c))
    correction = c.correction
    if c.correction == "holm" and c.family == "all":
        correction += " (all scores)"
    columns = ["system", "failed", "missing", "zeros"]
    for score in c.scores:
        prefix = f"{score} " if len(c.scores) > 1 else ""
        columns.append(score)
        columns += [f"{prefix}{name}" for name in ("low", "high", *_COLUMNS)]
    rows: list[tuple[Cell, ...]] = []
    for system in c.systems:
        row: list[Cell] = [system.name, *system.counts]
        for score in c.scores:
            row += system.means[score]
            row += test_cells(c.test_of(system.name, score))
        rows.append((*row, correction))
    title = f"Systems against {c.baseline}"
    lists = [Table("comparison", title, (*columns, "correction"), rows, note)]
    if c.all_pairs:
        rows = [(t.score, t.system, t.baseline, *test_cells(t), correction) for t in c.tests]
        headings = ("score", "system", "against", *_COLUMNS, "correction")
        lists.append(Table("tests", "All pairs of systems", headings, rows, note))
    return lists


_COLUMNS: Final = (
    "difference",
    "difference low",
    "difference high",
    "p bootstrap",
    "p permutation",
)


#: The columns of a test between neighbours of a ranking.
NEXT_COLUMNS: Final = ("to the next", "to the next low", "to the next high", *_COLUMNS[3:])


def test_cells(test: PairedTest | None) -> list[Cell]:
    """Return the cells of a test: difference, interval, corrected p-values. None: empty cells."""
    if test is None:
        return [None] * len(_COLUMNS)
    d = test.difference
    return [d.mean, d.low, d.high, test.p_bootstrap, test.p_permutation]


def signatures(comparison: Comparison) -> list[str]:
    """Return the signature of all systems; or a line for each system, if they differ."""
    lines = {printable(system.name): printable(system.signature) for system in comparison.systems}
    distinct = set(lines.values())
    if len(distinct) == 1:
        return [*distinct]
    return [f"{name}: {line}" for name, line in lines.items()]
