"""What a model writes about the videos of a JSONL file: fields of its lines, or lines; resumable.

Which change a confused text gets, and whose keyframes a summary gets, is drawn from a seed and the
id of the video.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime._version import __version__
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import (
    Items,
    check_signature,
    check_texts,
    hash_texts,
    run_resumable,
)
from vcs_runtime.util.progress import progress_bar
from vcs_visil import writing
from vcs_visil.frames import FRAMES, format_timecode
from vcs_visil.jobs.items import MADE, Item, read_items, read_videos
from vcs_visil.masking import MASK, builtin_keywords
from vcs_visil.prompts import Prompts, builtin
from vcs_visil.summaries import Summary, Video
from vcs_visil.writing import Writer, ask_writer, placeholders

SEED = 20250101
"""Default seed."""
KINDS = ("text", "keyframes")
"""What is confused: the text, changed by a model, or the keyframes, which are another video's."""
CHANGES = (
    "the order of two events",
    "the colour of a thing",
    "an object",
    "a person or an animal",
    "a place",
    "what someone does",
    "a number of people or things",
)
"""What a text may be changed in."""
# Share of the words that a change leaves: with fewer it is another summary, not a confused one.
_LEAST_SAME = 0.5
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Donor:
    """A video whose keyframes other videos may get."""

    id: str | int
    video: str | None  # its file; None if all keyframes are image files
    keyframes: Mapping[int, Sequence[Any]]  # of its summaries, by their number


def read_donors(path: Path) -> list[Donor]:
    """Read the keyframes of all videos of a file; raise InputError naming the line."""
    donors = []
    for item in read_items(path):
        listed: dict[int, list[Any]] = {}
        for summary in item.row.get("summaries") or ():
            keyframes = summary.get("keyframes") if isinstance(summary, dict) else None
            if isinstance(keyframes, list) and keyframes:
                listed.setdefault(len(keyframes), keyframes)
        video = item.row.get("video")
        donors.append(Donor(item.id, video if isinstance(video, str) else None, listed))
    return donors


def confuse(
    item: Item,
    donors: Sequence[Donor],
    kinds: Sequence[str],
    seed: int,
    writer: Writer | None,
    prompts: Prompts,
) -> list[dict[str, Any]]:
    """Confuse the summaries of a video, in each kind.

    Raises TextError if nothing can be confused.
    """
    confused = []
    item.summaries()  # all are checked before a model is asked
    for summary in item.several("summaries"):
        if summary.get("corresponds") is False:
            continue
        draw = random.Random(f"{seed} {item.id!r} {summary['name']}")
        for kind in kinds:
            keyframes, text = summary.get("keyframes", []), summary.get("text", "")
            change: dict[str, Any]
            if kind == "text" and text and writer is not None:
                change = {"change": draw.choice(CHANGES)}
                text = change_text(writer, prompts, text, change["change"])
            elif kind == "keyframes" and keyframes:
                donor = _donor(item, donors, len(keyframes), draw)
                change = {"from": donor.id}
                keyframes = [_from(donor, keyframe) for keyframe in donor.keyframes[len(keyframes)]]
            else:
                continue
            confused.append(
                {
                    "name": f"{summary['name']}, other {kind}",
                    "of": summary["name"],
                    "text": text,
                    "keyframes": keyframes,
                    "corresponds": False,
                    "confused": kind,
                    **change,
                }
            )
    if not confused:
        raise TextError("summaries: there is nothing that can be confused")
    return confused


def change_text(writer: Writer, prompts: Prompts, text: str, change: str) -> str:
    """Let a model change a fact of a summary, such as "a place"; the keyframes stay as they are."""
    words = _words(text)

    def checked(answer: str) -> str:
        changed = answer.strip()
        if not changed or MASK in changed:
            raise TextError(f"changed summary: it is empty or holds {MASK}")
        if placeholders(changed) != placeholders(text):
            raise TextError(
                f"changed summary: it names the keyframes {placeholders(changed)}, not"
                f" {placeholders(text)}"
            )
        if _words(changed) == words:
            raise TextError("changed summary: no word of it has changed")
        same = (Counter(words) & Counter(_words(changed))).total()
        if same < _LEAST_SAME * len(words):
            raise TextError(
                f"changed summary: only {same} of {len(words)} words are left: change less"
            )
        return changed

    return ask_writer(writer, prompts.fill("confuse", summary=text, change=change), checked)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _donor(item: Item, donors: Sequence[Donor], count: int, draw: random.Random) -> Donor:
    """Draw another video with a summary of as many keyframes."""
    video = item.row.get("video")
    others = []
    for donor in donors:
        same_video = donor.id == item.id or (video is not None and donor.video == video)
        if count in donor.keyframes and not same_video:
            others.append(donor)
    if not others:
        raise TextError(
            f"summaries: no other video of the file has a summary with {count} keyframes"
        )
    return draw.choice(others)


def _from(donor: Donor, keyframe: Any) -> Any:
    """Return a keyframe so that it can be read beside another video: a timecode with its file."""
    if (
        isinstance(keyframe, str)
        and donor.video is not None
        and keyframe.count(":") + keyframe.count(";") == 3
    ):
        return {"video": donor.video, "timestamp": keyframe}
    return keyframe


Lines = list[dict[str, Any]]

#: The steps, and the field that each adds to lines without it; None: it writes new lines.
STEPS: Mapping[str, str | None] = {
    "answer": None,
    "caption": "caption",
    "confuse": "confused",
    "correspond": None,
    "keyframes": "keyframes",
    "keywords": "keywords",
    "summarize": "summaries",
}


@dataclass(frozen=True)
class Writing:
    """Who writes, and the options of the steps."""

    # A `writing.Writer`; None for keywords and confused keyframes without a model.
    writer: Any = None
    prompts: Prompts = field(default_factory=builtin)
    frames: int = FRAMES
    keyframes: Sequence[int] = (0, 1, 3)  # of the summaries
    video: bool = False  # also answer from the video itself
    kinds: Sequence[str] = KINDS  # the sides of a summary that are confused
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
        timecodes = [format_timecode(number, file.fps) for number in numbers]
        timed = list(zip(timecodes, file.read(numbers), strict=True))
        return writing.choose_keyframes(self.writer, self.prompts, timed, file.fps, file.frames)

    def summarize(self, item: Item) -> Lines:
        """Write a summary for each number of keyframes."""
        video, written = item.video(self.frames), []
        for count in dict.fromkeys(self.keyframes):
            chosen = item.chosen_keyframes(count)
            images = [item.keyframe(name) for name in chosen]
            text = writing.write_summary(self.writer, self.prompts, video.frames, images)
            written.append(
                {"name": f"{count}-image" if count else "text", "text": text, "keyframes": chosen}
            )
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
                line: dict[str, Any] = {"name": summary.name, "format": summary.format}
                for name in ("of", "confused"):
                    if name in fields:
                        line[name] = fields[name]
                line["corresponds"] = judgement.corresponds
                line["confidence"] = judgement.confidence
                truth = item.truth(fields)
                if truth is not None:
                    line["correct"] = int(judgement.corresponds == truth)
                lines.append(line)
        return lines

    def answer(self, item: Item) -> Lines:
        """Answer the questions from each summary alone, a line each."""
        shown: list[Summary | Video] = []
        if "summaries" in item.row or not self.video:
            shown += item.summaries()
        questions = item.questions()
        if self.video:
            shown.append(item.video(self.frames))
        lines = []
        for question, choices, right in questions:
            for one in shown:
                letter = writing.answer_question(self.writer, self.prompts, one, question, choices)
                lines.append(
                    {
                        "name": one.name,
                        "format": one.format,
                        "question": question,
                        "given": letter,
                        "correct": int(letter == right),
                    }
                )
        return lines

    def step(self, name: str) -> Step:
        """Return a step of `STEPS` with these options."""
        by = self.by
        if name == "confuse":
            by += f"|kinds:{'+'.join(self.kinds)}|seed:{self.seed}"
        take = self.choose_keyframes if name == "keyframes" else getattr(self, name)
        looks_at_video = self.video if name == "answer" else name not in ("keywords", "confuse")
        return Step(name, by, take, STEPS[name], self.frames if looks_at_video else None)


@dataclass(frozen=True)
class Step:
    """A step that is done with each video."""

    name: str
    by: str  # fields of the signature
    take: Callable[[Item], Any]  # returns the value of the field, or the lines
    field: str | None = None  # None: the step writes new lines
    frames: int | None = None  # of a video file that the step looks at; None: it looks at none

    def signature(self, row: Mapping[str, Any]) -> str:
        """Return all that the result depends on besides the line, as `key:value` between "|"."""
        frames = ""
        if self.frames is not None:
            frames = f"|frames:{'files' if 'frames' in row else self.frames}"
        return f"visil|step:{self.name}|{self.by}{frames}|v:{__version__}"

    def lines(self, item: Item) -> list[dict[str, Any]]:
        """Return the lines of the output for a video."""
        signature = self.signature(item.row)
        if self.field is None:
            texts = hash_texts(item.row)
            return [
                {"id": item.id, **line, "signature": signature, "texts": texts}
                for line in self.take(item)
            ]
        if self.field in item.row:
            return [dict(item.row)]
        signatures = {**item.made, self.field: signature}
        return [{**item.row, self.field: self.take(item), MADE: signatures}]

    def failed(self, item: Item, message: str) -> list[dict[str, Any]]:
        """Return the lines for an unusable video: the unchanged line, or one with an `error`."""
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
        signatures = record.get(MADE, {})
        signature = signatures
        if isinstance(signatures, dict):
            signature = signatures.get(self.field)
        added = {MADE}
        if self.field not in item.row:
            added.add(self.field)
            if signature is not None:
                check_signature(place, signature, expected)
        written = _hash_without(record, added)
        check_texts(place, {**record, "texts": written}, _hash_without(item.row, added))


def _hash_without(row: Mapping[str, Any], added: set[str]) -> str:
    """Return the hash of a line without the fields that steps have added."""
    return hash_texts({name: value for name, value in row.items() if name not in added})


def run_step(step: Step, source: Path, files: JobFiles) -> int:
    """Do a step for every video of a file, and append the results to an output.

    The whole input is checked before the first video. If a video cannot be used, the others are
    still done. Returns the number of failed videos, earlier runs included.
    """
    videos = read_videos(source)
    first_key = next(iter(videos[0].row)) if step.field else "id"
    failed = set()

    def work(items: Iterator[Item]) -> Iterator[list[tuple[Item, Record]]]:
        for item in items:
            try:
                records = step.lines(item)
            except (TextError, InputError) as error:
                message = str(error).removeprefix(f"{item.place}: ")
                files.report(f"{item.place}: {message}")
                records = step.failed(item, message)
            yield [(item, record) for record in records]

    def count(item: Item, record: Record, resumed: bool) -> None:
        if not step.succeeded(record):
            failed.add(item.id)

    run_resumable(
        replace(files, inputs=[source, *files.inputs]),
        Items(videos, len(videos), attrgetter("id"), step.check, several_lines=True),
        work,
        count,
        begins=f"{{{json.dumps(first_key)}: ",
        bar=partial(progress_bar, what=step.name, unit="videos"),
    )
    return len(failed)
