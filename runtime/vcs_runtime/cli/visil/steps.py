"""Commands of `vcs-runtime visil` in which a model writes: captions, keywords, summaries, answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import check_resume, overwrite, resume, together
from vcs_runtime.cli.visil.model import (
    exit_with,
    files_read,
    frames_option,
    items_argument,
    named,
    open_model,
    output_option,
    prompts_option,
    writer_options,
)
from vcs_runtime.visil import writing
from vcs_runtime.visil.frames import format_timecode, uniform
from vcs_runtime.visil.jobs.items import Item
from vcs_runtime.visil.jobs.steps import Step, run_step
from vcs_runtime.visil.masking import builtin_keywords
from vcs_runtime.visil.prompts import Prompts, builtin

_step = together(items_argument, output_option, resume, overwrite, writer_options, prompts_option)


def _write(
    options: dict[str, Any], name: str, take: Callable[[writing.Writer, Prompts, Item], Any],
    field: str | None = None, frames: int | None = None,
) -> None:  # fmt: skip
    """Run a step in which a model writes; `take` returns its result for one item."""
    writer, folder = open_model(options), options["folder"]
    prompts = Prompts.read(folder) if folder else builtin()
    by = f"model:{writer.fingerprint}|prompt:{prompts.version}"
    _run(options, Step(name, by, partial(take, writer, prompts), field, frames))


def _run(options: dict[str, Any], step: Step) -> None:
    items, output = options["items"], options["output"]
    resume, overwrite = options["resume"], options["overwrite"]
    if output.resolve().parent != items.resolve().parent:
        raise click.UsageError(
            "the output must be in the folder of the input, because the paths in it are relative to it"
        )
    check_resume(resume, overwrite)
    inputs = files_read(options, options["folder"])
    exit_with(run_step(step, items, output, inputs=inputs, resume=resume, overwrite=overwrite, report=warn))


@click.command()
@_step
@frames_option
def caption(frames: int, **options: Any) -> None:
    """Write a caption for every video in ITEMS without one."""

    def take(writer: writing.Writer, prompts: Prompts, item: Item) -> str:
        return writing.write_caption(writer, prompts, item.video(frames).frames)

    _write(options, "caption", take, "caption", frames)


@click.command()
@_step
@click.option(
    "--builtin", "offline", is_flag=True,
    help="Choose rare words, spread over the caption, without a model.",
)  # fmt: skip
def keywords(offline: bool, **options: Any) -> None:
    """Choose keywords for every video in ITEMS without them."""
    if offline:
        if named(options):
            raise click.UsageError("--builtin chooses without a model")
        step = Step("keywords", "builtin", lambda item: builtin_keywords(item.text("caption")), "keywords")
        _run(options, step)
    else:

        def take(writer: writing.Writer, prompts: Prompts, item: Item) -> list[str]:
            return writing.choose_keywords(writer, prompts, item.text("caption"))

        _write(options, "keywords", take, "keywords")


@click.command()
@_step
@frames_option
def keyframes(frames: int, **options: Any) -> None:
    """Choose keyframes for every video in ITEMS without them.

    The model chooses three keyframes of a video file. A keyframe is an SMPTE timecode with a description.
    """

    def take(writer: writing.Writer, prompts: Prompts, item: Item) -> list[dict[str, str]]:
        file = item.file
        numbers = uniform(file.frames, frames)
        images = file.read(numbers)
        timed = [(format_timecode(n, file.fps), image) for n, image in zip(numbers, images, strict=True)]
        return writing.choose_keyframes(writer, prompts, timed, file.fps, file.frames)

    _write(options, "keyframes", take, "keyframes", frames)


@click.command()
@_step
@frames_option
@click.option(
    "--keyframes",
    "counts",
    type=click.IntRange(0, writing.KEYFRAMES),
    multiple=True,
    default=(0, 1, 3),
    show_default=True,
    metavar="N",
    help="Number of keyframes in a summary, the first ones of the video; may be repeated.",
)
def summarize(frames: int, counts: tuple[int, ...], **options: Any) -> None:
    """Write summaries for every video in ITEMS without them.

    Their names are "text", "1-image", "2-image" and "3-image", by the number of keyframes.
    """

    def take(writer: writing.Writer, prompts: Prompts, item: Item) -> list[dict[str, Any]]:
        video, written = item.video(frames), []
        for count in dict.fromkeys(counts):
            chosen = item.chosen_keyframes(count)
            images = [item.keyframe(name) for name in chosen]
            text = writing.write_summary(writer, prompts, video.frames, images)
            written.append({"name": f"{count}-image" if count else "text", "text": text, "keyframes": chosen})
        return written

    _write(options, "summarize", take, "summaries", frames)


@click.command()
@_step
@frames_option
def correspond(frames: int, **options: Any) -> None:
    """Judge which summaries in ITEMS correspond to their videos.

    The output has one line per summary, with a confidence from 1 to 5. If a summary in ITEMS has the field
    `corresponds` (true or false), the line also has `correct` (1 or 0).
    """

    def take(writer: writing.Writer, prompts: Prompts, item: Item) -> list[dict[str, Any]]:
        truths, summaries = item.correspondences(), item.summaries()
        judged = writing.judge_summaries(writer, prompts, item.video(frames).frames, summaries)
        return [
            {"name": summary.name, "corresponds": judgement.corresponds, "confidence": judgement.confidence,
             **({} if truth is None else {"correct": int(judgement.corresponds == truth)})}
            for summary, truth, judgement in zip(summaries, truths, judged, strict=True)
        ]  # fmt: skip

    _write(options, "correspond", take, None, frames)


@click.command()
@_step
def answer(**options: Any) -> None:
    """Answer the questions in ITEMS from each summary alone.

    The output has one line per question and summary, for `visil correlate`. ITEMS needs the field
    `questions`: objects with `question`, `options` (a list of texts) and `answer` (a letter).
    """

    def take(writer: writing.Writer, prompts: Prompts, item: Item) -> list[dict[str, Any]]:
        lines, summaries = [], item.summaries()
        for question, choices, right in item.questions():
            for summary in summaries:
                letter = writing.answer_question(writer, prompts, summary, question, choices)
                lines.append({
                    "name": summary.name, "question": question, "given": letter,
                    "correct": int(letter == right),
                })  # fmt: skip
        return lines

    _write(options, "answer", take)
