"""Masking, timecodes, selection, correlation, keywords, prompts, checks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from vcs_runtime.errors import CacheError, InputError, ModelError, TextError
from vcs_visil import (
    Forced,
    Image,
    Summary,
    Video,
    frontier,
    mask_caption,
    parse_timecode,
    select_summary,
    visil,
)
from vcs_visil.correlation import correlate
from vcs_visil.frames import VideoFile, format_timecode
from vcs_visil.masking import builtin_keywords
from vcs_visil.models.logprobs import answer_length, by_word, check_forced
from vcs_visil.models.recorded import Recorded, Recorder, question_key
from vcs_visil.prompts import builtin
from vcs_visil.summaries import Part


@pytest.mark.parametrize(
    ("caption", "keywords", "text", "answer"),
    [
        (
            "'Sedan' (sedan), SEDAN's sedans.",
            ["sedan"],
            "'[MASK]' ([MASK]), [MASK]'s sedans.",
            "sedan sedan sedan",
        ),
        ("The dogs’ dog’s ball.", ["dogs", "dog"], "The [MASK]’ [MASK]’s ball.", "dogs dog"),
        ("It don't stop; a don.", ["don"], "It don't stop; a [MASK].", "don"),
        ("It's man's man.", ["man's", "man"], "It's [MASK] [MASK].", "man's man"),
        (
            "A sedan-chair, a sedan.",
            ["sedan-chair", "sedan"],
            "A [MASK], a [MASK].",
            "sedan-chair sedan",
        ),
        ("Ein Straßenhund, zwei Straßen.", ["straßen"], "Ein Straßenhund, zwei [MASK].", "straßen"),
        ("Le cafe\u0301 et le cafe.", ["cafe"], "Le cafe\u0301 et le [MASK].", "cafe"),
        ("हिन्दी में हिन", ["हिन"], "हिन्दी में [MASK]", "हिन"),
        (
            "Well--dog; man-made, x-ray X-Ray's dog–cat.",
            ["dog", "x-ray"],
            "Well--[MASK]; man-made, [MASK] [MASK]'s [MASK]–cat.",
            "dog x-ray x-ray dog",
        ),
        (
            "İSTANBUL'S DOG'S dog.",
            ["i̇stanbul", "dog"],
            "[MASK]'S [MASK]'S [MASK].",
            "i̇stanbul dog dog",
        ),
        ("7 cats and 17", ["7"], "[MASK] cats and 17", "7"),
    ],
)
def test_whole_words_are_masked(caption: str, keywords: list[str], text: str, answer: str) -> None:
    masked = mask_caption(caption, keywords)
    assert (masked.text, masked.answer) == (text, answer)
    assert masked.revealed(len(masked.words)).lower() == caption.lower()


def test_all_occurrences_may_count_and_missing_words_may_be_dropped() -> None:
    caption = "A man sees a man; a dog."
    assert mask_caption(caption, ["man", "dog"], count="all").scored == (0, 1, 2)
    masked = mask_caption(caption, ["man", "cat", "dog"], drop_missing=True)
    assert (masked.scored, masked.keywords, masked.dropped) == ((0, 2), ("man", "dog"), ("cat",))


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ([], "the list is empty"),
        (["Man"], "'Man' is not in lower case"),
        (["man", "man"], "'man' occurs twice"),
        (["cat"], "'cat' is not a word"),
        (["ma"], "'ma' is not a word"),
        (["dog", "man"], "keywords: keyword 1, 'dog'"),
        (["a man"], "'a man' is not a single word"),
        (["man\n"], "not a single word"),
        (["man."], r"'man\.' is not a word"),
        ([" "], "empty"),
        ([3], "must be a string"),
    ],
)
def test_bad_keywords_are_named(keywords: list[str], says: str) -> None:
    with pytest.raises(TextError, match=says):
        mask_caption("A man sees a dog.", keywords)


def test_a_caption_that_is_masked_already_is_refused() -> None:
    with pytest.raises(TextError, match=r"contain \[MASK\]"):
        mask_caption("A [MASK] and a dog.", ["dog"])
    with pytest.raises(TextError, match="not a word"):
        mask_caption("A dog.", ["cat"], drop_missing=False)
    with pytest.raises(TextError, match="no keyword is in the caption"):
        mask_caption("A dog.", ["cat"], drop_missing=True)
    with pytest.raises(TypeError):
        mask_caption("A dog.", "dog")


@pytest.mark.parametrize(
    ("text", "fps", "says"),
    [
        ("00:00:11:25", 25, "no frame 25"),
        ("00:00:11:30", 30000 / 1001, "no frame 30"),
        ("00:01:00;00", 30000 / 1001, "leaves out this number"),
        ("00:01:00;01", 29.97, "leaves out this number"),
        ("00:00:00;01", 25, "is drop-frame timecode, but"),
        ("00:00:00;01", 30, "is drop-frame timecode, but"),
        ("00:60:00:00", 25, "59"),
        ("00:00:61:00", 25, "59"),
        ("0:00:11:15", 25, "form"),
        ("00:00:11.15", 25, "form"),
        ("00:00:11:1٥", 25, "form"),
        ("", 25, "form"),
        (None, 25, "form"),
    ],
)
def test_timecodes_that_are_none_are_refused(text: str, fps: float, says: str) -> None:
    with pytest.raises(TextError, match=says):
        parse_timecode(text, fps)


def test_a_timecode_past_the_end_and_a_rate_that_is_none_are_refused() -> None:
    assert parse_timecode("00:00:01:24", 25, frames=50) == 49
    with pytest.raises(TextError, match="frame 50, but the video has only 50"):
        parse_timecode("00:00:02:00", 25, frames=50)
    for rate in (0, -25, math.nan, math.inf, True, "25"):
        with pytest.raises(ValueError, match="fps"):
            parse_timecode("00:00:00:00", rate)  # type: ignore[arg-type]


@pytest.mark.parametrize("fps", [Fraction(30000, 1001), Fraction(60000, 1001), 29.97, 59.94])
def test_drop_frame_numbers_follow_each_other_without_a_gap(fps: Fraction | float) -> None:
    rate, dropped = round(fps), round(fps) // 15
    frame = 0
    for minute, second, number in itertools.product(range(21), range(60), range(rate)):
        if minute % 10 and not second and number < dropped:
            continue
        if second in (0, 59) or number == 0:
            assert parse_timecode(f"00:{minute:02}:{second:02};{number:02}", fps) == frame
        frame += 1


@pytest.mark.parametrize("fps", [25, Fraction(30000, 1001), 60])
def test_a_frames_timecode_is_that_frames(fps: Fraction | float) -> None:
    for frame in (0, 1, 24, 25, 29, 30, 59, 1800, 107_999, 108_000):
        assert parse_timecode(format_timecode(frame, fps), fps) == frame


def test_ties_go_to_the_shorter_and_then_to_the_first_name() -> None:
    assert select_summary([("b", 1.0, 10), ("a", 1.0, 10)], 0.1) == "a"
    assert select_summary([("a", 1.0, 20), ("b", 2.0, 10)], 0.1) == "b"
    assert select_summary([("a", 0.1 + 0.2, 5), ("b", 0.3, 4)], 0) == "b"
    assert select_summary([("b", 0.3, 5), ("a", 0.1 + 0.2, 5)], 0) == "a"
    assert select_summary([("x", -1.0, 5)], 3) == "x"
    # Where tokens are worth much, a difference of scores still decides between equal lengths.
    assert select_summary([("a", 1.0, 100), ("b", 1 - 1e-7, 100)], 1e3) == "b"
    assert select_summary([("a", np.float32(1), np.int64(2)), ("b", 0.5, 3)], 0) == "b"


def test_the_frontier_is_what_selection_does_at_every_alpha() -> None:
    draw = np.random.default_rng(4)
    for _ in range(200):
        count = int(draw.integers(1, 8))
        candidates = [
            (f"n{i}", float(draw.integers(-6, 7)) / 2, int(draw.integers(0, 6)))
            for i in range(count)
        ]
        steps = frontier(candidates)
        bounds = [*(step.alpha for step in steps), steps[-1].alpha + 2]
        for step, low, high in zip(steps, bounds, bounds[1:], strict=False):
            assert select_summary(candidates, low) == step.name
            assert select_summary(candidates, (low + high) / 2) == step.name


@pytest.mark.parametrize(
    ("candidates", "alpha", "says"),
    [
        ([], 0, "the list is empty"),
        ([("a", 1.0, 1)], -1, "alpha"),
        ([("a", 1.0, 1)], math.nan, "alpha"),
        ([("a", math.nan, 1)], 0, "score of 'a'"),
        ([("a", 1.0, -1)], 0, "tokens of 'a'"),
        ([("a", math.inf, 1)], 0, "score of 'a'"),
        ([("a", 1.0, 1), ("a", 2.0, 1)], 0, "twice"),
        ([("a", 1.0, None)], 0, "tokens"),
    ],
)
def test_bad_candidates_are_named(
    candidates: list[tuple[str, float, float]], alpha: float, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        select_summary(candidates, alpha)


@pytest.mark.parametrize(
    "correct",
    [[1, 0, 1, 1, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0, 1], [0, 0, 0, 1, 0, 0, 0]],
)
def test_the_exact_p_value_is_that_of_all_ways_to_deal_out_the_answers(correct: list[int]) -> None:
    x, y = np.array([1.0, 2.5, 2.5, 0.5, 3.0, 4.0, 1.5]), np.array(correct)
    means = np.array(
        [x[list(chosen)].mean() for chosen in itertools.combinations(range(7), sum(correct))]
    )
    mine = x[y == 1].mean()
    expected = 2 * min((means <= mine + 1e-12).mean(), (means >= mine - 1e-12).mean())
    assert correlate(x.tolist(), y.tolist()).p == pytest.approx(min(1, expected))


def test_within_groups_only_answers_of_a_group_are_dealt_out() -> None:
    # Two videos, one easy with low scores: across them scores tell everything, within them nothing.
    x = [*np.tile([1.0, 1.1], 15), *np.tile([5.0, 5.1], 15)]
    y = [*np.tile([1, 1, 1, 1, 0], 6), *np.tile([0, 0, 0, 0, 1], 6)]
    groups = ["easy"] * 30 + ["hard"] * 30
    together, within = correlate(x, y), correlate(x, y, groups=groups, shuffles=2000)
    assert together.r == within.r
    assert together.p < 0.01
    assert within.p > 0.3
    assert within == correlate(x, y, groups=groups, shuffles=2000)


def test_trimming_leaves_out_one_of_each_end() -> None:
    x, y = [9.0, 1.0, 2.0, 3.0, 4.0, -9.0], [1, 1, 0, 1, 0, 0]
    assert correlate(x, y, trim=True).n == 4
    assert correlate(x, y, trim=True).r == correlate(x[1:-1], y[1:-1]).r


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ([1, 2], [0, 1], "too few"),
        ([1, 1, 1], [0, 1, 0], "scores: all"),
        ([1, 2, 3], [1, 1, 1], "correct: all"),
        ([1, 2, math.nan], [0, 1, 0], "be numbers"),
        ([1, 2, 3], [0, 1, 2], "be 0 or 1"),
        ([1, 2, 3], [0], "1 and"),
        ([1, 2, -1e10], [0, 1, 0], "at most 1e.09"),
        ([0, 1, 2, 3, -1e9], [0, 1, 0, 1, 0], "so far from the others"),
    ],
)
def test_values_that_cannot_be_correlated_are_refused(
    x: list[float], y: list[int], says: str
) -> None:
    with pytest.raises(TextError, match=says):
        correlate(x, y)


def test_tokens_belong_to_the_word_of_their_first_character() -> None:
    answer = "man drives sedan"
    for tokens in (
        ("man", " dri", "ves", " sedan"),
        ("man", "dri", "ves", "sedan"),
        ("man ", "dri", "ves ", "sedan"),
    ):
        assert by_word(Forced(tokens, (-1.0, -2.0, -4.0, -8.0)), answer) == [-1, -6, -8]
    assert by_word(Forced(("man", " ", "drives", " sedan"), (-1.0, -2.0, -4.0, -8.0)), answer) == [
        -1,
        -6,
        -8,
    ]
    # A token of two words counts to the first; a character's first bytes have no text.
    assert by_word(Forced(("man", " drives s", "edan"), (-1.0, -2.0, -4.0)), answer) == [-1, -2, -4]
    assert by_word(Forced(("man", "", " é"), (-1.0, -2.0, -4.0)), "man é") == [-1, -6]


def test_the_answers_tokens_are_found_from_the_end() -> None:
    assert answer_length(["<turn>", "man", "\n", "man", " dri", "ves"], "man drives") == 3
    for tokens in (["\nman", " drives"], ["man", " drives", "<end>"], ["man", " drive"], []):
        with pytest.raises(ModelError, match="the last tokens of the prompt do not join to"):
            answer_length(tokens, "man drives")


@pytest.mark.parametrize(
    "forced",
    [
        Forced(("man",), (-1.0, -2.0)),
        Forced(("men",), (-1.0,)),
        Forced(("man",), (math.nan,)),
        Forced(("man",), (0.5,)),
        Forced(("man",), (-math.inf,)),
        Forced(("man",), (-9999.0,)),
        Forced(("m", "a", "n"), (0.0, 0.0, 0.0)),
    ],
)
def test_numbers_that_are_no_log_probabilities_are_refused(forced: Forced) -> None:
    with pytest.raises(ModelError):
        check_forced(forced, "man")


def test_builtin_keywords_are_words_of_the_caption_spread_over_it() -> None:
    caption = " ".join(
        f"The gardener{c} waters tulip{c} near the gate." for c in "abcdefghijklmnopqrst"
    )
    found = builtin_keywords(caption)
    assert len(found) == 20
    places = [caption.index(word) for word in found]
    assert places == sorted(places)
    assert places[0] < len(caption) / 10
    assert places[-1] > len(caption) * 0.9
    assert mask_caption(caption, found).keywords == tuple(found)
    assert builtin_keywords("The video shows Man's dog; the dog barks.") == [
        "shows",
        "man",
        "dog",
        "barks",
    ]
    assert builtin_keywords("A dog barks at a cat.", 1) == ["barks"]
    with pytest.raises(TextError, match="can be a keyword"):
        builtin_keywords("It is the video.")


class Counting:
    """A model whose answers have a probability of a half a word, that counts its questions."""

    fingerprint = "counting"

    def __init__(self) -> None:
        self.asked: list[tuple[list[Part], str, int]] = []

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        self.asked.append((list(parts), answer, run))
        words = answer.split(" ")
        return Forced(
            (words[0], *(f" {word}" for word in words[1:])),
            (math.log(0.5),) * len(words),
            10 * len(parts),
        )

    def next(self, parts: Sequence[Part], said: str = "") -> tuple[str, float]:
        return "man", math.log(0.5)


def test_the_video_is_asked_once_for_all_summaries_and_equal_summaries_once(
    pictures: list[Image],
) -> None:
    model = Counting()
    summaries = [
        Summary("A.", name="a", tokens=1),
        Summary("B.", name="b", tokens=1),
        Summary("A.", name="c", tokens=1),
    ]
    results = visil(
        Video(pictures), "A man and a dog.", ["man", "dog"], summaries, model, samples=2
    )
    assert [result.visil for result in results] == [0, 0, 0]
    assert len(model.asked) == 2 * 3
    assert sum(any(isinstance(part, Image) for part in parts) for parts, _, _ in model.asked) == 2


def test_sequential_asks_for_a_mask_at_a_time_with_the_true_words_put_back(
    pictures: list[Image],
) -> None:
    model = Counting()
    visil(
        Video(pictures),
        "A man, a dog, a man.",
        ["man", "dog"],
        [Summary("A.", tokens=1)],
        model,
        method="sequential",
    )
    texts = [
        "".join(part for part in parts if isinstance(part, str)) for parts, _, _ in model.asked[:2]
    ]
    assert "A [MASK], a [MASK], a [MASK]." in texts[0]
    assert "A man, a [MASK], a [MASK]." in texts[1]
    assert [answer for _, answer, _ in model.asked] == ["man", "dog"] * 2


def test_summaries_that_are_none_are_named(pictures: list[Image]) -> None:
    for make, says in (
        (lambda: Summary(name="x"), "'x' has neither"),
        (lambda: Summary("a", pictures, "x"), "4 keyframes"),
        (lambda: Summary("[MASK]", name="x"), "not contain"),
        (lambda: Summary("a", name="x", tokens=-1), "tokens"),
        (lambda: Video([]), "frames must be"),
    ):
        with pytest.raises(TextError, match=says):
            make()
    with pytest.raises(TextError, match="same name"):
        visil(Video(pictures), "A man.", ["man"], [Summary("a"), Summary("b")], Counting())


def test_images_keep_their_places_and_texts_are_never_filled_in_twice(
    pictures: list[Image],
) -> None:
    prompts = builtin()
    given = prompts.given(Summary("{masked_caption} [KEYFRAME2]", pictures[:2]))
    parts = prompts.fill("score", given=given, masked_caption="A [MASK] {given}.")
    assert [part for part in parts if isinstance(part, Image)] == pictures[:2]
    text = "".join(part if isinstance(part, str) else "#" for part in parts)
    assert "[KEYFRAME1] # [KEYFRAME2] #" in text
    assert "summary of the video: {masked_caption} [KEYFRAME2]" in text
    assert "A [MASK] {given}." in text
    assert not any(isinstance(a, str) and isinstance(b, str) for a, b in itertools.pairwise(parts))


def test_a_record_is_bound_to_every_byte_and_run_and_survives_a_cut_line(
    tmp_path: Path, pictures: list[Image]
) -> None:
    model, path = Counting(), tmp_path / "r.jsonl"
    recorder = Recorder(model, path)
    first = recorder.force([pictures[0], "x"], "man", 1)
    assert recorder.force([pictures[0], "x"], "man", 1) == first
    recorder.next(["x"], "man")
    recorder.close()
    assert len(model.asked) == 1
    whole = path.read_bytes()
    path.write_bytes(whole + whole[-20:-1])
    recorder = Recorder(model, path)
    recorder.force([pictures[0], "x"], "man", 1)
    assert len(model.asked) == 1
    recorder.force([pictures[0], "x"], "man", 2)
    recorder.close()
    table = Recorded(path)
    assert table.force([pictures[0], "x"], "man", 1) == first
    assert table.next(["x"], "man") == ("man", math.log(0.5))
    for parts, answer, run in (
        ([pictures[1], "x"], "man", 1),
        ([pictures[0], "y"], "man", 1),
        ([pictures[0], "x"], "men", 1),
        ([pictures[0], "x"], "man", 0),
    ):
        with pytest.raises(ModelError, match="no answer to this question is recorded"):
            table.force(parts, answer, run)
    path.write_bytes(whole.replace(b'"key"', b'"kex"'))
    with pytest.raises(InputError, match="line 2: this is not a recorded answer"):
        Recorded(path)


class Nan(Counting):
    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        return Forced((answer,), (math.nan,))


@pytest.mark.parametrize("method", ["forced", "sequential"])
def test_no_score_is_made_of_numbers_that_are_none(pictures: list[Image], method: str) -> None:
    with pytest.raises(ModelError, match="nan is not a log-probability"):
        visil(Video(pictures), "A man.", ["man"], [Summary("A.", tokens=1)], Nan(), method=method)


@pytest.mark.parametrize(
    "content",
    [
        b"file without a newline",
        b'{"id": 1, "caption": "A man."}',
        b'{"id": 1}\n',
        b"[1]",
        b'{"visil": "answers", "model": "another"}\n{"key',
    ],
)
def test_a_file_of_something_else_is_no_record_and_stays_as_it_is(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"r\.jsonl"):
        Recorder(Counting(), path)
    assert path.read_bytes() == content
    path.write_bytes(b'{"visil": "ans')  # what a run leaves that was stopped at its first line
    Recorder(Counting(), path).close()
    assert len(path.read_bytes().splitlines()) == 1


def test_a_record_that_is_removed_while_the_job_is_running_ends_it(tmp_path: Path) -> None:
    recorder = Recorder(Counting(), tmp_path / "r.jsonl")
    (tmp_path / "r.jsonl").unlink()
    with pytest.raises(CacheError, match="it was removed or renamed while the job was running"):
        recorder.force(["x"], "man")
    with pytest.raises(InputError, match="it was removed or renamed while the job was running"):
        recorder.close()


def test_an_answer_that_fails_its_check_is_not_kept(tmp_path: Path) -> None:
    recorder = Recorder(Nan(), tmp_path / "r.jsonl")
    with pytest.raises(ModelError, match="nan is not a log-probability"):
        recorder.force(["x"], "man")
    recorder.close()
    assert len((tmp_path / "r.jsonl").read_bytes().splitlines()) == 1


def test_a_key_tells_where_a_text_ends_and_what_it_is(pictures: list[Image]) -> None:
    keys = [
        question_key("m", ["ab", "c"], "d", "0"),
        question_key("m", ["a", "bc"], "d", "0"),
        question_key("m", ["abc"], "d", "0"),
        question_key("m", ["ab"], "cd", "0"),
        question_key("ma", ["b", "c"], "d", "0"),
        question_key("m", ["ab", "c"], "d", "next"),
        question_key("m", ["ab", "c", pictures[0]], "d", "0"),
        question_key("m", [pictures[0], "ab", "c"], "d", "0"),
    ]
    assert len(set(keys)) == len(keys)


def test_a_record_that_cannot_be_written_stops_the_job(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    recorder = Recorder(Counting(), tmp_path / "r.jsonl")
    size, limits = (tmp_path / "r.jsonl").stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(CacheError, match="File too large"):
            recorder.force(["x"], "man")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    recorder.close()
    assert (tmp_path / "r.jsonl").stat().st_size == size


def test_a_video_that_is_named_like_an_address_is_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("av")
    monkeypatch.chdir(tmp_path)
    asked: list[str] = []

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Server) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        name = Path(f"http://127.0.0.1:{server.server_port}/video.mp4")
        with pytest.raises(InputError, match="No such file"):
            VideoFile(name)
        server.shutdown()
        thread.join()
    assert asked == []
