"""Scores from generated answers, in the shapes of OpenAI and Gemini, and of a tiny real model."""

from __future__ import annotations

import codecs
import copy
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from support import fake_server as fake
from support import visil_commands as command
from support.generating_server import GeneratingHandler, Listening
from support.stories import read_lines, write_pairs
from vcs_runtime.errors import ModelError, TextError
from vcs_visil import Generated, Image, Summary, Video, VisilOptions, mask_caption, visil
from vcs_visil.jobs.scores import unknown_words
from vcs_visil.models.genai import GenAI
from vcs_visil.models.logprobs import check_forced
from vcs_visil.models.servers import Gemini, OpenAI
from vcs_visil.prompts import builtin
from vcs_visil.summaries import Part

ANSWERS = Path(__file__).parent / "answers"
SECRET = "sk-very-secret"
CAPTION = "A man parks a sedan. A boat is near."
KEYWORDS = ["man", "parks", "sedan", "boat"]
by_words = partial(visil, method="generate")


def body_of(kind: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads((ANSWERS / f"{kind}.json").read_text("utf-8"))
    return body


class Fixed(Listening):
    """Answers every question with one recorded answer; notes headers and requests."""

    body: dict[str, Any]

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        return self.body


def fixed(body: dict[str, Any]) -> type[Fixed]:
    return type("FixedBody", (Fixed,), {"body": body, "headers_seen": []})


OPEN: dict[str, Callable[[str], Any]] = {
    "openai": OpenAI,
    "gemini": lambda url: Gemini(url, "made-up"),
}


class Table:
    """Answers with one generated answer for a video, and another for a summary."""

    fingerprint = "table:made-up"

    def __init__(self, video: Generated, summary: Generated) -> None:
        self.video, self.summary = video, summary
        self.runs: list[int] = []

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        self.runs.append(run)
        return self.video if any(isinstance(part, Image) for part in parts) else self.summary


def generated(*tokens: tuple[str, float, dict[str, float]]) -> Generated:
    """An answer of tokens, each with its number and others at its place."""
    text = "".join(token for token, _, _ in tokens)
    top = tuple(tuple({token: value, **others}.items()) for token, value, others in tokens)
    return Generated(text, tuple(t for t, _, _ in tokens), tuple(v for _, v, _ in tokens), top, 9)


def by_word(answer: Generated, words: Sequence[str], **options: Any) -> list[tuple[float, str]]:
    """The numbers of these words as a caption, given a summary that is answered by `answer`."""
    other = generated(*((f" {word}", -1.0, {"y": -2.0, "z": -3.0, "w": -4.0}) for word in words))
    [result] = visil(
        Video([Image(b"\xff\xd8\xff")]),
        " then ".join(words),
        list(words),
        [Summary("It.")],
        Table(other, answer),
        method="generate",
        **{"top": 2, **options},
    )
    assert result.approximate
    return [(k["log_p_summary"], k["known_summary"]) for k in result.to_dict()["keywords"]]


@pytest.mark.parametrize(
    ("tokens", "word", "number", "known"),
    [
        ([("man", -0.5, {"dog": -1.0})], "man", -0.5, "generated"),
        ([("Man", -0.5, {"man": -1.0})], "man", -0.5, "generated"),
        ([("man", -0.5, {"dog": -1.0})], "dog", -1.0, "top"),
        ([("man", -0.5, {"dog": -1.0})], "cat", -10.0, "none"),
        ([(" sed", -0.5, {"x": -3.0}), ("an", -0.25, {"x": -3.0})], "sedan", -0.75, "generated"),
        ([(" sed", -0.5, {"x": -3.0}), ("um", -0.25, {"an": -2.0})], "sedan", -2.5, "top"),
        ([(" sed", -0.5, {"x": -3.0}), ("um", -0.25, {"a": -2.0})], "sedan", -2.5, "part"),
        ([(" sed", -0.5, {"x": -3.0}), ("um", -0.25, {" an": -2.0})], "sedan", -10.0, "none"),
        ([(" s", -0.5, {" sedan": -1.5}), ("ky", -0.25, {"x": -3.0})], "sedan", -1.5, "top"),
        ([("sky", -0.5, {"sed": -1.5, "s": -1.0})], "sedan", -1.5, "part"),
        ([("sky", -0.5, {"sed": -12.0})], "sedan", -10.0, "part"),
        ([(" ", -0.125, {"x": -3.0}), ("man", -0.5, {"x": -3.0})], "man", -0.625, "generated"),
        ([("man", -0.0, {"x": -3.0}), ("\n", -1.0, {"x": -3.0})], "man", 0.0, "generated"),
    ],
)
def test_the_number_of_a_word(
    tokens: list[tuple[str, float, dict[str, float]]], word: str, number: float, known: str
) -> None:
    assert by_word(generated(*tokens), [word]) == [(pytest.approx(number), known)]


def test_words_stand_at_the_place_of_their_mask() -> None:
    answer = generated(("man", -0.5, {"a": -3.0}), (" dog", -0.25, {" car": -1.0}))
    expected = [(-0.5, "generated"), (-1.0, "top"), (-10.0, "none")]
    assert by_word(answer, ["man", "car", "tree"]) == expected
    assert by_word(answer, ["dog", "man"], floor=-4.5) == [(-4.5, "none"), (-4.5, "none")]


def test_the_score_is_the_difference_and_samples_keep_what_is_least_known(
    pictures: list[Image],
) -> None:
    table = Table(generated(("man", -0.5, {"a": -3.0})), generated(("dog", -0.25, {"man": -1.0})))
    [result] = by_words(
        Video(pictures), "A man.", ["man"], [Summary("It.", tokens=3)], table, top=2, samples=3
    )
    assert result.visil == 0.5
    assert result.video.known == ("generated",)
    assert result.summary.known == ("top",)
    assert table.runs == [0, 1, 2] * 2
    assert (
        "|samples:3|method:generate|top:2|floor:-10|approximate:yes|count:first|"
        in result.signature
    )
    near = VisilOptions(method="generate", floor=-9.9999999)
    assert "|floor:-9.9999999|" in near.signature("", 1)
    assert result.to_dict()["approximate"] is True
    [itself] = by_words(Video(pictures), "A man.", ["man"], [Video(pictures)], table, top=2)
    assert itself.visil == 0


def test_a_word_of_several_runs_is_known_as_in_the_worst(pictures: list[Image]) -> None:
    class Changing(Table):
        def generate(
            self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0
        ) -> Generated:
            return [self.video, self.summary, self.video][run]

    table = Changing(
        generated(("man", -0.5, {"a": -3.0})), generated(("dog", -0.25, {"cat": -1.0}))
    )
    [result] = by_words(
        Video(pictures), "A man.", ["man"], [Summary("It.", tokens=3)], table, top=2, samples=3
    )
    assert result.video.known == ("none",)
    assert result.video.by_word == (pytest.approx((-0.5 - 10 - 0.5) / 3),)


def test_without_a_known_word_of_the_video_there_is_no_score(pictures: list[Image]) -> None:
    silent = generated(("It", -0.5, {"a": -3.0}), (" is", -0.25, {"b": -1.0}))
    ask = partial(
        by_words, Video(pictures), "A man parks.", ["man", "parks"], [Summary("It.")], top=2
    )
    with pytest.raises(TextError, match="none of the 2 keywords in the video"):
        ask(Table(silent, silent))
    half = generated(("man", -0.5, {"a": -3.0}), (" is", -0.25, {"b": -1.0}))
    [result] = ask(Table(half, silent))
    assert result.visil == 9.5
    counts = {"words_video": 2, "unknown_video": 1, "words_summary": 2, "unknown_summary": 2}
    assert unknown_words([[result.to_dict()]]) == counts


class OtherWords(GeneratingHandler):
    """A model that finds none of the words: every letter of its answers is another one."""

    headers_seen: ClassVar = []

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        rotated: dict[str, Any] = self.rotated(super().answer(body))
        return rotated

    def rotated(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.rotated(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.rotated(inner) for inner in value]
        return codecs.encode(value, "rot13") if isinstance(value, str) else value


def test_a_server_that_answers_with_other_words_gives_no_score(
    tmp_path: Path, pictures: list[Image]
) -> None:
    source, out = items(tmp_path, pictures[0]), tmp_path / "out.jsonl"
    with fake.serve(OtherWords) as (url, _):
        done = command.visil(
            "score", source, "-o", out, "--model", f"openai:{url}", "--method", "generate"
        )
    assert done.exit_code == 1
    assert "0 scored, 1 failed" in done.stdout
    assert "the model finds none of the 4 keywords in the video" in done.stderr


@pytest.mark.parametrize(
    "options", [{"top": 0}, {"top": True}, {"floor": 0.0}, {"floor": float("nan")}]
)
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="top must be|floor must be"):
        VisilOptions(method="generate", **options)


@pytest.mark.parametrize(
    ("kind", "tokens", "last", "length"),
    [
        ("openai", ("Man", " drives", " car", " caf", "é"), -0.09375, 57),
        ("gemini", ("man", " drives", " car", " lake", "\n"), 0.0, 61),
    ],
)
def test_answers_in_the_true_shapes_are_read(
    kind: str, tokens: tuple[str, ...], last: float, length: int, pictures: list[Image]
) -> None:
    handler = fixed(body_of(kind))
    with fake.serve(handler) as (url, log):
        answer = OPEN[kind](url).generate(["Which? ", pictures[0]], 40, 3)
    assert (answer.tokens, answer.prompt_tokens) == (tokens, length)
    assert answer.logprobs == (-0.25, -0.5, -0.125, -1.0, last)
    assert answer.top[0][2][1] == -9999.0
    [(path, sent)] = log
    if kind == "openai":
        assert path == "/v1/chat/completions"
        assert sent["messages"][0]["content"][0] == {"type": "text", "text": "Which? "}
        settings = {"temperature": 0, "max_tokens": 40, "logprobs": True, "top_logprobs": 3}
        assert {name: sent[name] for name in settings} == settings
    else:
        assert path == "/v1beta/models/made-up:generateContent"
        [content] = sent["contents"]
        assert (content["role"], content["parts"][0]) == ("user", {"text": "Which? "})
        assert content["parts"][1]["inlineData"]["mimeType"] == "image/png"
        assert sent["generationConfig"] == {
            "temperature": 0,
            "candidateCount": 1,
            "maxOutputTokens": 40,
            "responseLogprobs": True,
            "logprobs": 3,
        }


@pytest.mark.parametrize("kind", OPEN)
def test_words_are_found_in_them(kind: str, pictures: list[Image]) -> None:
    with fake.serve(fixed(body_of(kind))) as (url, _):
        [result] = by_words(
            Video(pictures[:1]), CAPTION, KEYWORDS, [Summary("A man.")], OPEN[kind](url), top=3
        )
    keywords = result.to_dict()["keywords"]
    assert [(k["log_p_summary"], k["known_summary"]) for k in keywords] == [
        (-0.25, "generated"),
        (-1.75, "top"),
        (-2.5, "part"),
        (-10.0, "none"),
    ]
    assert result.tokens == 0  # every question has the same answer, so the same length


Change = Callable[[str, dict[str, Any]], None]


def no_numbers(kind: str, body: dict[str, Any]) -> None:
    if kind == "openai":
        body["choices"][0]["logprobs"] = None
    else:
        del body["candidates"][0]["logprobsResult"]


def fewer(kind: str, body: dict[str, Any]) -> None:
    if kind == "openai":
        for entry in body["choices"][0]["logprobs"]["content"]:
            del entry["top_logprobs"][2:]
    else:
        for place in body["candidates"][0]["logprobsResult"]["topCandidates"]:
            del place["candidates"][2:]


def none_at_all(kind: str, body: dict[str, Any]) -> None:
    if kind == "openai":
        for entry in body["choices"][0]["logprobs"]["content"]:
            del entry["top_logprobs"]
    else:
        del body["candidates"][0]["logprobsResult"]["topCandidates"]


def other_tokens(kind: str, body: dict[str, Any]) -> None:
    if kind == "openai":
        body["choices"][0]["message"]["content"] = "man drives bus"
    else:
        body["candidates"][0]["content"]["parts"] = [{"text": "man drives bus"}]


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (no_numbers, "returns no log-probabilities"),
        (fewer, r"returns 2 likeliest tokens instead of 3: request this number with --top 2"),
        (none_at_all, "returns 0 likeliest tokens instead of 3"),
        (other_tokens, "do not spell the answer 'man drives bus'"),
    ],
)
def test_what_a_server_does_not_return_is_named(
    kind: str, change: Change, says: str, pictures: list[Image]
) -> None:
    body = copy.deepcopy(body_of(kind))
    change(kind, body)
    with fake.serve(fixed(body)) as (url, _), pytest.raises(ModelError, match=says):
        by_words(Video(pictures), CAPTION, KEYWORDS, [Summary("A man.")], OPEN[kind](url), top=3)


BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}}
CUT_OFF = {"candidates": [{"finishReason": "MAX_TOKENS", "content": {"role": "model"}}]}
REFUSED = {"choices": [{"message": {"content": None, "refusal": "No."}}]}
EMPTY = {"choices": [{"message": {"content": " "}, "logprobs": {"content": []}}]}


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("gemini", BLOCKED, r"does not answer this question \(SAFETY\)"),
        ("gemini", CUT_OFF, r"empty \(MAX_TOKENS\)"),
        ("openai", REFUSED, "the model refuses: No"),
        ("openai", EMPTY, "answer is empty"),
    ],
)
def test_a_question_without_an_answer_costs_its_video_only(
    kind: str, body: dict[str, Any], says: str, pictures: list[Image]
) -> None:
    with fake.serve(fixed(body)) as (url, _), pytest.raises(TextError, match=says):
        by_words(Video(pictures), CAPTION, KEYWORDS, [Summary("A man.")], OPEN[kind](url))


class Newer(Fixed):
    """As newer models of OpenAI: another name for the largest number of tokens."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.log.append((self.path, body))
        if "max_tokens" in body:
            self._send(
                400, {"error": {"message": "Unsupported parameter: use 'max_completion_tokens'."}}
            )
        else:
            self._send(200, body_of("openai"))


def test_newer_models_are_asked_with_the_newer_name() -> None:
    with fake.serve(Newer) as (url, log):
        model = OpenAI(url)
        for _ in range(2):
            assert model.generate(["Which?"], 40, 3).tokens[0] == "Man"
    assert [
        name in body for _, body in log for name in ("max_tokens", "max_completion_tokens")
    ] == [True, False, False, True, False, True]


def items(folder: Path, picture: Image) -> Path:
    (folder / "f.png").write_bytes(picture.data)
    row = {
        "id": "a",
        "frames": ["f.png"],
        "caption": CAPTION,
        "keywords": KEYWORDS,
        "summaries": [{"name": "text", "text": "A man drives."}],
    }
    write_pairs(folder / "items.jsonl", [row])
    return folder / "items.jsonl"


@pytest.mark.parametrize(
    ("kind", "header"), [("openai", "Authorization"), ("gemini", "x-goog-api-key")]
)
def test_the_command_scores_with_a_key_that_is_written_nowhere(
    kind: str, header: str, tmp_path: Path, pictures: list[Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VCS_RUNTIME_API_KEY", SECRET)
    source, out, record = items(tmp_path, pictures[0]), tmp_path / "out.jsonl", tmp_path / "r.jsonl"
    options = ("--method", "generate", "--model-name", fake.MODEL)
    handler = type("Keyed", (GeneratingHandler,), {"headers_seen": []})
    with fake.serve(handler) as (url, log):
        done = command.visil(
            "score", source, "-o", out, "--model", f"{kind}:{url}", *options, "--record", record
        )
        assert done.exit_code == 0, (done.output, done.exception)
        asked = len(log)
        again = command.visil(
            *f"score {source} -o {tmp_path}/again.jsonl --model recorded:{record}".split(), *options
        )
        assert again.exit_code == 0, (again.output, again.exception)
        assert len(log) == asked
        other = command.visil(
            *f"score {source} -o {out} --model {kind}:{url} --floor -8 --resume".split(), *options
        )
    assert out.read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    assert {seen[header] for seen in handler.headers_seen} == {
        f"Bearer {SECRET}" if kind == "openai" else SECRET
    }
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir()) + done.output.encode()
    assert SECRET.encode() not in written
    [row] = read_lines(out)
    assert f"|model:{kind}:made/up|" in row["signature"]
    assert "|method:generate|top:20|floor:-10|approximate:yes|" in row["signature"]
    assert row["summaries"][0]["approximate"] is True
    for arguments in (("select", out, "--alpha", "0"), ("report", out, "--json")):
        assert (
            "out.jsonl: the scores are approximate (--method generate)"
            in command.visil(*arguments).stderr
        )
    assert "its signature has floor:" in str(other.exception)


def test_another_method_does_not_continue_a_file(
    tmp_path: Path, pictures: list[Image], text_model: Path
) -> None:
    source, out = items(tmp_path, pictures[0]), tmp_path / "out.jsonl"
    handler = type("Unkeyed", (GeneratingHandler,), {"headers_seen": []})
    with fake.serve(handler) as (url, _):
        done = command.visil(
            "score", source, "-o", out, "--model", f"openai:{url}", "--method", "generate"
        )
        assert done.exit_code == 0
    before = out.read_bytes()
    with fake.serve(fake.SteppingHandler) as (url, _):
        refused = command.visil(
            "score", source, "-o", out, "--model", f"stepping:{url}", "--top", "200", "--resume"
        )
    there = str(refused.exception).partition("its signature has ")[2]
    assert all(f"{name}:" in there for name in ("method", "top", "floor", "approximate"))
    assert out.read_bytes() == before
    for options in (
        ("--model", "openai:http://x:1"),
        ("--model", "vllm:http://x:1", "--method", "generate"),
    ):
        refused = command.visil("score", source, "-o", out, *options)
        assert refused.exit_code == 2
        assert "--method generate" in refused.stderr


@pytest.mark.parametrize("images", [0, 2])
def test_a_real_model_generates_what_it_would_be_forced_to(
    vision_model: Path, pictures: list[Image], images: int
) -> None:
    model = GenAI(vision_model)
    parts: list[Part] = ["Find the words. ", *pictures[:images]]
    answer = model.generate(parts, 2, 5)
    forced = model.force(parts, answer.text)
    check_forced(forced, answer.text)
    assert forced.tokens == answer.tokens
    assert forced.logprobs == pytest.approx(answer.logprobs, abs=1e-5)
    assert forced.prompt_tokens == answer.prompt_tokens
    for i, listed in enumerate(answer.top):
        token, value = model.next(parts, "".join(answer.tokens[:i]))
        assert listed[0] == (token, pytest.approx(value, abs=1e-5))
        values = [value for _, value in listed]
        assert values == sorted((value for _, value in listed), reverse=True)


def test_a_real_model_scores_by_what_it_generates(tmp_path: Path, pictures: list[Image]) -> None:
    from support.tiny_genai import write_model

    # It does not end its answers at once.
    folder = write_model(tmp_path / "model", vision=True, seed=10)
    source = items(tmp_path, pictures[0])
    options = (
        "--model",
        f"genai:{folder}",
        "--method",
        "generate",
        "--top",
        "10000",
        "--floor",
        "-30",
    )
    refused = command.visil("score", source, "-o", tmp_path / "out.jsonl", *options)
    most = re.search(r"returns (\d+) likeliest tokens instead of 10000", str(refused.exception))
    assert most  # the whole vocabulary
    options = (*options[:-3], most[1], *options[-2:])
    done = command.visil("score", source, "-o", tmp_path / "out.jsonl", *options)
    assert done.exit_code == 0, (done.output, done.exception)
    [row] = read_lines(tmp_path / "out.jsonl")
    [summary] = row["summaries"]
    prompt = builtin().fill(
        "score",
        given=builtin().given(Summary("A man drives.")),
        masked_caption=mask_caption(CAPTION, KEYWORDS).text,
    )
    # Nothing stands before the first word: its number is that of a forced answer.
    [forced] = GenAI(folder).force(prompt, "man").logprobs
    keyword = summary["keywords"][0]
    assert keyword["known_summary"] == "top"
    assert keyword["log_p_summary"] == pytest.approx(forced, abs=1e-5)
    assert summary["approximate"] is True
    assert summary["tokens"] > 0
