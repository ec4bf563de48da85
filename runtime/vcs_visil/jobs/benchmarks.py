"""Question files of MVBench and LongVideoBench as items, one per video.

MVBench has a JSON file per task: a list of objects with `video`, `question`, `candidates`, `answer`
(one of the candidates), and for some tasks `start` and `end` in seconds. LongVideoBench has one
list of objects with `video_id`, `video_path`, `question`, `candidates`, `correct_choice` (counted
from 0), `question_category`, `subtitle_path`, `starting_timestamp_for_subtitles` and `duration`.
"""

from __future__ import annotations

import json
import os
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_runtime.errors import InputError
from vcs_runtime.util.presence import is_folder, is_regular_file
from vcs_runtime.util.reading import read_whole

# Folders of MVBench's videos below `video`, by the name of the task's file.
_FOLDERS = {
    "action_sequence": "star/Charades_v1_480",
    "action_prediction": "star/Charades_v1_480",
    "action_antonym": "ssv2_video",
    "fine_grained_action": "Moments_in_Time_Raw/videos",
    "unexpected_action": "FunQA_test/test",
    "object_existence": "clevrer/video_validation",
    "object_interaction": "star/Charades_v1_480",
    "object_shuffle": "perception/videos",
    "moving_direction": "clevrer/video_validation",
    "action_localization": "sta/sta_video",
    "scene_transition": "scene_qa/video",
    "action_count": "perception/videos",
    "moving_count": "clevrer/video_validation",
    "moving_attribute": "clevrer/video_validation",
    "state_change": "perception/videos",
    "fine_grained_pose": "nturgbd",
    "character_order": "perception/videos",
    "egocentric_navigation": "vlnqa",
    "episodic_reasoning": "tvqa/frames_fps3_hq",
    "counterfactual_inference": "clevrer/video_validation",
}
_TVQA_FPS = 3  # of its folders of frames
_TIME = re.compile(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)")


@dataclass(frozen=True)
class Source:
    """A question file and its folders."""

    path: Path
    videos: Path | None = None  # None: where the data set has them
    subtitles: Path | None = None  # likewise
    task: str | None = None  # of LongVideoBench; None for all

    def items(self, folder: Path, limit: int | None = None) -> list[dict[str, Any]]:
        """Read the questions, one item per video up to `limit`.

        Paths are relative to `folder`.
        """
        try:
            entries = json.loads(read_whole(self.path))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.path}: not JSON: {error}") from None
        if (
            not isinstance(entries, list)
            or not entries
            or not all(isinstance(e, dict) for e in entries)
        ):
            raise InputError(f"{self.path} must be a JSON list of questions")
        long = "video_path" in entries[0]
        if self.task is not None and not long:
            raise InputError(f"{self.path}: MVBench has a file for each task: leave out --task")
        items: dict[str, dict[str, Any]] = {}
        for number, entry in enumerate(entries, 1):
            place = f"{self.path} entry {number}"
            if self.task is not None and entry.get("question_category") != self.task:
                continue
            item = (
                self._longvideobench(place, entry, folder)
                if long
                else self._mvbench(place, entry, folder)
            )
            if item["id"] not in items:
                if len(items) == limit:
                    continue
                items[item["id"]] = {**item, "questions": []}
            items[item["id"]]["questions"].append(_question(place, entry, long))
        if not items:
            known = sorted({str(entry.get("question_category")) for entry in entries})
            raise InputError(
                f"{self.path}: no question of task {self.task!r}; the tasks are {', '.join(known)}"
            )
        return list(items.values())

    def _mvbench(self, place: str, entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        task, name = self.path.stem, _field(place, entry, "video")
        if self.videos is None and task not in _FOLDERS:
            raise InputError(
                f"{self.path}: no task of MVBench has this name: give the folder of videos with"
                " --videos"
            )
        videos = self.videos or self.path.parent.parent / "video" / _FOLDERS[task]
        item: dict[str, Any] = {"id": f"{task}/{name}", "video": _relative(videos / name, folder)}
        for side in ("start", "end"):
            if entry.get(side) is not None:
                item[side] = _seconds(place, entry[side])
                item["id"] += f" {item[side]:g}"
        if is_folder(videos / name):
            item["fps"] = _TVQA_FPS
        return item

    def _longvideobench(self, place: str, entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        videos = self.videos or self.path.parent / "videos"
        item: dict[str, Any] = {
            "id": _field(place, entry, "video_id"),
            "video": _relative(videos / _field(place, entry, "video_path"), folder),
        }
        name = entry.get("subtitle_path")
        path = (
            (self.subtitles or self.path.parent / "subtitles") / name
            if isinstance(name, str)
            else None
        )
        if path is not None and is_regular_file(path):
            offset = _seconds(place, entry.get("starting_timestamp_for_subtitles", 0))
            item["subtitles"] = read_subtitles(
                path, offset, _seconds(place, entry.get("duration", 0))
            )
        return item


def read_subtitles(path: Path, offset: float, duration: float) -> list[dict[str, Any]]:
    """Read subtitles of LongVideoBench, in its two forms; the video begins at second `offset`."""
    try:
        entries = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    lines = []
    for number, entry in enumerate(entries if isinstance(entries, list) else [entries], 1):
        place = f"{path} entry {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{place}: must be an object")
        times = entry.get("timestamp", [entry.get("start"), entry.get("end")])
        if not isinstance(times, list) or len(times) != 2:
            raise InputError(f"{place}: 'timestamp' must be two numbers of seconds")
        start = _seconds(place, times[0]) - offset
        end = duration if times[1] is None else _seconds(place, times[1]) - offset
        if end > 0 and start < duration:
            text = _field(place, entry, "text" if "timestamp" in entry else "line")
            lines.append(
                {
                    "start": round(max(0.0, start), 3),
                    "end": round(min(end, duration), 3),
                    "text": text,
                }
            )
    return lines


def _question(place: str, entry: Mapping[str, Any], long: bool) -> dict[str, Any]:
    options = entry.get("candidates")
    if (
        not isinstance(options, list)
        or not 2 <= len(options) <= len(string.ascii_uppercase)
        or not all(isinstance(option, str) for option in options)
    ):
        raise InputError(f"{place}: 'candidates' must be a list of 2 to 26 texts")
    if long:
        right = entry.get("correct_choice")
        if isinstance(right, bool) or not isinstance(right, int) or not 0 <= right < len(options):
            raise InputError(
                f"{place}: 'correct_choice' must be a number from 0 to {len(options) - 1}, not"
                f" {right!r} (the test set has no answers)"
            )
    else:
        if entry.get("answer") not in options:
            raise InputError(
                f"{place}: 'answer' must be one of the candidates, not {entry.get('answer')!r}"
            )
        right = options.index(entry["answer"])
    question = {
        "question": _field(place, entry, "question"),
        "options": options,
        "answer": string.ascii_uppercase[right],
    }
    if long:
        for field, name in (("id", "id"), ("question_category", "category")):
            if field in entry:
                question[name] = entry[field]
    return question


def _field(place: str, entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise InputError(f"{place}: {name!r} must be a text, not {value!r}")
    return value


def _seconds(place: str, value: Any) -> float:
    """Return a time in seconds, from a number or "HH:MM:SS.mmm"."""
    if isinstance(value, str) and (match := _TIME.fullmatch(value)):
        return 3600 * int(match[1]) + 60 * int(match[2]) + float(match[3])
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < float("inf")
    ):
        raise InputError(f"{place}: a time in seconds was expected, not {value!r}")
    return float(value)


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()
