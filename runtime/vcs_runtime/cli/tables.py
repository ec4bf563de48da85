"""What commands print: tables that can be piped and are coloured on a terminal, and messages."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from vcs_runtime.jobs.summary import Summary
from vcs_runtime.scoring.result import Result

# Meanings of the scores, in the order of the table; names as in the result.
MEANINGS = {
    "vcs": "the whole: theme, content and order together",
    "gas": "global theme: cosine of the two whole texts",
    "las": "local content: F1 of the next two",
    "las_precision": "how well the generated chunks are found in the reference",
    "las_recall": "how well the reference's chunks are found in the generated text",
    "sas": "theme, scaled down by missing local content",
    "nas": "order of events, regularised",
    "nas_f1": "order before regularisation: F1 of the next two",
    "nas_d": "order by distance from where chunks belong",
    "nas_l": "order by the length of the matches' path",
    "window_regularizer": "what a chance order would earn; 0 for texts of many chunks",
}


def console() -> Console:
    """Return a console on standard output, wide enough for its tables where no terminal limits it."""
    out = Console(highlight=False, soft_wrap=False)
    return out if out.is_terminal else Console(highlight=False, width=160)


def warn(message: str) -> None:
    """Print a message on standard error."""
    click.echo(f"vcs-runtime: {message}", err=True)


def print_result(result: Result) -> None:
    """Print the scores of one pair, each with its meaning."""
    assert result.scores is not None
    table = Table("score", "value", "what it says", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, meaning in MEANINGS.items():
        table.add_row(name, f"{getattr(result.scores, name):.4f}", meaning)
    out = console()
    out.print(table)
    out.print(f"\n{result.n_ref} reference chunks, {result.n_gen} generated chunks", end="")
    if result.n_references > 1:
        out.print(f"; reference {result.reference_index + 1} of {result.n_references} won", end="")
    if result.segmenter:
        out.print(f"; cut by {result.segmenter}", end="")
    out.print(f"\n{result.signature}", soft_wrap=True)


def print_summary(summary: Summary) -> None:
    """Print the mean, standard deviation and interval of every score of a job."""
    table = Table("score", "mean", "sd", "95 % interval of the mean", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, s in summary.statistics().items():
        table.add_row(name, f"{s.mean:.4f}", f"{s.sd:.4f}", f"{s.low:.4f} .. {s.high:.4f}")
    out = console()
    out.print(table)
    fresh = summary.scored + summary.failed - summary.resumed
    rate = f", {fresh / summary.seconds:.1f} pairs/s" if fresh and summary.seconds else ""
    resumed = f", {summary.resumed} of them before" if summary.resumed else ""
    out.print(f"\n{summary.scored} scored, {summary.failed} failed{resumed}; {summary.seconds:.1f} s{rate}")
    if len(summary.segmenters) > 1:
        counts = (f"{count} by {name}" for name, count in summary.segmenters.most_common())
        out.print(f"texts cut: {', '.join(counts)}")
    out.print(summary.signature, soft_wrap=True)
