"""`vcs-runtime explain`: a verdict for every chunk of a pair, and what each part of its score cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from vcs_runtime.cli.score import (
    check_source,
    chosen_options,
    engine_of,
    engine_options,
    one_pair,
    open_scorer,
    pair_options,
    scoring_options,
)
from vcs_runtime.cli.tables import console
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.pairs import InputPair, count_pairs, read_pairs
from vcs_runtime.scoring.explanation import (
    COVERED,
    IN_PLACE,
    MISSING,
    MOVED,
    SHIFTED,
    UNSUPPORTED,
    VERDICTS,
    Chunk,
    Explanation,
    Thresholds,
    describe_thresholds,
    position,
    verdict_counts,
)
from vcs_runtime.scoring.explanation import explain as explain_result

_FILE = click.Path(path_type=Path)
_COLOURS = {
    IN_PLACE: "green", COVERED: "green", SHIFTED: "cyan", MOVED: "yellow", UNSUPPORTED: "red", MISSING: "red"
}  # fmt: skip


def threshold_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where verdicts begin."""
    defaults = Thresholds()
    options = [
        click.option("--support", type=float, default=defaults.support, show_default=True, metavar="X",
                     help="A match less similar is none: the chunk is weakly supported, or missing."),
        click.option("--rival", type=float, default=defaults.rival, show_default=True, metavar="X",
                     help="A match that is this much closer to another reference chunk covers none."),
        click.option("--order", type=float, default=defaults.order, show_default=True, metavar="X",
                     help="Part of an offset that changed order must explain for a chunk to be moved."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def chosen_thresholds(options: dict[str, Any]) -> Thresholds:
    """Take what `threshold_options` gave out of a command's options."""
    try:
        return Thresholds(**{field.name: options.pop(field.name) for field in fields(Thresholds)})
    except ValueError as error:
        raise click.UsageError(f"--{error}") from None


@click.command()
@click.argument("pairs", type=_FILE, required=False)
@pair_options
@click.option("--id", "wanted", metavar="NAME", help="Of PAIRS, only the pair of this id.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a pair.")
@threshold_options
@scoring_options
@engine_options
@click.pass_context
def explain(
    context: click.Context,
    /,
    pairs: Path | None,
    references: tuple[Path, ...],
    generated: Path | None,
    wanted: str | None,
    as_json: bool,
    **options_given: Any,
) -> None:
    """Say why a pair scores as it does: what is missing, invented or out of order, and what it cost.

    Of several references, against the one that won. Thresholds and what they get right: docs/explain.md.
    """
    check_source(pairs, references, generated)
    if pairs is None and wanted is not None:
        raise click.UsageError("--id belongs to PAIRS")
    thresholds = chosen_thresholds(options_given)
    engine = engine_of(options_given)
    options = chosen_options(context, **options_given)
    failed = False
    with open_scorer(engine) as scorer:
        source = input_pairs(pairs, references, generated, wanted)
        named = pairs is not None
        for pair, result, evidence in chain.from_iterable(
            scorer.stream(source, attrgetter("texts"), options)
        ):
            if evidence is None:
                failed = True
                click.echo(f"vcs-runtime: {f'{pair.name}: ' if named else ''}{result.error}", err=True)
                continue
            explanation = explain_result(result, evidence, options.params, thresholds)
            if as_json:
                head = {"id": pair.name} if named else {}
                click.echo(json.dumps({**head, **explanation.to_dict()}))
            else:
                print_explanation(explanation, pair.name if named else None)
    context.exit(1 if failed else 0)


def input_pairs(
    pairs: Path | None, references: Sequence[Path], generated: Path | None, wanted: str | None
) -> Iterator[InputPair]:
    """The pairs that a command was given; the whole file is checked before the first of them.

    Raises InputError: an unreadable file, one without pairs, or without a pair of the id `wanted`.
    """
    if pairs is None:
        assert generated is not None
        return iter([InputPair("pair", None, *one_pair(references, generated))])
    if not count_pairs(pairs):
        raise InputError(f"{pairs}: it holds no pairs")
    if wanted is None:
        return read_pairs(pairs)
    if not (found := [pair for pair in read_pairs(pairs) if str(pair.name) == wanted]):
        raise InputError(f"{pairs}: no pair has the id {wanted!r}")
    return iter(found)


def print_explanation(explanation: Explanation, name: object = None) -> None:
    """Both texts chunk by chunk, then the sentences."""
    out = console()
    if name is not None:
        out.print(Text(f"pair {name}\n", "bold"))
    for title, chunks in (("generated", explanation.generated), ("reference", explanation.reference)):
        out.print(_table(title, chunks))
        counts = ", ".join(f"{count} {verdict}" for verdict, count in verdict_counts(chunks).items())
        out.print(f"{len(chunks)} chunks: {counts}\n")
    for sentence in explanation.sentences.values():
        out.print(sentence, soft_wrap=True)
    named = {chunk.verdict for chunk in (*explanation.generated, *explanation.reference)}
    out.print()
    for verdict, meaning in VERDICTS.items():
        if verdict in named:
            out.print(f"{verdict}: {meaning}", style="dim", soft_wrap=True)
    said = f"thresholds: {describe_thresholds(explanation.thresholds)}"
    out.print(said, style="dim", soft_wrap=True)
    out.print(explanation.result.signature, soft_wrap=True)


def _table(title: str, chunks: tuple[Chunk, ...]) -> Table:
    table = Table("", title, "verdict", "similar", "place", box=None, pad_edge=False)
    table.columns[0].justify = table.columns[3].justify = "right"
    table.columns[1].overflow = "fold"
    for number, chunk in enumerate(chunks, 1):
        # Texts are no markup, and a terminal must not be told what to do by one.
        text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in chunk.text)
        table.add_row(
            str(number), Text(text), Text(chunk.verdict, _COLOURS[chunk.verdict]), f"{chunk.similarity:.3f}",
            position(chunk),
        )  # fmt: skip
    return table
