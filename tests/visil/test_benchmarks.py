"""Question files in the layouts of MVBench and LongVideoBench, with questions of our own."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from support.stories import read_lines
from support.tiny_video import write_video
from support.visil_commands import visil
from vcs_runtime.errors import InputError
from vcs_visil import Image
from vcs_visil.jobs.items import read_items


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")
    return path


def refused(*arguments: object) -> str:
    done = visil("import", *arguments)
    assert isinstance(done.exception, InputError), (done.output, done.exception)
    return str(done.exception)


CANDIDATES = ["He sits down.", "He leaves.", "He sings."]


@pytest.fixture
def mvbench(tmp_path: Path, pictures: list[Image]) -> Path:
    """Episodic reasoning as it is downloaded: questions, and folders of frames at 3 a second."""
    for name in ("show_s01e01_seg01_clip_00", "show_s01e02_seg02_clip_03"):
        folder = tmp_path / "MVBench" / "video" / "tvqa" / "frames_fps3_hq" / name
        folder.mkdir(parents=True)
        for i in range(12):
            (folder / f"{i + 1:05}.png").write_bytes(pictures[i % 4].data)
    entries = [
        {
            "video": "show_s01e01_seg01_clip_00",
            "start": 1.0,
            "end": 3.0,
            "question": "What happens after he speaks?",
            "candidates": CANDIDATES,
            "answer": "He leaves.",
        },
        {
            "video": "show_s01e02_seg02_clip_03",
            "start": 0,
            "end": 60.5,
            "question": "What does he do?",
            "candidates": CANDIDATES,
            "answer": "He sings.",
        },
        {
            "video": "show_s01e01_seg01_clip_00",
            "start": 1.0,
            "end": 3.0,
            "question": "And then?",
            "candidates": CANDIDATES,
            "answer": "He sits down.",
        },
    ]
    return write(tmp_path / "MVBench" / "json" / "episodic_reasoning.json", entries)


def test_mvbench_becomes_items_of_clips(
    mvbench: Path, tmp_path: Path, pictures: list[Image]
) -> None:
    done = visil("import", mvbench, "-o", tmp_path / "i.jsonl")
    assert (done.exit_code, done.stdout) == (0, "2 videos, 3 questions\n"), done.exception
    rows = read_lines(tmp_path / "i.jsonl")
    assert rows[0] == {
        "id": "episodic_reasoning/show_s01e01_seg01_clip_00 1 3",
        "start": 1.0,
        "end": 3.0,
        "fps": 3,
        "video": "MVBench/video/tvqa/frames_fps3_hq/show_s01e01_seg01_clip_00",
        "questions": [
            {"question": "What happens after he speaks?", "options": CANDIDATES, "answer": "B"},
            {"question": "And then?", "options": CANDIDATES, "answer": "A"},
        ],
    }
    first, second = read_items(tmp_path / "i.jsonl")
    # Seconds 1 to 3 at 3 frames a second are frames 3 to 8; the other ends past its last.
    assert (first.sampled(3), second.sampled(16)) == ([4, 6, 8], list(range(12)))
    assert list(first.video(3).frames) == [pictures[i % 4] for i in (4, 6, 8)]
    assert first.keyframe("00:00:01:02") == pictures[5 % 4]
    assert first.questions()[1] == ("And then?", CANDIDATES, "A")


def test_longvideobench_becomes_items_with_subtitles(tmp_path: Path) -> None:
    folder = tmp_path / "LongVideoBench"
    (folder / "videos").mkdir(parents=True)
    write_video(folder / "videos" / "made_up.mp4", Fraction(25), 50)
    entry = {
        "video_id": "made_up",
        "question": "Which scene comes first?",
        "question_wo_referring_query": "Which?",
        "candidates": CANDIDATES,
        "correct_choice": 2,
        "position": [10, 20],
        "topic_category": "KH-Knowledge-History",
        "question_category": "SSS",
        "level": "L2-Relation",
        "id": "made_up_0",
        "video_path": "made_up.mp4",
        "subtitle_path": "made_up_en.json",
        "duration_group": 15,
        "starting_timestamp_for_subtitles": 100,
        "duration": 2.0,
        "view_count": 1,
    }
    entries = [
        {**entry, "question_category": "S2E"},
        entry,
        {**entry, "id": "made_up_1", "correct_choice": 0},
    ]
    path = write(folder / "lvb_val.json", entries)
    write(
        folder / "subtitles" / "made_up_en.json",
        [
            {"start": "00:01:38.000", "end": "00:01:39.500", "line": "Before."},
            {"start": "00:01:39.500", "end": "00:01:40.750", "line": "Good evening."},
            {"start": "00:01:41.000", "end": "00:01:45.000", "line": "It rains."},
        ],
    )
    done = visil("import", path, "-o", folder / "i.jsonl", "--task", "SSS")
    assert (done.exit_code, done.stdout) == (0, "1 videos, 2 questions\n"), done.exception
    [row] = read_lines(folder / "i.jsonl")
    assert (row["id"], row["video"]) == ("made_up", "videos/made_up.mp4")
    assert row["questions"][0] == {
        "question": "Which scene comes first?",
        "options": CANDIDATES,
        "answer": "C",
        "id": "made_up_0",
        "category": "SSS",
    }
    spoken = [
        {"start": 0.0, "end": 0.75, "text": "Good evening."},
        {"start": 1.0, "end": 2.0, "text": "It rains."},
    ]
    assert row["subtitles"] == spoken
    write(
        folder / "subtitles" / "made_up_en.json",
        [
            {"timestamp": [99.5, 100.75], "text": "Good evening."},
            {"timestamp": [101, None], "text": "It rains."},
        ],
    )
    assert (
        visil("import", path, "-o", folder / "i.jsonl", "--overwrite").stdout
        == "1 videos, 3 questions\n"
    )
    assert read_lines(folder / "i.jsonl")[0]["subtitles"] == spoken
    [item] = read_items(folder / "i.jsonl")
    assert len(item.video(4).frames) == 4
    assert "the tasks are S2E, SSS" in refused(path, "-o", folder / "x.jsonl", "--task", "T2A")
    write(folder / "subtitles" / "made_up_en.json", [{"start": "1:2", "end": 3, "line": "x"}])
    assert "made_up_en.json entry 1: a time" in refused(path, "-o", folder / "x.jsonl")
    (folder / "subtitles" / "made_up_en.json").unlink()
    test_set = write(
        folder / "lvb_test_wo_gt.json", [{k: v for k, v in entry.items() if k != "correct_choice"}]
    )
    assert "the test set has no answers" in refused(test_set, "-o", folder / "x.jsonl")


def test_videos_that_are_not_there_are_named_or_left_out(mvbench: Path, tmp_path: Path) -> None:
    entries = json.loads(mvbench.read_text("utf-8"))
    write(mvbench, [{**entries[0], "video": "gone"}, *entries])
    assert "gone: the video is missing (1 in all)" in refused(mvbench, "-o", tmp_path / "i.jsonl")
    assert not (tmp_path / "i.jsonl").exists()
    done = visil("import", mvbench, "-o", tmp_path / "i.jsonl", "--drop-missing", "--limit", "1")
    assert done.stdout == "1 videos, 2 questions\n"
    assert "episodic_reasoning.json: missing videos are left out" in done.stderr
    videos = mvbench.parent.parent / "video" / "tvqa" / "frames_fps3_hq"
    other = write(tmp_path / "mine.json", entries)
    assert "no task of MVBench has this name" in refused(other, "-o", tmp_path / "j.jsonl")
    assert visil("import", other, "-o", tmp_path / "j.jsonl", "--videos", videos).exit_code == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answer": "He flies."}, "'answer' must be one of the candidates, not 'He flies.'"),
        ({"candidates": ["one"]}, "entry 2: 'candidates' must be a list"),
        ({"video": None}, "entry 2: 'video' must be a text"),
        ({"question": 3}, "entry 2: 'question' must be a text"),
        ({"start": "soon"}, "entry 2: a time in seconds was expected, not 'soon'"),
    ],
)
def test_entries_that_are_none_are_named(
    mvbench: Path, tmp_path: Path, change: dict[str, Any], says: str
) -> None:
    entries = json.loads(mvbench.read_text("utf-8"))
    write(mvbench, [entries[0], {**entries[1], **change}])
    assert says in refused(mvbench, "-o", tmp_path / "i.jsonl")


@pytest.mark.parametrize("text", ["{", "{}", "[]", "[1]"])
def test_files_that_are_none_are_named(mvbench: Path, tmp_path: Path, text: str) -> None:
    mvbench.write_text(text, "utf-8")
    assert "episodic_reasoning.json" in refused(mvbench, "-o", tmp_path / "i.jsonl")
    assert "has a file for each task" in refused(
        write(mvbench, [{"video": "x"}]), "-o", tmp_path / "i.jsonl", "--task", "SSS"
    )


def test_clips_and_folders_that_cannot_be_used_are_named(mvbench: Path, tmp_path: Path) -> None:
    assert visil("import", mvbench, "-o", tmp_path / "i.jsonl").exit_code == 0
    rows = read_lines(tmp_path / "i.jsonl")
    for change, says in (
        ({"start": 9}, "no frame between 'start' and 'end'"),
        ({"end": -1}, "'end' must be a number"),
        ({"fps": None}, "'fps' must be a number"),
        ({"fps": 0}, "fps must be at least 1"),
        ({"video": "MVBench/json"}, "holds no PNG or JPEG files"),
    ):
        write(tmp_path / "c.jsonl", {**rows[0], **change})
        [item] = read_items(tmp_path / "c.jsonl")
        with pytest.raises(InputError, match=says):
            item.video(2)
