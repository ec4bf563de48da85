"""Segments that time stamps mark, from a text to a score."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.command_line import vcs
from vcs_runtime import Options, Scorer
from vcs_runtime.errors import TextError
from vcs_runtime.jobs.pairs import Keys
from vcs_runtime.jobs.readers.input_file import InputFile
from vcs_runtime.jobs.texts import Texts
from vcs_runtime.text.markup import remove_markup
from vcs_runtime.text.times import stamped, timed_segments

SRT = (
    "1\n00:00:12,000 --> 00:00:18,500\nA man walks.\nHe runs.\n\n2\n00:01:00,000 -->"
    " 00:01:02,000\nHe stops.\n"
)
SEGMENTS = [
    {"start": 12, "end": 18.5, "text": "A man walks.\nHe runs."},
    {"start": 60, "end": 62, "text": "He stops."},
]


@pytest.mark.parametrize(
    "text",
    [
        SRT,
        (
            "WEBVTT - Film\nKind: captions\n\nNOTE\nBy hand.\n\nfirst\n00:12.000 --> 00:18.500"
            " align:start\nA man walks.\nHe runs.\n\nlast\n01:00.000 --> 01:02.000\nHe stops."
        ),
        (
            "\nWEBVTT\n00:12.000 --> 00:18.500\nA man walks.\nHe runs.\n\n01:00.000 -->"
            " 01:02.000\nHe stops."
        ),
        "[00:12-00:18.5] A man walks.\nHe runs.\n[01:00 - 01:02]: He stops.",
        "(0:12 to 0:18.5) A man walks.\nHe runs. (1:00–1:02) He stops.",
        "[60s-62s] He stops. [12.0-18.5] A man walks.\nHe runs.",  # in the order of time
        # One without a text.
        "[1:00-1:02] He stops. [0:01-0:02] [0:00:12-0:00:18.5] A man walks.\nHe runs.",
        "12.0 - 18.5 seconds, A man walks.\nHe runs.\n60 - 62 seconds, He stops.",
        "<12 - 18.5> A man walks.\nHe runs. <60.0 - 62.0> He stops.",
        "From 12s to 18.5s, A man walks.\nHe runs. From 60s to 62s, He stops.",
        "00:12 - 00:18.5: A man walks.\nHe runs.\n01:00 - 01:02: He stops.",
        "- **0:12-0:18.5** A man walks.\nHe runs.\n- **1:00-1:02** He stops.",
        (
            "WEBVTT\n\nSTYLE\n::cue {}\n\n00:12.000 --> 00:18.500\n<v Bob>A <c.red>man</c>"
            " walks.\n<i>He runs.</i>\n\nNOTE x\ny\n\n01:00.000 --> 01:02.000\nHe stops."
        ),
        stamped(SEGMENTS),
    ],
)
def test_stamps_of_each_form(text: str) -> None:
    assert [tuple(s) for s in timed_segments(text, "t")] == [tuple(s.values()) for s in SEGMENTS]


def test_segments_of_json_are_named_and_cleaned_as_stamps_are() -> None:
    late = [{"start": 59.9996, "end": 359_999, "text": "He stops."}]
    assert stamped(late) == "[0:01:00.000-99:59:59.000] He stops."
    assert remove_markup(stamped(late), ["time-stamps"]) == "He stops."


@pytest.mark.parametrize("form", ["[0:{}] {}", "0:{} {}", "At 0:{}, {}", "{}s: {}", "<{}s> {}"])
def test_a_segment_without_an_end_lasts_until_the_next_one(form: str) -> None:
    text = "\n".join(form.format(time, "It rains.") for time in (12, 30))
    assert timed_segments(text, "t") == [(12, 30, "It rains."), (30, 30.001, "It rains.")]
    assert timed_segments(text, "t", 40)[1].end == 40
    for mixed in ("[0:40-0:50] B.", "[0:50] B." if "s" in form else "50s: B."):
        with pytest.raises(TextError, match=r"^t: (a|the) time stamp "):
            timed_segments(f"{text}\n{mixed}", "t")


def test_a_moment_lasts_a_millisecond() -> None:
    assert timed_segments("[00:05-00:05] A cut.", "t") == [(5.0, 5.001, "A cut.")]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "A man (2010-2012).",
            (
                r"^t: there is text without a start and an end such as \[00:12-00:18\]: 'A man"
                r" \(2010-2012\)\.'$"
            ),
        ),
        ("Sure: [0:01-0:02] A man.", "^t: there is text before the first time stamp: 'Sure:'$"),
        ("[0:03-0:02] A man.", r"^t: the time stamp '\[0:03-0:02\]' ends before it starts$"),
        ("[0:01-0:02]", "^t: there is no text after its time stamps$"),
        ("[0:01-0:02] A.\n[0:03] B.", r"^t: .* needs a start and an end: '\[0:03\] B\.'$"),
        ("[0:01-0:02] A.\n[0:03-0:04 B.", r"a start and an end: '\[0:03-0:04 B\.'$"),
        (
            "[0:01-0:02] A.\n0:03 - 0:04 B.",
            r"'0:03 - 0:04' has a different style from the first, .*: '0:03 - 0:04 B.'$",
        ),
        ("[60-62] He stops. [0:01-0:02] B.", r"'\[0:01-0:02\]' has a different style"),
        ("From 1s to 2s, A. 2 - 3 seconds, B.", "'2 - 3 seconds,' has a different style"),
    ],
)
def test_what_is_not_timed_is_refused(text: str, says: str) -> None:
    with pytest.raises(TextError, match=says):
        timed_segments(text, "t")


@pytest.mark.parametrize(
    "caption",
    [
        "A sign says: open (9:00-17:00).",
        "The score is [3-2] for them.",
        "He was king [1990-1995] of a land.",
        "line one\n10:00 --> 11:00 is the slot",
        "He says [0:01-0:02] and stops.",
        "[0:01",
        "NOTE this <v Bob>\n12 - 18 seconds, he waits.",
    ],
)
def test_segments_are_not_read_from_their_text_again(caption: str) -> None:
    segments = [(0.0, 5.0, caption), (5.0, 9.0, "He reads.")]
    rows = [{"start": s, "end": e, "text": text} for s, e, text in segments]
    text = pickle.loads(pickle.dumps(stamped(rows)))
    assert timed_segments(text, "t") == segments
    assert text == f"[0:00:00.000-0:00:05.000] {caption}\n[0:00:05.000-0:00:09.000] He reads."


def test_numbers_of_another_style_within_a_sentence_are_text() -> None:
    text = "[0:00-0:05] A shop (9:00-17:00) was [3-2] open. [0:05-0:10] B."
    assert [s.text for s in timed_segments(text, "t")] == [
        "A shop (9:00-17:00) was [3-2] open.",
        "B.",
    ]


@pytest.mark.parametrize(
    "value",
    [
        [
            {"timestamp": [12, 18.5], "sentence": "A."},
            {"timestamp": ["1:00", "1:02"], "caption": "B."},
        ],
        [
            {"segment": [12, 18.5], "sentence": "A.", "id": 0},
            {"segment": [60, 62], "sentence": "B."},
        ],
        [
            {"start_time": "00:12", "end_time": "00:18.5", "description": "A."},
            {"start": "60s", "end": "62.0", "text": "B."},
        ],
        {"duration": 90, "timestamps": [[12, 18.5], [60, 62]], "sentences": ["A.", "B."]},
        {
            "annotations": [
                {"segment": [12, 18.5], "sentence": "A."},
                {"segment": [60, 62], "text": "B."},
            ]
        },
    ],
)
def test_segments_of_dense_captioning_files_are_known(value: object) -> None:
    assert timed_segments(stamped(value), "t") == [(12, 18.5, "A."), (60, 62, "B.")]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda entries: entries,
        lambda entries: {"version": "VERSION 1.0", "results": entries, "external_data": {}},
        lambda entries: {
            "database": {name: {"annotations": rows} for name, rows in entries.items()}
        },
        lambda entries: {
            name: {
                "timestamps": [row["segment"] for row in rows],
                "sentences": [row["sentence"] for row in rows],
            }
            for name, rows in entries.items()
        },
    ],
)
def test_files_of_dense_captions_need_no_option(wrap: Any, tmp_path: Path) -> None:
    rows = [{"segment": [12, 18.5], "sentence": "A."}, {"segment": [60, 62], "sentence": "B."}]
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(wrap({"a": rows, "b": rows})))
    texts = Texts(InputFile(path)).by_id()
    assert [*texts] == ["a", "b"]
    assert timed_segments(texts["b"].reference, "t") == [(12, 18.5, "A."), (60, 62, "B.")]


def test_a_named_key_of_a_dense_captioning_file_is_what_counts(tmp_path: Path) -> None:
    path = tmp_path / "texts.json"
    path.write_text(json.dumps({"a": {"timestamps": [[1, 2]], "sentences": ["A."]}}))
    texts = Texts(InputFile(path), keys=Keys(reference=("sentences",))).by_id()
    assert texts["a"].reference == ["A."]


@given(
    st.lists(
        st.sampled_from([*"[]()-:., \n1 2a", "00:01", " --> ", "[0:01-0:02]"]), max_size=60
    ).map("".join)
)
def test_no_text_is_lost(text: str) -> None:
    try:
        found = timed_segments(text, "t")
    except TextError:
        return
    assert all(s.start < s.end and s.text and "[00:01" not in s.text for s in found)
    assert found == sorted(found, key=lambda s: s[:2])


def test_values_that_are_no_segments_stay_what_they_are() -> None:
    for value in (
        "[0:01-0:02] A",
        [],
        ["A", "B"],
        [{"text": "A"}],
        [{"start": True, "end": 2, "text": "A"}],
        None,
    ):
        assert stamped(value) is value


def test_scores_are_by_time_and_the_signature_says_so(tiny_bundle: Path, tmp_path: Path) -> None:
    reference = "[0-4] A dog runs.\n[4-8] A cat sleeps.\n[8-12] A man cooks.\n[12-16] It rains."
    late = reference.replace("[0-4]", "[20-24]")  # the first event at the end
    with Scorer.open(tiny_bundle, segmenter="time-stamps") as scorer:
        assert "|def:1.0.0+time|" in f"|{scorer.signature}|"
        assert "|seg:time-stamps|" in scorer.signature
        same, moved = scorer.score_many([(reference, reference), ([reference], late)])
        assert same.vcs == pytest.approx(1.0, abs=1e-6)
        assert same.n_ref == 4
        assert same.segmenter == "time-stamps"
        assert moved.nas < 1.0
        options = Options(also=["hm-cf", "substitution"], chunk_size=3)
        [(result, evidence)] = scorer.iter_evidence([(reference, late)], options)
        assert result.further is not None
        assert evidence is not None
        assert evidence.times is not None
        assert evidence.times[0].tolist() == [[0, 12], [12, 16]]
        e = scorer.explain(reference, reference.replace("[", "[9").replace("-", "-9"))
        assert (e.conclusion, e.noun) == (
            "The whole reference is there, but at other times.",
            "segment",
        )
        assert "Order is judged by time stamps" in e.sentences["vcs"]
        sign = [{"start": 0, "end": 4, "text": "A **dog** runs (9:00-17:00)."}]
        short = Options(clean=["time-stamps", "markdown"], short=True)
        [(cleaned, seen)] = scorer.iter_evidence([(stamped(sign), stamped(sign))], short)
        assert seen is not None, cleaned.error
        assert seen.chunks[0] == ["dog", "runs", "9001700"]
        [(both, _)] = scorer.iter_evidence([(reference, late)], Options(clean=["time-stamps"]))
        assert both.error is not None
        assert "clean time-stamps removes the times that segmenter time-stamps reads" in both.error
    pairs = tmp_path / "pairs.jsonl"
    rows = [
        {"reference": stamped(SEGMENTS), "generated": SRT},
        {"reference": SEGMENTS, "generated": SEGMENTS},
        {"reference": [SEGMENTS, SEGMENTS], "generated": "A man."},
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = vcs(
        *f"score {pairs} --bundle {tiny_bundle} --segmenter time-stamps".split(),
        "-o",
        tmp_path / "s.jsonl",
    )
    assert done.code == 1
    one, two, three = map(json.loads, (tmp_path / "s.jsonl").read_text().splitlines())
    assert one["vcs"] == two["vcs"]
    assert one["texts"] != two["texts"]
    assert three["error"].startswith("generated: there is text without a start")
    assert "is scored as words" not in done.stderr
    (tmp_path / "texts.json").write_text(json.dumps({"a": SEGMENTS}))
    by_id = ("--references", tmp_path / "texts.json", "--predictions", tmp_path / "texts.json")
    assert vcs("score", *by_id, "--bundle", tiny_bundle, "--segmenter", "time-stamps").code == 0
    short = vcs("score", pairs, "--bundle", tiny_bundle, "--segmenter", "time-stamps", "--short")
    assert (
        "with time stamps ('1 00:00:12,000 --> 00:00...'). To remove it, add --clean time-stamps\n"
        in short.stderr
    )
