"""`vcs-runtime report`: one pair or many as one HTML file or a PDF."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from vcs_runtime.cli.inputs import check_source, input_pairs, one_pair, open_scorer
from vcs_runtime.cli.options import (
    PATH,
    SectionedCommand,
    pair_options,
    scorer_options,
    scoring_options,
    threshold_options,
)
from vcs_runtime.cli.tables import warn
from vcs_runtime.jobs.pairs import count_pairs
from vcs_runtime.jobs.score_files import is_scores
from vcs_runtime.report import HtmlReport, pdf
from vcs_runtime.report.sources import report_pair, report_pairs, report_scores
from vcs_runtime.scoring.explanation import Thresholds
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.util.atomic import refuse_input_as_output
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.progress import progress_bar


@click.command(cls=SectionedCommand)
@click.argument("sources", type=PATH, nargs=-1, metavar="[PAIRS | SCORES...]")
@click.option("-o", "--output", type=PATH, required=True, metavar="FILE",
              help="Report to write: a .html or .pdf file.")  # fmt: skip
@pair_options
@click.option("--pairs", "texts", type=PATH, multiple=True, metavar="FILE",
              help="File of the pairs that were scored, one for each of SCORES; adds pages.")  # fmt: skip
@click.option("--pages", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
              help="Number of worst and of best pairs, by margin, that get a page with --pairs.")  # fmt: skip
@click.option("--ignore-signatures", is_flag=True, help="Report on score files whose signatures differ.")
@click.option("--title", metavar="TEXT", help="Title of the report. [default: the name of the file]")
@threshold_options
@scoring_options
@scorer_options
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
    ignore_signatures: bool,
    title: str | None,
    thresholds: Thresholds,
    options: Options,
    config: ScorerConfig,
) -> None:
    """Write an HTML or PDF report about pairs or scores.

    The source is a file of pairs, one or several score files (one for each system), or one pair given by
    --reference and --generated.

    An HTML report is one file that needs nothing but a browser; every explained pair has a page in it. A
    PDF holds every figure of one pair, or the overview of many. It needs `vcs-runtime[report]`. Pairs are
    listed by margin, the worst first; equal ones by VCS, then GAS.

    \b
    Examples:
      vcs-runtime report pairs.jsonl -o report.html
      vcs-runtime report a.jsonl b.jsonl -o report.html
      vcs-runtime report scores.jsonl --pairs pairs.jsonl -o report.html
      vcs-runtime report --reference ref.txt --generated gen.txt -o report.pdf
    """
    in_pdf = output.suffix.lower() == ".pdf"
    if not in_pdf and output.suffix.lower() != ".html":
        raise click.UsageError("--output must end in .html or .pdf")
    if in_pdf:
        require_matplotlib()
    check_source(sources[0] if sources else None, references, generated)
    of_scores = bool(sources) and is_scores(sources[0])
    if len(sources) > 1 and not all(map(is_scores, sources)):
        raise click.UsageError("several files must all be score files, one for each system")
    if texts and (not of_scores or len(texts) != len(sources)):
        raise click.UsageError("--pairs must be given once for each of SCORES, in the same order")
    if texts and in_pdf:
        raise click.UsageError("--pairs adds pages to HTML; a PDF holds the overview alone")
    inputs = (*sources, *texts, *references, *([generated] if generated else []))
    refuse_input_as_output(output, *inputs)
    named = generated or (sources[0] if len(sources) == 1 else None)
    title = title or (named.name if named else "VCS")
    with ExitStack() as stack:
        scorer = stack.enter_context(open_scorer(config)) if texts or not of_scores else None
        if not sources:
            assert scorer is not None
            report_pair(scorer, one_pair(references, generated), output, title, options, thresholds)
            return
        html = None if in_pdf else stack.enter_context(HtmlReport(output, title))
        if of_scores:
            advance = stack.enter_context(
                progress_bar(2 * pages * len(sources), "explaining", enabled=bool(texts))
            )
            systems = report_scores(
                sources, texts, scorer, html, options, thresholds, pages=pages, advance=advance,
                force=ignore_signatures,
            )  # fmt: skip
        else:
            assert scorer is not None
            pairs = input_pairs(sources[0])
            advance = stack.enter_context(progress_bar(count_pairs(sources[0]), "explaining"))
            systems = report_pairs(scorer, pairs, html, sources[0].stem, options, thresholds, advance)
        if html:
            html.finish(systems)
        else:
            pdf.write_overview(systems, title, output)
    for name, reason in systems.failed:
        warn(f"{name}: {reason}")
    context.exit(1 if systems.failed else 0)
