"""`vcs-runtime report`: one pair or many as one HTML file or a PDF."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.explain import chosen_thresholds, input_pairs, threshold_options
from vcs_runtime.cli.score import (
    chosen_options,
    engine_of,
    engine_options,
    open_scorer,
    pair_options,
    scoring_options,
)
from vcs_runtime.errors import TextError
from vcs_runtime.jobs.pairs import InputPair, count_pairs
from vcs_runtime.jobs.score_files import is_scores
from vcs_runtime.report import HtmlReport, pdf
from vcs_runtime.report.sources import report_pairs, report_scores
from vcs_runtime.scoring.explanation import Thresholds, explain
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.progress import progress_bar

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("sources", type=_FILE, nargs=-1, metavar="[PAIRS | SCORES...]")
@click.option("-o", "--output", type=_FILE, required=True, metavar="FILE", help="report.html or report.pdf.")
@pair_options
@click.option("--pairs", "texts", type=_FILE, multiple=True, metavar="FILE",
              help="With SCORES: the pairs that were scored, a file for each of SCORES.")  # fmt: skip
@click.option("--pages", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
              help="With --pairs: the N worst and the N best pairs of each file get a page.")  # fmt: skip
@click.option("--title", metavar="TEXT", help="[default: the file's name]")
@threshold_options
@scoring_options
@engine_options
@click.pass_context
def report(
    context: click.Context,
    /,
    sources: tuple[Path, ...],
    output: Path,
    references: tuple[Path, ...],
    generated: Path | None,
    texts: tuple[Path, ...],
    pages: int,
    title: str | None,
    **options_given: Any,
) -> None:
    """Report on a file of pairs, on score files (one a system), or on one pair (--reference, --generated).

    HTML is one file that needs nothing but a browser; every explained pair has a page in it. PDF (needs
    `vcs-runtime[report]`) holds every figure of one pair, or the overview of many.
    """
    kind = output.suffix.lower()
    if kind not in (".html", ".pdf"):
        raise click.UsageError("--output must end in .html or .pdf")
    if kind == ".pdf":
        require_matplotlib()
    single = bool(references) or generated is not None
    if single == bool(sources) or (single and (not references or generated is None)):
        raise click.UsageError("give PAIRS or SCORES, or --reference and --generated")
    of_scores = bool(sources) and is_scores(sources[0])
    if len(sources) > 1 and not all(map(is_scores, sources)):
        raise click.UsageError("several files must all be score files, one a system")
    if texts and (not of_scores or len(texts) != len(sources)):
        raise click.UsageError("--pairs: one for each of SCORES, in their order")
    if texts and kind == ".pdf":
        raise click.UsageError("--pairs gives pairs their pages in HTML; a PDF holds the overview alone")
    thresholds = chosen_thresholds(options_given)
    engine = engine_of(options_given)
    options = chosen_options(context, **options_given)
    title = title or (sources[0].name if len(sources) == 1 else "VCS")
    with ExitStack() as stack:
        scorer = stack.enter_context(open_scorer(engine)) if texts or not of_scores else None
        html = stack.enter_context(HtmlReport(output, title)) if kind == ".html" else None
        if single:
            assert scorer is not None
            _single(scorer, input_pairs(None, references, generated, None), html, output, options, thresholds)
            return
        if of_scores:
            advance = stack.enter_context(
                progress_bar(2 * pages * len(sources), "explaining", enabled=bool(texts))
            )
            found = report_scores(
                sources, texts, scorer, html, options, thresholds, pages=pages, advance=advance
            )
        else:
            assert scorer is not None
            pairs = input_pairs(sources[0], (), None, None)
            advance = stack.enter_context(progress_bar(count_pairs(sources[0]), "explaining"))
            found = report_pairs(scorer, pairs, html, sources[0].stem, options, thresholds, advance)
        if html:
            html.finish(found)
        else:
            pdf.write_overview(found, title, output)
    for name, why in found.failed:
        click.echo(f"vcs-runtime: {name}: {why}", err=True)
    context.exit(1 if found.failed else 0)


def _single(
    scorer: Scorer,
    pairs: Iterator[InputPair],
    html: HtmlReport | None,
    output: Path,
    options: Options,
    thresholds: Thresholds,
) -> None:
    [[(_, result, evidence)]] = scorer.stream(pairs, attrgetter("texts"), options)
    if evidence is None:
        raise TextError(result.error)
    explanation = explain(result, evidence, options.params, thresholds)
    if html:
        html.add(explanation)
        html.finish()
    else:
        pdf.write_pdf(explanation, output)
