"""`vcs-runtime experiment clip-cc-bench`: the leaderboard of CLIP-CC-Bench."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from vcs_experiments import clip_cc_bench as study
from vcs_experiments.cli.results import exit_if, finish
from vcs_experiments.datasets.clip_cc import find_texts, read_published
from vcs_experiments.datasets.texts import Problems
from vcs_experiments.leaderboard import document, leaderboard
from vcs_experiments.results import Output, check_output
from vcs_experiments.statistics import Significance
from vcs_runtime.cli.compare import correction, enough_resamples, seed_option
from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.notices import open_scorer
from vcs_runtime.cli.options import (
    PATH,
    SectionedCommand,
    as_json,
    check_resume,
    combined,
    csv_safe,
    max_read_mb,
    overwrite,
    resume,
    scorer_options,
    together,
)
from vcs_runtime.cli.tables import console, print_table
from vcs_runtime.scoring.opening import open_bundles
from vcs_runtime.scoring.options import ScorerConfig
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.extras import require
from vcs_runtime.util.figures import require_matplotlib

#: MiB for vectors: the references of 200 clips and the predictions of one system, of 4,096
#: components.
_MEMORY_MB = 1024


@dataclass(frozen=True)
class _Outputs:
    """Where the results go."""

    output: Path | None
    resume: bool
    overwrite: bool
    as_json: bool
    drawn: bool


@click.command("clip-cc-bench", cls=SectionedCommand)
@click.argument("data", type=PATH, required=False)
@click.option(
    "--judge",
    "judges",
    multiple=True,
    metavar="[NAME=]BUNDLE",
    help="Bundle of a judge, and a name for it; may be repeated. [default: --bundle]",
)
@click.option(
    "--add",
    "added",
    type=PATH,
    multiple=True,
    metavar="FILE",
    help="Predictions of an additional system, {clip: text}; may be repeated.",
)
@click.option(
    "--published",
    is_flag=False,
    flag_value="",
    metavar="[DIR]",
    help="Print the published leaderboard, computed from DATA or DIR if given, and exit.",
)
@click.option("-o", "--output", type=PATH, metavar="DIR", help="Folder for the results.")
@together(csv_safe, max_read_mb, advanced=True)
@resume
@overwrite
@as_json
@click.option("--plots", "drawn", is_flag=True, help="Draw a plot into the folder of --output.")
@together(correction, enough_resamples, seed_option, advanced=True)
@scorer_options
@combined("outputs", _Outputs)
@combined("significance", Significance)
def clip_cc_bench(
    data: Path | None,
    judges: tuple[str, ...],
    added: tuple[Path, ...],
    published: str | None,
    outputs: _Outputs,
    significance: Significance,
    config: ScorerConfig,
) -> None:
    """Rank systems as CLIP-CC-Bench does, with your judges.

    DATA is a checkout of the benchmark, or a folder with references.json and
    predictions/SYSTEM.json. Every judge scores every system, and systems are ranked by Borda count.
    --output receives all tables, the scores, and result files in the benchmark's schema.

    \b
    Examples:
      vcs-runtime experiment clip-cc-bench CLIP-CC-Bench -o board
      vcs-runtime experiment clip-cc-bench CLIP-CC-Bench \\
        --judge nv-embed=authors --add mine.json -o board
      vcs-runtime experiment clip-cc-bench --published --json
    """
    output = outputs.output
    if published is not None:
        if judges or added or output:
            raise click.UsageError(
                "--published does not score: leave out --judge, --add and --output"
            )
        _print_published(Path(published) if published else data, outputs.as_json)
        return
    if data is None or output is None:
        raise click.UsageError("give DATA and --output, or --published")
    check_resume(outputs.resume, outputs.overwrite)
    require("scipy", "experiments", "this experiment")
    if outputs.drawn:
        require_matplotlib()
    configs = _judges(judges, replace(config, cache_mb=_MEMORY_MB))
    references, predictions = find_texts(data)
    problems = Problems(warn)
    texts, systems = study.read_texts(references, predictions, added, problems)
    check_output(output, references, *added)
    opened: dict[str, Callable[[], AbstractContextManager[Scorer]]] = {}
    for name, judge in configs.items():
        opened[name] = partial(open_scorer, judge)
    out = Output(output, outputs.resume, outputs.overwrite)
    sources = (references, *added)
    lines = study.score_all(opened, texts, systems, out, sources, problems)
    results, places, means = study.run(
        lines,
        out,
        problems,
        significance,
        added=[path.stem for path in added],
        plots=outputs.drawn,
    )
    if outputs.as_json:
        results.write(output)
        click.echo(json.dumps(document(places, means, str(data))))
        exit_if(results.problems)
    else:
        finish(results, output)


def _judges(values: tuple[str, ...], config: ScorerConfig) -> dict[str, ScorerConfig]:
    """Return how each judge is opened, by its name. The default name is the folder's last part.

    All bundles are opened here. Otherwise the job would meet a wrong one only after the judges
    before it have scored.
    """
    bundles: dict[str, str] = {}
    for value in values or (str(config.bundle),):
        name, equals, bundle = value.partition("=")
        if not equals:
            name, bundle = Path(value).name, value
        if not name or not bundle or Path(name).name != name:
            raise click.UsageError(f"--judge: {value!r} is not NAME=BUNDLE")
        if name in bundles:
            raise click.UsageError(
                f"--judge: two judges are called {name!r}: rename one, as NAME=BUNDLE"
            )
        bundles[name] = bundle
    configs: dict[str, ScorerConfig] = {}
    for name, bundle in bundles.items():
        verified, _ = open_bundles(replace(config, bundle=bundle))
        assert verified is not None  # it is None only with the caller's embedder
        configs[name] = replace(config, bundle=verified)
    return configs


def _print_published(folder: Path | None, as_json: bool) -> None:
    means, names, source = read_published(folder)
    places = leaderboard(means, names)
    if as_json:
        click.echo(json.dumps(document(places, means, source)))
        return
    judges = sorted(means)
    rows = []
    for place in places:
        values = [place.mean_hm_cf, place.mean_coarse, place.mean_fine]
        values += [means[judge][place.system].hm_cf for judge in judges]
        cells = [f"{value:.4f}" for value in values]
        rows.append((str(place.rank), place.name, str(place.borda), *cells))
    headings = ("rank", "system", "Borda", "HM-CF", "coarse", "fine F1", *judges)
    print_table(headings, rows, more="with --json")
    console().print(
        f"\n{len(places)} systems, {len(judges)} judges. Columns of judges: their mean HM-CF."
    )
    console().print(source, soft_wrap=True)
