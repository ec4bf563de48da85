"""A job: videos from a JSONL file, one line a video to another, resumable; and scores, read again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError, TextError
from vcs_runtime.experiments.datasets import read_jsonl
from vcs_runtime.jobs.jsonl import OutputFile
from vcs_runtime.util.progress import progress_bar
from vcs_runtime.visil.frames import uniform
from vcs_runtime.visil.items import Item, read_items
from vcs_runtime.visil.keywords import builtin_keywords
from vcs_runtime.visil.logprobs import LogProbs
from vcs_runtime.visil.masking import mask_caption
from vcs_runtime.visil.score import Options, score


@dataclass
class Summary:
    """What a job did: videos scored and failed, and how many of both were there before."""

    scored: int = 0
    failed: int = 0
    resumed: int = 0


def run(
    model: LogProbs, source: Path, output: Path, options: Options, *, frames: int, drop_missing: bool = False,
    choose_keywords: bool = False, resume: bool = False, overwrite: bool = False,
    report: Callable[[str], None] = lambda message: None, progress: bool = True,
) -> Summary:  # fmt: skip
    """Score the summaries of every video of `source`; append a JSON line a video to `output`.

    frames           of a video file, taken uniformly
    drop_missing     leave out keywords that are not in the caption, with a line to `report`
    choose_keywords  choose them without a model where a line has none

    A video whose texts or images cannot be used gets a line with an `error`, and a line to `report`; the
    others go on. Raises ModelError where the model fails: what was written stays. InputError names the line.
    """
    total, own = 0, ""
    for item in read_items(source):  # the whole file is checked first
        total += 1
        if any(f"|model:{model.fingerprint}|" in by for by in item.made.values()):
            own = own or item.place
    if own:
        report(f"{own}: made by the model that scores, which favours it: take another (docs/visil.md)")
    if not total:
        raise InputError(f"{source}: it holds no videos")
    summary = Summary()
    with OutputFile(output, resume=resume, overwrite=overwrite) as lines:
        items = read_items(source)
        done = list(_finished(lines, items, model, options, frames)) if resume else []
        summary.resumed = len(done)
        with progress_bar(total, enabled=progress, done=len(done), unit="videos") as advance:
            fresh = (
                (_record(item, model, options, frames, drop_missing, choose_keywords), item) for item in items
            )
            for record, item in chain(done, fresh):
                if summary.scored + summary.failed >= summary.resumed:
                    lines.append([record])
                    advance(1)
                for word in record.get("dropped", ()):
                    report(f"{item.place}: keyword {word!r} is not in the caption: left out")
                if "error" in record:
                    summary.failed += 1
                    report(f"{item.place}: {record['error']}")
                else:
                    summary.scored += 1
    return summary


def _record(
    item: Item, model: LogProbs, options: Options, frames: int, drop_missing: bool, choose_keywords: bool
) -> dict[str, Any]:
    try:
        caption = item.text("caption")
        keywords = item.row.get("keywords")
        if choose_keywords and keywords is None:
            keywords = builtin_keywords(caption)
        else:
            keywords = item.several("keywords")
        masked = mask_caption(caption, keywords, count=options.count, drop_missing=drop_missing)
        video = item.video(frames)
        results = score(video, masked, item.summaries(), model, options)
    except (TextError, InputError) as error:
        message = str(error).removeprefix(f"{item.place}: ")
        return {"id": item.id, "error": message, "signature": options.signature(model.fingerprint, 0)}
    return {
        "id": item.id, "frames": len(video.frames), "samples": options.samples,
        **({"dropped": list(masked.dropped)} if masked.dropped else {}),
        "summaries": [result.to_dict() for result in results], "signature": results[0].signature,
    }  # fmt: skip


def _finished(
    lines: OutputFile, items: Iterator[Item], model: LogProbs, options: Options, frames: int
) -> Iterator[tuple[dict[str, Any], Item]]:
    """The records that are there already, each with its item, taken off the front of `items`."""
    for number, record in enumerate(lines.records(), 1):
        place = f"{lines.path} line {number}"
        expected = options.signature(model.fingerprint, record.get("frames", 0))
        if record["signature"] != expected:
            raise InputError(f"{place}: scored as {record['signature']}, this run is {expected}")
        item = next(items, None)
        if item is None or record["id"] != item.id:
            raise InputError(f"{place}: id {record['id']!r} is not that of the same line of the input")
        there = record.get("frames", frames)
        if there != frames and "frames" not in item.row and there != len(uniform(item.file.frames, frames)):
            raise InputError(f"{place}: scored with {there} frames, this run takes {frames}")
        yield record, item


def read_scores(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The summaries of each scored video of a job's output, by id.

    Raises InputError: no such file, no scores, or scores of several models or options.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    lines = set()
    for number, row in enumerate(read_jsonl(path), 1):
        place = f"{path} line {number}"
        if not isinstance(row, dict) or not {"id", "signature"} <= row.keys():
            raise InputError(f"{place}: no line of `vcs-runtime visil score -o`")
        if "error" in row:
            continue
        if str(row["id"]) in found:
            raise InputError(f"{place}: id {row['id']} is there twice")
        lines.add(
            "|".join(field for field in str(row["signature"]).split("|") if not field.startswith("frames:"))
        )
        found[str(row["id"])] = row["summaries"]
    if len(lines) > 1:
        raise InputError(f"{path}: scores that cannot be compared: {' and '.join(sorted(lines))}")
    with contextlib.suppress(KeyError, TypeError):
        if found and all(
            {"name", "visil", "tokens"} <= part.keys() for parts in found.values() for part in parts
        ):
            return found
    raise InputError(f"{path}: it holds no scores")
