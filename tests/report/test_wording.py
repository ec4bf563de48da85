"""The head of a report in plain words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vcs_runtime.report.wording import NAMED, date_of, settings_of, title_of
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.signature import signature_of


@pytest.mark.parametrize(
    ("names", "videos", "title"),
    [
        (["one"], 1, "VCS of one on 1 video"),
        (["one", "two"], 2, "VCS of one and two on 2 videos"),
        (["one", "two", "three"], 1234, "VCS of one, two and three on 1,234 videos"),
        ([str(k) for k in range(NAMED + 1)], 25, f"VCS of {NAMED + 1} systems on 25 videos"),
    ],
)
def test_a_title_names_systems_and_counts_videos(names: list[str], videos: int, title: str) -> None:
    assert title_of(names, videos) == title


def test_the_date_is_that_of_the_newest_file_in_any_time_zone(tmp_path: Path) -> None:
    for name, seconds in (("old", 0), ("new", 1_777_777_777)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (seconds, seconds))
    assert date_of([tmp_path / "old", tmp_path / "new"]) == "3 May 2026"
    assert date_of([tmp_path / "old"]) == "1 January 1970"


def test_a_time_that_no_calendar_has_is_shown_as_the_nearest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seconds, day in ((10**13, "31 December 9999"), (-(10**13), "1 January 1970")):
        monkeypatch.setattr(
            Path, "stat", lambda path, now=seconds: os.stat_result([*range(8), now, 0])
        )
        assert date_of([Path("scores.jsonl")]) == day


def test_a_signature_is_described_field_by_field() -> None:
    embedder = ("emb:mini@d445", "long:window_mean/256", "prec:fp32", "engine:ort-cpu")
    line = signature_of(
        Options(chunk_size=3, clean=("markdown",)), ("seg:rules@1.0+learned@923c",), embedder
    )
    settings = dict(settings_of(line))
    assert (
        settings["Embedding model"]
        == "mini (d445); fp32; longer texts: the mean of windows of 256 tokens"
    )
    assert (
        settings["Chunks"]
        == "3 sentences each, split by rules (1.0), or by learned (923c) without punctuation"
    )
    assert settings["Removed from all texts"] == "markdown"
    assert settings["Computed by"] == "ONNX Runtime on the CPU"
    values = [part.partition(":")[2] for part in line.split("|")[1:]]
    known = " ".join(settings.values())
    assert [value for value in values if value.split("/")[0].split("@")[0] not in known] == [
        "window_mean/256",
        "ort-cpu",
    ]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("window_mean", "longer texts: the mean of windows of 9 tokens"),
        ("truncate_text", "longer texts: the first 9 tokens"),
        ("truncate", "longer texts: the first 9 tokens"),
        ("error", "at most 9 tokens"),
    ],
)
def test_every_treatment_of_long_texts_is_described(policy: str, words: str) -> None:
    line = signature_of(Options(), (), ("emb:mine", f"long:{policy}/9"))
    assert dict(settings_of(line))["Embedding model"] == f"mine; {words}"


def test_words_and_unknown_fields_are_described_too() -> None:
    short = dict(settings_of(signature_of(Options(short=True), (), ("emb:mine", "new:7"))))
    assert short["Chunks"] == "words, for short captions"
    assert (short["Embedding model"], short["new"]) == ("mine", "7")
    assert settings_of("vcs|drawn") == []
