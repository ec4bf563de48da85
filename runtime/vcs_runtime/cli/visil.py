"""`vcs-runtime visil`: information that multimodal summaries lose (docs/visil.md)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.tables import console
from vcs_runtime.cli.visil_model import (
    exclusive,
    exit_with,
    frames_option,
    items_argument,
    json_option,
    model_options,
    open_model,
    output_option,
    overwrite_option,
    prompts_option,
    recording,
    resume_option,
    tolerance_option,
    warn,
)
from vcs_runtime.cli.visil_steps import answer, caption, correspond, keyframes, keywords, summarize
from vcs_runtime.errors import InputError
from vcs_runtime.experiments.lexical import need
from vcs_runtime.jobs.jsonl import read_jsonl
from vcs_runtime.util.figures import require_matplotlib
from vcs_runtime.visil import job, plots, probing
from vcs_runtime.visil.correlation import SEED, SHUFFLES, correlate
from vcs_runtime.visil.frames import VideoFile, uniform
from vcs_runtime.visil.items import read_items
from vcs_runtime.visil.prompts import Prompts
from vcs_runtime.visil.recorded import Recorded
from vcs_runtime.visil.score import METHODS, Options
from vcs_runtime.visil.selection import frontier, select_summary
from vcs_runtime.visil.timecode import parse_timecode, timecode

_PATH = click.Path(path_type=Path)


@click.group()
def visil() -> None:
    """How much of a video's caption a summary loses, by a vision-language model's own probabilities.

    The model runs in this process (--genai) or behind a server that you name; no other is asked.
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
    help="Times to ask; log-probabilities are averaged. A model that always answers alike needs one.",
)
@click.option("--method", type=click.Choice(METHODS), default=METHODS[0], show_default=True)
@click.option(
    "--count",
    type=click.Choice(["first", "all"]),
    default="first",
    show_default=True,
    help="Which occurrences of a keyword count.",
)
@click.option("--drop-missing", is_flag=True, help="Leave out keywords that are not in the caption.")
@click.option("--builtin-keywords", is_flag=True, help="Choose keywords where a line has none.")
@click.option(
    "--record", type=_PATH, metavar="FILE", help="Keep every answer in FILE; asked again, it is there."
)
@prompts_option
@tolerance_option
@resume_option
@overwrite_option
@json_option
def score(
    items: Path, output: Path, frames: int, samples: int, method: str, count: str, drop_missing: bool,
    builtin_keywords: bool, record: Path | None, folder: Path | None, tolerance: float, resume: bool,
    overwrite: bool, as_json: bool, **model: Any,
) -> None:  # fmt: skip
    """Score the summaries of the videos in ITEMS (JSONL). The model is probed first."""
    exclusive(resume, overwrite)
    options = Options(samples, method, count, Prompts.read(folder) if folder else None)
    for _ in read_items(items):  # what is wrong with the file is told before a model is loaded and probed
        pass
    opened = open_model(model)
    if isinstance(opened, Recorded):
        warn("recorded answers: the model that gave them is not probed")
    else:
        for check in probing.require(opened, tolerance=tolerance):
            warn(f"probe: {check.name}: {check.detail}")
    with recording(opened, record) as asked:
        done = job.run(
            asked, items, output, options, frames=frames, drop_missing=drop_missing,
            choose_keywords=builtin_keywords, resume=resume, overwrite=overwrite, report=warn,
        )  # fmt: skip
    line = options.signature(opened.fingerprint, frames)
    if as_json:
        click.echo(json.dumps({**vars(done), "signature": line}))
    else:
        before = f", {done.resumed} of them before" if done.resumed else ""
        click.echo(f"{done.scored} scored, {done.failed} failed{before}\n{line}")
    exit_with(done.failed)


@visil.command()
@model_options
@click.option("--no-images", is_flag=True, help="Of a model that will be given none.")
@tolerance_option
def probe(no_images: bool, tolerance: float, **model: Any) -> None:
    """Check that a model's numbers are what they are taken for. Exit code 1: they are not."""
    opened = open_model(model)
    found = probing.probe(opened, images=not no_images, tolerance=tolerance)
    click.echo(opened.fingerprint)
    for check in found:
        click.echo(f"{'passed' if check.passed else 'FAILED'}  {check.name}: {check.detail}")
    exit_with(not found[-1].passed)


@visil.command()
@click.argument("video", type=_PATH)
@click.option("--out", type=_PATH, required=True, metavar="DIR", help="Where the PNG files go.")
@click.option("--at", "timecodes", multiple=True, metavar="HH:MM:SS:FF", help="May be given several times.")
@frames_option
def frames(video: Path, out: Path, timecodes: tuple[str, ...], frames: int) -> None:
    """Take frames of VIDEO: at SMPTE timecodes, or uniformly."""
    file = VideoFile(video)
    if timecodes:
        numbers = [parse_timecode(text, file.fps, frames=file.frames) for text in timecodes]
    else:
        numbers = uniform(file.frames, frames)
    out.mkdir(parents=True, exist_ok=True)
    for number, image in zip(numbers, file.read(numbers), strict=True):
        path = out / f"{number:06}.png"
        path.write_bytes(image.data)
        click.echo(f"{path}  {timecode(number, file.fps)}")


@visil.command()
@click.argument("scores", type=_PATH)
@click.option(
    "--alpha",
    type=click.FloatRange(min=0),
    multiple=True,
    metavar="X",
    required=True,
    help="Nats that a token is worth; may be given several times.",
)
@click.option("--plot", type=_PATH, metavar="FILE", help="Draw summaries and choices as PNG.")
@json_option
def select(scores: Path, alpha: tuple[float, ...], plot: Path | None, as_json: bool) -> None:
    """Choose a summary of each video in SCORES.

    By the least score + alpha * tokens; and the frontier: what is chosen as alpha grows.
    """
    if plot:
        require_matplotlib()
    candidates = {}
    for name, parts in job.read_scores(scores).items():
        if any(part["tokens"] is None for part in parts):
            raise InputError(f"{scores}: {name}: tokens of a summary are not known; give them in the items")
        candidates[name] = [(part["name"], part["visil"], part["tokens"]) for part in parts]
    fronts = {name: frontier(listed) for name, listed in candidates.items()}
    if plot:
        plots.trade_off(candidates, list(fronts.values()), plot)
    for name, listed in candidates.items():
        chosen = {f"{a:g}": select_summary(listed, a) for a in alpha}
        front = [{"alpha": step.alpha, "name": step.name} for step in fronts[name]]
        if as_json:
            click.echo(json.dumps({"id": name, "chosen": chosen, "frontier": front}))
        else:
            steps_ = ", ".join(f"{step['name']} from {step['alpha']:.6g}" for step in front)
            click.echo(f"{name}: {'; '.join(f'alpha {a}: {c}' for a, c in chosen.items())} ({steps_})")


@visil.command("correlate")
@click.argument("scores", type=_PATH)
@click.option(
    "--answers",
    type=_PATH,
    required=True,
    metavar="FILE",
    help="JSONL: id, name (of the summary), correct (0 or 1).",
)
@click.option("--trim", is_flag=True, help="Leave out one largest and one smallest score.")
@click.option("--by-video", is_flag=True, help="Shuffle answers within a video only.")
@click.option("--shuffles", type=click.IntRange(min=100), default=SHUFFLES, show_default=True)
@click.option("--seed", type=int, default=SEED, show_default=True)
@click.option("--plot", type=_PATH, metavar="FILE", help="Draw answers and the logistic curve as PNG.")
@json_option
def correlate_command(
    scores: Path, answers: Path, trim: bool, by_video: bool, shuffles: int, seed: int, plot: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Correlate SCORES with answers to questions. Needs `vcs-runtime[experiments]`."""
    need("scipy")
    if plot:
        require_matplotlib()
    by_name = {
        (video, part["name"]): part["visil"]
        for video, parts in job.read_scores(scores).items()
        for part in parts
    }
    x, y, videos, failed = [], [], [], 0
    for number, row in read_jsonl(answers):
        place = f"{answers} line {number}"
        if isinstance(row, dict) and "error" in row:  # a video that `visil answer` could not use
            failed += 1
            continue
        if not isinstance(row, dict) or not {"id", "name", "correct"} <= row.keys():
            raise InputError(f"{place}: an object with 'id', 'name' and 'correct' was expected")
        if row["correct"] not in (0, 1):
            raise InputError(f"{place}: 'correct' must be 0 or 1, not {row['correct']!r}")
        key = (str(row["id"]), row["name"])
        if key not in by_name:
            raise InputError(f"{place}: {scores} has no score of summary {key[1]!r} of {key[0]!r}")
        x.append(by_name[key])
        y.append(int(row["correct"]))
        videos.append(key[0])
    if failed:
        warn(f"{answers}: {failed} lines with an error are left out")
    found = correlate(x, y, groups=videos if by_video else None, trim=trim, shuffles=shuffles, seed=seed)
    if plot:
        plots.correlation(x, y, found, plot)
    if as_json:
        click.echo(json.dumps(found.to_dict()))
        return
    out = console()
    out.print(f"{found.n} answers, {found.correct} correct")
    how = "exact" if found.exact else f"{shuffles} shuffles{', within videos' if by_video else ''}"
    out.print(f"Pearson's r {found.r:.6f}, p {found.p:.6f} (two-sided, {how})")
    if found.logit:
        b = found.logit
        out.print(
            f"logit: b0 {b.b0:.6f} (se {b.se0:.6f}, p {b.p0:.6f}), "
            f"b1 {b.b1:.6f} (se {b.se1:.6f}, p {b.p1:.6f})"
        )
    else:
        out.print("logit: none; a threshold on the scores separates the answers")


for command in (caption, keywords, keyframes, summarize, correspond, answer):
    visil.add_command(command)
