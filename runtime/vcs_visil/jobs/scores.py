"""Scoring the videos of a JSONL file, resumable; and reading the scores."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from vcs_visil.summaries import VIDEO

QUANTITIES = ("seconds", "confidence")
"""Further numbers that answers of people may have."""


@dataclass
class Counts:
    """Numbers of videos in a job."""

    scored: int = 0
    failed: int = 0
    resumed: int = 0  # of both kinds, from an earlier run
    unknown: dict[str, int] = field(default_factory=dict)  # of `unknown_words`


def score_videos(
    model: Model,
    source: Path,
    output: Path,
    options: VisilOptions,
    *,
    frames: int,
    video: bool = False,
    drop_missing: bool = False,
    inputs: Sequence[Path] = (),
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[str], None] = lambda message: None,
    progress: bool = True,
) -> Counts:
    """Score the summaries of every video of a file, and append one line per video to an output.

    A video whose texts or images cannot be used gets a line with an `error`; the others go on. The
    whole input is checked before the first video is scored. The output may be none of `inputs`,
    files in use.
    """
    videos = read_videos(source)
    own = [
        item.place
        for item in videos
        if any(f"|model:{model.fingerprint}|" in signature for signature in item.made.values())
    ]
    if own:
        report(
            f"{own[0]}: made by the model that scores, which favours it: take another"
            " (docs/guide/visil.md)"
        )
    counts = Counts()

    def add(item: Item, record: Record, resumed: bool) -> None:
        counts.resumed += resumed
        for word in record.get("dropped", ()):
            report(f"{item.place}: keyword {word!r} is not in the caption: left out")
        if "error" in record:
            counts.failed += 1
            report(f"{item.place}: {record['error']}")
        else:
            counts.scored += 1
            for name, count in unknown_words([record["summaries"]]).items():
                counts.unknown[name] = counts.unknown.get(name, 0) + count

    def check(place: str, item: Item, record: Record) -> None:
        expected = options.signature(model.fingerprint, _frames_again(item, record, frames))
        check_signature(place, record.get("signature"), expected)
        check_texts(place, record, hash_texts(item.row))

    run_resumable(
        JobFiles(output, resume, overwrite, progress=progress, inputs=[source, *inputs]),
        Items(videos, len(videos), attrgetter("id"), check),
        lambda items: (
            [
                (
                    item,
                    {
                        **_record(item, model, options, frames, video, drop_missing),
                        "texts": hash_texts(item.row),
                    },
                )
            ]
            for item in items
        ),
        add,
        bar=partial(progress_bar, unit="videos"),
    )
    return counts


def _record(
    item: Item, model: Model, options: VisilOptions, frames: int, whole: bool, drop_missing: bool
) -> dict[str, Any]:
    try:
        caption, keywords = item.text("caption"), item.several("keywords")
        masked = mask_caption(caption, keywords, count=options.count, drop_missing=drop_missing)
        video = item.video(frames)
        results = score(
            video, masked, [*item.summaries(), *([video] if whole else [])], model, options
        )
    except (TextError, InputError) as error:
        message = str(error).removeprefix(f"{item.place}: ")
        return {
            "id": item.id,
            "error": message,
            "signature": options.signature(model.fingerprint, 0),
        }
    return {
        "id": item.id,
        "frames": len(video.frames),
        "samples": options.samples,
        **({"dropped": list(masked.dropped)} if masked.dropped else {}),
        "summaries": [result.to_dict() for result in results],
        "signature": results[0].signature,
    }


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
    otherwise = "no line of `vcs-runtime visil score -o`"
    for place, row in read_records(path, ("id", "signature"), otherwise, pipe=True):
        if "error" in row:
            continue
        name = str(row["id"])
        if name in scores:
            raise InputError(f"{place}: id {name} is there twice")
        fields = str(row["signature"]).split("|")
        signatures.add("|".join(field for field in fields if not field.startswith("frames:")))
        scores[name] = _checked_summaries(place, row.get("summaries"))
    if len(signatures) > 1:
        raise InputError(
            f"{path}: scores that cannot be compared: {' and '.join(sorted(signatures))}"
        )
    if not scores:
        raise InputError(f"{path}: the file holds no scores")
    return scores


def unknown_words(scores: Iterable[Sequence[Mapping[str, Any]]]) -> dict[str, int]:
    """Count the keywords of generated answers, and the unknown ones, whose numbers are the floor.

    `scores` are the summaries of each video. Without generated answers there is nothing to count.
    """
    videos = [[part for part in parts if part.get("approximate")] for parts in scores]
    sides = {
        "video": [
            keyword
            for parts in videos
            for part in parts[:1]
            for keyword in part.get("keywords", ())
        ],
        "summary": [
            keyword for parts in videos for part in parts for keyword in part.get("keywords", ())
        ],
    }
    counts: dict[str, int] = {}
    for side, keywords in sides.items():
        if keywords:
            unknown = sum(keyword.get(f"known_{side}") == "none" for keyword in keywords)
            counts |= {f"words_{side}": len(keywords), f"unknown_{side}": unknown}
    return counts


def _checked_summaries(place: str, parts: Any) -> list[dict[str, Any]]:
    """Return the summaries of a line.

    Raises InputError unless each has a name of its own, and numbers.
    """
    names = set()
    with contextlib.suppress(KeyError, TypeError):
        for part in parts:
            name, score, tokens = part["name"], part["visil"], part["tokens"]
            if name in names:
                raise InputError(f"{place}: the summary {name!r} is there twice")
            if not (
                isinstance(name, str)
                and _is_number(score)
                and (tokens is None or (_is_number(tokens) and tokens >= 0))
                and all(isinstance(keyword, dict) for keyword in part.get("keywords", ()))
            ):
                break
            names.add(name)
        else:
            if names:
                return list(parts)
    raise InputError(f"{place}: it holds no scores of summaries (`vcs-runtime visil score -o`)")


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
    by_name = {
        (video, part["name"]): part["visil"] for video, parts in scored.items() for part in parts
    }
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
            raise InputError(f"{place}: an object with 'id', 'name' and 'correct' was expected")
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
