"""`vcs-runtime report`: one pair or many as one HTML file, or one pair as a PDF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.compare import family
from vcs_runtime.cli.inputs import (
    InputOptions,
    as_scored,
    input_options,
    input_pairs,
    is_text_pair,
    keep_column,
    one_pair,
    open_scorer,
    systems_of,
    unmatched,
)
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    PATH,
    FileParams,
    SectionedCommand,
    explaining_options,
    overwrite,
    scorer_options,
    served_embedder,
    usage_errors,
)
from vcs_runtime.comparing.compare import compare
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.pairs import PairSource, count_pairs
from vcs_runtime.jobs.readers.input_file import SUFFIXES, files_of
from vcs_runtime.jobs.score_files import is_scores, metrics_of
from vcs_runtime.report import HtmlReport
from vcs_runtime.report.sources import (
    Explainer,
    report_pair,
    report_pairs,
    report_scores,
    system_sources,
)
from vcs_runtime.report.systems import figures_of
from vcs_runtime.report.wording import date_of
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.util.atomic import refuse_input_as_output
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.progress import progress_bar


@click.command(cls=SectionedCommand)
@click.argument(
    "sources", type=PATH, nargs=-1, metavar="[PAIRS | SCORES... | REFERENCE... GENERATED]"
)
@click.option(
    "-o",
    "--output",
    type=PATH,
    required=True,
    metavar="FILE",
    help="Report to write: a .html file, or for one pair a .pdf file.",
)
@overwrite
@click.option(
    "--pairs",
    "texts",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="Pairs that were scored, a file with the name of each of SCORES; adds pages.",
)
@click.option(
    "--pages",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help=(
        "Number of worst and of best pairs, by margin, that get a page with the texts: of "
        "several systems in equal shares."
    ),
)
@click.option(
    "--ignore-signatures", is_flag=True, help="Report on score files whose signatures differ."
)
@click.option(
    "--title",
    metavar="TEXT",
    help=(
        "Title of the report. [default: the names of the systems and "
        "the number of videos; of one pair, the name of the generated text]"
    ),
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Name of a system, once for each file, in order. [default: the files' names]",
)
@click.option(
    "--baseline",
    metavar="NAME",
    help="System that the others are compared with, by its name or file. [default: the first file]",
)
@family
@click.option(
    "--date",
    "dated",
    metavar="TEXT",
    help="Date below the title. [default: the day on which the newest input was changed]",
)
@input_options
@keep_column
@explaining_options
@scorer_options
@served_embedder
@click.pass_context
def report(
    context: click.Context,
    /,
    sources: tuple[Path, ...],
    output: Path,
    overwrite: bool,
    texts: tuple[Path, ...],
    pages: int,
    ignore_signatures: bool,
    title: str | None,
    names: tuple[str, ...],
    baseline: str | None,
    family: str,
    dated: str | None,
    source: InputOptions,
    params: FileParams,
    options: Options,
    config: ScorerConfig,
) -> None:
    """Write an HTML report of pairs or scores, or a PDF of one pair.

    The source is a file of pairs of any format, one or several score files (one for each system),
    or plain texts: the references of one pair, and last its generated text. --references and
    --predictions stand for PAIRS, or for --pairs.

    An HTML report is one file that needs nothing but a browser; every explained pair has a page in
    it. A PDF holds every view of one pair on A4 pages, and needs `vcs-runtime[report]`. Pairs are
    listed by margin, the worst first; equal ones by VCS, then GAS. Several systems are compared as
    by `vcs-runtime compare`.

    \b
    Examples:
      vcs-runtime report pairs.jsonl -o report.html
      vcs-runtime report scores/*.jsonl -o report.html
      vcs-runtime report scores/*.jsonl --references refs.json --predictions systems/*.json \\
        -o report.html
      vcs-runtime report scores.jsonl --pairs pairs.jsonl -o report.html
      vcs-runtime report reference.txt generated.txt -o report.pdf
    """
    in_pdf, thresholds = _in_pdf(output), params.thresholds
    sources, source = _predictions_apart(tuple(files_of(sources)), source)
    matched = bool(source.prediction_files)
    of_scores = _of_scores(sources, source.format, bool(texts) or matched)
    one = is_text_pair(
        () if of_scores and matched else sources[:1] if of_scores else sources, source
    )
    _check_systems(sources, of_scores, names, baseline)
    if texts and (matched or not of_scores):
        raise click.UsageError(
            "--pairs belongs to SCORES, in place of --references and --predictions"
        )
    if in_pdf and not one:
        raise click.UsageError(
            "a PDF shows one pair, given as text files: write this report as .html"
        )
    if in_pdf:
        require_matplotlib()
    by_name = systems_of(texts, as_scored(source, sources[0], texts[0])) if texts else {}
    if matched or not (of_scores or one):
        by_name = systems_of(() if matched else sources, source)
    found = _texts_of(sources, by_name) if of_scores else [*by_name.values()]
    if len(found) > 1 and not of_scores:
        raise click.UsageError(
            f"texts of {len(found)} systems: a report on several needs the score file of each "
            "(vcs-runtime score ... -o scores/)"
        )
    problems = unmatched(found, options.clean)
    refuse_input_as_output(output, *sources, *chain.from_iterable(each.paths for each in found))
    if output.is_file() and not overwrite:
        raise InputError(f"{output}: it exists; replace it with --overwrite")
    with ExitStack() as stack:
        scorer = stack.enter_context(open_scorer(config)) if found or not of_scores else None
        if one:
            assert scorer is not None
            *references, generated = (path.name for path in sources)
            day = date_of(sources) if dated is None else dated
            report_pair(
                Explainer(scorer, options, thresholds),
                one_pair(sources, options.clean),
                output,
                title or generated,
                (generated, references),
                day,
            )
            click.echo(output)
            return
        comparisons = _compared(sources, names, baseline, family, ignore_signatures)
        html = stack.enter_context(HtmlReport(output, title or ""))
        if of_scores:
            advance = stack.enter_context(
                progress_bar(2 * pages, "explaining", enabled=bool(found))
            )
            systems = report_scores(
                system_sources(sources, found, names),
                Explainer(scorer, options, thresholds) if scorer else None,
                html,
                pages=pages,
                advance=advance,
                force=ignore_signatures,
            )
        else:
            assert scorer is not None
            [pairs] = found
            advance = stack.enter_context(progress_bar(count_pairs(pairs), "explaining"))
            [name] = names or [Path(str(pairs)).stem]
            explainer = Explainer(scorer, options, thresholds)
            systems = report_pairs(explainer, input_pairs(pairs), html, name, advance)
        systems.comparisons, systems.incomparable = comparisons
        systems.dated = _dated(sources, found, of_scores) if dated is None else dated
        html.finish(systems)
    for failed in systems.failed:
        warn(f"{failed.pair}: {failed.reason}")
    click.echo(output)
    context.exit(1 if systems.failed or problems else 0)


def _texts_of(scores: Sequence[Path], texts: Mapping[str, PairSource]) -> list[PairSource]:
    """Return the texts of each score file, found by the score file's name.

    If there is one score file, its texts may have another name.
    """
    if len(scores) == len(texts) == 1:
        return [*texts.values()]
    if lacking := [path.stem for path in scores if texts and path.stem not in texts]:
        raise click.UsageError(
            f"no texts are called {lacking[0]!r}, as that score file is: there are"
            f" {', '.join(texts)}"
        )
    return [texts[path.stem] for path in scores] if texts else []


def _in_pdf(output: Path) -> bool:
    """Whether the report is a PDF."""
    suffix = output.suffix.lower()
    if suffix not in (".html", ".pdf"):
        raise click.UsageError("--output must end in .html or .pdf")
    return suffix == ".pdf"


def _predictions_apart(
    sources: tuple[Path, ...], source: InputOptions
) -> tuple[tuple[Path, ...], InputOptions]:
    """Separate the score files from the prediction files.

    A shell expands `--predictions systems/*.json` so that prediction files follow as arguments.
    """
    if not source.prediction_files:
        return sources, source
    scores = tuple(path for path in sources if str(path) == "-" or is_scores(path))
    others = tuple(path for path in sources if path not in scores)
    return scores, replace(source, prediction_files=(*source.prediction_files, *others))


def _check_systems(
    sources: Sequence[Path], of_scores: bool, names: Sequence[str], baseline: str | None
) -> None:
    """Raise UsageError unless the files, their names and the baseline fit together."""
    several = of_scores and len(sources) > 1
    if several and (other := next((path for path in sources if not is_scores(path)), None)):
        raise click.UsageError(
            f"several files must all be score files, one for each system: {other} is none"
        )
    if len(names) not in (0, len(sources) if of_scores else 1):
        raise click.UsageError(
            "--name must be given once for each system, in the order of the files"
        )
    if baseline is not None and not several:
        raise click.UsageError("--baseline needs several score files")


def _compared(
    files: Sequence[Path], names: Sequence[str], baseline: str | None, family: str, force: bool
) -> tuple[list[dict[str, Any]], str]:
    """Compare systems by each headline score, as `compare` does; if that fails, say why."""
    if len(files) < 2:
        return [], ""
    try:
        with usage_errors():
            scores = figures_of(set.intersection(*(set(metrics_of(file)) for file in files)))
            whole = compare(
                files, names=names, baseline=baseline, scores=scores, family=family, force=force
            )
            return [whole.of_score(score).to_dict() for score in scores], ""
    except InputError as error:  # for example, no id that all have scored
        return [], str(error)


def _dated(sources: Sequence[Path], found: Sequence[PairSource], of_scores: bool) -> str:
    """Date a report by its input; standard input has no date."""
    paths = sources if of_scores else [*chain.from_iterable(each.paths for each in found)]
    if "-" in map(str, sources):
        return ""
    return f"{'scores' if of_scores else 'pairs'} of {date_of(paths)}"


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
