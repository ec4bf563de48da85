"""Subtitles are read as segments with times, which become text without their stamps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import vcs
from support.stories import write_pairs

SENTENCES = ["A man enters the kitchen.", "He takes the milk.", "He drinks it at the table."]
TIMES = [("00:00:00", "00:00:05"), ("00:00:05", "00:00:09"), ("00:00:09", "00:00:15")]
NOTICE = "the times of segments are not used in 1 of "


def srt(end: str) -> str:
    cues = []
    for number, ((start, stop), text) in enumerate(zip(TIMES, SENTENCES, strict=True), 1):
        laid_out = text.replace(" the ", "\nthe ")
        cues.append(f"{number}\n{start},000 --> {stop},000\n<i>{laid_out}</i>\n")
    return "\n".join(cues).replace("\n", end)


def vtt() -> str:
    cues = []
    for (start, stop), text in zip(TIMES, SENTENCES, strict=True):
        cues.append(f"cue\n{start}.000 --> {stop}.000 align:start\n<v Bob>{text}\n")
    head = "WEBVTT - made up\nKind: captions\n\nNOTE It rains.\n\nSTYLE\n::cue { color: red }\n\n"
    return head + "\n".join(cues)


FILES = {"srt": srt("\n"), "SRT": srt("\r\n"), "vtt": vtt(), "vtt with a mark": "\ufeff" + vtt()}


@pytest.mark.parametrize("kind", FILES)
def test_subtitles_score_as_their_plain_text(kind: str, tiny_bundle: Path, tmp_path: Path) -> None:
    plain, subtitles = tmp_path / "r.txt", tmp_path / f"g.{kind.split()[0]}"
    plain.write_text("\n".join(SENTENCES), "utf-8")
    subtitles.write_text(FILES[kind], "utf-8", newline="")
    engine = ("--bundle", tiny_bundle, "--device", "cpu", "--json")
    done = vcs("score", plain, subtitles, *engine)
    assert f"{NOTICE}1 generated texts, because not all references have times" in done.stderr
    scores = json.loads(done.stdout)
    assert (scores["n_gen"], scores["gas"]) == (3, pytest.approx(1.0, abs=1e-6))
    assert json.loads(vcs("score", plain, plain, *engine).stdout)["vcs"] == scores["vcs"]


@pytest.mark.parametrize("kind", FILES)
def test_subtitles_score_by_their_times(kind: str, tiny_bundle: Path, tmp_path: Path) -> None:
    files = [tmp_path / "r.srt", tmp_path / f"g.{kind.split()[0]}"]
    for file, text in zip(files, (FILES["srt"], FILES[kind]), strict=True):
        file.write_text(text, "utf-8", newline="")
    engine = ("--bundle", tiny_bundle, "--device", "cpu", "--json")
    done = vcs("score", *files, "--segmenter", "time-stamps", *engine)
    assert done.stderr == ""
    assert json.loads(done.stdout)["vcs"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("stamp", "advice"), [("", False), ("[00:00-00:03] ", True)], ids=["text", "with times"]
)
def test_scoring_by_times_is_proposed_if_the_references_have_times(
    stamp: str, advice: bool, tiny_bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "p.jsonl"
    generated = "[00:01-00:03] A man enters. [00:03-00:08] He sits."
    write_pairs(path, [{"reference": [f"{stamp}A man sits."], "generated": generated}])
    done = vcs("score", path, "--bundle", tiny_bundle, "--device", "cpu")
    assert "To remove it, add --clean time-stamps" in done.stderr
    assert ("or score by the times with --segmenter time-stamps" in done.stderr) == advice


def test_subtitles_without_cues_are_refused(tmp_path: Path) -> None:
    text, empty = tmp_path / "r.txt", tmp_path / "g.srt"
    text.write_text("A man enters.", "utf-8")
    empty.write_text("A man enters.", "utf-8")
    done = vcs("score", text, empty)
    assert (done.code, done.stderr.count("g.srt: there is text without a start")) == (2, 1)


def test_segments_of_a_record_are_no_stamps_in_its_text(tiny_bundle: Path, tmp_path: Path) -> None:
    segments = [
        {"start": 5.0 * number, "end": 5.0 * number + 4, "text": text}
        for number, text in enumerate(SENTENCES)
    ]
    path = tmp_path / "p.jsonl"
    write_pairs(path, [{"reference": "\n".join(SENTENCES), "generated": segments}])
    done = vcs("score", path, "--bundle", tiny_bundle, "--device", "cpu", "--json")
    assert NOTICE in done.stderr
    assert "is scored too" not in done.stderr
    assert json.loads(done.stdout)["scores"]["las"]["mean"] == pytest.approx(1.0, abs=1e-6)
