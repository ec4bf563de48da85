"""Confused summaries: changes are drawn from a seed, checked, recorded, and judged apart."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import fake_server as fake
from support.stories import read_lines, write_pairs
from support.tiny_video import write_video
from support.visil_commands import Scripted, visil, write
from vcs_runtime.errors import TextError
from vcs_visil import Image
from vcs_visil.frames import VideoFile
from vcs_visil.jobs.items import read_items
from vcs_visil.jobs.steps import CHANGES, change_text
from vcs_visil.prompts import builtin

TEXT = "A man drives a black car to [KEYFRAME1]."
OTHER = "A man drives a red car to [KEYFRAME1]."


def test_a_changed_text_is_taken() -> None:
    writer = Scripted(f" {OTHER}\n")
    assert change_text(writer, builtin(), TEXT, "the colour of a thing") == OTHER
    assert "change the colour of a thing." in writer.prompts[0]
    assert TEXT in writer.prompts[0]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("a MAN drives a black car, to [KEYFRAME1]", "no word of it has changed"),
        ("A man drives a red car.", "names the keyframes"),
        ("A man drives a red car to [KEYFRAME1] [KEYFRAME2].", "names the keyframes"),
        ("Red [MASK] [KEYFRAME1]", "is empty or holds"),
        ("Two dogs swim over to [KEYFRAME1].", "only 2 of 8 words are left"),
        ("", "is empty"),
    ],
)
def test_a_text_that_is_no_confused_one_is_refused(wrong: str, says: str) -> None:
    with pytest.raises(TextError, match=f"{says}.*asked twice"):
        change_text(Scripted(wrong, wrong), builtin(), TEXT, "a place")


class Confusing(fake.VLLMHandler):
    """Changes a colour; judges every summary to be true."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        content = body["messages"][0]["content"]
        text = (
            content
            if isinstance(content, str)
            else "".join(part.get("text", "") for part in content)
        )
        if "contradicts the video: change" in text:
            written = text.rpartition("Summary: ")[2].replace("black", "red")
        else:
            written = json.dumps(
                [{"corresponds": True, "confidence": 3}] * text.count("\n\nSummary ")
            )
        return {"choices": [{"message": {"content": written}}]}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = []
    for name in "abc":
        write_video(tmp_path / f"{name}.mp4", Fraction(25), 30)
        rows.append(
            {
                "id": name,
                "video": f"{name}.mp4",
                "summaries": [
                    {"name": "text", "text": "A man drives a black car."},
                    {"name": "1-image", "text": TEXT, "keyframes": [f"00:00:00:0{len(rows) + 1}"]},
                    {
                        "name": "3-image",
                        "text": "A black car: [KEYFRAME1] [KEYFRAME2] [KEYFRAME3].",
                        "keyframes": [f"00:00:00:1{i}" for i in (1, 2, 3)],
                    },
                ],
            }
        )
    write_pairs(tmp_path / "in.jsonl", rows)
    return tmp_path / "in.jsonl"


def test_texts_and_keyframes_are_confused_by_the_seed(source: Path, tmp_path: Path) -> None:
    with fake.serve(Confusing) as (url, _):
        for name, seed in (("1", 1), ("again", 1), ("2", 2)):
            done = write(
                *f"confuse {source} {tmp_path}/{name}.jsonl --model vllm:{url}".split(),
                "--seed",
                seed,
            )
            assert done.exit_code == 0, (done.output, done.exception)
        resumed = write(
            *f"confuse {source} {tmp_path}/1.jsonl --model vllm:{url} --seed 2 --resume".split()
        )
    assert "its signature has seed:" in str(resumed.exception)
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    one, other = (
        [row["confused"] for row in read_lines(tmp_path / f"{name}.jsonl")] for name in "12"
    )
    assert one != other
    rows = read_lines(tmp_path / "1.jsonl")
    assert "|kinds:text+keyframes|seed:1|v:" in rows[0]["made"]["confused"]
    for row, given in zip(rows, read_lines(source), strict=True):
        assert row["summaries"] == given["summaries"]
        assert [(one["of"], one["confused"]) for one in row["confused"]] == [
            ("text", "text"),
            ("1-image", "text"),
            ("1-image", "keyframes"),
            ("3-image", "text"),
            ("3-image", "keyframes"),
        ]
        for one in row["confused"]:
            [true] = [summary for summary in given["summaries"] if summary["name"] == one["of"]]
            assert one["corresponds"] is False
            if one["confused"] == "text":
                assert one["change"] in CHANGES
                assert one["text"] == true["text"].replace("black", "red")
                assert one["keyframes"] == true.get("keyframes", [])
            else:
                assert one["text"] == true["text"]
                assert one["from"] != row["id"]
                videos = {keyframe["video"] for keyframe in one["keyframes"]}
                assert videos == {f"{one['from']}.mp4"}
    drawn = [one.get("change") or one["from"] for row in rows for one in row["confused"]]
    assert len(set(drawn)) > 3
    # A keyframe of another video is read from that video.
    [item] = [item for item in read_items(tmp_path / "1.jsonl") if item.id == "a"]
    [keyframe] = [
        one["keyframes"][0]
        for one in item.row["confused"]
        if one["name"] == "1-image, other keyframes"
    ]
    number = int(keyframe["timestamp"][-2:])
    assert item.keyframe(keyframe) == VideoFile(tmp_path / keyframe["video"]).read([number])[0]


def test_keyframes_are_confused_without_a_model(source: Path, tmp_path: Path) -> None:
    done = write("confuse", source, tmp_path / "k.jsonl", "--kind", "keyframes")
    assert done.exit_code == 0, (done.output, done.exception)
    assert [one["name"] for one in read_lines(tmp_path / "k.jsonl")[0]["confused"]] == [
        "1-image, other keyframes",
        "3-image, other keyframes",
    ]
    refused = write(
        "confuse", source, tmp_path / "x.jsonl", "--kind", "keyframes", "--model", "vllm:http://x:1"
    )
    assert "--kind keyframes needs no --model" in refused.stderr
    write_pairs(source, read_lines(source)[:1])
    alone = write("confuse", source, tmp_path / "y.jsonl", "--kind", "keyframes")
    assert alone.exit_code == 1
    assert (
        "line 1: summaries: no other video of the file has a summary with 1 keyframes"
        in alone.stderr
    )


def test_keyframes_that_are_files_come_from_another_video(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(Image.from_pixels(np.zeros((8, 8, 3), np.uint8)).data)
    rows = [
        {
            "id": i,
            "frames": ["0.png"],
            "summaries": [{"name": "x", "text": "[KEYFRAME1]", "keyframes": ["0.png"]}],
        }
        for i in range(2)
    ]
    write_pairs(tmp_path / "in.jsonl", rows)
    for seed in range(6):
        out = tmp_path / f"{seed}.jsonl"
        done = write("confuse", tmp_path / "in.jsonl", out, "--kind", "keyframes", "--seed", seed)
        assert done.exit_code == 0, (done.output, done.exception)
        assert [row["confused"][0]["from"] for row in read_lines(out)] == [1, 0]


def test_true_and_confused_summaries_are_judged_in_different_rounds(
    source: Path, tmp_path: Path
) -> None:
    with fake.serve(Confusing) as (url, log):
        finished = write("confuse", source, tmp_path / "c.jsonl", "--model", f"vllm:{url}")
        assert finished.exit_code == 0
        del log[:]
        done = write(
            *f"correspond {tmp_path}/c.jsonl {tmp_path}/j.jsonl --model vllm:{url}".split(),
            "--frames",
            "2",
        )
        assert done.exit_code == 0, (done.output, done.exception)
    for _, body in log:
        text = "".join(part.get("text", "") for part in body["messages"][0]["content"])
        judged = text.partition("Summary 1: ")[2]
        for true in ("drives a black car.", "drives a black car to", "A black car:"):
            assert not (true in judged and true.replace("black", "red") in judged)
    assert len(log) == 9
    lines = [line for line in read_lines(tmp_path / "j.jsonl") if line["id"] == "a"]
    assert sorted(
        (line.get("of", line["name"]), line.get("confused", ""), line["correct"]) for line in lines
    ) == [
        ("1-image", "", 1),
        ("1-image", "keyframes", 0),
        ("1-image", "text", 0),
        ("3-image", "", 1),
        ("3-image", "keyframes", 0),
        ("3-image", "text", 0),
        ("text", "", 1),
        ("text", "text", 0),
    ]
    done = visil("report", "--judged", tmp_path / "j.jsonl", "--json")
    rows = json.loads(done.stdout)["correspondence"]
    assert {
        row["format"]: {kind: found["drop"] for kind, found in row["confused"].items()}
        for row in rows
    } == {
        "text": {"text": 1.0},
        "1-image": {"keyframes": 1.0, "text": 1.0},
        "3-image": {"keyframes": 1.0, "text": 1.0},
    }
