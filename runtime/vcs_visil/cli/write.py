"""`vcs-runtime visil write`: captions, keywords, summaries, judgements and answers by a model."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.core import ParameterSource

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import check_resume, max_read_mb, overwrite, resume
from vcs_visil.cli.model import (
    ModelCommand,
    ModelOptions,
    exit_with,
    frames_option,
    items_argument,
    output_option,
    prompts_option,
    writer_device_options,
)
from vcs_visil.jobs.confusing import KINDS, SEED, read_donors
from vcs_visil.jobs.steps import STEPS, Writing, run_step
from vcs_visil.prompts import Prompts
from vcs_visil.prompts import builtin as builtin_prompts
from vcs_visil.writing import KEYFRAMES

# The options that not all steps have, with the steps that have them.
_OPTIONS = {
    "frames": ("answer", "caption", "correspond", "keyframes", "summarize"),
    "builtin": ("keywords",), "keyframes": ("summarize",), "kind": ("confuse",), "seed": ("confuse",),
    "video": ("answer",),
}  # fmt: skip


@click.command(cls=ModelCommand)
@click.argument("what", type=click.Choice(list(STEPS)), metavar="WHAT")
@items_argument
@output_option
@resume
@overwrite
@writer_device_options
@max_read_mb
@prompts_option
@frames_option
@click.option("--builtin", is_flag=True,
              help="Of keywords: choose rare words, spread over the caption, without a model.")  # fmt: skip
@click.option("--keyframes", type=click.IntRange(0, KEYFRAMES), multiple=True, default=Writing.keyframes,
              show_default=True, metavar="N", help="Of summarize: number of keyframes in a summary, the "
              "first ones of the video; may be repeated.")  # fmt: skip
@click.option("--kind", type=click.Choice(KINDS), multiple=True, default=KINDS, show_default=True,
              help="Of confuse: the text, by a model, or the keyframes, without one; may be repeated."
              )  # fmt: skip
@click.option("--seed", type=int, default=SEED, show_default=True, metavar="N",
              help="Of confuse: seed of the changes and of the videos that give keyframes.")  # fmt: skip
@click.option("--video", is_flag=True, help="Of answer: also answer from the frames of the full video.")
@click.pass_context
def write(
    context: click.Context, what: str, items: Path, output: Path, resume: bool, overwrite: bool,
    asked: ModelOptions, folder: Path | None, frames: int, builtin: bool, keyframes: tuple[int, ...],
    kind: tuple[str, ...], seed: int, video: bool,
) -> None:  # fmt: skip
    """Write what is missing for every video in ITEMS.

    \b
    caption     a caption
    keywords    words of the caption that are scored
    keyframes   three timecodes of the video file, with descriptions
    summarize   summaries "text", "1-image" and "3-image", by their number of keyframes
    confuse     summaries with one changed fact, or with the keyframes of another video
    correspond  judgements which summaries correspond to the video, with a confidence from 1 to 5
    answer      answers to the field `questions`, from each summary alone

    The first five add a field to each line of ITEMS without it, in a copy. The last two write a line per
    summary, and per question and summary, for `visil report` and `visil correlate`. A summary with the field
    `corresponds` (true or false) gets `correct` (1 or 0); confused summaries are judged too, never together
    with the true form.
    """
    for option, steps in _OPTIONS.items():
        if what not in steps and context.get_parameter_source(option) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"--{option} is an option of {', '.join(steps)}, not of {what}")
    kinds = tuple(dict.fromkeys(kind))
    alone = builtin or (what == "confuse" and "text" not in kinds)
    if alone and asked.model:
        raise click.UsageError(f"{'--builtin' if builtin else '--kind keyframes'} needs no --model")
    if os.path.dirname(os.path.realpath(output)) != os.path.dirname(os.path.realpath(items)):
        raise click.UsageError(
            "the output must be in the folder of the input, because the paths in it are relative to it"
        )
    check_resume(resume, overwrite)
    donors = read_donors(items) if what == "confuse" else []
    prompts = Prompts.read(folder) if folder and not alone else builtin_prompts()  # before a model is loaded
    writer = None if alone else asked.open()
    writing = Writing(writer, prompts, frames, keyframes, video, kinds, seed, donors)
    inputs = asked.files(prompts=folder)
    step = writing.step(what)
    exit_with(run_step(step, items, output, inputs=inputs, resume=resume, overwrite=overwrite, report=warn))
