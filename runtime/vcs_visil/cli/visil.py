"""`vcs-runtime visil`: the information of a video that summaries lose (docs/guide/visil.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
from click.core import ParameterSource

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import (
    PATH,
    NumberRange,
    SectionedCommand,
    as_json,
    check_resume,
    combined,
    max_read_mb,
    overwrite,
    resume,
    together,
    usage_errors,
)
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.output import JobFiles, OutputFile
from vcs_runtime.util.presence import is_there
from vcs_runtime.util.printable import printable
from vcs_visil.asking import VisilOptions
from vcs_visil.cli.model import (
    ModelOptions,
    exit_with,
    frames_option,
    items_argument,
    output_option,
    prompts_option,
    recording,
    say_approximate,
    scorer_model_options,
    tolerance_option,
    writer_device_options,
)
from vcs_visil.cli.report import correlate, report, select
from vcs_visil.frames import VideoFile, format_timecode, parse_timecode, uniform
from vcs_visil.jobs.benchmarks import Source
from vcs_visil.jobs.items import read_videos
from vcs_visil.jobs.scores import Scope, score_videos
from vcs_visil.jobs.steps import KINDS, SEED, STEPS, Writing, read_donors, run_step
from vcs_visil.masking import COUNTS
from vcs_visil.models.generated import FLOOR
from vcs_visil.models.probing import require_passed
from vcs_visil.models.recorded import Recorded
from vcs_visil.prompts import Prompts
from vcs_visil.prompts import builtin as builtin_prompts
from vcs_visil.writing import KEYFRAMES

# The options that not all steps have, with the steps that have them.
_OPTIONS = {
    "frames": ("answer", "caption", "correspond", "keyframes", "summarize"),
    "builtin": ("keywords",),
    "keyframes": ("summarize",),
    "kind": ("confuse",),
    "seed": ("confuse",),
    "video": ("answer",),
}


@dataclass(frozen=True)
class _Outputs:
    """Where lines are written."""

    output: Path
    resume: bool
    overwrite: bool
    record: Path | None = None  # of the model's answers

    def job(self, inputs: Sequence[Path]) -> JobFiles:
        """Return the files of a job that reads `inputs` and reports on standard error."""
        return JobFiles(self.output, self.resume, self.overwrite, report=warn, inputs=inputs)


@dataclass(frozen=True)
class _StepOptions:
    """Options that not all steps have."""

    frames: int
    builtin: bool
    keyframes: tuple[int, ...]
    kind: tuple[str, ...]
    seed: int
    video: bool


@dataclass(frozen=True)
class _Scoring:
    """How ViSIL is computed."""

    samples: int
    floor: float
    count: str
    folder: Path | None  # of the prompts

    def options(self, asked: ModelOptions) -> VisilOptions:
        """Return the options for a model; raise UsageError for one that cannot be used."""
        prompts = Prompts.read(self.folder) if self.folder else None
        with usage_errors():
            return VisilOptions(
                self.samples, str(asked.method), self.count, prompts, asked.top, self.floor
            )


@click.command(cls=SectionedCommand)
@click.argument("what", type=click.Choice(list(STEPS)), metavar="WHAT")
@items_argument
@output_option
@resume
@overwrite
@writer_device_options
@together(max_read_mb, advanced=True)
@prompts_option
@frames_option
@click.option(
    "--builtin",
    is_flag=True,
    help="For `keywords`: choose rare words, spread over the caption, without a model.",
)
@click.option(
    "--keyframes",
    type=click.IntRange(0, KEYFRAMES),
    multiple=True,
    default=Writing.keyframes,
    metavar="N",
    help="For `summarize`: number of keyframes in a summary (the first ones); may be repeated.",
)
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    multiple=True,
    default=KINDS,
    help="For `confuse`: change the text (with a model) or keyframes (without); may be repeated.",
)
@click.option("--seed", type=int, default=SEED, metavar="N", help="For `confuse`: random seed.")
@click.option(
    "--video", is_flag=True, help="For `answer`: also answer from the frames of the full video."
)
@combined("files", _Outputs)
@combined("options", _StepOptions)
@click.pass_context
def write(
    context: click.Context,
    what: str,
    items: Path,
    files: _Outputs,
    asked: ModelOptions,
    folder: Path | None,
    options: _StepOptions,
) -> None:
    """Write captions, keywords, summaries or answers for ITEMS.

    \b
    caption     a caption
    keywords    words of the caption that are scored
    keyframes   three timecodes of the video file, with descriptions
    summarize   summaries "text", "1-image", "3-image", with 0, 1 and 3 keyframes
    confuse     summaries with a changed fact, or with keyframes of another video
    correspond  which summaries belong to the video, with a confidence from 1 to 5
    answer      answers to the field `questions`, from each summary alone

    The first five steps write a copy of ITEMS, with the new field in each line that lacks the
    field. `correspond` writes a line per summary, and `answer` a line per question and summary, for
    `visil report` and `visil correlate`.

    The field `corresponds` of a summary (true or false) gives `correct` (1 or 0). Confused
    summaries are judged too, but never together with the true form.

    \b
    Example:
      vcs-runtime visil write keywords items.jsonl --builtin -o ready.jsonl
    """
    _check_step_options(context, what)
    kinds = tuple(dict.fromkeys(options.kind))
    without_model = options.builtin or (what == "confuse" and "text" not in kinds)
    if without_model and asked.model:
        option = "--builtin" if options.builtin else "--kind keyframes"
        raise click.UsageError(f"{option} needs no --model")
    if os.path.dirname(os.path.realpath(files.output)) != os.path.dirname(os.path.realpath(items)):
        raise click.UsageError(
            "the output must be in the folder of the input, because the paths in it are relative"
            " to it"
        )
    check_resume(files.resume, files.overwrite)
    donors = read_donors(items) if what == "confuse" else []
    # Before a model is loaded.
    prompts = Prompts.read(folder) if folder and not without_model else builtin_prompts()
    writing = Writing(
        None if without_model else asked.open(),
        prompts,
        options.frames,
        options.keyframes,
        options.video,
        kinds,
        options.seed,
        donors,
    )
    step = writing.step(what)
    exit_with(run_step(step, items, files.job(asked.files(prompts=folder))))


def _check_step_options(context: click.Context, step: str) -> None:
    """Raise UsageError for an option that the step does not have."""
    for option, steps in _OPTIONS.items():
        if step in steps:
            continue
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{option} is only for {', '.join(steps)}, not for {step}")


@click.group
def visil() -> None:
    """Measure how much information a summary of a video loses.

    A vision-language model gives the probability of the video's caption, given the video and given
    the summary. The model runs in this process (--model genai:DIR) or on a server that you name. No
    other server is asked.
    """


@visil.command(cls=SectionedCommand)
@items_argument
@output_option
@scorer_model_options
@together(max_read_mb, advanced=True)
@frames_option
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Number of answers to average; 1 is enough for a deterministic model.",
)
@click.option(
    "--floor",
    type=NumberRange(max=0, max_open=True),
    default=FLOOR,
    metavar="NATS",
    help="Lowest log-probability of a keyword, for --method generate.",
)
@click.option(
    "--count",
    type=click.Choice(COUNTS),
    default=COUNTS[0],
    help="Occurrences of a keyword that are scored.",
)
@click.option(
    "--video",
    is_flag=True,
    help="Also score the video itself: always 0, with its number of tokens.",
)
@click.option(
    "--drop-missing", is_flag=True, help="Leave out keywords that are not in the caption."
)
@click.option(
    "--record",
    type=PATH,
    metavar="FILE",
    help="File that stores all answers of the model, so that none is requested twice.",
)
@prompts_option
@tolerance_option
@resume
@overwrite
@as_json
@combined("files", _Outputs)
@combined("scope", Scope)
@combined("scoring", _Scoring)
def score(
    items: Path,
    asked: ModelOptions,
    files: _Outputs,
    scope: Scope,
    scoring: _Scoring,
    tolerance: float,
    as_json: bool,
) -> None:
    """Score the summaries of the videos in ITEMS.

    ITEMS is a JSONL file with one video per line (docs/guide/visil.md). The model is probed first.

    \b
    Example:
      vcs-runtime visil score ready.jsonl -o scores.jsonl --model genai:model
    """
    check_resume(files.resume, files.overwrite)
    options = scoring.options(asked)
    read_videos(items)  # errors of the file are reported before a model is loaded and probed
    model = asked.open()
    if isinstance(model, Recorded):
        warn("the model of the recorded answers is not probed")
    else:
        for check in require_passed(model, asked.probed(model, tolerance)):
            warn(f"probe: {check.name}: {check.detail}")
    job = files.job(asked.files(files.record, prompts=scoring.folder))
    with recording(model, files.record) as recorded:
        done = score_videos(recorded, items, job, options, scope)
    signature = options.signature(model.fingerprint, scope.frames)
    if as_json:
        counts = {
            "scored": done.scored,
            "failed": done.failed,
            "resumed": done.resumed,
            **done.unknown,
        }
        click.echo(json.dumps({**counts, "signature": signature}))
    else:
        say_approximate(files.output, done.unknown)
        before = f", {done.resumed} of them earlier" if done.resumed else ""
        click.echo(f"{done.scored} scored, {done.failed} failed{before}\n{printable(signature)}")
    exit_with(done.failed)


@visil.command(cls=SectionedCommand)
@scorer_model_options
@click.option(
    "--no-images", is_flag=True, help="Skip the check of images, for a model that receives none."
)
@tolerance_option
def probe(asked: ModelOptions, no_images: bool, tolerance: float) -> None:
    """Check that a model's log-probabilities can be trusted.

    The exit code is 1 if a check fails.

    \b
    Example:
      vcs-runtime visil probe --model genai:model
    """
    model = asked.open()
    checks = asked.probed(model, tolerance, images=not no_images)
    click.echo(printable(model.fingerprint))
    for check in checks:
        click.echo(
            f"{'passed' if check.passed else 'FAILED'}  {check.name}: {printable(check.detail)}"
        )
    exit_with(not checks[-1].passed)


@visil.command(cls=SectionedCommand)
@click.argument("video", type=PATH)
@click.option(
    "-o", "--output", type=PATH, required=True, metavar="DIR", help="Folder for the PNG files."
)
@click.option(
    "--at",
    "timecodes",
    multiple=True,
    metavar="HH:MM:SS:FF",
    help="SMPTE timecode of a frame, instead of --frames; may be repeated.",
)
@frames_option
def frames(video: Path, output: Path, timecodes: tuple[str, ...], frames: int) -> None:
    """Save frames of a video as PNG files.

    This needs `vcs-runtime[video]`.

    \b
    Example:
      vcs-runtime visil frames ride.mp4 --at 00:00:01:03 -o frames
    """
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


def _source(
    questions: Path, videos: Path | None, subtitles: Path | None, task: str | None
) -> Source:
    return Source(questions, videos, subtitles, task)


@visil.command("import", cls=SectionedCommand)
@click.argument("questions", type=PATH)
@output_option
@click.option(
    "--videos", type=PATH, metavar="DIR", help="Folder of the videos. [default: as in the download]"
)
@click.option(
    "--subtitles",
    type=PATH,
    metavar="DIR",
    help="Folder of the subtitles. [default: as in the download]",
)
@click.option(
    "--task",
    metavar="NAME",
    help="Category of LongVideoBench's questions, such as SSS. [default: all categories]",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Maximum number of videos.")
@click.option("--drop-missing", is_flag=True, help="Leave out videos whose files are missing.")
@overwrite
@combined("source", _source)
def import_questions(
    source: Source, output: Path, limit: int | None, drop_missing: bool, overwrite: bool
) -> None:
    """Make items from questions of MVBench or LongVideoBench.

    QUESTIONS is MVBench's json/TASK.json or LongVideoBench's lvb_val.json. The file must stay where
    the download put it, so that its videos are found. Each video becomes one item with its
    questions.

    \b
    Example:
      vcs-runtime visil import LongVideoBench/lvb_val.json -o items.jsonl
    """
    items = source.items(output.parent, None if drop_missing else limit)
    missing = [item for item in items if not is_there(output.parent / item["video"])]
    if missing and not drop_missing:
        place = output.parent / missing[0]["video"]
        raise InputError(
            f"{place}: the video is missing ({len(missing)} in all): download it, name its folder"
            " (--videos), or add --drop-missing"
        )
    if missing:
        warn(f"{source.path}: missing videos are left out: {len(missing)}")
        items = [item for item in items if item not in missing][:limit]
    with OutputFile(output, [source.path], resume=False, overwrite=overwrite) as lines:
        lines.append(items)
    count = sum(len(item["questions"]) for item in items)
    click.echo(f"{len(items)} videos, {count} questions")


for command in (write, select, correlate, report):
    visil.add_command(command)
