"""What a model writes about the videos of a JSONL file: fields of its lines, or lines; resumable."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime._version import __version__
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import Items, check_signature, check_texts, hash_texts, run_resumable
from vcs_runtime.util.progress import progress_bar
from vcs_visil import writing
from vcs_visil.frames import FRAMES, format_timecode
from vcs_visil.jobs.confusing import KINDS, SEED, Donor, confuse
from vcs_visil.jobs.items import MADE, Item, read_videos
from vcs_visil.masking import builtin_keywords
from vcs_visil.prompts import Prompts, builtin

Lines = list[dict[str, Any]]

#: The steps, and the field that each adds to lines without it; None: it writes lines of its own.
STEPS: Mapping[str, str | None] = {
    "answer": None, "caption": "caption", "confuse": "confused", "correspond": None,
    "keyframes": "keyframes", "keywords": "keywords", "summarize": "summaries",
}  # fmt: skip


@dataclass(frozen=True)
class Writing:
    """Who writes, and the options of the steps."""

    writer: Any = None  # a `writing.Writer`; None for keywords and confused keyframes without a model
    prompts: Prompts = field(default_factory=builtin)
    frames: int = FRAMES
    keyframes: Sequence[int] = (0, 1, 3)  # of the summaries
    video: bool = False  # also answer from the video itself
    kinds: Sequence[str] = KINDS  # what is confused
    seed: int = SEED
    donors: Sequence[Donor] = ()

    @property
    def by(self) -> str:
        """Model and prompts, for a signature."""
        if self.writer is None:
            return "builtin"
        return f"model:{self.writer.fingerprint}|prompt:{self.prompts.version}"

    def caption(self, item: Item) -> str:
        """Write a caption."""
        return writing.write_caption(self.writer, self.prompts, item.video(self.frames).frames)

    def keywords(self, item: Item) -> list[str]:
        """Choose keywords, with the model or without one."""
        caption = item.text("caption")
        if self.writer is None:
            return builtin_keywords(caption)
        return writing.choose_keywords(self.writer, self.prompts, caption)

    def choose_keyframes(self, item: Item) -> list[dict[str, str]]:
        """Choose three keyframes of a video file."""
        file, numbers = item.file, item.sampled(self.frames)
        timed = [
            (format_timecode(number, file.fps), image)
            for number, image in zip(numbers, file.read(numbers), strict=True)
        ]
        return writing.choose_keyframes(self.writer, self.prompts, timed, file.fps, file.frames)

    def summarize(self, item: Item) -> Lines:
        """Write a summary for each number of keyframes."""
        video, written = item.video(self.frames), []
        for count in dict.fromkeys(self.keyframes):
            chosen = item.chosen_keyframes(count)
            images = [item.keyframe(name) for name in chosen]
            text = writing.write_summary(self.writer, self.prompts, video.frames, images)
            written.append({"name": f"{count}-image" if count else "text", "text": text, "keyframes": chosen})
        return written

    def confuse(self, item: Item) -> Lines:
        """Confuse the summaries."""
        return confuse(item, self.donors, self.kinds, self.seed, self.writer, self.prompts)

    def correspond(self, item: Item) -> Lines:
        """Judge which summaries correspond to the video, a line each."""
        lines, images = [], item.video(self.frames).frames
        for shown in item.rounds():
            summaries = [summary for summary, _ in shown]
            judged = writing.judge_summaries(self.writer, self.prompts, images, summaries)
            for (summary, fields), judgement in zip(shown, judged, strict=True):
                truth = item.truth(fields)
                lines.append({
                    "name": summary.name, "format": summary.format,
                    **{name: fields[name] for name in ("of", "confused") if name in fields},
                    "corresponds": judgement.corresponds, "confidence": judgement.confidence,
                    **({} if truth is None else {"correct": int(judgement.corresponds == truth)}),
                })  # fmt: skip
        return lines

    def answer(self, item: Item) -> Lines:
        """Answer the questions from each summary alone, a line each."""
        lines, shown = [], [*(item.summaries() if "summaries" in item.row or not self.video else ())]
        for question, choices, right in item.questions():
            for one in [*shown, *([item.video(self.frames)] if self.video else ())]:
                letter = writing.answer_question(self.writer, self.prompts, one, question, choices)
                lines.append({
                    "name": one.name, "format": one.format, "question": question, "given": letter,
                    "correct": int(letter == right),
                })  # fmt: skip
        return lines

    def step(self, name: str) -> Step:
        """Return a step of `STEPS` with these options."""
        looks = name not in ("keywords", "confuse") and (name != "answer" or self.video)
        by = f"{self.by}|kinds:{'+'.join(self.kinds)}|seed:{self.seed}" if name == "confuse" else self.by
        take = self.choose_keyframes if name == "keyframes" else getattr(self, name)
        return Step(name, by, take, STEPS[name], self.frames if looks else None)


@dataclass(frozen=True)
class Step:
    """A step that is done with each video."""

    name: str
    by: str  # fields of the signature
    take: Callable[[Item], Any]  # returns the value of the field, or the lines
    field: str | None = None  # None: the step writes lines of its own
    frames: int | None = None  # of a video file that the step looks at; None: it looks at none

    def signature(self, row: Mapping[str, Any]) -> str:
        """Return what the result depends on besides the line: fields `key:value`, separated by "|"."""
        frames = "" if self.frames is None else f"|frames:{'files' if 'frames' in row else self.frames}"
        return f"visil|step:{self.name}|{self.by}{frames}|v:{__version__}"

    def lines(self, item: Item) -> list[dict[str, Any]]:
        """Return the lines of the output for a video."""
        signature = self.signature(item.row)
        if self.field is None:
            texts = hash_texts(item.row)
            return [
                {"id": item.id, **line, "signature": signature, "texts": texts} for line in self.take(item)
            ]
        if self.field in item.row:
            return [dict(item.row)]
        made = {**item.made, self.field: signature}
        return [{**item.row, self.field: self.take(item), MADE: made}]

    def failed(self, item: Item, message: str) -> list[dict[str, Any]]:
        """Return the lines for a video that cannot be used: the unchanged line, or a line with an `error`."""
        if self.field is not None:
            return [dict(item.row)]
        signature, texts = self.signature(item.row), hash_texts(item.row)
        return [{"id": item.id, "error": message, "signature": signature, "texts": texts}]

    def succeeded(self, row: Mapping[str, Any]) -> bool:
        """Return whether a line of the output has the result of the step."""
        return "error" not in row if self.field is None else self.field in row

    def check(self, place: str, item: Item, record: Record) -> None:
        """Raise InputError unless this step would give an item this line of the output.

        A line that needed no step, or whose step failed, has no signature.
        """
        expected = self.signature(item.row)
        if self.field is None:
            check_signature(place, record.get("signature"), expected)
            check_texts(place, record, hash_texts(item.row))
            return
        made = record.get(MADE, {})
        signature = made.get(self.field) if isinstance(made, dict) else made
        added = {MADE}
        if self.field not in item.row:
            added.add(self.field)
            if signature is not None:
                check_signature(place, signature, expected)
        written, given = (
            hash_texts({name: value for name, value in row.items() if name not in added})
            for row in (record, item.row)
        )
        check_texts(place, {**record, "texts": written}, given)


def run_step(
    step: Step, source: Path, output: Path, *, inputs: Sequence[Path] = (), resume: bool = False,
    overwrite: bool = False, report: Callable[[str], None] = lambda message: None, progress: bool = True,
) -> int:  # fmt: skip
    """Do a step for every video of a file, and append the results to an output.

    The whole input is checked before the first video. If a video cannot be used, the others are still done.
    Returns the number of failed videos, those of earlier runs included.
    """
    videos = read_videos(source)
    begins = f"{{{json.dumps(next(iter(videos[0].row)) if step.field else 'id')}: "
    failed = set()

    def work(items: Iterator[Item]) -> Iterator[list[tuple[Item, Record]]]:
        for item in items:
            try:
                records = step.lines(item)
            except (TextError, InputError) as error:
                message = str(error).removeprefix(f"{item.place}: ")
                report(f"{item.place}: {message}")
                records = step.failed(item, message)
            yield [(item, record) for record in records]

    def count(item: Item, record: Record, resumed: bool) -> None:
        if not step.succeeded(record):
            failed.add(item.id)

    run_resumable(
        JobFiles(output, resume, overwrite, progress=progress, inputs=[source, *inputs]),
        Items(videos, len(videos), attrgetter("id"), step.check), work, count,
        begins=begins, several_lines=True, bar=partial(progress_bar, what=step.name, unit="videos"),
    )  # fmt: skip
    return len(failed)
