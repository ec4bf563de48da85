"""What commands print: tables that can be piped and are coloured on a terminal."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.flags import describe
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.score_table import ALL, PART, up_to
from vcs_runtime.util.printable import printable


class _Console(Console):
    """A console that escapes what would control the terminal: names and ids come from anywhere."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(printable(text, keep="\n"), **how)


def console() -> Console:
    """Return a console on standard output, wide enough for its tables where nothing limits it.

    A terminal limits it, or the variable COLUMNS. Names and ids may look like markup, which is printed as it
    is, and may hold control characters, which are escaped.
    """
    out = _Console(highlight=False, soft_wrap=False, markup=False, emoji=False)
    return out if _limited(out) else _Console(highlight=False, width=160, markup=False, emoji=False)


def prose(out: Console, text: str, style: str | None = None) -> None:
    """Print sentences, broken between words where a terminal or COLUMNS limits the width."""
    out.print(text, style=style, soft_wrap=not _limited(out))


def _limited(out: Console) -> bool:
    return out.is_terminal or os.environ.get("COLUMNS", "").isdigit()


def print_result(result: Result) -> None:
    """Print the scores of one pair, each with its meaning."""
    assert result.scores is not None
    table = Table("score", "value", "what it says", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name in up_to(PART, result.also):
        table.add_row(name, f"{getattr(result, name):.4f}", ALL[name].meaning)
    out = console()
    if reason := describe(result.scores._asdict(), result.n_ref, result.n_gen):
        prose(out, f"{reason}\n")
    out.print(table)
    out.print(f"\n{result.n_ref} reference chunks, {result.n_gen} generated chunks", end="")
    if result.n_references > 1:
        out.print(f"; reference {result.reference_index + 1} of {result.n_references} won", end="")
    if result.segmenter:
        out.print(f"; cut by {result.segmenter}", end="")
    out.print(f"\n{result.signature}", soft_wrap=True)


def print_summary(summary: Summary) -> None:
    """Print the mean, standard deviation and interval of every score of a job."""
    statistics, judged = summary.statistics(), {}
    headings = ["score", "mean", "sd", "95 % interval of the mean"]
    if 0 < summary.counts.not_judged < summary.scored:
        judged = summary.statistics(judged=True)
        headings.append("mean of the judged")
    table = Table(*headings, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in filter(statistics.__contains__, ALL):
        s = statistics[name]
        more = [f"{judged[name].mean:.4f}"] if judged else []
        table.add_row(name, f"{s.mean:.4f}", f"{s.sd:.4f}", f"{s.low:.4f} .. {s.high:.4f}", *more)
    out = console()
    out.print(table)
    if summary.failed:
        zeros = " (as 0)" if summary.counted > summary.scored else ""
        out.print(f"\nmeans over {summary.counted} of {summary.total} pairs; {summary.failed} failed{zeros}")
    for sentence in summary.counts.sentences():
        prose(out, f"\n{sentence}")
    fresh = summary.scored + summary.failed - summary.resumed
    rate = f", {fresh / summary.seconds:.1f} pairs/s" if fresh and summary.seconds else ""
    resumed = f", {summary.resumed} of them before" if summary.resumed else ""
    out.print(f"\n{summary.scored} scored, {summary.failed} failed{resumed}; {summary.seconds:.1f} s{rate}")
    if len(summary.segmenters) > 1:
        prose(out, " ".join(Mix({"": summary.segmenters}).sentences({"": summary.signature})))
    out.print(summary.signature, soft_wrap=True)
