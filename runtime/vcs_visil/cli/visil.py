"""`vcs-runtime visil`: the information of a video that summaries lose (docs/guide/visil.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    PATH,
    NumberRange,
    check_resume,
    max_read_mb,
    overwrite,
    resume,
    usage_errors,
)
from vcs_runtime.cli.tables import console
from vcs_runtime.errors import InputError
from vcs_runtime.util.extras import require
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.util.printable import printable
from vcs_visil import plots
from vcs_visil.cli.importing import import_questions
from vcs_visil.cli.model import (
    exit_with,
    files_read,
    frames_option,
    items_argument,
    json_option,
    model_options,
    open_model,
    output_option,
    probed,
    prompts_option,
    recording,
    say_approximate,
    tolerance_option,
)
from vcs_visil.cli.report import report
from vcs_visil.cli.steps import answer, caption, confuse, correspond, keyframes, keywords, summarize
from vcs_visil.correlation import SEED, SHUFFLES, correlate
from vcs_visil.frames import VideoFile, format_timecode, parse_timecode, uniform
from vcs_visil.jobs.items import read_items
from vcs_visil.jobs.scores import (
    are_approximate,
    read_answers,
    read_scores,
    score_videos,
    without_videos,
)
from vcs_visil.masking import COUNTS
from vcs_visil.models.generated import FLOOR
from vcs_visil.models.probing import require_passed
from vcs_visil.models.recorded import Recorded
from vcs_visil.options import VisilOptions
from vcs_visil.prompts import Prompts
from vcs_visil.selection import frontier, select_summary


@click.group()
def visil() -> None:
    """Score how much information a summary of a video loses.

    A vision-language model gives the probability of the video's caption, given the video and given the
    summary. The model runs in this process (--genai) or on a server that you name; no other server is asked.
    """


@visil.command()
@items_argument
@output_option
@model_options
@frames_option
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of times to ask, averaged; 1 is enough for a deterministic model.",
)
@click.option(
    "--floor",
    type=NumberRange(max=0, max_open=True),
    default=FLOOR,
    show_default=True,
    metavar="NATS",
    help="Lowest log-probability of a keyword, for --method generate; below 0.",
)
@click.option(
    "--count",
    type=click.Choice(COUNTS),
    default=COUNTS[0],
    show_default=True,
    help="Which occurrences of a keyword are scored.",
)
@click.option("--video", is_flag=True, help="Also score the video itself: 0, with its number of tokens.")
@click.option("--drop-missing", is_flag=True, help="Leave out keywords that are not in the caption.")
@click.option("--builtin-keywords", is_flag=True, help="Choose keywords for videos without them.")
@click.option(
    "--record",
    type=PATH,
    metavar="FILE",
    help="File that stores every answer of the model; none is asked for twice.",
)
@prompts_option
@tolerance_option
@resume
@overwrite
@json_option
def score(
    items: Path, output: Path, frames: int, samples: int, floor: float, count: str, video: bool,
    drop_missing: bool, builtin_keywords: bool, record: Path | None, folder: Path | None, tolerance: float,
    resume: bool, overwrite: bool, as_json: bool, **model: Any,
) -> None:  # fmt: skip
    """Score the summaries of the videos in ITEMS.

    ITEMS is a JSONL file with one video per line (docs/guide/visil.md). The model is probed first.
    """
    check_resume(resume, overwrite)
    prompts = Prompts.read(folder) if folder else None
    with usage_errors():
        options = VisilOptions(samples, model["method"], count, prompts, model["top"], floor)
    for _ in read_items(items):  # errors of the file are reported before a model is loaded and probed
        pass
    opened = open_model(model)
    if isinstance(opened, Recorded):
        warn("recorded answers: the model that gave them is not probed")
    else:
        for check in require_passed(opened, probed(opened, model, tolerance)):
            warn(f"probe: {check.name}: {check.detail}")
    with recording(opened, record) as recorded:
        done = score_videos(
            recorded, items, output, options, frames=frames, video=video, drop_missing=drop_missing,
            choose_keywords=builtin_keywords, inputs=files_read({**model, "record": record}, folder),
            resume=resume, overwrite=overwrite, report=warn,
        )  # fmt: skip
    signature = options.signature(opened.fingerprint, frames)
    if as_json:
        click.echo(json.dumps({**vars(done), "signature": signature}))
    else:
        before = f", {done.resumed} of them before" if done.resumed else ""
        click.echo(f"{done.scored} scored, {done.failed} failed{before}\n{printable(signature)}")
    exit_with(done.failed)


@visil.command()
@model_options
@click.option("--no-images", is_flag=True, help="Skip the check of images, for a model that receives none.")
@tolerance_option
def probe(no_images: bool, tolerance: float, **model: Any) -> None:
    """Check that a model's log-probabilities can be trusted.

    The exit code is 1 if a check fails.
    """
    opened = open_model(model)
    checks = probed(opened, model, tolerance, images=not no_images)
    click.echo(printable(opened.fingerprint))
    for check in checks:
        click.echo(f"{'passed' if check.passed else 'FAILED'}  {check.name}: {printable(check.detail)}")
    exit_with(not checks[-1].passed)


@visil.command()
@click.argument("video", type=PATH)
@click.option("-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder for the PNG files.")
@click.option(
    "--at",
    "timecodes",
    multiple=True,
    metavar="HH:MM:SS:FF",
    help="SMPTE timecode of a frame, instead of --frames; may be repeated.",
)
@frames_option
def frames(video: Path, output: Path, timecodes: tuple[str, ...], frames: int) -> None:
    """Save frames of VIDEO, by timecode or uniformly sampled."""
    file = VideoFile(video)
    if timecodes:
        numbers = [parse_timecode(text, file.fps, frames=file.frames) for text in timecodes]
    else:
        numbers = uniform(file.frames, frames)
    output.mkdir(parents=True, exist_ok=True)
    for number, image in zip(numbers, file.read(numbers), strict=True):
        path = output / f"{number:06}.png"
        path.write_bytes(image.data)
        click.echo(f"{path}  {format_timecode(number, file.fps)}")


@visil.command()
@click.argument("scores", type=PATH)
@click.option(
    "--alpha",
    type=NumberRange(min=0),
    multiple=True,
    metavar="X",
    required=True,
    help="Price of a token in nats; may be repeated.",
)
@click.option("--plot", type=PATH, metavar="FILE", help="PNG file with a plot of summaries and choices.")
@max_read_mb
@json_option
def select(scores: Path, alpha: tuple[float, ...], plot: Path | None, as_json: bool) -> None:
    """Choose a summary of each video in SCORES.

    SCORES is an output of `visil score`. The chosen summary has the least score + alpha * tokens. The
    frontier is also printed: the choices as alpha grows from 0.
    """
    if plot:
        require_matplotlib()
    candidates, scored = {}, read_scores(scores)
    say_approximate(scores, are_approximate(scored))
    for name, parts in without_videos(scored).items():
        if any(part["tokens"] is None for part in parts):
            raise InputError(f"{scores}: {name}: the tokens of a summary are unknown; add them to the items")
        candidates[name] = [(part["name"], part["visil"], part["tokens"]) for part in parts]
    fronts = {name: frontier(listed) for name, listed in candidates.items()}
    if plot:
        plots.trade_off(candidates, list(fronts.values()), plot)
    for name, listed in candidates.items():
        with usage_errors():
            chosen = {f"{a:g}": select_summary(listed, a) for a in alpha}
        front = [{"alpha": step.alpha, "name": step.name} for step in fronts[name]]
        if as_json:
            click.echo(json.dumps({"id": name, "chosen": chosen, "frontier": front}))
        else:
            steps_ = ", ".join(f"{step['name']} from {step['alpha']:.6g}" for step in front)
            chosen_ = "; ".join(f"alpha {a}: {c}" for a, c in chosen.items())
            click.echo(printable(f"{name}: {chosen_} ({steps_})"))


@visil.command("correlate")
@click.argument("scores", type=PATH)
@click.option(
    "--answers",
    type=PATH,
    required=True,
    metavar="FILE",
    help="JSONL file of answers with the fields id, name (of the summary) and correct (0 or 1).",
)
@click.option("--trim", is_flag=True, help="Leave out one largest and one smallest score.")
@click.option("--by-video", is_flag=True, help="Shuffle answers within a video only.")
@click.option(
    "--shuffles",
    type=click.IntRange(min=100),
    default=SHUFFLES,
    show_default=True,
    metavar="N",
    help="Number of shuffles of the permutation test.",
)
@click.option("--seed", type=int, default=SEED, show_default=True, metavar="N", help="Seed of the shuffles.")
@click.option(
    "--plot", type=PATH, metavar="FILE", help="PNG file with a plot of answers and the logistic curve."
)
@max_read_mb
@json_option
def correlate_command(
    scores: Path, answers: Path, trim: bool, by_video: bool, shuffles: int, seed: int, plot: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Correlate SCORES with answers to questions.

    SCORES is an output of `visil score`. This command needs the extra `experiments`.
    """
    require("scipy", "experiments", "correlating scores")
    if plot:
        require_matplotlib()
    listed = read_answers(answers, scores)
    say_approximate(scores, listed.approximate)
    if listed.skipped:
        warn(f"{answers}: {listed.skipped} lines with an error are left out")
    if listed.full:
        warn(f"{answers}: {listed.full} answers from the full video are left out: its score is always 0")
    groups = listed.videos if by_video else None
    result = correlate(listed.scores, listed.correct, groups=groups, trim=trim, shuffles=shuffles, seed=seed)
    if plot:
        plots.correlation(listed.scores, listed.correct, result, plot)
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
        out.print("logit: none; a threshold on the scores separates the answers")


for command in (
    caption,
    keywords,
    keyframes,
    summarize,
    confuse,
    correspond,
    answer,
    report,
    import_questions,
):
    visil.add_command(command)
