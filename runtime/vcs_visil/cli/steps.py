"""Commands of `vcs-runtime visil` in which a model writes: captions, keywords, summaries, answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from vcs_runtime.cli.messages import warn
from vcs_runtime.cli.options import check_resume, overwrite, resume, together
from vcs_visil import writing
from vcs_visil.cli.model import (
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
from vcs_visil.confusing import KINDS, SEED, read_donors
from vcs_visil.confusing import confuse as make_confused
from vcs_visil.frames import format_timecode
from vcs_visil.jobs.items import Item
from vcs_visil.jobs.steps import Step, run_step
from vcs_visil.masking import builtin_keywords
from vcs_visil.prompts import Prompts, builtin

_step = together(items_argument, output_option, resume, overwrite, writer_options, prompts_option)


def _write(
    options: dict[str, Any], name: str, take: Callable[[writing.Writer, Prompts, Item], Any],
    field: str | None = None, frames: int | None = None,
) -> None:  # fmt: skip
    """Run a step in which a model writes; `take` returns its result for one item."""
    writer, prompts, by = _writer(options)
    _run(options, Step(name, by, partial(take, writer, prompts), field, frames))


def _writer(options: dict[str, Any]) -> tuple[Any, Prompts, str]:
    """Return the model that writes, the prompts, and both for a signature."""
    folder = options["folder"]
    prompts = Prompts.read(folder) if folder else builtin()  # before a model is loaded
    writer = open_model(options)
    return writer, prompts, f"model:{writer.fingerprint}|prompt:{prompts.version}"


def _run(options: dict[str, Any], step: Step) -> None:
    items, output = options["items"], options["output"]
    resume, overwrite = options["resume"], options["overwrite"]
    if os.path.dirname(os.path.realpath(output)) != os.path.dirname(os.path.realpath(items)):
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
        numbers = item.sampled(frames)
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
@click.option(
    "--kind",
    "kinds",
    type=click.Choice(KINDS),
    multiple=True,
    default=KINDS,
    show_default=True,
    help="What is confused: the text, by a model, or the keyframes, without one; may be repeated.",
)
@click.option(
    "--seed",
    type=int,
    default=SEED,
    show_default=True,
    metavar="N",
    help="Seed of the changes and of the videos that give their keyframes.",
)
def confuse(kinds: tuple[str, ...], seed: int, **options: Any) -> None:
    """Make confused summaries for every video in ITEMS.

    Texts are changed in one fact by the model. Keyframes become those of another video in ITEMS. Both are in
    the field `confused` of the output, for `visil correspond`.
    """
    kinds, donors = tuple(dict.fromkeys(kinds)), read_donors(options["items"])
    drawn = f"|kinds:{'+'.join(kinds)}|seed:{seed}"

    def swap(item: Item, writer: writing.Writer | None, prompts: Prompts) -> list[dict[str, Any]]:
        return make_confused(item, donors, kinds, seed, writer, prompts)

    if "text" not in kinds:
        if named(options):
            raise click.UsageError("--kind keyframes confuses without a model")
        step = Step("confuse", f"builtin{drawn}", lambda item: swap(item, None, builtin()), "confused")
    else:
        writer, prompts, by = _writer(options)
        step = Step("confuse", f"{by}{drawn}", lambda item: swap(item, writer, prompts), "confused")

    _run(options, step)


@click.command()
@_step
@frames_option
def correspond(frames: int, **options: Any) -> None:
    """Judge which summaries in ITEMS correspond to their videos.

    The output has one line per summary, with a confidence from 1 to 5. If a summary in ITEMS has the field
    `corresponds` (true or false), the line also has `correct` (1 or 0). Confused summaries (`visil confuse`)
    are judged too, never together with the true form.
    """

    def take(writer: writing.Writer, prompts: Prompts, item: Item) -> list[dict[str, Any]]:
        lines, images = [], item.video(frames).frames
        for shown in item.rounds():
            judged = writing.judge_summaries(writer, prompts, images, [summary for summary, _ in shown])
            for (summary, fields), judgement in zip(shown, judged, strict=True):
                truth = item.truth(fields)
                lines.append({
                    "name": summary.name, "format": summary.format,
                    **{name: fields[name] for name in ("of", "confused") if name in fields},
                    "corresponds": judgement.corresponds, "confidence": judgement.confidence,
                    **({} if truth is None else {"correct": int(judgement.corresponds == truth)}),
                })  # fmt: skip
        return lines

    _write(options, "correspond", take, None, frames)


@click.command()
@_step
@frames_option
@click.option("--video", is_flag=True, help="Also answer from the frames of the full video.")
def answer(frames: int, video: bool, **options: Any) -> None:
    """Answer the questions in ITEMS from each summary alone.

    The output has one line per question and summary, for `visil correlate` and `visil report`. ITEMS needs
    the field `questions`: objects with `question`, `options` (a list of texts) and `answer` (a letter).
    """

    def take(writer: writing.Writer, prompts: Prompts, item: Item) -> list[dict[str, Any]]:
        lines, shown = [], [*(item.summaries() if "summaries" in item.row or not video else ())]
        for question, choices, right in item.questions():
            for one in [*shown, *([item.video(frames)] if video else ())]:
                letter = writing.answer_question(writer, prompts, one, question, choices)
                lines.append({
                    "name": one.name, "format": one.format, "question": question, "given": letter,
                    "correct": int(letter == right),
                })  # fmt: skip
        return lines

    _write(options, "answer", take, None, frames if video else None)
