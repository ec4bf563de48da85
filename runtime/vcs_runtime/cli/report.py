"""`vcs-runtime report`: one pair or many as one HTML file, one pair as a PDF, or a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.compare import baseline_system, family, system_names
from vcs_runtime.cli.inputs import (
    InputCommand,
    InputOptions,
    as_scored,
    by_side,
    input_options,
    input_pairs,
    is_text_pair,
    keep_column,
    one_pair,
    systems_of,
    unmatched,
)
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.notices import open_scorer
from vcs_runtime.cli.options import (
    PATH,
    combined,
    overwrite,
    scorer_options,
    served_embedder,
    usage_errors,
)
from vcs_runtime.cli.scoring import MetricOptions, scoring_options
from vcs_runtime.comparing.compare import compare
from vcs_runtime.comparing.systems import Comparison
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.pairs import PairSource, count_pairs
from vcs_runtime.jobs.readers.input_file import SUFFIXES, files_of
from vcs_runtime.jobs.score_files import is_scores, metrics_of
from vcs_runtime.report import HtmlReport, figures
from vcs_runtime.report.sources import (
    PICTURES,
    Explainer,
    report_pair,
    report_pairs,
    report_scores,
    system_sources,
)
from vcs_runtime.report.systems import Systems, figures_of
from vcs_runtime.report.wording import date_of
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.score_table import HEADLINE, up_to
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.atomic import refuse_input_as_output
from vcs_runtime.util.figures import require_matplotlib, save_figure
from vcs_runtime.util.printable import counted
from vcs_runtime.util.progress import progress_bar


@dataclass(frozen=True)
class ReportOptions:
    """What is reported, and how it looks: the values of the command's options."""

    output: Path
    overwrite: bool
    texts: tuple[Path, ...]
    pages: int
    ignore_signatures: bool
    title: str | None
    names: tuple[str, ...]
    baseline: str | None
    family: str
    date: str | None

    @property
    def is_html(self) -> bool:
        """Whether the report is HTML, and neither a PDF nor a picture. Raises UsageError."""
        suffix = self.output.suffix.lower()
        if suffix not in (".html", ".pdf", *PICTURES):
            raise click.UsageError(f"--output must end in .html, .pdf, {' or '.join(PICTURES)}")
        return suffix == ".html"


_report = combined(
    "request",
    ReportOptions,
    click.option(
        "-o",
        "--output",
        type=PATH,
        required=True,
        metavar="FILE",
        help=(
            "File for the report (.html; for one pair also .pdf) or for a picture of one "
            "pair or of several score files (.png, .svg, .pdf)."
        ),
    ),
    overwrite,
    click.option(
        "--pairs",
        "texts",
        type=PATH,
        multiple=True,
        metavar="FILE",
        help=(
            "File with the scored pairs, to add pages with the texts; for several SCORES, "
            "one file of the same name each."
        ),
    ),
    click.option(
        "--pages",
        type=click.IntRange(min=1),
        default=50,
        metavar="N",
        help=(
            "Number of worst and of best pairs (by margin) that get a page with the texts, "
            "in equal shares for several systems."
        ),
    ),
    click.option(
        "--ignore-signatures", is_flag=True, help="Accept score files whose signatures differ."
    ),
    click.option(
        "--title",
        metavar="TEXT",
        help=(
            "Title of the report. [default: the systems and the number of videos; for one "
            "pair, the generated text's name]"
        ),
    ),
    system_names,
    baseline_system,
    family,
    click.option(
        "--date",
        metavar="TEXT",
        help="Date below the title. [default: the day of the last change of an input file]",
    ),
)


@click.command(cls=InputCommand)
@click.argument(
    "sources", type=PATH, nargs=-1, metavar="[PAIRS | SCORES... | REFERENCE... GENERATED]"
)
@_report
@input_options
@keep_column
@scoring_options
@scorer_options
@served_embedder
@click.pass_context
def report(
    context: click.Context,
    /,
    sources: tuple[Path, ...],
    request: ReportOptions,
    source: InputOptions,
    metric: MetricOptions,
    config: ScorerConfig,
) -> None:
    """Write a report as HTML or PDF, or a picture.

    The input is a file of pairs, a score file for each system, or plain texts of one pair, with the
    generated text last. --references and --predictions replace PAIRS, or --pairs. Several systems
    are compared as by `vcs-runtime compare`.

    An HTML report is one file for a browser, with a page for each explained pair. It lists the
    pairs by margin, the worst first. A PDF shows every view of one pair. A picture shows one pair,
    or the means of several systems with their intervals. PDFs and pictures need
    `vcs-runtime[report]`.

    \b
    Examples:
      vcs-runtime report pairs.jsonl -o report.html
      vcs-runtime report scores/*.jsonl -o report.html
      vcs-runtime report scores/*.jsonl --references refs.json \\
        --predictions systems/*.json -o report.html
      vcs-runtime report scores.jsonl --pairs pairs.jsonl -o report.html
      vcs-runtime report reference.txt generated.txt -o report.pdf
      vcs-runtime report scores/*.jsonl -o systems.svg
    """
    is_html = request.is_html
    sources, source = by_side(sources, source)
    sources = tuple(files_of(sources))
    matched = bool(source.prediction_files)
    of_scores = _of_scores(sources, source.format, bool(request.texts) or matched)
    pairs_files = sources
    if of_scores:  # the first score file stands for PAIRS, unless texts by id do
        pairs_files = () if matched else sources[:1]
    one = is_text_pair(pairs_files, source)
    _check_systems(sources, of_scores, request.names, request.baseline)
    if request.texts and (matched or not of_scores):
        raise click.UsageError("--pairs needs SCORES, and replaces --references and --predictions")
    if not is_html:
        if not one and not (of_scores and len(sources) > 1):
            raise click.UsageError(
                "a PDF or a picture shows one pair of text files, or several score files: write"
                " this report as .html"
            )
        require_matplotlib()
    if one:
        _check_output(request, sources)
        with open_scorer(config) as scorer:
            _report_one_pair(_explainer(scorer, metric), sources, request, metric)
        return
    if not is_html:
        _draw_systems(sources, request, matched or bool(request.texts))
        return
    pairs = _pairs_of(sources, source, request.texts, of_scores)
    problems = unmatched(pairs, metric.options.clean)
    _check_output(request, [*sources, *chain.from_iterable(each.paths for each in pairs)])
    with ExitStack() as stack:
        # A report on scores alone needs no models.
        explainer = None
        if pairs or not of_scores:
            explainer = _explainer(stack.enter_context(open_scorer(config)), metric)
        comparisons, incomparable = _compared(sources, request)
        html = stack.enter_context(HtmlReport(request.output, request.title or ""))
        if of_scores:
            systems = _add_scores(html, sources, pairs, explainer, request)
        else:
            assert explainer is not None
            systems = _add_pairs(html, pairs[0], explainer, request)
        systems.comparisons = comparisons
        systems.incomparable = incomparable
        if request.date is None:
            systems.dated = _input_date(sources, pairs, of_scores)
        else:
            systems.dated = request.date
        html.finish(systems)
    for failed in systems.failed:
        warn(f"{failed.pair}: {failed.reason}")
    click.echo(request.output)
    context.exit(1 if systems.failed or problems else 0)


def _check_output(request: ReportOptions, inputs: Iterable[Path]) -> None:
    """Raise InputError if the output is an input, or exists and must not be replaced."""
    refuse_input_as_output(request.output, *inputs)
    if request.output.is_file() and not request.overwrite:
        raise InputError(f"{request.output} exists already (--overwrite replaces it)")


def _explainer(scorer: Scorer, metric: MetricOptions) -> Explainer:
    return Explainer(scorer, metric.options, metric.thresholds)


def _report_one_pair(
    explainer: Explainer, files: Sequence[Path], request: ReportOptions, metric: MetricOptions
) -> None:
    """Write a report on the text files of one pair."""
    *references, generated = (path.name for path in files)
    report_pair(
        explainer,
        one_pair(files, metric.options.clean),
        request.output,
        request.title or generated,
        names=(generated, references),
        dated=date_of(files) if request.date is None else request.date,
    )
    click.echo(request.output)


def _draw_systems(files: Sequence[Path], request: ReportOptions, has_texts: bool) -> None:
    """Draw the means of several systems, the best first."""
    _check_output(request, files)
    if has_texts:
        warn("the texts are not used, because a picture shows only scores")
    comparison = _comparison(files, request, (*up_to(HEADLINE),))
    means = {system.name: system.means for system in comparison.ranked}
    pairs = counted(comparison.pairs, "pair")
    about = f"Means and their 95 % bootstrap intervals over {pairs}"
    save_figure(figures.systems(means, about), request.output, dpi=200)
    click.echo(request.output)


def _add_scores(
    html: HtmlReport,
    files: Sequence[Path],
    pairs: Sequence[PairSource],
    explainer: Explainer | None,
    request: ReportOptions,
) -> Systems:
    """Add score files to a report, with pages for their worst and best pairs if there are texts."""
    with progress_bar(2 * request.pages, "explaining", enabled=bool(pairs)) as advance:
        return report_scores(
            system_sources(files, pairs, request.names),
            explainer,
            html,
            pages=request.pages,
            advance=advance,
            force=request.ignore_signatures,
        )


def _add_pairs(
    html: HtmlReport, pairs: PairSource, explainer: Explainer, request: ReportOptions
) -> Systems:
    """Score the pairs of one system, and add a page for each to a report."""
    name = request.names[0] if request.names else Path(str(pairs)).stem
    with progress_bar(count_pairs(pairs), "explaining") as advance:
        return report_pairs(explainer, input_pairs(pairs), html, name, advance)


def _pairs_of(
    sources: Sequence[Path], source: InputOptions, texts: Sequence[Path], of_scores: bool
) -> list[PairSource]:
    """Return the pairs of each system that get pages; [] for scores without texts."""
    if texts:
        by_name = systems_of(texts, as_scored(source, sources[0], texts[0]))
    elif source.prediction_files:
        by_name = systems_of((), source)
    elif of_scores:
        by_name = {}
    else:
        by_name = systems_of(sources, source)
    if of_scores:
        return _texts_of(sources, by_name)
    if len(by_name) > 1:
        raise click.UsageError(
            f"a report on {len(by_name)} systems needs their score files: write them with"
            " vcs-runtime score ... -o scores/"
        )
    return [*by_name.values()]


def _texts_of(scores: Sequence[Path], texts: Mapping[str, PairSource]) -> list[PairSource]:
    """Return the texts of each score file, found by the score file's name.

    If there is one score file, its texts may have another name.
    """
    if not texts:
        return []
    if len(scores) == len(texts) == 1:
        return [*texts.values()]
    for path in scores:
        if path.stem not in texts:
            raise click.UsageError(
                f"no file of texts is called {path.stem!r}, like this score file, only"
                f" {', '.join(texts)}"
            )
    return [texts[path.stem] for path in scores]


def _check_systems(
    sources: Sequence[Path], of_scores: bool, names: Sequence[str], baseline: str | None
) -> None:
    """Raise UsageError unless the files, their names and the baseline fit together."""
    several = of_scores and len(sources) > 1
    for path in sources if several else ():
        if not is_scores(path):
            raise click.UsageError(
                f"several files must all be score files, one for each system, but {path} is not"
            )
    if len(names) not in (0, len(sources) if of_scores else 1):
        raise click.UsageError(
            "--name must be given once for each system, in the order of the files"
        )
    if baseline is not None and not several:
        raise click.UsageError("--baseline needs at least two score files")


def _compared(files: Sequence[Path], request: ReportOptions) -> tuple[list[dict[str, Any]], str]:
    """Compare systems by each headline score, as `compare` does; if that fails, say why."""
    if len(files) < 2:
        return [], ""
    try:
        with usage_errors():
            metrics = set.intersection(*(set(metrics_of(file)) for file in files))
            scores = figures_of(metrics)
            comparison = _comparison(files, request, scores)
            return [comparison.of_score(score).to_dict() for score in scores], ""
    except InputError as error:  # for example, no id that all have scored
        return [], str(error)


def _comparison(files: Sequence[Path], request: ReportOptions, scores: Sequence[str]) -> Comparison:
    return compare(
        files,
        names=request.names,
        baseline=request.baseline,
        scores=scores,
        family=request.family,
        force=request.ignore_signatures,
    )


def _input_date(sources: Sequence[Path], pairs: Sequence[PairSource], of_scores: bool) -> str:
    """Return the date of the input; standard input has no date."""
    if "-" in map(str, sources):
        return ""
    if of_scores:
        return f"scores of {date_of(sources)}"
    return f"pairs of {date_of([*chain.from_iterable(each.paths for each in pairs)])}"


def _of_scores(sources: Sequence[Path], format: str | None, adds_pages: bool) -> bool:
    """Return whether the sources are score files.

    Standard input, and a single file given in another format, hold pairs instead.
    """
    if len(sources) == 1:
        [path] = sources
        return str(path) != "-" and (adds_pages or format in (None, "jsonl")) and is_scores(path)
    return any(map(_may_be_scores, sources))


def _may_be_scores(path: Path) -> bool:
    """Return whether one of several files is a score file.

    A plain text is not a score file, even if it cannot be read twice.
    """
    if path.suffix.lower() in SUFFIXES:
        return is_scores(path)
    with suppress(InputError):
        return path.is_file() and is_scores(path)
    return False
