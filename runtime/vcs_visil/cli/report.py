"""`vcs-runtime visil report`, `select` and `correlate`: summaries by scores and answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    PATH,
    NumberRange,
    SectionedCommand,
    as_json,
    max_read_mb,
    together,
)
from vcs_runtime.cli.tables import console, print_table
from vcs_runtime.errors import InputError
from vcs_runtime.util.extras import require
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.printable import printable
from vcs_visil import correlation, plots
from vcs_visil.cli.model import say_approximate
from vcs_visil.formats import Scores, along_frontier, by_format, candidates_of, drops, paired
from vcs_visil.jobs.scores import read_answers, read_lines, read_scores, unknown_words
from vcs_visil.selection import frontier, select_summary


@click.command(cls=SectionedCommand)
@click.argument("scores", type=PATH)
@click.option(
    "--alpha",
    type=NumberRange(min=0),
    multiple=True,
    metavar="X",
    required=True,
    help="Price of a token in nats; may be repeated.",
)
@as_json
@together(max_read_mb, advanced=True)
def select(scores: Path, alpha: tuple[float, ...], as_json: bool) -> None:
    """Choose a summary of each video, by score and length.

    SCORES is an output of `visil score`. The chosen summary has the least score + alpha * tokens.
    The frontier, which is every choice as alpha grows from 0, is also printed.

    \b
    Example:
      vcs-runtime visil select scores.jsonl --alpha 0.002
    """
    scored = read_scores(scores)
    say_approximate(scores, unknown_words(scored.values()))
    try:
        candidates = candidates_of(scored)
    except ValueError as error:
        raise InputError(f"{scores}: {error}") from None
    for name, listed in candidates.items():
        chosen = {f"{a:g}": select_summary(listed, a) for a in alpha}
        front = [{"alpha": step.alpha, "name": step.name} for step in frontier(listed)]
        if as_json:
            click.echo(json.dumps({"id": name, "chosen": chosen, "frontier": front}))
        else:
            steps = ", ".join(f"{step['name']} from {step['alpha']:.6g}" for step in front)
            choices = "; ".join(f"alpha {a}: {c}" for a, c in chosen.items())
            click.echo(printable(f"{name}: {choices} ({steps})"))


@click.command(cls=SectionedCommand)
@click.argument("scores", type=PATH)
@click.option(
    "--answers",
    type=PATH,
    required=True,
    metavar="FILE",
    help="JSONL file of answers with the fields id, name (of the summary) and correct (0 or 1).",
)
@click.option("--trim", is_flag=True, help="Leave out the largest and the smallest score.")
@click.option("--by-video", is_flag=True, help="Shuffle answers only within each video.")
@click.option(
    "--shuffles",
    type=click.IntRange(min=100),
    default=correlation.SHUFFLES,
    metavar="N",
    help="Number of shuffles of the permutation test.",
)
@click.option("--seed", type=int, default=correlation.SEED, metavar="N", help="Random seed.")
@as_json
@together(max_read_mb, advanced=True)
def correlate(
    scores: Path, answers: Path, trim: bool, by_video: bool, shuffles: int, seed: int, as_json: bool
) -> None:
    """Correlate scores with answers to questions.

    SCORES is an output of `visil score`. This needs `vcs-runtime[experiments]`.

    \b
    Example:
      vcs-runtime visil correlate scores.jsonl --answers answers.jsonl
    """
    require("scipy", "experiments", "correlating scores")
    listed = read_answers(answers, scores)
    say_approximate(scores, listed.unknown)
    if listed.skipped:
        warn(f"{answers}: lines with an error are left out: {listed.skipped}")
    if listed.full:
        warn(
            f"{answers}: answers from the full video are left out, because its score is always 0:"
            f" {listed.full}"
        )
    groups = listed.videos if by_video else None
    result = correlation.correlate(
        listed.scores, listed.correct, groups=groups, trim=trim, shuffles=shuffles, seed=seed
    )
    if as_json:
        click.echo(json.dumps(result.to_dict()))
        return
    out = console()
    out.print(f"{result.n} answers, {result.correct} correct")
    how = "exact" if result.exact else f"{shuffles} shuffles{', within videos' if by_video else ''}"
    out.print(f"Pearson's r {result.r:.6f}, p {result.p:.6f} (two-sided, {how})")
    if result.logit:
        b = result.logit
        out.print(
            f"logit: b0 {b.b0:.6f} (se {b.se0:.6f}, p {b.p0:.6f}), "
            f"b1 {b.b1:.6f} (se {b.se1:.6f}, p {b.p1:.6f})"
        )
    else:
        out.print("logit: no estimate; a threshold on the scores separates the answers")


@click.command(cls=SectionedCommand)
@click.argument("scores", type=PATH, required=False)
@click.option(
    "--answers",
    type=PATH,
    metavar="FILE",
    help="JSONL file of answers to questions, as from `visil write answer`.",
)
@click.option("--judged", type=PATH, metavar="FILE", help="Output of `visil write correspond`.")
@click.option(
    "--alpha",
    type=NumberRange(min=0),
    multiple=True,
    metavar="X",
    help="Price of a token in nats; may be repeated. [default: each at which a choice changes]",
)
@click.option(
    "--plots", "folder", type=PATH, metavar="DIR", help="Folder for the figures as PNG files."
)
@as_json
@together(max_read_mb, advanced=True)
def report(
    scores: Path | None,
    answers: Path | None,
    judged: Path | None,
    alpha: tuple[float, ...],
    folder: Path | None,
    as_json: bool,
) -> None:
    """Compare formats of summaries by scores, tokens, and accuracy.

    SCORES is an output of `visil score`. --answers adds the accuracies by format, and along the
    frontier of `visil select`. --judged adds the accuracy on confused summaries, and needs no
    SCORES.

    \b
    Example:
      vcs-runtime visil report scores.jsonl --answers answers.jsonl
    """
    if scores is None and judged is None:
        raise click.UsageError("give SCORES, --judged, or both")
    if answers and scores is None:
        raise click.UsageError("--answers needs SCORES")
    if folder:
        require_matplotlib()
    result: dict[str, Any] = {}
    if scores:
        listed = read_scores(scores)
        unknown = unknown_words(listed.values())
        say_approximate(scores, unknown)
        result = {
            "approximate": bool(unknown),
            **unknown,
            **_by_format(scores, listed, _read(answers), alpha),
        }
        if folder:
            plots.by_format(listed, result["formats"], folder / "formats.png")
            if "frontier" in result:
                plots.frontier_accuracy(result["frontier"], folder / "frontier.png")
    if judged:
        result["correspondence"] = drops(_read(judged))
        if folder:
            plots.drops(result["correspondence"], folder / "correspondence.png")
    if as_json:
        click.echo(json.dumps(result))
    else:
        _print(result)


def _by_format(
    path: Path, scores: Scores, answers: list[dict[str, Any]], alphas: tuple[float, ...]
) -> dict[str, Any]:
    result: dict[str, Any] = {}
    try:
        result["formats"] = by_format(scores, answers)
        tests = paired(scores, answers)
        if tests:
            result["paired"] = tests
        result["frontier"] = along_frontier(scores, answers, alphas)
    except OverflowError:
        raise InputError(f"{path}: the numbers are too large to be summed") from None
    except ValueError as error:
        if alphas:
            raise InputError(f"{path}: {error}") from None
        warn(f"{path}: {error}; the frontier is left out")
    return result


def _read(path: Path | None) -> list[dict[str, Any]]:
    if path is None:
        return []
    lines, failed = read_lines(path)
    if failed:
        warn(f"{path}: lines with an error are left out: {failed}")
    return [row for _, row in lines]


def _print(result: Mapping[str, Any]) -> None:
    """Print the tables of a report that there are."""
    out = console()
    formats = result.get("formats", ())
    if formats:
        _print_formats(formats)
    if "paired" in result:
        out.print("\nAccuracy of the second format minus that of the first, on the same questions:")
        _print_paired(result["paired"])
    elif sum("accuracy" in row for row in formats) > 1:
        out.print("\nNot compared in pairs: no two formats have answers to the same questions.")
    if "frontier" in result:
        out.print("\nChosen summaries by the price of a token (alpha), and without a choice:")
        _print_frontier(result["frontier"])
    if "correspondence" in result:
        out.print("\nJudgements of true and of confused summaries:" if len(result) > 1 else "")
        _print_correspondence(result["correspondence"])


def _print_formats(formats: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for row in formats:
        means = [_mean(row.get(name), digits) for name, digits in _COLUMNS]
        rows.append([row["format"], *means, _share(row.get("accuracy"))])
    _print_table(["format", *(name for name, _ in _COLUMNS), "accuracy"], rows)
    console().print("\nDistribution of ViSIL in nats:")
    names = ("min", "q1", "median", "q3", "max")
    rows = []
    for row in formats:
        if "visil" in row:
            quartiles = [f"{row['visil'][name]:.4f}" for name in names]
            rows.append([row["format"], str(row["visil"]["n"]), *quartiles])
    _print_table(["format", "n", *names], rows)


def _print_paired(tests: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for test in tests:
        rows.append(
            [
                " and ".join(test["formats"]),
                str(test["questions"]),
                _percent(test["difference"]),
                f"{_percent(test['low'])} to {_percent(test['high'])}",
                f"{test['p']:.4f}",
                f"{test['p_holm']:.4f}",
            ]
        )
    _print_table(["formats", "questions", "difference", "95 % interval", "p", "p (Holm)"], rows)


def _print_frontier(frontier: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    rows = []
    for point in [*frontier["chosen"], *frontier["baselines"]]:
        rows.append(
            [
                f"alpha {point['alpha']:.4g}" if "alpha" in point else point["name"],
                str(point["videos"]),
                f"{point['tokens']:.2f}",
                f"{point['visil']:.4f}",
                _percent(point["accuracy"]),
            ]
        )
    _print_table(["summaries", "videos", "tokens", "ViSIL", "accuracy"], rows)


def _print_correspondence(formats: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for row in formats:
        rows.append([row["format"], "true", _share(row["true"]), ""])
        for kind, accuracy in row["confused"].items():
            drop = _percent(accuracy["drop"])
            rows.append([row["format"], f"confused {kind}", _share(accuracy), drop])
    _print_table(["format", "summaries", "accuracy", "drop"], rows)


_COLUMNS = (("visil", 4), ("tokens", 2), ("seconds", 2), ("confidence", 2))


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table without the columns in which all cells are empty."""
    filled = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    cells = []
    for row in rows:
        cells.append([row[i] for i in filled])
    print_table([columns[i] for i in filled], cells, more="with --json")


def _mean(spread: Mapping[str, Any] | None, digits: int) -> str:
    if spread is None:
        return ""
    mean = f"{spread['mean']:.{digits}f}"
    if spread["sd"] is None:
        return mean
    return f"{mean} ± {spread['sd']:.{digits}f}"


def _share(accuracy: Mapping[str, Any] | None) -> str:
    if accuracy is None:
        return ""
    low, high = _percent(accuracy["low"]), _percent(accuracy["high"])
    return f"{_percent(accuracy['share'])} of {accuracy['n']} ({low} to {high})"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"
