"""A synthetic video from its file to selection and correlation, without a network."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import fake_server as fake
from support.processes import captured
from support.stories import read_lines, write_pairs
from support.tiny_video import write_video
from support.visil_commands import score, visil
from vcs_runtime.errors import InputError, ModelError
from vcs_visil import Image
from vcs_visil.frames import VideoFile, uniform
from vcs_visil.jobs.scores import read_answers, read_scores
from vcs_visil.models.genai import GenAI
from vcs_visil.models.recorded import Recorder

CAPTION = "A man drives a black sedan down the street. The dog runs near the river."
KEYWORDS = ["man", "sedan", "street", "dog", "river"]


def number_of(image: Image) -> int:
    """Which frame of `write_video` a PNG is, by PyAV's own decoder."""
    import io

    import av

    with av.open(io.BytesIO(image.data)) as container:
        white = next(container.decode(video=0)).to_ndarray(format="rgb24").mean() / 255
        return round(64 * float(white)) - 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("videos")
    write_video(made / "a.mp4", Fraction(25), 50)
    write_video(made / "b.mp4", Fraction(30000, 1001), 45)
    return made


def items(folder: Path, name: str, **changes: Any) -> Path:
    rows = []
    for i, video in enumerate("ab"):
        summaries: list[dict[str, Any]] = [
            {"name": "text", "text": "A man drives."},
            {
                "name": "1-image",
                "text": "A man drives to [KEYFRAME1].",
                "keyframes": ["00:00:01:03"],
            },
            {
                "name": "3-image",
                "text": "[KEYFRAME1] [KEYFRAME2] [KEYFRAME3]",
                "keyframes": ["00:00:00:05", "00:00:00:15", "00:00:01:10"],
            },
        ]
        rows.append(
            {
                "id": i,
                "video": f"{video}.mp4",
                "caption": CAPTION,
                "keywords": KEYWORDS,
                "summaries": summaries,
                **changes,
            }
        )
    write_pairs(folder / name, rows)
    return folder / name


@pytest.mark.parametrize("name", ["a", "b"])
def test_frames_are_those_of_their_numbers(folder: Path, name: str) -> None:
    file = VideoFile(folder / f"{name}.mp4")
    assert (file.fps, file.frames) == (
        (Fraction(25), 50) if name == "a" else (Fraction(30000, 1001), 45)
    )
    for numbers in (range(file.frames), [44, 0, 9, 10, 11, 31, 31]):
        assert [number_of(image) for image in file.read(list(numbers))] == list(numbers)
    with pytest.raises(InputError, match=f"no frame {file.frames}"):
        file.read([file.frames])


def test_uniform_frames_are_the_middles_of_equal_parts() -> None:
    assert uniform(50, 5) == [5, 15, 25, 35, 45]
    assert uniform(3, 16) == [0, 1, 2]
    assert uniform(16, 16) == list(range(16))


def test_large_frames_are_scaled_down_and_what_is_no_video_is_refused(tmp_path: Path) -> None:
    import av

    with av.open(str(tmp_path / "large.mp4"), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 1600, 400, "yuv420p"
        container.mux(
            stream.encode(
                av.VideoFrame.from_ndarray(np.zeros((400, 1600, 3), np.uint8), format="rgb24")
            )
        )
        container.mux(stream.encode())
    [image] = VideoFile(tmp_path / "large.mp4").read([0])
    assert [int.from_bytes(image.data[at : at + 4], "big") for at in (16, 20)] == [768, 192]
    (tmp_path / "none.mp4").write_text("no video")
    for name in ("none.mp4", "nowhere.mp4"):
        with pytest.raises(InputError, match=name):
            VideoFile(tmp_path / name)


def test_the_whole_way(folder: Path, vision_model: Path) -> None:
    source = items(folder, "items.jsonl")
    model = ("--model", f"genai:{vision_model}", "--frames", "4")
    done = score(source, folder / "scores.jsonl", *model, "--record", folder / "answers.jsonl")
    assert done.exit_code == 0, done.output + str(done.exception)
    assert "2 scored, 0 failed" in done.stdout
    assert "probe: images: another image changes" in done.stderr
    scores = read_lines(folder / "scores.jsonl")
    for record in scores:
        assert record["signature"].startswith("visil|def:1|model:genai:vision@")
        assert "|prompt:1|frames:4|samples:1|method:forced|count:first|" in record["signature"]
        for summary in record["summaries"]:
            assert summary["visil"] == pytest.approx(
                summary["log_p_video"] - summary["log_p_summary"], abs=1e-9
            )
            assert summary["visil"] == pytest.approx(sum(k["visil"] for k in summary["keywords"]))
            assert [k["word"] for k in summary["keywords"]] == KEYWORDS
        tokens = [summary["tokens"] for summary in record["summaries"]]
        assert tokens[0] + 256 < tokens[1] < tokens[1] + 512 < tokens[2]

    again = score(
        *f"{source} {folder}/replayed.jsonl --model recorded:{folder}/answers.jsonl".split(),
        "--frames",
        "4",
    )
    assert again.exit_code == 0, again.output
    assert (folder / "replayed.jsonl").read_bytes() == (folder / "scores.jsonl").read_bytes()
    other = score(
        *f"{source} {folder}/other.jsonl --model recorded:{folder}/answers.jsonl".split(),
        "--frames",
        "5",
    )
    assert isinstance(other.exception, ModelError)

    chosen = visil("select", folder / "scores.jsonl", "--alpha", "0", "--alpha", "1000", "--json")
    assert chosen.exit_code == 0, chosen.output
    for line, record in zip(chosen.stdout.splitlines(), scores, strict=True):
        best = min(record["summaries"], key=lambda summary: summary["visil"])
        assert json.loads(line)["chosen"] == {"0": best["name"], "1000": "text"}

    values = sorted((s["visil"], r["id"], s["name"]) for r in scores for s in r["summaries"])
    rows = [
        {"id": id_, "name": name, "correct": int(i not in (1, 4, 5))}
        for i, (_, id_, name) in enumerate(values)
    ]
    write_pairs(folder / "made.jsonl", rows)
    found = visil(
        "correlate", folder / "scores.jsonl", "--answers", folder / "made.jsonl", "--json"
    )
    assert found.exit_code == 0, found.output
    numbers = json.loads(found.stdout)
    x, y = [value for value, _, _ in values], [int(i not in (1, 4, 5)) for i in range(6)]
    assert (numbers["n"], numbers["correct"], numbers["exact"]) == (6, 3, True)
    assert numbers["r"] == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert numbers["logit"]["b1"] < 0


def test_a_job_that_was_stopped_goes_on_to_the_same_bytes(folder: Path, vision_model: Path) -> None:
    source = items(folder, "again.jsonl")
    model = ("--model", f"genai:{vision_model}", "--frames", "2")
    assert score(source, folder / "whole.jsonl", *model).exit_code == 0
    whole = (folder / "whole.jsonl").read_bytes()
    first = whole.index(b"\n") + 1
    (folder / "part.jsonl").write_bytes(whole[: first + 100])
    done = score(source, folder / "part.jsonl", *model, "--resume")
    assert done.exit_code == 0, done.output
    assert "1 of them earlier" in done.stdout
    assert (folder / "part.jsonl").read_bytes() == whole
    refused = score(source, folder / "part.jsonl", *model, "--resume", "--method", "sequential")
    assert "its signature has method:forced, but this run's has method:sequential" in str(
        refused.exception
    )
    refused = score(
        *f"{source} {folder}/part.jsonl --model genai:{vision_model} --frames 3 --resume".split()
    )
    assert "its signature has frames:2, but this run's has frames:3" in str(refused.exception)
    rows = read_lines(source)
    write_pairs(source, rows[::-1])
    refused = score(source, folder / "part.jsonl", *model, "--resume")
    assert "line 1: id 0, but the input has 1" in str(refused.exception)
    write_pairs(source, [rows[0], rows[1] | {"caption": CAPTION + " It rains."}])
    refused = score(source, folder / "part.jsonl", *model, "--resume")
    assert "line 2: the texts of id 1 have changed since this line was written" in str(
        refused.exception
    )
    assert (folder / "part.jsonl").read_bytes() == whole


@pytest.mark.parametrize("option", ["--overwrite", "--resume"])
def test_an_output_that_the_job_reads_is_refused(
    folder: Path, tmp_path: Path, text_model: Path, option: str
) -> None:
    source, answers = items(tmp_path, "items.jsonl"), tmp_path / "answers.jsonl"
    Recorder(GenAI(text_model), answers).close()
    (tmp_path / "link").symlink_to(source)
    for output in (source, answers, tmp_path / "link"):
        before = output.read_bytes()
        refused = score(source, output, "--model", f"recorded:{answers}", option)
        assert f"{output} is the input" in str(refused.exception)
        assert output.read_bytes() == before


def test_what_cannot_be_scored_is_named_and_the_others_go_on(
    folder: Path, vision_model: Path
) -> None:
    good = read_lines(items(folder, "bad.jsonl"))[0]
    rows = [
        {**good, "id": "missing", "keywords": ["man", "zebra"]},
        {**good, "id": "late", "summaries": [{"name": "x", "keyframes": ["00:00:09:00"]}]},
        {**good, "id": "none", "summaries": [{"name": "x"}]},
        {**good, "id": "bare", "keywords": None},
        {**good, "id": "file", "frames": ["nowhere.png"]},
        {**good, "id": "good"},
    ]
    write_pairs(folder / "bad.jsonl", rows)
    model = ("--model", f"genai:{vision_model}", "--frames", "2")
    done = score(folder / "bad.jsonl", folder / "bad-scores.jsonl", *model)
    assert done.exit_code == 1
    errors = [record.get("error", "") for record in read_lines(folder / "bad-scores.jsonl")]
    for error, says in zip(
        errors,
        [
            "'zebra' is not a word",
            "the video has only 50",
            "neither text nor",
            "'keywords' must be",
            "nowhere.png",
            "",
        ],
        strict=True,
    ):
        assert says in error
    assert not errors[-1]
    assert "bad.jsonl line 1: keywords: 'zebra'" in done.stderr
    dropped = score(folder / "bad.jsonl", folder / "dropped.jsonl", *model, "--drop-missing")
    assert dropped.exit_code == 1
    records = {record["id"]: record for record in read_lines(folder / "dropped.jsonl")}
    assert records["missing"]["dropped"] == ["zebra"]
    assert "'keywords' must be" in records["bare"]["error"]


@pytest.mark.parametrize(
    ("fault", "says"), [(fake.AllZero, "fails the probe numbers"), (fake.Broken, "HTTP 500")]
)
def test_nothing_is_written_where_the_model_fails(
    folder: Path, fault: type[fake.Fault], says: str, tmp_path: Path
) -> None:
    source = items(folder, "f.jsonl")
    with fake.serve(fake.VLLMHandler, fault()) as (url, _):
        done = score(
            source, tmp_path / "out.jsonl", "--model", f"vllm:{url}", "--record", tmp_path / "r"
        )
        probed = visil("probe", "--model", f"vllm:{url}")
    assert isinstance(done.exception, ModelError)
    assert says in str(done.exception)
    assert list(tmp_path.iterdir()) == []
    assert probed.exit_code == 1


class BreaksLater(fake.Fault):
    """Sound until the probe and one video are through."""

    calls = 0

    def status(self) -> int:
        type(self).calls += 1
        return 200 if self.calls < 40 else 500


def test_a_server_that_breaks_later_costs_only_what_is_in_flight(
    folder: Path, tmp_path: Path
) -> None:
    source = items(folder, "later.jsonl")
    good = read_lines(source)[0]
    write_pairs(source, [{**good, "id": i} for i in range(12)])
    BreaksLater.calls = 0
    with fake.serve(fake.VLLMHandler, BreaksLater()) as (url, _):
        done = score(source, tmp_path / "out.jsonl", "--model", f"vllm:{url}", "--frames", "2")
        assert isinstance(done.exception, ModelError)
    kept = (tmp_path / "out.jsonl").read_bytes()
    assert kept.endswith(b"\n")
    assert 0 < kept.count(b"\n") < 12
    with fake.serve(fake.VLLMHandler) as (url, _):
        done = score(
            source, tmp_path / "out.jsonl", "--model", f"vllm:{url}", "--frames", "2", "--resume"
        )
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out.jsonl").read_bytes().startswith(kept)
    assert "12 scored" in done.stdout


def test_a_model_is_named_by_kind_and_place(folder: Path, tmp_path: Path) -> None:
    source = items(folder, "n.jsonl")
    for model, says in (
        ((), "--model must be one of genai:DIR, vllm:URL, "),
        (
            ("--model", "made-up"),
            "recorded:FILE, not 'made-up' (to choose a server's model, use --model-name)",
        ),
        (("--model", "vllm:"), "not 'vllm:'"),
        (("--model", "vllm:x:1"), "url must be like"),
        (("--model", "sglang:http://x:1"), "--model sglang:URL needs --template"),
    ):
        done = score(source, tmp_path / "o.jsonl", *model)
        assert done.exit_code == 2
        assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_another_models_record_is_refused(
    text_model: Path, vision_model: Path, tmp_path: Path
) -> None:
    Recorder(GenAI(text_model), tmp_path / "r.jsonl").close()
    with pytest.raises(InputError, match=r"is the record of genai:text@\w+, not of genai:vision@"):
        Recorder(GenAI(vision_model), tmp_path / "r.jsonl")


def test_the_frames_command(folder: Path, tmp_path: Path) -> None:
    done = visil(
        *f"frames {folder}/a.mp4 -o {tmp_path}/f --at 00:00:01:03 --at 00:00:00:07".split()
    )
    assert done.exit_code == 0, done.output
    assert [number_of(Image.read(path)) for path in sorted((tmp_path / "f").iterdir())] == [7, 28]
    assert "000028.png  00:00:01:03" in done.stdout
    late = visil("frames", folder / "a.mp4", "-o", tmp_path / "f", "--at", "00:00:02:00")
    assert "the video has only 50 frames" in str(late.exception)


def test_neither_pytorch_nor_a_socket_is_needed(
    folder: Path, vision_model: Path, tmp_path: Path
) -> None:
    script = """
import sys
for name in ("torch", "transformers", "optimum", "vcs_export"): sys.modules[name] = None
def audit(event, arguments):
    if event.startswith("socket."): raise AssertionError(event)
sys.addaudithook(audit)
from vcs_runtime.cli import main
main()
"""
    done = captured(
        [
            *(sys.executable, "-c", script, "visil", "score", items(folder, "i.jsonl")),
            *f"-o {tmp_path}/o.jsonl --model genai:{vision_model} --frames 2".split(),
        ]
    )
    assert done.returncode == 0, done.stderr


def test_scores_of_several_models_or_twice_are_not_read(tmp_path: Path) -> None:
    line = {
        "id": "a",
        "summaries": [{"name": "x", "visil": 1.0, "tokens": 3}],
        "signature": "visil|def:1|model:m|frames:2",
    }
    good = [
        line,
        {**line, "id": "b", "signature": "visil|def:1|model:m|frames:3"},
        {"id": "c", "error": "e", "signature": "z"},
    ]
    for rows, says in (
        (good, None),
        (
            [*good, {**line, "id": "d", "signature": "visil|def:1|model:n|frames:2"}],
            "cannot be compared",
        ),
        ([*good, line], "line 4: id a occurs twice"),
        (good[2:], "holds no scores"),
        ([{"id": 1}], "line 1: not a line of"),
        ([{**line, "summaries": [{"name": "x"}]}], "line 1: the line holds no scores of summaries"),
        ([3], "line 1: not a line of"),
        ([{**line, "summaries": line["summaries"] * 2}], "line 1: the summary 'x' occurs twice"),
        (
            [{"id": "a", "signature": "vcs|chunk:1", "vcs": 0.5}],
            "line 1: the line holds no scores of summaries",
        ),
        *(
            (
                [{**line, "summaries": [{**line["summaries"][0], **wrong}]}],
                "line 1: the line holds no scores",
            )
            for wrong in (
                {"visil": True},
                {"visil": "1"},
                {"visil": 10**400},
                {"visil": 1e300},
                {"tokens": -1},
                {"tokens": "3"},
                {"name": 3},
                {"name": []},
            )
        ),
    ):
        write_pairs(tmp_path / "s.jsonl", rows)
        if says is None:
            assert read_scores(tmp_path / "s.jsonl").keys() == {"a", "b"}
        else:
            with pytest.raises(InputError, match=says):
                read_scores(tmp_path / "s.jsonl")


def test_answers_are_matched_with_the_scores_of_their_summaries(tmp_path: Path) -> None:
    scores, answers = tmp_path / "s.jsonl", tmp_path / "a.jsonl"
    signature = "visil|def:1|model:m|frames:2"
    summaries = [
        {"name": name, "visil": value, "tokens": 3} for name, value in (("x", 1.0), ("y", -2.0))
    ]
    write_pairs(scores, [{"id": 7, "summaries": summaries, "signature": signature}])
    good = [
        {"id": 7, "name": "y", "correct": 1},
        {"id": 8, "error": "e"},
        {"id": 7, "name": "x", "correct": 0},
    ]
    write_pairs(answers, good)
    read = read_answers(answers, scores)
    assert read.scores == [-2.0, 1.0]
    assert read.correct == [1, 0]
    assert read.videos == ["7", "7"]
    assert read.skipped == 1
    for row, says in (
        ({"id": 7, "name": "x"}, "line 4: must be an object with"),
        (3, "line 4: must be an object with"),
        ({"id": 7, "name": "x", "correct": 2}, "line 4: 'correct' must be 0 or 1, not 2"),
        ({"id": 7, "name": "z", "correct": 1}, "line 4: .* has no score of summary 'z' of '7'"),
    ):
        write_pairs(answers, [*good, row])
        with pytest.raises(InputError, match=says):
            read_answers(answers, scores)
