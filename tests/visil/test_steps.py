"""What a model writes around scoring: checked, asked for once more, refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support import fake_server as fake
from support.stories import write_pairs
from support.tiny_video import write_video
from vcs_runtime.cli import cli
from vcs_runtime.errors import TextError
from vcs_runtime.visil import Image, Summary, steps
from vcs_runtime.visil.logprobs import Part
from vcs_runtime.visil.prompts import builtin

PROMPTS = builtin()
CAPTION = "A man drives a sedan."
MOMENTS = [{"timestamp": f"00:00:0{i}:00", "description": "A car."} for i in (1, 2, 3)]


class Scripted:
    """Writes what it is told to, in turn, and keeps what it was asked."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.asked = list(answers), list[list[Part]]()

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        self.asked.append(list(parts))
        return self.answers.pop(0)


def test_what_can_be_used_is_taken(pictures: list[Image]) -> None:
    frames = [("00:00:00:00", pictures[0]), ("00:00:03:00", pictures[1])]
    assert steps.write_caption(Scripted(" A man. \n"), PROMPTS, pictures) == "A man."
    assert steps.choose_keywords(Scripted('```json\n["man", "sedan"]\n```'), PROMPTS, CAPTION) == [
        "man",
        "sedan",
    ]
    assert steps.choose_keyframes(Scripted(json.dumps(MOMENTS)), PROMPTS, frames, 25, 100) == MOMENTS
    assert steps.write_summary(Scripted("A man."), PROMPTS, pictures) == "A man."
    text = "It begins, [KEYFRAME1], and ends in [KEYFRAME2]."
    assert steps.write_summary(Scripted(text), PROMPTS, pictures, pictures[:2]) == text
    assert steps.answer_question(Scripted(" b. "), PROMPTS, Summary("A man."), "Who?", ["dog", "man"]) == "B"


def test_what_cannot_be_used_is_asked_for_once_more_with_the_reason() -> None:
    writer = Scripted('["man", "zebra"]', '["man"]')
    assert steps.choose_keywords(writer, PROMPTS, CAPTION) == ["man"]
    first, second = ("".join(map(str, parts)) for parts in writer.asked)
    assert CAPTION in first
    assert second.startswith(first)
    assert "'zebra' is no word of the caption" in second


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("man, sedan", "not JSON"), ('{"a": 1}', "array of strings"), ("[1]", "array of strings"),
        ('["sedan", "man"]', "out of order"), ('["Man"]', "lower case"), ('["video"]', "'video' is none"),
        (json.dumps([f"w{i}" for i in range(21)]), "21 words"), ("[]", "none"),
    ],
)  # fmt: skip
def test_keywords_that_cannot_be_used_are_refused(wrong: str, says: str) -> None:
    with pytest.raises(TextError, match=f"{says}.*asked twice"):
        steps.choose_keywords(Scripted(wrong, wrong), PROMPTS, CAPTION)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (MOMENTS[:2], "2 objects"), ([*MOMENTS[:2], {"timestamp": "00:00:03:00"}], "needs a"), (MOMENTS[::-1], "order of time"),
        ([*MOMENTS[:2], {**MOMENTS[2], "timestamp": "00:00:03:25"}], "no frame 25"),
        ([*MOMENTS[:2], {**MOMENTS[2], "timestamp": "00:00:04:00"}], "past the end"), (["a"], "array of objects"),
    ],
)  # fmt: skip
def test_keyframes_that_cannot_be_used_are_refused(
    wrong: list[Any], says: str, pictures: list[Image]
) -> None:
    text = json.dumps(wrong)
    with pytest.raises(TextError, match=f"{says}.*asked twice"):
        steps.choose_keyframes(Scripted(text, text), PROMPTS, [("00:00:00:00", pictures[0])], 25, 100)


@pytest.mark.parametrize(
    "wrong", ["A man.", "[KEYFRAME2] [KEYFRAME1]", "[KEYFRAME1]", "[KEYFRAME1] [KEYFRAME2] [KEYFRAME2]", ""]
)
def test_summaries_that_name_other_keyframes_are_refused(wrong: str, pictures: list[Image]) -> None:
    with pytest.raises(TextError, match="asked twice"):
        steps.write_summary(Scripted(wrong, wrong), PROMPTS, pictures, pictures[:2])


@pytest.mark.parametrize("wrong", ["", "C", "The man", "AB"])
def test_answers_that_are_no_option_are_refused(wrong: str) -> None:
    with pytest.raises(TextError, match="none of A, B.*asked twice"):
        steps.answer_question(Scripted(wrong, wrong), PROMPTS, Summary("A man."), "Who?", ["dog", "man"])


class Writing(fake.VLLMHandler):
    """A server that answers each prompt of ours as a model should."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        content = body["messages"][0]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "".join(part.get("text", "") for part in parts)
        images = sum(part["type"] == "image_url" for part in parts)
        for says, written in (
            ("Describe the video", CAPTION), ("Pick up to 20 keywords", '["man", "drives", "sedan"]'),
            ("SMPTE", json.dumps([{**moment, "timestamp": f"00:00:00:0{i}"} for i, moment in enumerate(MOMENTS)])),
            ("by its placeholder", " ".join(f"[KEYFRAME{i + 1}]" for i in range(images - 2))),
            ("Sum the video up", "A man drives."), ("Answer the question", "B"),
        ):  # fmt: skip
            if says in text:
                return {"choices": [{"message": {"content": written}}]}
        raise AssertionError(text)


def test_every_step_by_its_command(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", Fraction(25), 20)
    row = {
        "id": "a",
        "video": "a.mp4",
        "questions": [{"question": "Who?", "options": ["dog", "man"], "answer": "B"}],
    }
    write_pairs(tmp_path / "0.jsonl", [row])
    with fake.serve(Writing) as (url, _):
        for i, name in enumerate(("caption", "keywords", "keyframes", "summarize", "answer")):
            some = [] if name in ("keywords", "answer") else ["--frames", "2"]
            files = [str(tmp_path / f"{i}.jsonl"), "-o", str(tmp_path / f"{i + 1}.jsonl")]
            done = CliRunner().invoke(cli, ["visil", name, *files, "--vllm", url, *some])
            assert done.exit_code == 0, (name, done.output, done.exception)
    made = json.loads((tmp_path / "4.jsonl").read_text())
    assert made["caption"] == CAPTION
    assert made["keywords"] == ["man", "drives", "sedan"]
    assert [s["name"] for s in made["summaries"]] == ["text", "1-image", "3-image"]
    assert made["summaries"][2]["text"] == "[KEYFRAME1] [KEYFRAME2] [KEYFRAME3]"
    answers = [json.loads(line) for line in (tmp_path / "5.jsonl").read_text().splitlines()]
    assert [(a["name"], a["correct"]) for a in answers] == [("text", 1), ("1-image", 1), ("3-image", 1)]
    offline = CliRunner().invoke(
        cli, ["visil", "keywords", str(tmp_path / "1.jsonl"), "-o", str(tmp_path / "k.jsonl"), "--builtin"]
    )
    assert offline.exit_code == 0
    assert json.loads((tmp_path / "k.jsonl").read_text())["keywords"] == ["man", "drives", "sedan"]
