"""Scoring the videos of a JSONL file, resumable; and reading the scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.jobs.jsonl import Record, read_jsonl, read_records
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.resumable import (
    Items,
    check_signature,
    check_texts,
    hash_texts,
    run_resumable,
)
from vcs_runtime.util.progress import progress_bar
from vcs_visil.asking import Model, VisilOptions
from vcs_visil.correlation import LARGEST_SCORE
from vcs_visil.jobs.items import Item, read_videos
from vcs_visil.masking import mask_caption
from vcs_visil.score import score
from vcs_visil.summaries import VIDEO, Summary, Video

QUANTITIES = ("seconds", "confidence")
"""Further numbers that answers of people may have."""


@dataclass
class Counts:
    """Numbers of videos in a job."""

    scored: int = 0
    failed: int = 0
    resumed: int = 0  # of both kinds, from an earlier run
    unknown: dict[str, int] = field(default_factory=dict)  # of `unknown_words`


@dataclass(frozen=True)
class Scope:
    """What is scored of each video."""

    frames: int  # of a video file
    video: bool = False  # whether the video itself is scored, too
    drop_missing: bool = False  # whether keywords that are not in the caption are left out


def score_videos(
    model: Model, source: Path, files: JobFiles, options: VisilOptions, scope: Scope
) -> Counts:
    """Score the summaries of every video of a file, and append one line per video to an output.

    A video whose texts or images cannot be used gets a line with an `error`; the others go on. The
    whole input is checked before the first video is scored.
    """
    videos = read_videos(source)
    _report_same_model(videos, model, files.report)
    counts = Counts()

    def work(items: Iterator[Item]) -> Iterator[list[tuple[Item, Record]]]:
        for item in items:
            record = _record(item, model, options, scope)
            yield [(item, {**record, "texts": hash_texts(item.row)})]

    def add(item: Item, record: Record, resumed: bool) -> None:
        if resumed:
            counts.resumed += 1
        for word in record.get("dropped", ()):
            files.report(f"{item.place}: keyword {word!r} is not in the caption: left out")
        if "error" in record:
            counts.failed += 1
            files.report(f"{item.place}: {record['error']}")
        else:
            counts.scored += 1
            for name, count in unknown_words([record["summaries"]]).items():
                counts.unknown[name] = counts.unknown.get(name, 0) + count

    def check(place: str, item: Item, record: Record) -> None:
        frames = _frames_again(item, record, scope.frames)
        check_signature(
            place, record.get("signature"), options.signature(model.fingerprint, frames)
        )
        check_texts(place, record, hash_texts(item.row))

    run_resumable(
        replace(files, inputs=[source, *files.inputs]),
        Items(videos, len(videos), attrgetter("id"), check),
        work,
        add,
        bar=partial(progress_bar, unit="videos"),
    )
    return counts


def _report_same_model(videos: Sequence[Item], model: Model, report: Callable[[str], None]) -> None:
    """Report the first video whose texts were written by the model that scores."""
    for item in videos:
        for signature in item.made.values():
            if f"|model:{model.fingerprint}|" in signature:
                report(
                    f"{item.place}: the summary was made by the model that scores, which favours"
                    " it: use another model (docs/guide/visil.md)"
                )
                return


def _record(item: Item, model: Model, options: VisilOptions, scope: Scope) -> dict[str, Any]:
    """Return the line of a video."""
    try:
        caption, keywords = item.text("caption"), item.several("keywords")
        masked = mask_caption(
            caption, keywords, count=options.count, drop_missing=scope.drop_missing
        )
        video = item.video(scope.frames)
        shown: list[Summary | Video] = [*item.summaries()]
        if scope.video:
            shown.append(video)
        results = score(video, masked, shown, model, options)
    except (TextError, InputError) as error:
        message = str(error).removeprefix(f"{item.place}: ")
        signature = options.signature(model.fingerprint, 0)
        return {"id": item.id, "error": message, "signature": signature}
    record: dict[str, Any] = {
        "id": item.id,
        "frames": len(video.frames),
        "samples": options.samples,
    }
    if masked.dropped:
        record["dropped"] = list(masked.dropped)
    record["summaries"] = [result.to_dict() for result in results]
    record["signature"] = results[0].signature
    return record


def _frames_again(item: Item, record: Record, frames: int) -> int:
    """Return the number of frames that this run would take, given the line of an earlier run."""
    earlier: int = record.get("frames", 0)
    if "error" in record or "frames" in item.row or earlier == frames:
        return earlier
    return len(item.sampled(frames))


def read_scores(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the summaries of each scored video, by id.

    Raises InputError for scores of several models.
    """
    scores: dict[str, list[dict[str, Any]]] = {}
    signatures = set()
    otherwise = "not a line of `vcs-runtime visil score -o`"
    for place, row in read_records(path, ("id", "signature"), otherwise, pipe=True):
        if "error" in row:
            continue
        name = str(row["id"])
        if name in scores:
            raise InputError(f"{place}: id {name} occurs twice")
        fields = str(row["signature"]).split("|")
        signatures.add("|".join(field for field in fields if not field.startswith("frames:")))
        scores[name] = _checked_summaries(place, row.get("summaries"))
    if len(signatures) > 1:
        raise InputError(
            f"{path}: the scores cannot be compared, because their signatures differ:"
            f" {' and '.join(sorted(signatures))}"
        )
    if not scores:
        raise InputError(f"{path}: the file holds no scores")
    return scores


def unknown_words(scores: Iterable[Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    """Count the keywords of generated answers, and the unknown ones, whose numbers are the floor.

    `scores` are the summaries of each video. Without generated answers there is nothing to count.
    """
    sides: dict[str, list[Mapping[str, Any]]] = {"video": [], "summary": []}
    for parts in scores:
        approximate = [part for part in parts if part.get("approximate")]
        for number, part in enumerate(approximate):
            keywords = part.get("keywords", ())
            sides["summary"] += keywords
            if number == 0:  # every summary repeats the numbers of the video
                sides["video"] += keywords
    counts: dict[str, int] = {}
    for side, keywords in sides.items():
        if keywords:
            unknown = sum(keyword.get(f"known_{side}") == "none" for keyword in keywords)
            counts |= {f"words_{side}": len(keywords), f"unknown_{side}": unknown}
    return counts


def _checked_summaries(place: str, parts: Any) -> list[dict[str, Any]]:
    """Return the summaries of a line; raise InputError if a name or a number is unusable."""
    unusable = InputError(
        f"{place}: the line holds no scores of summaries (`vcs-runtime visil score -o`)"
    )
    if not isinstance(parts, list) or not parts:
        raise unusable
    names: set[str] = set()
    for part in parts:
        if not isinstance(part, dict) or not {"name", "visil", "tokens"} <= part.keys():
            raise unusable
        if not isinstance(part["name"], str):
            raise unusable
        if part["name"] in names:
            raise InputError(f"{place}: the summary {part['name']!r} occurs twice")
        if not _is_scored(part):
            raise unusable
        names.add(part["name"])
    return parts


def _is_scored(part: Mapping[str, Any]) -> bool:
    """Return whether numbers and keywords of a summary have the right types."""
    tokens, keywords = part["tokens"], part.get("keywords", ())
    if not _is_number(part["visil"]):
        return False
    if tokens is not None and not (_is_number(tokens) and tokens >= 0):
        return False
    if not isinstance(keywords, Iterable):
        return False
    return all(isinstance(keyword, dict) for keyword in keywords)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and bool(abs(value) <= LARGEST_SCORE)


@dataclass
class Answers:
    """Answers to questions with the scores of their summaries, for `correlate`."""

    scores: list[float] = field(default_factory=list)
    correct: list[int] = field(default_factory=list)  # 1 or 0
    videos: list[str] = field(default_factory=list)
    skipped: int = 0  # lines with an error
    full: int = 0  # answers from the full video, which are left out
    unknown: dict[str, int] = field(default_factory=dict)  # of `unknown_words`


def read_answers(path: Path, scores: Path) -> Answers:
    """Read answers to questions with the score of their summary, except from the full video."""
    scored = read_scores(scores)
    by_name: dict[tuple[str, str], float] = {}
    for video, parts in scored.items():
        for part in parts:
            by_name[video, part["name"]] = part["visil"]
    lines, failed = read_lines(path)
    answers = Answers(skipped=failed, unknown=unknown_words(scored.values()))
    for place, row in lines:
        video, name = str(row["id"]), row["name"]
        if row.get("format") == VIDEO:
            answers.full += 1
            continue
        if (video, name) not in by_name:
            raise InputError(f"{place}: {scores} has no score of summary {name!r} of {video!r}")
        answers.scores.append(by_name[video, name])
        answers.correct.append(int(row["correct"]))
        answers.videos.append(video)
    return answers


def read_lines(path: Path) -> tuple[list[tuple[str, dict[str, Any]]], int]:
    """Read answers or judgements with their places, and count the lines with an error."""
    lines, failed = [], 0
    for number, row in read_jsonl(path):
        place = f"{path} line {number}"
        if isinstance(row, dict) and "error" in row:
            failed += 1
            continue
        if not isinstance(row, dict) or not {"id", "name", "correct"} <= row.keys():
            raise InputError(f"{place}: must be an object with 'id', 'name' and 'correct'")
        if row["correct"] not in (0, 1):
            raise InputError(f"{place}: 'correct' must be 0 or 1, not {row['correct']!r}")
        if not isinstance(row["name"], str):
            raise InputError(f"{place}: 'name' must be a text, not {row['name']!r}")
        for name in QUANTITIES:
            value = row.get(name)
            if value is not None and not _is_number(value):
                raise InputError(f"{place}: {name!r} must be a number, not {value!r}")
        lines.append((place, row))
    if not lines:
        raise InputError(f"{path}: the file holds no answers")
    return lines, failed
