"""`vcs-runtime visil caption | keywords | keyframes | summarize | correspond | answer`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.visil_model import (
    exclusive,
    exit_with,
    frames_option,
    items_argument,
    named,
    open_model,
    output_option,
    overwrite_option,
    prompts_option,
    resume_option,
    together,
    warn,
    writer_options,
)
from vcs_runtime.visil import step_job, steps
from vcs_runtime.visil.frames import uniform
from vcs_runtime.visil.items import Item
from vcs_runtime.visil.keywords import builtin_keywords
from vcs_runtime.visil.prompts import Prompts, builtin
from vcs_runtime.visil.step_job import Step
from vcs_runtime.visil.timecode import timecode


def _run(step: Step, items: Path, output: Path, resume: bool, overwrite: bool) -> None:
    if output.resolve().parent != items.resolve().parent:
        raise click.UsageError(
            "write the output beside the input: the paths in it are relative to its folder"
        )
    exclusive(resume, overwrite)
    exit_with(step_job.run(step, items, output, resume=resume, overwrite=overwrite, report=warn))


_step = together(
    items_argument, output_option, resume_option, overwrite_option, writer_options, prompts_option
)


def _open(model: Mapping[str, Any], folder: Path | None) -> tuple[Any, Prompts, str]:
    """The model that writes, its prompts, and what a signature says of both."""
    writer, prompts = open_model(model), Prompts.read(folder) if folder else builtin()
    return writer, prompts, f"model:{writer.fingerprint}|prompt:{prompts.version}"


@click.command()
@_step
@frames_option
def caption(
    items: Path, output: Path, resume: bool, overwrite: bool, folder: Path | None, frames: int, **model: Any
) -> None:
    """Write a caption for every line of ITEMS that has none."""
    writer, prompts, by = _open(model, folder)

    def take(item: Item) -> str:
        return steps.write_caption(writer, prompts, item.video(frames).frames)

    _run(Step("caption", by, take, "caption", frames), items, output, resume, overwrite)


@click.command()
@_step
@click.option(
    "--builtin", "offline", is_flag=True, help="Without a model: rare words, spread over the caption."
)
def keywords(
    items: Path, output: Path, resume: bool, overwrite: bool, folder: Path | None, offline: bool, **model: Any
) -> None:
    """Choose keywords for every line of ITEMS that has none."""
    if offline:
        if named(model):
            raise click.UsageError("--builtin asks no model")
        step = Step("keywords", "builtin", lambda item: builtin_keywords(item.text("caption")), "keywords")
    else:
        writer, prompts, by = _open(model, folder)

        def take(item: Item) -> list[str]:
            return steps.choose_keywords(writer, prompts, item.text("caption"))

        step = Step("keywords", by, take, "keywords")
    _run(step, items, output, resume, overwrite)


@click.command()
@_step
@frames_option
def keyframes(
    items: Path, output: Path, resume: bool, overwrite: bool, folder: Path | None, frames: int, **model: Any
) -> None:
    """Choose three keyframes of every video in ITEMS that has none.

    The video must be a file; keyframes are SMPTE timecodes with descriptions.
    """
    writer, prompts, by = _open(model, folder)

    def take(item: Item) -> list[dict[str, str]]:
        file = item.file
        numbers = uniform(file.frames, frames)
        shown = [(timecode(n, file.fps), image) for n, image in zip(numbers, file.read(numbers), strict=True)]
        return steps.choose_keyframes(writer, prompts, shown, file.fps, file.frames)

    _run(Step("keyframes", by, take, "keyframes", frames), items, output, resume, overwrite)


@click.command()
@_step
@frames_option
@click.option(
    "--keyframes",
    "counts",
    type=click.IntRange(0, steps.KEYFRAMES),
    multiple=True,
    default=(0, 1, 3),
    show_default=True,
    help="Summaries to write: with so many of the item's keyframes, the first ones.",
)
def summarize(
    items: Path, output: Path, resume: bool, overwrite: bool, folder: Path | None, frames: int,
    counts: tuple[int, ...], **model: Any,
) -> None:  # fmt: skip
    """Write summaries for every line of ITEMS that has none.

    They are named "text", "1-image", "2-image" and "3-image".
    """
    writer, prompts, by = _open(model, folder)

    def take(item: Item) -> list[dict[str, Any]]:
        video, written = item.video(frames), []
        for count in dict.fromkeys(counts):
            chosen = item.chosen_keyframes(count)
            images = [item.keyframe(name) for name in chosen]
            text = steps.write_summary(writer, prompts, video.frames, images)
            written.append({"name": f"{count}-image" if count else "text", "text": text, "keyframes": chosen})
        return written

    _run(Step("summarize", by, take, "summaries", frames), items, output, resume, overwrite)


@click.command()
@_step
@frames_option
def correspond(
    items: Path, output: Path, resume: bool, overwrite: bool, folder: Path | None, frames: int, **model: Any
) -> None:
    """Judge which summaries in ITEMS correspond to their videos.

    A line a summary, with a confidence from 1 to 5. Where a summary of ITEMS says whether it does
    (`corresponds`, true or false), the line has `correct`.
    """
    writer, prompts, by = _open(model, folder)

    def take(item: Item) -> list[dict[str, Any]]:
        truths, summaries = item.correspondences(), item.summaries()
        judged = steps.judge_summaries(writer, prompts, item.video(frames).frames, summaries)
        return [
            {"name": summary.name, "corresponds": found.corresponds, "confidence": found.confidence,
             **({} if truth is None else {"correct": int(found.corresponds == truth)})}
            for summary, truth, found in zip(summaries, truths, judged, strict=True)
        ]  # fmt: skip

    _run(Step("correspond", by, take, None, frames), items, output, resume, overwrite)


@click.command()
@_step
def answer(
    items: Path, output: Path, resume: bool, overwrite: bool, folder: Path | None, **model: Any
) -> None:
    """Answer the questions in ITEMS from each summary.

    A line each, for `correlate`. `questions` are objects with `question`, `options` (a list of texts) and
    `answer` (a letter).
    """
    writer, prompts, by = _open(model, folder)

    def take(item: Item) -> list[dict[str, Any]]:
        made, summaries = [], item.summaries()
        for question, options, right in item.questions():
            for summary in summaries:
                given = steps.answer_question(writer, prompts, summary, question, options)
                made.append({
                    "name": summary.name, "question": question, "given": given, "correct": int(given == right)
                })  # fmt: skip
        return made

    _run(Step("answer", by, take), items, output, resume, overwrite)
