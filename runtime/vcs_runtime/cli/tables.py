"""What commands print: tables that can be piped and are coloured on a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.flags import describe, reference_points, scores_to_report, what_to_report
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.score_table import ALL, HEADLINE, LABELS, PART, up_to
from vcs_runtime.util.printable import printable

Seen = Mapping[str, Mapping[str | int, str]]
_GAP: Final = 2  # between columns
_NUMBERS: Final = re.compile(r"(?:[-+]?\d[\d.,]*|-)?")


class _Console(Console):
    """A console that escapes what would control the terminal: names and ids come from anywhere."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **how)


def console() -> Console:
    """Return a console on standard output, wide enough for its tables where nothing limits it.

    A terminal limits it, or the variable COLUMNS. Names and ids may look like markup, which is
    printed as it is, and may hold control characters, which are escaped.
    """
    out = _Console(highlight=False, soft_wrap=False, markup=False, emoji=False)
    return out if _limited(out) else _Console(highlight=False, width=160, markup=False, emoji=False)


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
    """Print a table, but no columns that do not fit.

    Names and numbers are never cut or broken: columns are left out until the table fits.

    They are left out in the order of `drop`, by default from the right, and a line below names
    them; `more` says where they are ("with --json"). Only headings and the cells of the column
    `prose_at` break, between words. No more than `most` columns are printed, however wide the
    terminal is.
    """
    out = console()
    room = out.width if _limited(out) else sys.maxsize
    columns = {i: [printable(row[i]) for row in (headings, *rows)] for i in range(len(headings))}
    for i in range(len(headings) - 1, 0, -1) if drop is None else drop:
        if len(columns) <= most and _used(_widths(columns, prose_at, room)) <= room:
            break
        del columns[i]
    widths = _widths(columns, prose_at, room)
    shifted = [i > 0 and all(map(_NUMBERS.fullmatch, own[1:])) for i, own in columns.items()]
    for number in range(1 + len(rows)):
        cells = [
            (
                [line.plain.rstrip() for line in Text(own[number]).wrap(out, widths[i])]
                if own[number] and (i == prose_at or not number)
                else [own[number]]
            )
            for i, own in columns.items()
        ]
        for line in zip_longest(*cells, fillvalue=""):
            parts = []
            for part, width, right in zip(line, widths.values(), shifted, strict=True):
                space = " " * (width - cell_len(part))
                parts.append(space + part if right else part + space)
            shown = (" " * _GAP).join(parts).rstrip()
            out.print(shown, style=None if number else "bold", soft_wrap=True)
    if left_out := [printable(heading) for i, heading in enumerate(headings) if i not in columns]:
        where = ["in a wider terminal"] * (len(columns) < most) + [more] * bool(more)
        prose(out, f"Left out here: {', '.join(left_out)}. See them {' or '.join(where)}.")


def _used(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _widths(columns: Mapping[int, Sequence[str]], prose_at: int, room: int) -> dict[int, int]:
    """Return the widths of columns.

    Headings take a second line, and prose is wrapped, only if the room is too small.
    """
    widths: dict[int, int] = {}
    for halves in (False, True):
        widths = {
            i: max(map(cell_len, [*(_halves(head) if halves else [head]), *cells]))
            for i, (head, *cells) in columns.items()
        }
        if prose_at in columns:
            longest = max(cell_len(word) for cell in columns[prose_at] for word in cell.split())
            widths[prose_at] = max(longest, widths[prose_at] + min(room - _used(widths), 0))
        if _used(widths) <= room:
            break
    return widths


def _halves(heading: str) -> tuple[str, str]:
    words = heading.split(" ")
    ways = ((" ".join(words[:k]), " ".join(words[k:])) for k in range(1, len(words) + 1))
    return min(ways, key=lambda way: max(map(cell_len, way)))


def print_result(result: Result, every: bool = False) -> None:
    """Print the five scores of one pair, or every score, each with its meaning."""
    assert result.scores is not None
    names = up_to(PART if every else HEADLINE, result.also)
    rows = [(name, f"{getattr(result, name):.4f}", ALL[name].meaning) for name in names]
    out = console()
    if reason := describe(result.scores._asdict(), result.n_ref, result.n_gen):
        prose(out, f"{reason}\n")
    print_table(("score", "value", "what it says"), rows, prose_at=2, more="with --json")
    out.print(f"\n{result.n_ref} reference chunks, {result.n_gen} generated chunks", end="")
    if result.n_references > 1:
        out.print(f"; reference {result.reference_index + 1} of {result.n_references} won", end="")
    out.print(f"\n{result.signature}", soft_wrap=True)


def print_summary(summary: Summary, every: bool = False) -> None:
    """Print the mean and interval of the five scores, each with its meaning, or of every score."""
    statistics, digits = summary.statistics(), 4 if every else 3
    headings = ["score", "mean", *["sd"] * every, "95 % interval", *["what it says"] * (not every)]
    other = {"vcs_strict": "margin_strict"} if summary.counts.mostly_zero else {}
    rows, names = (
        [],
        ALL if every else [other.get(name, name) for name in up_to(HEADLINE, summary.also)],
    )
    for name in filter(statistics.__contains__, names):
        s = statistics[name]
        mean, sd, low, high = (f"{value:.{digits}f}" for value in (s.mean, s.sd, s.low, s.high))
        more = [sd, f"{low} .. {high}"] if every else [f"{low} .. {high}", ALL[name].meaning]
        rows.append((name, mean, *more))
    print_table(headings, rows, prose_at=-1 if every else 3, more="with --json")
    if summary.failed:
        zeros = " (as 0)" if summary.counted > summary.scored else ""
        failed = f"{summary.failed} failed{zeros}"
        console().print(f"\nmeans over {summary.counted} of {summary.total} pairs; {failed}")


def print_systems(summaries: Mapping[str, Summary]) -> None:
    """Print one row of means for each system, the best by the score to report first."""
    columns = ("vcs", "margin", "gas", "las", "nas")
    headings, rows = ("system", *(LABELS[name] for name in columns), "zeros", "failed"), []
    first = _to_report(summaries)[0]
    means = {system: summary.statistics() for system, summary in summaries.items()}
    for system in sorted(means, key=lambda name: -means[name][first].mean if means[name] else 2):
        own, summary = means[system], summaries[system]
        scores = [f"{own[name].mean:.3f}" if own else "-" for name in columns]
        rows.append((system, *scores, str(summary.counts.zeros), str(summary.failed)))
    print_table(headings, rows, drop=(5, 4, 3, 7, 6, 2, 1), more="with --json")


def print_end(summaries: Mapping[str, Summary], seen: Seen, following: str) -> None:
    """Print which score to report, what it compares with, the worst pairs, and how all was scored.

    `seen` holds what one can see in the worst pairs, where that is known, by system and id.
    """
    out, every = console(), list(summaries.values())
    if scored := sum(summary.scored for summary in every):
        zeros = sum(summary.counts.zeros for summary in every)
        sentences = _about_zeros(every[0]) if len(every) == 1 else []
        sentences.insert(bool(zeros), what_to_report(zeros, scored, bool(zeros and sentences)))
        prose(out, "\n" + " ".join(sentences))
    signatures = list(dict.fromkeys(summary.signature for summary in every))
    if scored and len(signatures) == 1 and (points := reference_points(signatures[0])):
        prose(out, points)
    ranking = worst_first(summaries)
    for system, summary in summaries.items():
        for line in summary.worst(ranking):
            name = f"{system} {line['id']}" if len(every) > 1 else line["id"]
            why = seen.get(system, {}).get(line["id"]) or describe(
                line, line["n_ref"], line["n_gen"]
            )
            prose(
                out,
                f"worst: {printable(name)}, {ranking[0]}"
                f" {line[ranking[0]]:.3f}{why and f': {why}'}",
            )
    failed, resumed = (sum(getattr(each, name) for each in every) for name in ("failed", "resumed"))
    seconds = sum(each.seconds for each in every)
    fresh = scored + failed - resumed
    rate = f", {fresh / seconds:.1f} pairs/s" if fresh and seconds else ""
    before = f", {resumed} of them before" if resumed else ""
    out.print(f"\n{scored} scored, {failed} failed{before}; {seconds:.1f} s{rate}")
    for summary in every:
        if len(summary.segmenters) > 1:
            prose(out, " ".join(Mix({"": summary.segmenters}).sentences({"": summary.signature})))
    out.print("\n".join(signatures), soft_wrap=True)
    if following:
        out.print(f"next: {following}", soft_wrap=True)


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
