"""`vcs-runtime visil caption | keywords | keyframes | summarize | answer`: what a model can write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.visil_model import (
    exit_with,
    frames_option,
    items_argument,
    model_options,
    open_model,
    output_option,
    overwrite_option,
    prompts_option,
    together,
    warn,
)
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs import OutputFile
from vcs_runtime.visil import steps
from vcs_runtime.visil.frames import uniform
from vcs_runtime.visil.items import Item, read_items
from vcs_runtime.visil.keywords import builtin_keywords
from vcs_runtime.visil.prompts import Prompts, builtin
from vcs_runtime.visil.timecode import timecode


def _run_step(
    items: Path, output: Path, overwrite: bool, field: str | None, take: Callable[[Item], Any]
) -> None:
    """Write each line of `items` with what `take` adds to it (`field`), or the lines that it makes (None)."""
    if output.resolve().parent != items.resolve().parent:
        raise click.UsageError(
            "write the output beside the input: the paths in it are relative to its folder"
        )
    failed = 0
    for _ in read_items(items):  # the whole file is checked first
        pass
    with OutputFile(output, overwrite=overwrite) as lines:
        for item in read_items(items):
            row = dict(item.row)
            try:
                if field is None:
                    lines.append(take(item))
                    continue
                if field not in row:
                    row[field] = take(item)
            except (TextError, InputError) as error:
                warn(f"{item.place}: {str(error).removeprefix(f'{item.place}: ')}")
                failed += 1
            if field is not None:
                lines.append([row])
    exit_with(failed)


def _wording(folder: Path | None) -> Prompts:
    return Prompts.read(folder) if folder else builtin()


_step = together(items_argument, output_option, overwrite_option, model_options, prompts_option)


@click.command()
@_step
@frames_option
def caption(
    items: Path, output: Path, overwrite: bool, folder: Path | None, frames: int, **model: Any
) -> None:
    """Write a caption for every line of ITEMS that has none."""
    writer, prompts = _writer(model), _wording(folder)
    _run_step(items, output, overwrite, "caption",
              lambda item: steps.write_caption(writer, prompts, item.video(frames).frames))  # fmt: skip


@click.command()
@_step
@click.option(
    "--builtin", "offline", is_flag=True, help="Without a model: rare words, spread over the caption."
)
def keywords(
    items: Path, output: Path, overwrite: bool, folder: Path | None, offline: bool, **model: Any
) -> None:
    """Choose the keywords of every caption in ITEMS that has none."""
    if offline:
        _run_step(items, output, overwrite, "keywords", lambda item: builtin_keywords(item.text("caption")))
        return
    writer, prompts = _writer(model), _wording(folder)
    _run_step(items, output, overwrite, "keywords",
              lambda item: steps.choose_keywords(writer, prompts, item.text("caption")))  # fmt: skip


@click.command()
@_step
@frames_option
def keyframes(
    items: Path, output: Path, overwrite: bool, folder: Path | None, frames: int, **model: Any
) -> None:
    """Choose three keyframes of every video file in ITEMS that has none, as timecodes."""
    writer, prompts = _writer(model), _wording(folder)

    def take(item: Item) -> list[dict[str, str]]:
        file = item.file
        numbers = uniform(file.frames, frames)
        shown = [(timecode(n, file.fps), image) for n, image in zip(numbers, file.read(numbers), strict=True)]
        return steps.choose_keyframes(writer, prompts, shown, file.fps, file.frames)

    _run_step(items, output, overwrite, "keyframes", take)


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
    items: Path, output: Path, overwrite: bool, folder: Path | None, frames: int, counts: tuple[int, ...],
    **model: Any,
) -> None:  # fmt: skip
    """Write the summaries of every video in ITEMS that has none, named "text", "1-image", ..."""
    writer, prompts = _writer(model), _wording(folder)

    def take(item: Item) -> list[dict[str, Any]]:
        video, written = item.video(frames), []
        for count in counts:
            chosen = [entry["timestamp"] for entry in item.several("keyframes")[:count]] if count else []
            if len(chosen) < count:
                raise InputError(f"{item.place}: {len(chosen)} keyframes, {count} are wanted")
            images = [item.keyframe(name) for name in chosen]
            text = steps.write_summary(writer, prompts, video.frames, images)
            written.append({"name": f"{count}-image" if count else "text", "text": text, "keyframes": chosen})
        return written

    _run_step(items, output, overwrite, "summaries", take)


@click.command()
@_step
def answer(items: Path, output: Path, overwrite: bool, folder: Path | None, **model: Any) -> None:
    """Answer each item's questions from each of its summaries: a line each, for `correlate`.

    `questions` are objects with `question`, `options` (a list of texts) and `answer` (a letter).
    """
    writer, prompts = _writer(model), _wording(folder)

    def take(item: Item) -> list[dict[str, Any]]:
        made = []
        for asked in item.several("questions"):
            if not isinstance(asked, dict) or not {"question", "options", "answer"} <= asked.keys():
                raise InputError(
                    f"{item.place}: a question must be an object with question, options and answer"
                )
            for summary in item.summaries():
                given = steps.answer_question(writer, prompts, summary, asked["question"], asked["options"])
                made.append({
                    "id": item.id, "name": summary.name, "question": asked["question"], "given": given,
                    "correct": int(given == asked["answer"]),
                })  # fmt: skip
        return made

    _run_step(items, output, overwrite, None, take)


def _writer(model: Mapping[str, Any]) -> Any:
    opened = open_model(model)
    if not hasattr(opened, "write"):
        raise click.UsageError("recorded answers can only be scored")
    return opened
