"""What commands print: tables that can be piped and are coloured on a terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.flags import FlagCounts, describe, scores_to_report, what_to_report
from vcs_runtime.scoring.result import Result
from vcs_runtime.scoring.score_table import ALL, HEADLINE, LABELS, PART, up_to
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


def print_result(result: Result, every: bool) -> None:
    """Print the scores of one pair, each with its meaning: the five that are read, or all."""
    assert result.scores is not None
    table = Table("score", "value", "what it says", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name in up_to(PART if every else HEADLINE, result.also):
        table.add_row(name, f"{getattr(result, name):.4f}", ALL[name].meaning)
    out = console()
    if reason := describe(result.scores._asdict(), result.n_ref, result.n_gen):
        prose(out, f"{reason}\n")
    out.print(table)
    _name_the_rest(out, every)
    out.print(f"\n{result.n_ref} reference chunks, {result.n_gen} generated chunks", end="")
    if result.n_references > 1:
        out.print(f"; reference {result.reference_index + 1} of {result.n_references} won", end="")
    out.print(f"\n{result.signature}", soft_wrap=True)


def print_summary(summary: Summary, every: bool) -> None:
    """Print the means of a job with intervals: of the five scores that are read, or of all."""
    statistics = summary.statistics()
    headings = ["score", "mean", *["sd"] * every, "95 % interval", *["what it says"] * (not every)]
    table = Table(*headings, box=None, pad_edge=False)
    for column in table.columns[1 : 3 + every]:
        column.justify = "right"
    for name in filter(statistics.__contains__, ALL):
        s, interval = statistics[name], "{:.4f} .. {:.4f}" if every else "{:.3f} .. {:.3f}"
        if every:
            table.add_row(name, f"{s.mean:.4f}", f"{s.sd:.4f}", interval.format(s.low, s.high))
        elif ALL[name].level == HEADLINE:
            table.add_row(name, f"{s.mean:.3f}", interval.format(s.low, s.high), ALL[name].meaning)
    out = console()
    out.print(table)
    _name_the_rest(out, every)
    if summary.failed:
        zeros = " (as 0)" if summary.counted > summary.scored else ""
        out.print(f"\nmeans over {summary.counted} of {summary.total} pairs; {summary.failed} failed{zeros}")
    _print_zeros(out, summary.counts)
    if 0 < summary.counts.not_judged < summary.scored:
        judged = summary.statistics(judged=True)["vcs"].mean
        prose(out, f"The mean VCS of the others is {judged:.3f}.")
    fresh = summary.scored + summary.failed - summary.resumed
    rate = f", {fresh / summary.seconds:.1f} pairs/s" if fresh and summary.seconds else ""
    resumed = f", {summary.resumed} of them before" if summary.resumed else ""
    out.print(f"\n{summary.scored} scored, {summary.failed} failed{resumed}; {summary.seconds:.1f} s{rate}")
    if len(summary.segmenters) > 1:
        prose(out, " ".join(Mix({"": summary.segmenters}).sentences({"": summary.signature})))
    out.print(summary.signature, soft_wrap=True)


def print_systems(summaries: Mapping[str, Summary]) -> None:
    """Print the means of several systems in one table, the best first, and which of them to report."""
    counts = FlagCounts()
    for summary in summaries.values():
        counts += summary.counts
    first = scores_to_report(counts.zeros, counts.scored)[0]
    means = {name: summary.statistics() for name, summary in summaries.items()}
    names = up_to(HEADLINE, set.intersection(*(set(summary.also) for summary in summaries.values())))
    table = Table("system", *(LABELS[name] for name in names), "zeros", "failed", box=None, pad_edge=False)
    table.columns[0].overflow = "fold"
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for name in sorted(summaries, key=lambda name: -means[name][first].mean if means[name] else 1):
        values = [f"{means[name][score].mean:.3f}" if means[name] else "" for score in names]
        summary = summaries[name]
        table.add_row(printable(name), *values, str(summary.counts.zeros), str(summary.failed))
    out = console()
    out.print(table)
    _print_zeros(out, counts)
    signatures = {name: summary.signature for name, summary in summaries.items()}
    mix = Mix({name: summary.segmenters for name, summary in summaries.items()})
    if len(mix.names) > 1:
        prose(out, " ".join(mix.sentences(signatures)))
    for line in dict.fromkeys(signatures.values()):
        out.print(line, soft_wrap=True)


def print_worst(system: str, pairs: Sequence[tuple[InputPair, Explanation]]) -> None:
    """Print the worst pairs, each with its margin and what one can see."""
    out = console()
    out.print(f"\nlowest margin, {printable(system)}:")
    for pair, explanation in pairs:
        prose(out, f"{printable(pair.name)}  {explanation.scores.margin:.3f}  {explanation.conclusion}")


def _print_zeros(out: Console, counts: FlagCounts) -> None:
    """Print how many pairs have a VCS of 0, why, and which scores to report."""
    if counts.scored:
        prose(out, f"\n{' '.join([*counts.sentences(), what_to_report(counts.zeros, counts.scored)])}")


def _name_the_rest(out: Console, every: bool) -> None:
    if not every:
        prose(out, "--all prints the parts of these scores.", "dim")
