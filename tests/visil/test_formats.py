"""Tables and figures by format: scores, tokens, accuracy, the frontier, confused summaries."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from support import fake_server as fake
from support.stories import read_lines, write_pairs
from support.visil_commands import visil, write
from vcs_runtime.errors import InputError
from vcs_visil import Image

# The paper's means of tokens (Table 1), with our scores: (format, score, tokens).
VIDEOS = {
    "a": [
        ("text", 4.2, 59.05),
        ("1-image", 3.1, 326.34),
        ("3-image", 2.4, 866.88),
        ("video", 0.0, 7148.0),
    ],
    "b": [
        ("text", 2.0, 60.0),
        ("1-image", 3.0, 330.0),
        ("3-image", 1.0, 870.0),
        ("video", 0.0, 7000.0),
    ],
}
RIGHT = {
    "a": {"text": (0, 0), "1-image": (1, 0), "3-image": (1, 1), "video": (1, 1)},
    "b": {"text": (1,), "1-image": (0,), "3-image": (1,), "video": (1,)},
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    scores = [
        {
            "id": video,
            "signature": "visil|def:1|model:m|frames:2",
            "summaries": [
                {
                    "name": f"{format_} of {video}",
                    "format": format_,
                    "visil": score,
                    "tokens": tokens,
                }
                for format_, score, tokens in parts
            ],
        }
        for video, parts in VIDEOS.items()
    ]
    answers: list[dict[str, Any]] = [
        {
            "id": video,
            "name": f"{format_} of {video}",
            "correct": value,
            "seconds": 60 + i,
            "question": f"q{i}",
        }
        for video, formats in RIGHT.items()
        for format_, values in formats.items()
        for i, value in enumerate(values)
    ]
    write_pairs(tmp_path / "s.jsonl", scores)
    write_pairs(tmp_path / "a.jsonl", [*answers, {"id": "c", "error": "e"}])
    return tmp_path / "s.jsonl", tmp_path / "a.jsonl"


def report(*arguments: object) -> dict[str, Any]:
    done = visil("report", *arguments, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_formats_are_compared_by_the_questions_that_both_answer(files: tuple[Path, Path]) -> None:
    tests = {
        tuple(row["formats"]): row for row in report(files[0], "--answers", files[1])["paired"]
    }
    assert len(tests) == 6
    row = tests["text", "3-image"]
    # Two of three questions are answered rightly from three images only: of 8 ways to swap, half of
    # the four with these two sides lie as far off, on either side.
    assert (row["questions"], row["difference"], row["p"]) == (3, pytest.approx(2 / 3), 0.5)
    assert row["p_holm"] == 1.0
    assert tests["3-image", "video"]["p"] == 1.0
    shown = visil("report", files[0], "--answers", files[1]).stdout
    assert "text and 3-image" in shown
    assert "66.7 %" in shown
    rows = [
        {key: value for key, value in row.items() if key != "question"}
        for row in read_lines(files[1])
    ]
    write_pairs(files[1], rows)
    assert "paired" not in report(files[0], "--answers", files[1])
    assert (
        "Not compared in pairs: no two" in visil("report", files[0], "--answers", files[1]).stdout
    )


def test_scores_tokens_and_accuracy_by_format(files: tuple[Path, Path]) -> None:
    rows = {row["format"]: row for row in report(files[0], "--answers", files[1])["formats"]}
    assert list(rows) == ["text", "1-image", "3-image", "video"]
    for i, format_ in enumerate(rows):
        for field, place in (("visil", 1), ("tokens", 2)):
            values = [parts[i][place] for parts in VIDEOS.values()]
            assert rows[format_][field]["mean"] == pytest.approx(statistics.fmean(values))
            assert rows[format_][field]["sd"] == pytest.approx(statistics.stdev(values))
    text = rows["text"]
    assert text["visil"] == pytest.approx(
        {
            "n": 2,
            "mean": 3.1,
            "sd": 1.5556349186,
            "min": 2.0,
            "q1": 2.55,
            "median": 3.1,
            "q3": 3.65,
            "max": 4.2,
        }
    )
    # Wilson's interval of 1 in 3, from its formula with z = 1.959964.
    assert text["accuracy"] == pytest.approx(
        {"n": 3, "correct": 1, "share": 1 / 3, "low": 0.0614919, "high": 0.7923404}, abs=1e-6
    )
    assert rows["3-image"]["accuracy"]["share"] == 1.0
    assert rows["video"]["accuracy"]["low"] == pytest.approx(0.4385030)
    assert text["seconds"] == {
        "n": 3,
        "mean": pytest.approx(181 / 3),
        "sd": pytest.approx(0.5773503),
    }


def test_accuracy_along_the_frontier_and_of_the_baselines(files: tuple[Path, Path]) -> None:
    found = report(files[0], "--answers", files[1], "--alpha", 0, "--alpha", 0.002, "--alpha", 1)[
        "frontier"
    ]
    assert [(p["alpha"], p["tokens"], p["visil"], p["accuracy"]) for p in found["chosen"]] == [
        # The full video is no summary.
        (0, pytest.approx((866.88 + 870) / 2), pytest.approx(1.7), 1.0),
        # The paper's golden numbers choose one image of `a` at .002, and the text of `b`.
        (0.002, pytest.approx((326.34 + 60) / 2), pytest.approx(2.55), pytest.approx(2 / 3)),
        (1, pytest.approx((59.05 + 60) / 2), pytest.approx(3.1), pytest.approx(1 / 3)),
    ]
    baselines = {p["name"]: p for p in found["baselines"]}
    assert list(baselines) == ["text", "1-image", "3-image", "video", "random"]
    assert baselines["1-image"]["accuracy"] == pytest.approx(1 / 3)
    assert baselines["video"]["accuracy"] == 1
    # Of `a`, 0, 1 and 2 of two answers are right; of `b`, 1, 0 and 1 of one.
    assert baselines["random"]["accuracy"] == pytest.approx((3 / 3 + 2 / 3) / 3)
    assert baselines["random"]["visil"] == pytest.approx((9.7 / 3 + 6 / 3) / 2)
    selected = visil("select", files[0], "--alpha", 0, "--json").stdout.splitlines()
    assert [json.loads(line)["chosen"]["0"] for line in selected] == [
        "3-image of a",
        "3-image of b",
    ]
    steps = report(files[0])["frontier"]["chosen"]
    assert [step["alpha"] for step in steps] == sorted({step["alpha"] for step in steps})
    assert (steps[0]["alpha"], steps[0]["accuracy"]) == (0, None)


def test_the_drop_by_confused_summaries(tmp_path: Path) -> None:
    lines = [
        {
            "id": 1,
            "name": "x",
            "format": format_,
            "correct": correct,
            **({"confused": kind} if kind else {}),
        }
        for format_, kind, values in (
            ("3-image", None, (1, 1, 1, 0)),
            ("3-image", "keyframes", (1, 0)),
            ("3-image", "text", (0, 0, 0, 1)),
            ("text", None, (1, 1)),
            ("text", "text", (1, 1)),
            ("1-image", "text", (1,)),
        )
        for correct in values
    ]
    write_pairs(tmp_path / "j.jsonl", lines)
    rows = report("--judged", tmp_path / "j.jsonl")["correspondence"]
    assert [row["format"] for row in rows] == ["text", "1-image", "3-image"]
    assert [{kind: found["drop"] for kind, found in row["confused"].items()} for row in rows] == [
        {"text": 0.0},
        {"text": None},
        {"keyframes": 0.25, "text": 0.5},
    ]
    printed = visil("report", "--judged", tmp_path / "j.jsonl", "--plots", tmp_path / "p")
    assert "3-image  confused text       25.0 % of 4" in printed.stdout
    assert (tmp_path / "p" / "correspondence.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_printed_and_drawn(files: tuple[Path, Path], tmp_path: Path) -> None:
    done = visil("report", files[0], "--answers", files[1], "--plots", tmp_path / "p")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "a.jsonl: lines with an error are left out" in done.stderr
    assert "text     3.1000 ± 1.5556  59.52 ± 0.67" in done.stdout
    assert "33.3 % of 3 (6.1 % to 79.2 %)" in done.stdout
    assert "random" in done.stdout
    assert {path.name for path in (tmp_path / "p").iterdir()} == {"formats.png", "frontier.png"}


def test_answers_from_the_full_video_are_left_out_of_the_correlation(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    lines = [
        {
            "id": video,
            "name": f"{format_} of {video}",
            "format": format_,
            "correct": int(i % 2 == 0),
        }
        for i, (video, format_) in enumerate((v, f) for v in VIDEOS for f, _, _ in VIDEOS[v])
    ]
    write_pairs(tmp_path / "c.jsonl", lines)
    done = visil("correlate", files[0], "--answers", tmp_path / "c.jsonl", "--json")
    assert json.loads(done.stdout)["n"] == 6
    assert "c.jsonl: answers from the full video are left out" in done.stderr


def test_what_cannot_be_reported_is_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    assert "give SCORES, --judged, or both" in visil("report").stderr
    assert (
        "--answers needs SCORES"
        in visil("report", "--judged", files[1], "--answers", files[1]).stderr
    )
    write_pairs(tmp_path / "e.jsonl", [{"id": "c", "error": "e"}])
    write_pairs(tmp_path / "n.jsonl", [{"id": "a", "name": "x", "correct": 1, "seconds": "9"}])
    write_pairs(
        tmp_path / "t.jsonl",
        [{"id": "a", "signature": "s", "summaries": [{"name": "x", "visil": 1.0, "tokens": None}]}],
    )
    write_pairs(tmp_path / "l.jsonl", [{"id": "a", "name": ["x"], "correct": 1}])
    rows = [{"id": "a", "name": "x", "correct": 1, "confidence": 10**400}]
    write_pairs(tmp_path / "h.jsonl", rows)
    for name, says in (
        ("e", "holds no answers"),
        ("n", "line 1: 'seconds' must be a number, not '9'"),
        ("l", r"line 1: 'name' must be a text, not ['x']"),
        ("h", "line 1: 'confidence' must be a number"),
    ):
        refused = visil("report", files[0], "--answers", tmp_path / f"{name}.jsonl")
        assert isinstance(refused.exception, InputError)
        assert says in str(refused.exception)
    done = visil("report", tmp_path / "t.jsonl")
    assert (
        "a summary has no number of tokens: add it to the items; the frontier is left out"
        in done.stderr
    )
    assert done.exit_code == 0


QUESTION = {"question": "Who?", "options": ["dog", "man"], "answer": "B"}


def a_job(folder: Path, pictures: list[Image]) -> Path:
    for i, picture in enumerate(pictures[:2]):
        (folder / f"{i}.png").write_bytes(picture.data)
    row = {
        "id": "a",
        "frames": ["0.png", "1.png"],
        "caption": "A man drives a sedan.",
        "keywords": ["man", "sedan"],
        "summaries": [
            {"name": "t", "text": "A man."},
            {"name": "i", "text": "A man: [KEYFRAME1].", "keyframes": ["1.png"]},
        ],
        "questions": [QUESTION, {**QUESTION, "answer": "A"}],
    }
    write_pairs(folder / "in.jsonl", [row])
    return folder / "in.jsonl"


class Answering(fake.VLLMHandler):
    """Knows the man from images only."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        content = body["messages"][0]["content"]
        return {"choices": [{"message": {"content": "A" if isinstance(content, str) else "B"}}]}


def test_the_full_video_is_a_format_of_answers(tmp_path: Path, pictures: list[Image]) -> None:
    source = a_job(tmp_path, pictures)
    with fake.serve(Answering) as (url, log):
        done = write("answer", source, tmp_path / "s.jsonl", "--model", f"vllm:{url}")
        assert done.exit_code == 0
        asked = len(log)
        finished = write(
            "answer", source, tmp_path / "v.jsonl", "--model", f"vllm:{url}", "--video"
        )
        assert finished.exit_code == 0
    lines = read_lines(tmp_path / "v.jsonl")
    assert [(line["name"], line["format"], line["given"], line["correct"]) for line in lines] == [
        ("t", "text", "A", 0),
        ("i", "1-image", "B", 1),
        ("video", "video", "B", 1),
        ("t", "text", "A", 1),
        ("i", "1-image", "B", 0),
        ("video", "video", "B", 0),
    ]
    shown = [
        sum(part["type"] == "image_url" for part in body["messages"][0]["content"])
        for _, body in log[asked:]
        if not isinstance(body["messages"][0]["content"], str)
    ]
    assert shown == [1, 2, 1, 2]
    assert [line["name"] for line in read_lines(tmp_path / "s.jsonl")] == ["t", "i", "t", "i"]
    assert "|frames:files|" in lines[0]["signature"]


def test_a_tiny_real_model_from_scores_to_the_report(
    tmp_path: Path, vision_model: Path, pictures: list[Image]
) -> None:
    source = a_job(tmp_path, pictures)
    done = visil(
        "score", source, "-o", tmp_path / "s.jsonl", "--model", f"genai:{vision_model}", "--video"
    )
    assert done.exit_code == 0, (done.output, done.exception)
    with fake.serve(Answering) as (url, _):
        finished = write(
            "answer", source, tmp_path / "a.jsonl", "--model", f"vllm:{url}", "--video"
        )
        assert finished.exit_code == 0
    found = report(tmp_path / "s.jsonl", "--answers", tmp_path / "a.jsonl")
    rows = {row["format"]: row for row in found["formats"]}
    assert list(rows) == ["text", "1-image", "video"]
    assert rows["video"]["visil"]["mean"] == 0
    text, image, video = (rows[name]["tokens"]["mean"] for name in rows)
    # An image is 256 tokens of this model, and its two marks.
    assert text < 30 < 256 < image < 2 * 256 < video < 530
    assert [row["accuracy"]["share"] for row in rows.values()] == [0.5, 0.5, 0.5]
    assert found["frontier"]["chosen"][-1]["tokens"] == text
