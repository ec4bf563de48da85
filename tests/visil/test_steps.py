"""What a model writes around scoring: checked, asked for once more, refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vcs_runtime
from support import fake_server as fake
from support.stories import read_lines, write_pairs
from support.tiny_video import write_video
from support.visil_commands import Scripted, write
from vcs_runtime.errors import InputError, ModelError, TextError
from vcs_runtime.jobs.output import JobFiles
from vcs_visil import Image, Summary, answered, writing
from vcs_visil.asking import VisilOptions
from vcs_visil.frames import VideoFile
from vcs_visil.jobs.items import Item
from vcs_visil.jobs.scores import Scope, score_videos
from vcs_visil.models.servers import VLLM, Stepping
from vcs_visil.prompts import builtin

PROMPTS = builtin()
CAPTION = "A man drives a sedan."
MOMENTS = [{"timestamp": f"00:00:0{i}:00", "description": "A car."} for i in (1, 2, 3)]


def test_what_can_be_used_is_taken(pictures: list[Image]) -> None:
    frames = [("00:00:00:00", pictures[0]), ("00:00:03:00", pictures[1])]
    assert writing.write_caption(Scripted(" A man. \n"), PROMPTS, pictures) == "A man."
    assert writing.choose_keywords(
        Scripted('```json\n["man", "sedan"]\n```'), PROMPTS, CAPTION
    ) == [
        "man",
        "sedan",
    ]
    assert (
        writing.choose_keyframes(Scripted(json.dumps(MOMENTS)), PROMPTS, frames, 25, 100) == MOMENTS
    )
    assert writing.write_summary(Scripted("A man."), PROMPTS, pictures) == "A man."
    text = "It begins, [KEYFRAME1], and ends in [KEYFRAME2]."
    assert writing.write_summary(Scripted(text), PROMPTS, pictures, pictures[:2]) == text
    assert (
        writing.answer_question(
            Scripted(" b. "), PROMPTS, Summary("A man."), "Who?", ["dog", "man"]
        )
        == "B"
    )


def test_a_text_is_rewarded_for_the_questions_that_it_answers() -> None:
    questions = [
        ("Who?", ["dog", "man"], "B"),
        ("Where?", ["here", "there"], "A"),
        ("When?", ["now", "then"], "B"),
    ]
    writer = Scripted("B", "B", "The text does not say.", "It does not say.")
    assert answered(writer, "A man walks.", questions) == pytest.approx(1 / 3)
    assert "A man walks." in writer.prompts[0]
    for text, asked, says in (
        ("", questions, "text: the text is empty"),
        ("A", [], "questions: the list is empty"),
        (
            "A",
            [("Who?", ["dog", "man"], "b")],
            r"questions\[0\]: 'b' is not a letter of its 2 options",
        ),
    ):
        with pytest.raises(TextError, match=says):
            answered(writer, text, asked)


def test_what_cannot_be_used_is_asked_for_once_more_with_the_reason() -> None:
    writer = Scripted('["man", "zebra"]', '["man"]')
    assert writing.choose_keywords(writer, PROMPTS, CAPTION) == ["man"]
    first, second = writer.prompts
    assert CAPTION in first
    assert second.startswith(first)
    assert "'zebra' is not a word of the caption" in second


JUDGED = [{"corresponds": True, "confidence": 5}, {"corresponds": False, "confidence": 1}]
FRAMES = [("00:00:00:00", Image.from_pixels(np.zeros((8, 8, 3), np.uint8)))]
PICTURES = [image for _, image in FRAMES] * 2
SUMMARIES = [Summary("A man."), Summary("A dog.")]

#: Step -> how it asks, and unusable answers (text, or its JSON) with the error.
REFUSED: dict[str, tuple[Callable[[Scripted], object], list[tuple[Any, str]]]] = {
    "keywords": (
        lambda writer: writing.choose_keywords(writer, PROMPTS, CAPTION),
        [
            ("man, sedan", "not JSON"),
            ('{"a": 1}', "array of strings"),
            ("[1]", "array of strings"),
            ('["sedan", "man"]', "must come after"),
            ('["Man"]', "lower case"),
            ('["video"]', "'video' cannot be a keyword"),
            ([f"w{i}" for i in range(21)], "21 words"),
            ("[]", "the list is empty"),
        ],
    ),
    "keyframes": (
        lambda writer: writing.choose_keyframes(writer, PROMPTS, FRAMES, 25, 100),
        [
            (MOMENTS[:2], "2 objects"),
            ([*MOMENTS[:2], {"timestamp": "00:00:03:00"}], "needs a"),
            (MOMENTS[::-1], "order of time"),
            ([*MOMENTS[:2], {**MOMENTS[2], "timestamp": "00:00:03:25"}], "no frame 25"),
            ([*MOMENTS[:2], {**MOMENTS[2], "timestamp": "00:00:04:00"}], "but the video has only"),
            (["a"], "array of objects"),
        ],
    ),
    "summaries": (
        lambda writer: writing.write_summary(writer, PROMPTS, PICTURES, PICTURES),
        [
            (text, "")
            for text in (
                "A man.",
                "[KEYFRAME2] [KEYFRAME1]",
                "[KEYFRAME1]",
                "[KEYFRAME1] [KEYFRAME2] [KEYFRAME2]",
                "",
            )
        ],
    ),
    "answers": (
        lambda writer: writing.answer_question(
            writer, PROMPTS, SUMMARIES[0], "Who?", ["dog", "man"]
        ),
        [(text, "is not one of A, B") for text in ("", "C", "The man", "AB")],
    ),
    "judgements": (
        lambda writer: writing.judge_summaries(writer, PROMPTS, [], SUMMARIES),
        [
            (JUDGED[:1], "1 objects for 2"),
            ([*JUDGED, JUDGED[0]], "3 objects for 2"),
            (["yes", "no"], "array of objects"),
            *(
                ([JUDGED[0], {**JUDGED[1], **change}], "each object needs")
                for change in (
                    {"corresponds": "no"},
                    {"corresponds": 1},
                    {"confidence": 0},
                    {"confidence": 6},
                    {"confidence": True},
                    {"confidence": 2.5},
                    {"confidence": None},
                )
            ),
        ],
    ),
}


@pytest.mark.parametrize(
    ("step", "wrong", "says"),
    [(step, *case) for step, (_, cases) in REFUSED.items() for case in cases],
)
def test_answers_that_cannot_be_used_are_refused(step: str, wrong: Any, says: str) -> None:
    text = wrong if isinstance(wrong, str) else json.dumps(wrong)
    with pytest.raises(TextError, match=f"{says}.*asked twice"):
        REFUSED[step][0](Scripted(text, text))


def test_summaries_are_judged_by_number_all_at_once_with_their_images(
    pictures: list[Image],
) -> None:
    summaries = [
        Summary("A man.", name="true"),
        Summary("[KEYFRAME1], a dog.", pictures[1:2], "confused"),
    ]
    writer = Scripted(json.dumps(JUDGED))
    judged = writing.judge_summaries(writer, PROMPTS, pictures[:1], summaries)
    assert [(j.corresponds, j.confidence) for j in judged] == [(True, 5), (False, 1)]
    [parts] = writer.asked
    assert [part for part in parts if isinstance(part, Image)] == pictures[:2]
    text = "".join(part if isinstance(part, str) else "#" for part in parts)
    assert "in order: #\n\n" in text
    assert "Summary 1: A man.\n\nSummary 2: [KEYFRAME1] # [KEYFRAME1], a dog.\n\n" in text
    assert "confused" not in text


class Writing(fake.VLLMHandler):
    """A server that answers each prompt of ours as a model should."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        content = body["messages"][0]["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "".join(part.get("text", "") for part in parts)
        images = sum(part["type"] == "image_url" for part in parts)
        for says, written in (
            ("Describe the video", CAPTION),
            ("Pick up to 20 keywords", '["man", "drives", "sedan"]'),
            (
                "SMPTE",
                json.dumps(
                    [{**moment, "timestamp": f"00:00:00:0{i}"} for i, moment in enumerate(MOMENTS)]
                ),
            ),
            ("by its placeholder", " ".join(f"[KEYFRAME{i + 1}]" for i in range(images - 2))),
            ("Sum the video up", "A man drives."),
            ("Answer the question", "B"),
            ("whether it corresponds", json.dumps([JUDGED[0]] * 2 + [JUDGED[1]])),
        ):
            if says in text:
                return {"choices": [{"message": {"content": written}}]}
        raise AssertionError(text)


QUESTIONS = [{"question": "Who?", "options": ["dog", "man"], "answer": "B"}]


def test_every_step_by_its_command(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", Fraction(25), 20)
    write_pairs(tmp_path / "0.jsonl", [{"id": "a", "video": "a.mp4", "questions": QUESTIONS}])
    with fake.serve(Writing) as (url, _):
        for i, name in enumerate(("caption", "keywords", "keyframes", "summarize", "answer")):
            some = [] if name in ("keywords", "answer") else ["--frames", "2"]
            done = write(
                name,
                tmp_path / f"{i}.jsonl",
                tmp_path / f"{i + 1}.jsonl",
                "--model",
                f"vllm:{url}",
                *some,
            )
            assert done.exit_code == 0, (name, done.output, done.exception)
        [made] = read_lines(tmp_path / "4.jsonl")
        for summary, truth in zip(made["summaries"], (True, False, False), strict=True):
            summary["corresponds"] = truth
        write_pairs(tmp_path / "t.jsonl", [made])
        done = write(
            "correspond", tmp_path / "t.jsonl", tmp_path / "j.jsonl", "--model", f"vllm:{url}"
        )
        assert done.exit_code == 0, (done.output, done.exception)
    assert made["caption"] == CAPTION
    assert made["keywords"] == ["man", "drives", "sedan"]
    assert [s["name"] for s in made["summaries"]] == ["text", "1-image", "3-image"]
    assert made["summaries"][2]["text"] == "[KEYFRAME1] [KEYFRAME2] [KEYFRAME3]"
    by = f"model:vllm:made/up|prompt:1|frames:2|v:{vcs_runtime.__version__}"
    assert made["made"]["caption"] == f"visil|step:caption|{by}"
    assert made["made"].keys() == {"caption", "keywords", "keyframes", "summaries"}
    answers = read_lines(tmp_path / "5.jsonl")
    assert [(a["name"], a["correct"]) for a in answers] == [
        ("text", 1),
        ("1-image", 1),
        ("3-image", 1),
    ]
    judged = read_lines(tmp_path / "j.jsonl")
    assert [(j["name"], j["corresponds"], j["confidence"], j["correct"]) for j in judged] == [
        ("text", True, 5, 1),
        ("1-image", True, 5, 0),
        ("3-image", False, 1, 1),
    ]
    offline = write("keywords", tmp_path / "1.jsonl", tmp_path / "k.jsonl", "--builtin")
    assert offline.exit_code == 0
    [row] = read_lines(tmp_path / "k.jsonl")
    assert row["keywords"] == ["man", "drives", "sedan"]
    assert row["made"]["keywords"].startswith("visil|step:keywords|builtin|v:")


@pytest.mark.parametrize(
    ("what", "option", "says"),
    [
        ("keywords", ("--seed", 1), "--seed is only for confuse, not for keywords"),
        ("answer", ("--builtin",), "--builtin is"),
        (
            "confuse",
            ("--frames", 2),
            (
                "--frames is only for answer, caption, correspond, keyframes, summarize, not for"
                " confuse"
            ),
        ),
        ("caption", ("--keyframes", 1), "--keyframes is"),
        ("caption", ("--kind", "text"), "--kind is"),
        ("caption", ("--video",), "--video is"),
        ("keywords", ("--builtin", "--model", "vllm:http://x:1"), "--builtin needs no --model"),
        ("caption", ("--model", "recorded:r.jsonl"), "gemini:URL, not 'recorded:r.jsonl'"),
        ("caption", (), "--model must be one of"),
        ("zebra", (), "'zebra' is not one of"),
    ],
)
def test_options_of_another_step_are_refused(
    tmp_path: Path, what: str, option: tuple[object, ...], says: str
) -> None:
    refused = write(what, a_job(tmp_path), tmp_path / "o.jsonl", *option)
    assert refused.exit_code == 2
    assert says in refused.stderr
    assert not (tmp_path / "o.jsonl").exists()


class BreaksAfterThree(Writing):
    """Answers as many requests, and then no more."""

    left = 3

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        type(self).left -= 1
        return super().answer(body) if self.left >= 0 else {}


def a_job(folder: Path) -> Path:
    (folder / "f.png").write_bytes(Image.from_pixels(np.zeros((8, 8, 3), np.uint8)).data)
    rows = [
        {
            "id": i,
            "frames": ["f.png"],
            "caption": CAPTION,
            "questions": QUESTIONS,
            "summaries": [{"name": "text", "text": "A man."}, {"name": "other", "text": "A car."}],
        }
        for i in range(5)
    ]
    rows[1]["caption"] = rows[1]["summaries"] = None  # type: ignore[assignment]
    write_pairs(folder / "job.jsonl", rows)
    return folder / "job.jsonl"


@pytest.mark.parametrize("name", ["keywords", "answer"])
def test_a_step_that_was_stopped_goes_on_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    source, part, whole = a_job(tmp_path), tmp_path / "part.jsonl", tmp_path / "whole.jsonl"
    with fake.serve(Writing) as (url, _):
        assert write(name, source, whole, "--model", f"vllm:{url}").exit_code == 1
    with fake.serve(BreaksAfterThree) as (url, _):
        stopped = write(name, source, part, "--model", f"vllm:{url}")
    assert isinstance(stopped.exception, ModelError)
    kept = part.read_bytes()
    assert whole.read_bytes().startswith(kept)
    assert 0 < len(kept) < whole.stat().st_size
    part.write_bytes(kept + b'{"id": 4, "capt')
    with fake.serve(Writing) as (url, log):
        assert write(name, source, part, "--model", f"vllm:{url}").exception
        assert write(name, source, part, "--model", f"vllm:{url}", "--resume").exit_code == 1
        assert part.read_bytes() == whole.read_bytes()
        asked = len(log)
        assert write(name, source, part, "--model", f"vllm:{url}", "--resume").exit_code == 1
        assert len(log) == asked
        other = write(name, source, part, "--model", f"stepping:{url}", "--resume")
    assert "signature has model:vllm:made/up, but this run's has model:openai:made/up" in str(
        other.exception
    )
    rows = read_lines(source)
    write_pairs(source, rows[::-1])
    with fake.serve(Writing) as (url, log):
        other = write(name, source, part, "--model", f"vllm:{url}", "--resume")
    assert "line 1: id 0, but the input has 4" in str(other.exception)
    for number, changed in ((1, {"caption": "A dog."}), (2, {"summaries": []})):
        write_pairs(source, [*rows[: number - 1], rows[number - 1] | changed, *rows[number:]])
        with fake.serve(Writing) as (url, log):
            other = write(name, source, part, "--model", f"vllm:{url}", "--resume")
        assert f": the texts of id {number - 1} have changed since this line" in str(
            other.exception
        )
        assert not log
    assert part.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("option", ["--overwrite", "--resume"])
def test_a_step_refuses_to_write_into_what_it_reads(tmp_path: Path, option: str) -> None:
    source, template = a_job(tmp_path), tmp_path / "template.txt"
    template.write_text("{prompt}")
    before = source.read_bytes()
    refused = write("keywords", source, source, "--builtin", option)
    assert f"{source} is the input" in str(refused.exception)
    assert source.read_bytes() == before
    with fake.serve(Writing) as (url, _):
        refused = write(
            "caption", source, template, "--model", f"vllm:{url}", "--template", template, option
        )
    assert f"{template} is the input" in str(refused.exception)
    assert template.read_text() == "{prompt}"


def test_a_field_that_was_there_is_compared_when_a_step_resumes(tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    rows = [
        {"video": "a.mp4", "id": 0, "caption": CAPTION},
        {"id": 1, "caption": CAPTION, "keywords": ["man"]},
    ]
    write_pairs(source, rows)
    assert write("keywords", source, output, "--builtin").exit_code == 0
    whole = output.read_bytes()
    for torn in (0, 1, 5, 12, 30, len(whole) - 1):
        output.write_bytes(whole[:torn])
        assert write("keywords", source, output, "--builtin", "--resume").exit_code == 0
        assert output.read_bytes() == whole
    write_pairs(source, [rows[0], rows[1] | {"keywords": ["dog"]}])
    refused = write("keywords", source, output, "--builtin", "--resume")
    assert "line 2: the texts of id 1 have changed" in str(refused.exception)
    output.write_bytes(b'{"id": ')  # the first item begins otherwise
    refused = write("keywords", source, output, "--builtin", "--resume")
    assert "out.jsonl is not the output of an earlier run:" in str(refused.exception)
    assert output.read_bytes() == b'{"id": '


def test_what_a_step_cannot_use_is_named_and_listed(tmp_path: Path) -> None:
    source = a_job(tmp_path)
    with fake.serve(Writing) as (url, _):
        done = write("answer", source, tmp_path / "a.jsonl", "--model", f"vllm:{url}")
        fields = write("keywords", source, tmp_path / "k.jsonl", "--model", f"vllm:{url}")
    assert "job.jsonl line 2: 'summaries' must be a list" in done.stderr
    errors = [row["error"] for row in read_lines(tmp_path / "a.jsonl") if row["id"] == 1]
    assert errors == ["'summaries' must be a list that is not empty, not nothing"]
    assert "job.jsonl line 2: 'caption' must be a text" in fields.stderr
    assert ["keywords" in row for row in read_lines(tmp_path / "k.jsonl")] == [
        True,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    "question",
    [
        "Who?",
        {"question": "Who?"},
        {**QUESTIONS[0], "options": ["man"]},
        {**QUESTIONS[0], "options": ["man", 3]},
        {**QUESTIONS[0], "options": ["man"] * 27},
        {**QUESTIONS[0], "answer": "C"},
        {**QUESTIONS[0], "answer": "b"},
        {**QUESTIONS[0], "answer": 1},
        {**QUESTIONS[0], "question": None},
        {**QUESTIONS[0], "answer": "AB"},
    ],
)
def test_questions_that_are_none_are_named(tmp_path: Path, question: object) -> None:
    item = Item("q.jsonl line 1", tmp_path, {"id": 0, "questions": [question]})
    with pytest.raises(InputError, match="line 1: .*'answer'"):
        item.questions()


def test_keyframes_and_truths_made_elsewhere_are_checked(tmp_path: Path) -> None:
    def item(**row: object) -> Item:
        return Item("k.jsonl line 1", tmp_path, {"id": 0, **row})

    assert (
        item(keyframes=["00:00:01:00", {"timestamp": "00:00:02:00"}]).chosen_keyframes(2)[1]
        == "00:00:02:00"
    )
    for keyframes, says in (
        (["a.png"], "1 keyframes; 2"),
        ([{}, {}], "a text"),
        ([1, 2], "a text"),
    ):
        with pytest.raises(InputError, match=says):
            item(keyframes=keyframes).chosen_keyframes(2)
    with pytest.raises(InputError, match="'corresponds' must be true or false"):
        item().truth({"corresponds": "yes"})
    with pytest.raises(InputError, match="'made' must be an object"):
        _ = item(made=["x"]).made


def test_a_caption_by_the_model_that_scores_is_told(tmp_path: Path) -> None:
    source = a_job(tmp_path)
    rows = [{**row, "caption": None, "keywords": ["man"]} for row in read_lines(source)[2:]]
    write_pairs(source, [{k: v for k, v in row.items() if v is not None} for row in rows])
    with fake.serve(Writing) as (url, _):
        done = write("caption", source, tmp_path / "c.jsonl", "--model", f"vllm:{url}")
        assert done.exit_code == 0, done.output
    told: list[str] = []
    for handler, model in (
        (fake.VLLMHandler, VLLM),
        (fake.SteppingHandler, partial(Stepping, top=200)),
    ):
        with fake.serve(handler) as (url, _):
            files = JobFiles(tmp_path / f"{handler.__name__}.jsonl", report=told.append)
            score_videos(model(url), tmp_path / "c.jsonl", files, VisilOptions(), Scope(frames=1))
    assert [line for line in told if "made by" in line] == [
        f"{tmp_path / 'c.jsonl'} line 1: the summary was made by the model that scores, which favours it: use"
        " another model (docs/guide/visil.md)"
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_in_the_place_of_a_video_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "v.mp4")
    with pytest.raises(InputError, match=r"v\.mp4: must be a regular file"):
        VideoFile(tmp_path / "v.mp4")
