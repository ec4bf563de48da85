"""`vcs-runtime explain`: a verdict for each chunk of a pair, and the cost of each score part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path

import click

from vcs_runtime.cli.inputs import (
    InputCommand,
    InputOptions,
    as_scored,
    by_side,
    input_options,
    input_pairs,
    is_text_pair,
    one_pair,
    one_source,
    unmatched,
)
from vcs_runtime.cli.messages import verbose, warn
from vcs_runtime.cli.notices import open_scorer
from vcs_runtime.cli.options import PATH, as_json, combined, scorer_options, served_embedder
from vcs_runtime.cli.scoring import MetricOptions, scoring_options
from vcs_runtime.cli.tables import console, print_table, prose
from vcs_runtime.errors import unknown_choice
from vcs_runtime.jobs.score_files import SCORES, is_scores, options_of
from vcs_runtime.scoring.explanation import Explanation
from vcs_runtime.scoring.explanation import explain as explain_result
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.replaced import ReplacedWord, left_out, surest
from vcs_runtime.scoring.verdicts import (
    COVERED,
    IN_PLACE,
    MISSING,
    MOVED,
    REPEATED,
    SHIFTED,
    UNSUPPORTED,
    VERDICTS,
    describe_thresholds,
    position,
    verdict_counts,
)
from vcs_runtime.util.printable import counted, printable

_COLOURS = {
    IN_PLACE: "green",
    COVERED: "green",
    SHIFTED: "cyan",
    MOVED: "yellow",
    UNSUPPORTED: "red",
    MISSING: "red",
    REPEATED: "magenta",
}


def _verdicts(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> frozenset[str]:
    names = [*VERDICTS] if value is None else [name.strip() for name in value.split(",")]
    for name in names:
        if name not in VERDICTS:
            raise click.BadParameter(str(unknown_choice("verdict", name, tuple(VERDICTS))))
    return frozenset(names)


@dataclass(frozen=True)
class ViewOptions:
    """Which explanations are printed, and how: the values of the command's options."""

    name: str | None
    only: frozenset[str]
    as_json: bool


@click.command(cls=InputCommand)
@click.argument("files", type=PATH, nargs=-1, metavar="[PAIRS | REFERENCE... GENERATED]")
@combined(
    "view",
    ViewOptions,
    click.option(
        "--id", "name", metavar="NAME", help="Id of the pair to explain. [default: all pairs]"
    ),
    click.option(
        "--only",
        callback=_verdicts,
        metavar="VERDICTS",
        help="Comma-separated verdicts to show, such as missing,repeated. [default: all]",
    ),
    as_json,
)
@input_options
@scoring_options
@scorer_options
@served_embedder
@click.pass_context
def explain(
    context: click.Context,
    /,
    files: tuple[Path, ...],
    view: ViewOptions,
    source: InputOptions,
    metric: MetricOptions,
    config: ScorerConfig,
) -> None:
    """Show what is missing, invented or moved in a text.

    Every chunk of both texts gets a verdict, and every part of the score gets a sentence on its
    cost. With several references, the pair is explained against the best one. docs/guide/explain.md
    says how often the verdicts are right.

    The input is the same as for `vcs-runtime score`, of one system: PAIRS, --references and
    --predictions, or plain texts. A score file after PAIRS sets the columns and metrics.

    \b
    Examples:
      vcs-runtime explain pairs.jsonl --id 17
      vcs-runtime explain run.json scores/run.jsonl --id 17
      vcs-runtime explain reference.txt generated.txt --json
    """
    options = metric.options
    files, source = by_side(files, source)
    scores = _score_file(files if source.prediction_files else files[1:])
    if scores:
        files = tuple(path for path in files if path != scores)
    if scores and files:
        source = as_scored(source, scores, files[0])
    many = not is_text_pair(files, source)
    if view.name is not None and not many:
        raise click.UsageError("--id needs PAIRS, a file of pairs")
    failed = False
    if many:
        pairs = one_source(files, source)
        failed = unmatched([pairs], options.clean) > 0
        chosen = input_pairs(pairs, view.name)
    else:
        chosen = iter([one_pair(files, options.clean)])
    with open_scorer(config) as scorer:
        if scores:
            options, differs = options_of(scores, options, scorer)
            if differs:
                warn(differs)
        blocks = scorer.stream(chosen, attrgetter("texts"), options)
        for pair, result, evidence in chain.from_iterable(blocks):
            name = pair.name if many else None
            if evidence is None:
                failed = True
                warn(str(result.error) if name is None else f"{name}: {result.error}")
                continue
            explanation = explain_result(result, evidence, options.params, metric.thresholds)
            if not view.as_json:
                print_explanation(explanation, view.only, name)
            elif name is None:
                click.echo(json.dumps(explanation.to_dict()))
            else:
                click.echo(json.dumps({"id": name, **explanation.to_dict()}))
    context.exit(1 if failed else 0)


def _score_file(files: Sequence[Path]) -> Path | None:
    """Return the first score file, if there is one."""
    for path in files:
        if path.suffix.lower() in SCORES and is_scores(path):
            return path
    return None


def print_explanation(
    explanation: Explanation, only: frozenset[str] = frozenset(VERDICTS), name: object = None
) -> None:
    """Print the conclusion, both texts with their verdicts, and the sentences about the score."""
    out = console()
    head = f"pair {printable(name)}: " if name is not None else ""
    prose(out, f"{head}{explanation.conclusion}", "bold")
    of_reference, of_generated = explanation.written
    sides = {
        "generated": (explanation.generated, of_generated),
        "reference": (explanation.reference, of_reference),
    }
    for title, (chunks, written) in sides.items():
        numbers = verdict_counts(chunks).items()
        counts = ", ".join(f"{count} {verdict}" for verdict, count in numbers)
        prose(out, f"\n{title}, {counted(len(chunks), explanation.noun)}: {counts}", "bold")
        for number, (chunk, text) in enumerate(zip(chunks, written, strict=True), 1):
            if chunk.verdict in only:
                prose(out, f"{number:>3}  {printable(text)}")
                verdict = f"     {chunk.verdict}, similarity {chunk.similarity:z.3f}; "
                prose(out, verdict + position(chunk, explanation.noun), _COLOURS[chunk.verdict])
    out.print()
    if explanation.replaced:
        _print_replaced(explanation.replaced)
        more = left_out(explanation.replaced)
        prose(out, f"and {more}\n" if more else "")
    for sentence in explanation.sentences.values():
        prose(out, sentence)
    shown = {chunk.verdict for chunk in (*explanation.generated, *explanation.reference)} & only
    out.print()
    for verdict, meaning in VERDICTS.items():
        if verdict in shown:
            prose(out, f"{verdict}: {meaning}", "dim")
    if verbose():
        prose(out, f"thresholds: {describe_thresholds(explanation.thresholds)}", "dim")
    out.print(explanation.result.signature, soft_wrap=True)


def _print_replaced(words: tuple[ReplacedWord, ...]) -> None:
    """Print a table of the replaced words; chunks count from 1, the reference's chunk first."""
    rows = []
    for word in surest(words):
        chunks = f"{word.reference_chunk + 1} > {word.generated_chunk + 1}"
        rows.append((word.reference, word.generated, word.word_class, word.likeness, chunks))
    print_table(("replaced", "became", "kind", "similarity", "chunks"), rows, more="with --json")
