"""Output of commands: tables that can be piped, and that are coloured on a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.flags import (
    FlagCounts,
    describe,
    reference_points,
    scores_to_report,
    what_to_report,
)
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.score_table import ALL, HEADLINE, LABELS, PART, up_to
from vcs_runtime.util.printable import counted, printable

_Columns = dict[int, list[str]]  # the cells of each column, by its place
Seen = Mapping[str, Mapping[str | int, str]]
_GAP: Final = 2  # between columns
_NUMBERS: Final = re.compile(r"(?:[-+]?\d[\d.,]*|-)?")


class _Console(Console):
    """A console that escapes control characters: names and ids may come from anywhere."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **how)

    def on_broken_pipe(self) -> None:
        """Leave it to the command line that the reader has gone."""
        raise BrokenPipeError


def console() -> Console:
    """Return a console on standard output, 160 columns wide unless something limits its width.

    A terminal limits it, or the variable COLUMNS. Names and ids may look like markup, which is
    printed as it is, and may hold control characters, which are escaped.
    """
    out = _Console(highlight=False, soft_wrap=False, markup=False, emoji=False)
    if _limited(out):
        return out
    return _Console(highlight=False, width=160, markup=False, emoji=False)


def prose(out: Console, text: str, style: str | None = None) -> None:
    """Print sentences, broken between words where a terminal or COLUMNS limits the width."""
    out.print(text, style=style, soft_wrap=not _limited(out))


def _limited(out: Console) -> bool:
    return out.is_terminal or os.environ.get("COLUMNS", "").isdigit()


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    drop: Iterable[int] | None = None,
    prose_at: int = -1,
    more: str = "",
    most: int = sys.maxsize,
) -> None:
    """Print a table, without the columns that do not fit.

    Names and numbers are never cut or broken: columns are left out until the table fits. `drop` is
    the order in which they are left out, by default from the right. A line below names them; `more`
    tells the reader where they are ("with --json"). Only headings and the cells of the column
    `prose_at` break, between words. No more than `most` columns are printed, however wide the
    terminal is.
    """
    out = console()
    room = out.width if _limited(out) else sys.maxsize
    columns: _Columns = {}
    for i, heading in enumerate(headings):
        columns[i] = [printable(heading), *(printable(row[i]) for row in rows)]
    least_important = range(len(headings) - 1, 0, -1) if drop is None else drop
    for i in least_important:
        if len(columns) <= most and _used(_widths(columns, prose_at, room)) <= room:
            break
        del columns[i]
    for number, lines in enumerate(_layout(columns, prose_at, room)):
        style = "bold" if number == 0 else None
        for line in lines:
            out.print(line, style=style, soft_wrap=True)
    left_out = [printable(heading) for i, heading in enumerate(headings) if i not in columns]
    if left_out:
        places = []
        if len(columns) < most:
            places.append("in a wider terminal")
        if more:
            places.append(more)
        prose(
            out,
            (f"Not shown here: {', '.join(left_out)}. See them {' or '.join(places)}."),
        )


def _layout(columns: _Columns, prose_at: int, room: int) -> Iterator[list[str]]:
    """Yield the lines of each row of a table, beginning with the headings."""
    widths = _widths(columns, prose_at, room)
    at_right = {i for i in columns if i > 0 and all(map(_NUMBERS.fullmatch, columns[i][1:]))}
    for number in range(len(columns[0])):
        cells = []
        for i, column in columns.items():
            lines = [column[number]]
            if column[number] and (number == 0 or i == prose_at):
                wrapped = Text(column[number]).wrap(console(), widths[i])
                lines = [line.plain.rstrip() for line in wrapped]
            cells.append(lines)
        row = []
        for parts in zip_longest(*cells, fillvalue=""):
            padded = []
            for i, part in zip(columns, parts, strict=True):
                space = " " * (widths[i] - cell_len(part))
                padded.append(space + part if i in at_right else part + space)
            row.append((" " * _GAP).join(padded).rstrip())
        yield row


def _used(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _widths(columns: Mapping[int, Sequence[str]], prose_at: int, room: int) -> dict[int, int]:
    """Return the widths of columns.

    Headings take a second line, and prose is wrapped, only if the room is too small.
    """
    widths: dict[int, int] = {}
    for halves in (False, True):
        widths = {}
        for i, (heading, *cells) in columns.items():
            parts = _halves(heading) if halves else (heading,)
            widths[i] = max(map(cell_len, (*parts, *cells)))
        if prose_at in columns:
            longest_word = max(map(cell_len, " ".join(columns[prose_at]).split()))
            missing = min(room - _used(widths), 0)
            widths[prose_at] = max(longest_word, widths[prose_at] + missing)
        if _used(widths) <= room:
            break
    return widths


def _halves(heading: str) -> tuple[str, str]:
    """Break a heading in two where its longer half is shortest."""
    words = heading.split(" ")
    ways = [(" ".join(words[:k]), " ".join(words[k:])) for k in range(1, len(words) + 1)]
    return min(ways, key=lambda way: max(map(cell_len, way)))


def print_result(result: Result, every: bool = False) -> None:
    """Print the five scores of one pair, or every score, each with its meaning."""
    assert result.scores is not None
    names = up_to(PART if every else HEADLINE, result.also)
    rows = [(name, f"{getattr(result, name):.4f}", ALL[name].meaning) for name in names]
    out = console()
    if reason := describe(result.scores._asdict(), result.n_ref, result.n_gen, result.noted):
        prose(out, f"{reason}\n")
    print_table(("score", "value", "meaning"), rows, prose_at=2, more="with --json")
    out.print(f"\nchunks: {result.n_ref} reference, {result.n_gen} generated", end="")
    if result.n_references > 1:
        out.print(
            f"; reference {result.reference_index + 1} of {result.n_references} counts",
            end="",
        )
    out.print(f"\n{result.signature}", soft_wrap=True)


def print_summary(summary: Summary, every: bool = False) -> None:
    """Print the mean and interval of the five scores, each with its meaning, or of every score."""
    statistics = summary.statistics()
    if every:
        names = [*ALL]
        headings = ["score", "mean", "sd", "95 % interval"]
        digits = 4
    else:
        names = [*up_to(HEADLINE, summary.also)]
        headings = ["score", "mean", "95 % interval", "meaning"]
        digits = 3
        if summary.counts.mostly_zero:
            names = ["margin_strict" if name == "vcs_strict" else name for name in names]
    rows = []
    for name in names:
        if name not in statistics:
            continue
        s = statistics[name]
        interval = "-"
        if summary.counted > 1:
            interval = f"{s.low:.{digits}f} .. {s.high:.{digits}f}"
        row = [name, f"{s.mean:.{digits}f}"]
        if every:
            row += [f"{s.sd:.{digits}f}", interval]
        else:
            row += [interval, ALL[name].meaning]
        rows.append(row)
    print_table(headings, rows, prose_at=-1 if every else 3, more="with --json")
    if summary.failed:
        zeros = " (counted as 0)" if summary.counted > summary.scored else ""
        failed = f"{summary.failed} failed{zeros}"
        console().print(f"\nmeans over {summary.counted} of {summary.total} pairs; {failed}")


def print_systems(summaries: Mapping[str, Summary]) -> None:
    """Print one row of means for each system, the best by the score to report first."""
    columns = ("vcs", "margin", "gas", "las", "nas")
    headings = ("system", *(LABELS[name] for name in columns), "zeros", "failed")
    means = {system: summary.statistics() for system, summary in summaries.items()}
    first = _to_report(summaries)[0]

    def rank(system: str) -> float:
        """Return the sort key of a system: one without scores comes last."""
        return -means[system][first].mean if means[system] else 2.0

    rows = []
    for system in sorted(means, key=rank):
        statistics, summary = means[system], summaries[system]
        scores = [f"{statistics[name].mean:.3f}" if statistics else "-" for name in columns]
        rows.append((system, *scores, str(summary.counts.zeros), str(summary.failed)))
    order = ("nas", "las", "gas", "failed", "zeros", "margin", "vcs")
    drop = [headings.index(LABELS.get(name, name)) for name in order]
    print_table(headings, rows, drop=drop, more="with --json")


def print_end(summaries: Mapping[str, Summary], seen: Seen, following: str) -> None:
    """Print which score to report, what it compares with, the worst pairs, and how all was scored.

    `seen` holds what one can see in the worst pairs, where that is known, by system and id.
    """
    out = console()
    every = [*summaries.values()]
    scored = sum(summary.scored for summary in every)
    signatures = list(dict.fromkeys(summary.signature for summary in every))
    if scored:
        prose(out, "\n" + " ".join(_advice(every, scored)))
    counts = FlagCounts()
    for summary in every:
        counts += summary.counts
    if about_not_split := counts.about_not_split():
        prose(out, about_not_split)
    if scored and len(signatures) == 1:
        points = reference_points(signatures[0])
        if points:
            prose(out, points)
    _print_worst(out, summaries, seen)
    _print_counts(out, every, scored)
    _print_references(out, every)
    for summary in every:
        if len(summary.segmenters) > 1:
            mix = Mix({"": summary.segmenters})
            prose(out, " ".join(mix.sentences({"": summary.signature})))
    out.print("\n".join(signatures), soft_wrap=True)
    if following:
        out.print(f"next: {following}", soft_wrap=True)


def _advice(summaries: Sequence[Summary], scored: int) -> list[str]:
    """Return sentences about pairs with a VCS of 0, and about which score to report."""
    zeros = sum(summary.counts.zeros for summary in summaries)
    sentences = _about_zeros(summaries[0]) if len(summaries) == 1 else []
    which = what_to_report(zeros, scored, bool(zeros and sentences))
    if zeros:  # the first sentence says how many there are
        sentences.insert(1, which)
    else:
        sentences.insert(0, which)
    return sentences


def _print_worst(out: Console, summaries: Mapping[str, Summary], seen: Seen) -> None:
    """Print one line for each of the worst pairs."""
    ranking = worst_first(summaries)
    score = ranking[0]
    for system, summary in summaries.items():
        for line in summary.worst(ranking):
            name = f"{system} {line['id']}" if len(summaries) > 1 else line["id"]
            reason = seen.get(system, {}).get(line["id"])
            if not reason:
                reason = describe(line, line["n_ref"], line["n_gen"], line.get("flags") or ())
            text = f"worst: {printable(name)}, {score} {line[score]:.3f}"
            prose(out, f"{text}: {reason}" if reason else text)


def _print_counts(out: Console, summaries: Sequence[Summary], scored: int) -> None:
    """Print how many pairs were scored, and how fast."""
    failed = sum(summary.failed for summary in summaries)
    resumed = sum(summary.resumed for summary in summaries)
    seconds = sum(summary.seconds for summary in summaries)
    fresh = scored + failed - resumed
    rate = f", {fresh / seconds:.1f} pairs/s" if fresh and seconds else ""
    before = f", {resumed} of them earlier" if resumed else ""
    out.print(f"\n{scored} scored, {failed} failed{before}; {seconds:.1f} s{rate}")


def _print_references(out: Console, summaries: Sequence[Summary]) -> None:
    """Print how many references pairs have and how they count, unless every pair has one."""
    numbers: set[int] = set()
    for summary in summaries:
        numbers.update(summary.references)
    most = max(numbers, default=1)
    if most < 2:
        return
    count = f"{most}" if len(numbers) == 1 else f"{min(numbers)} to {most}"
    mean = any("|refs:mean" in summary.signature for summary in summaries)
    out.print(f"{count} references for a pair; {'their mean' if mean else 'the best'} counts")
    lone = sum(summary.lone_sentences for summary in summaries)
    if lone:
        prose(
            out,
            f"In {counted(lone, 'pair')} the reference that counts is one sentence, but the"
            " generated text has several. If the references are sentences of one text, join them"
            " into one text.",
        )


def _about_zeros(summary: Summary) -> list[str]:
    sentences = summary.counts.sentences()
    if 0 < summary.counts.not_judged < summary.scored:
        sentences.append(
            f"The mean VCS of the others is {summary.statistics(judged=True)['vcs'].mean:.3f}."
        )
    return sentences


def worst_first(summaries: Mapping[str, Summary]) -> tuple[str, ...]:
    """Return the scores that rank pairs: the one to report, then others where it is equal."""
    return tuple(dict.fromkeys((_to_report(summaries)[0], "margin", "vcs", "gas")))


def _to_report(summaries: Mapping[str, Summary]) -> tuple[str, ...]:
    counts = [summary.counts for summary in summaries.values()]
    return scores_to_report(sum(each.zeros for each in counts), sum(each.scored for each in counts))
