"""Servers in the documented shapes and faulty: each fault is found by its check."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from support import fake_server as fake
from support.generating_server import GeneratingHandler
from support.visil_commands import visil
from support.waiting import HANGS_AFTER_S
from vcs_runtime.errors import InputError, ModelError, TextError
from vcs_visil import Image, LogProbs, probe, probe_generated
from vcs_visil.models.probing import ProbeCheck
from vcs_visil.models.servers import VLLM, Gemini, OpenAI, SGLang, Stepping
from vcs_visil.summaries import Part

ANSWER = "man drives sedan street"
Open = Callable[..., LogProbs]


def sglang(url: str, timeout: float = HANGS_AFTER_S) -> SGLang:
    return SGLang(url, "<turn>{prompt}<reply>", "<image>", timeout=timeout)


KINDS: dict[str, tuple[type[fake.Handler], Open]] = {
    "vllm": (fake.VLLMHandler, lambda url, timeout=HANGS_AFTER_S: VLLM(url, timeout=timeout)),
    "sglang": (fake.SGLangHandler, sglang),
    "stepping": (
        fake.SteppingHandler,
        lambda url, timeout=HANGS_AFTER_S: Stepping(url, timeout=timeout, top=len(fake.VOCABULARY)),
    ),
}


def as_sent(parts: Sequence[Part], kind: str) -> list[str | bytes]:
    """The parts as the fake model sees them: joined text, and images as encoded bytes."""
    sent: list[str | bytes] = []
    for part in parts:
        if isinstance(part, Image):
            data = base64.b64encode(part.data)
            sent.append(data if kind == "sglang" else b"data:image/png;base64," + data)
        else:
            sent.append(part)
    return sent


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("images", [0, 1, 3])
def test_forced_answers_are_the_models(kind: str, images: int, pictures: list[Image]) -> None:
    handler, open_ = KINDS[kind]
    parts: list[Part] = ["Which words? "]
    for picture in pictures[:images]:
        parts += [picture, " and "]
    with fake.serve(handler) as (url, log):
        forced = open_(url).force(parts, ANSWER)
    assert forced.logprobs == pytest.approx(fake.forced(as_sent(parts, kind), ANSWER), abs=1e-12)
    assert forced.tokens == ("man", " drives", " sed", "an", " street")
    assert forced.prompt_tokens == len(fake.prompt_of(as_sent(parts, kind)))
    assert len(log) == (6 if kind == "stepping" else 1)


def generating(base: type[GeneratingHandler] = GeneratingHandler) -> type[fake.Handler]:
    return type("Generating", (base,), {"headers_seen": []})


# Servers with log-probabilities of generated answers have another probe, without a chain.
GENERATING: dict[str, Callable[[str], Any]] = {
    "openai": OpenAI,
    "gemini": lambda url: Gemini(url, fake.MODEL),
}


def probed(kind: str, *fault: fake.Fault) -> list[ProbeCheck]:
    """The checks of a server of this kind."""
    handler, open_ = (generating(), GENERATING[kind]) if kind in GENERATING else KINDS[kind]
    with fake.serve(handler, *fault) as (url, _):
        return probe_generated(open_(url)) if kind in GENERATING else probe(open_(url))


@pytest.mark.parametrize("kind", [*KINDS, *GENERATING])
def test_sound_servers_pass_the_probe(kind: str) -> None:
    found = probed(kind)
    chain = [] if kind in GENERATING else ["chain"]
    assert [check.name for check in found] == [
        "numbers",
        "same",
        "text",
        "greedy",
        *chain,
        "images",
    ]
    assert all(check.passed for check in found), found


@pytest.mark.parametrize("kind", GENERATING)
def test_the_command_probes_generated_answers(kind: str) -> None:
    with fake.serve(generating()) as (url, _):
        printed = visil(
            "probe", "--model", f"{kind}:{url}", "--method", "generate", "--model-name", fake.MODEL
        )
    assert (printed.exit_code, printed.stdout.count("passed")) == (0, 5)


FAULTS: list[tuple[type[fake.Fault], str]] = [
    (fake.OffByOne, "greedy"),
    (fake.LooksAhead, "chain"),
    (fake.AllZero, "numbers"),
    (fake.LastZero, "numbers"),
    (fake.NotANumber, "numbers"),
    (fake.ImagesDropped, "images"),
    (fake.OnlyTheFirstImage, "images"),
    (fake.ImagesAsText, "images"),
    (fake.Deaf, "text"),
    (fake.Drifting, "same"),
]


# A server that returns one position at a time has none to be off by, nor one behind it.
WITHOUT = {"stepping": {fake.OffByOne, fake.LooksAhead}}
WITHOUT |= {kind: {fake.OffByOne, fake.LooksAhead, fake.LastZero} for kind in GENERATING}


@pytest.mark.parametrize(
    ("kind", "fault", "check"),
    [
        (kind, fault, check)
        for kind in (*KINDS, *GENERATING)
        for fault, check in FAULTS
        if fault not in WITHOUT.get(kind, ())
    ],
)
def test_faulty_servers_fail_the_check_that_is_meant_for_them(
    kind: str, fault: type[fake.Fault], check: str
) -> None:
    last = probed(kind, fault())[-1]
    assert (last.name, last.passed) == (check, False)


class Sampling(GeneratingHandler):
    """Writes the second likeliest token."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = super().answer(body)
        choice = answer["choices"][0]
        entries = choice["logprobs"]["content"]
        for entry in entries:
            entry |= {name: entry["top_logprobs"][1][name] for name in ("token", "logprob")}
        choice["message"]["content"] = "".join(entry["token"] for entry in entries)
        return answer


def test_a_server_that_samples_fails_it() -> None:
    with fake.serve(generating(Sampling)) as (url, _):
        last = probe_generated(OpenAI(url))[-1]
    assert (last.name, last.passed) == ("greedy", False)
    assert "another one is likelier" in last.detail


class Forgetful(fake.VLLMHandler):
    """Generates as if the assistant had not begun."""

    def turn(self, body: dict[str, Any]) -> list[str]:
        return super().turn(
            body if "prompt_logprobs" in body else {**body, "messages": body["messages"][:1]}
        )


class CutsAlone(fake.VLLMHandler):
    """An answer of one word has another token than at the beginning of a longer one."""

    def turn(self, body: dict[str, Any]) -> list[str]:
        tokens = super().turn(body)
        alone = "prompt_logprobs" in body and tokens[-2:] == ["<reply>", "window"]
        return [*tokens[:-1], "win", "dow"] if alone else tokens


@pytest.mark.parametrize(
    ("handler", "check", "says"),
    [
        (Forgetful, "greedy", "after 'window' has"),
        (CutsAlone, "chain", "without the rest"),
    ],
)
def test_answers_that_are_begun_are_looked_at_too(
    handler: type[fake.Handler], check: str, says: str
) -> None:
    with fake.serve(handler) as (url, _):
        last = probe(VLLM(url))[-1]
    assert (last.name, last.passed) == (check, False)
    assert says in last.detail


class Swinging(fake.Fault):
    """Numbers are lower at every second request."""

    requests = 0

    def status(self) -> int:
        self.requests += 1
        return 200

    def values(self, values: list[float | None]) -> list[float | None]:
        return [value and value - 0.2 * (self.requests % 2) for value in values]


class SwingingDeaf(Swinging, fake.Deaf):
    pass


class SwingingBlind(Swinging, fake.ImagesDropped):
    pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("fault", "check"), [(SwingingDeaf, "text"), (SwingingBlind, "images")])
def test_a_drift_that_the_user_accepts_hides_no_other_fault(
    kind: str, fault: type[fake.Fault], check: str
) -> None:
    handler, open_ = KINDS[kind]
    with fake.serve(handler, fault()) as (url, _):
        last = probe(open_(url), tolerance=1)[-1]
    assert (last.name, last.passed) == (check, False)


def test_a_model_that_cannot_say_the_probes_words_fails_it() -> None:
    with fake.serve(fake.SteppingHandler) as (url, _):
        last = probe(Stepping(url, top=2))[-1]
    assert (last.name, last.passed) == ("numbers", False)
    assert "not among the 2 likeliest" in last.detail


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("fault", "timeout", "says"),
    [(fake.Broken, HANGS_AFTER_S, "HTTP 500"), (fake.Slow, 0.25, r"no answer within 0\.25 s")],
)
def test_servers_that_fail_are_named(
    kind: str, fault: type[fake.Fault], timeout: float, says: str
) -> None:
    handler, open_ = KINDS[kind]
    with fake.serve(handler, fault()) as (url, _), pytest.raises(ModelError, match=says) as caught:
        probe(open_(url, timeout))
    assert url in str(caught.value)


def test_a_server_that_begins_a_new_turn_is_refused() -> None:
    with fake.serve(fake.NewTurnHandler) as (url, _):
        last = probe(Stepping(url, top=len(fake.VOCABULARY)))[-1]
    assert (last.name, last.passed) == ("numbers", False)
    assert "begins a new turn" in last.detail


class Spaced(fake.SteppingHandler):
    """Writes an answer's first word with a space, as some tokenizers do."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = super().answer(body)
        if len(body["messages"]) == 1:
            entries = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            kept = [entry for entry in entries if not entry["token"].startswith(" ")]
            answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"] = [
                {**entry, "token": " " + entry["token"]} for entry in kept
            ]
        return answer


def test_a_first_word_with_a_space_is_taken_where_there_is_none_without() -> None:
    parts: list[Part] = ["Which words?"]
    expected = pytest.approx(fake.forced(as_sent(parts, "stepping"), ANSWER), abs=1e-12)
    for handler, first in ((Spaced, " man"), (fake.SteppingHandler, "man")):
        with fake.serve(handler) as (url, _):
            model = Stepping(url, top=len(fake.VOCABULARY))
            forced = model.force(parts, ANSWER)
            assert (forced.tokens[0], forced.logprobs) == (first, expected)
            assert all(check.passed for check in probe(model))


class CutsOtherwise(fake.SteppingHandler):
    """The whole answer has a token less than its beginnings led to expect."""

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = super().answer(body)
        if len(body["messages"]) > 1 and body["messages"][1]["content"] == ANSWER:
            answer["usage"]["prompt_tokens"] -= 1
        return answer


def test_an_answer_that_the_server_cuts_otherwise_is_refused() -> None:
    with (
        fake.serve(CutsOtherwise) as (url, _),
        pytest.raises(TextError, match="or splits these words differently"),
    ):
        Stepping(url, top=len(fake.VOCABULARY)).force(["Which?"], ANSWER)


class Ending(fake.SteppingHandler):
    """As llama-cpp-python: nothing is told of an end that is the likeliest token."""

    def answer(self, body: dict[str, object]) -> dict[str, object]:
        return {"choices": [{"message": {"content": ""}, "logprobs": {"content": []}}]}


class Unscored(fake.VLLMHandler):
    def answer(self, body: dict[str, object]) -> dict[str, object]:
        return super().answer(
            {key: value for key, value in body.items() if key != "prompt_logprobs"}
        )


def test_what_a_server_does_not_tell_is_named() -> None:
    with fake.serve(Ending) as (url, _), pytest.raises(TextError, match="after '' is the end"):
        Stepping(url).force(["Which?"], ANSWER)
    with (
        fake.serve(Unscored) as (url, _),
        pytest.raises(ModelError, match="does not score prompts"),
    ):
        VLLM(url).force(["Which?"], ANSWER)


def test_what_the_user_gives_is_checked() -> None:
    for url in ("gpu7:8000", "file:///etc/passwd", "http://"):
        with pytest.raises(ValueError, match="url must be like"):
            VLLM(url)
    with pytest.raises(ValueError, match="timeout"):
        VLLM("http://127.0.0.1:1", timeout=0)
    with pytest.raises(InputError, match=r"\{prompt\} once"):
        SGLang("http://127.0.0.1:1", "<turn>", "<image>")
    with pytest.raises(ModelError, match="refused"):
        VLLM("http://127.0.0.1:1")
    with (
        fake.serve(fake.VLLMHandler) as (url, _),
        pytest.raises(ModelError, match="no model 'other', but 'made/up'"),
    ):
        VLLM(url, "other")


class Redirecting(fake.VLLMHandler):
    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()


class Chatting(fake.VLLMHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>")


class MoreIds(fake.VLLMHandler):
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        answer = super().answer(body)
        return {**answer, "prompt_token_ids": [*answer["prompt_token_ids"], 1]}


class NoNumbers(fake.Fault):
    def __init__(self, value: Any) -> None:
        self.value = value

    def values(self, values: list[float | None]) -> list[float | None]:
        return [self.value for _ in values]


class Odd(fake.VLLMHandler):
    def answer(self, body: dict[str, object]) -> dict[str, object]:
        return {"choices": []}


def test_no_other_server_is_asked_and_other_answers_are_named() -> None:
    with fake.serve(Redirecting) as (url, _), pytest.raises(ModelError, match="HTTP 302"):
        VLLM(url)
    with fake.serve(Chatting) as (url, _), pytest.raises(ModelError, match="not JSON"):
        VLLM(url)
    with fake.serve(Odd) as (url, _), pytest.raises(ModelError, match=r"no choices\.0"):
        VLLM(url).force(["Which?"], ANSWER)
    with (
        fake.serve(MoreIds) as (url, _),
        pytest.raises(ModelError, match=r"14 tokens, but 13 log-probabilities"),
    ):
        VLLM(url).force(["Which?"], ANSWER)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", ["-1.5", True, None, [-1.5]])
def test_what_is_no_number_is_named(kind: str, value: object) -> None:
    handler, open_ = KINDS[kind]
    with (
        fake.serve(handler, NoNumbers(value)) as (url, _),
        pytest.raises(ModelError, match="server's answer has"),
    ):
        open_(url).force(["Which?"], ANSWER)


class Keyed(fake.VLLMHandler):
    """Wants a key; refuses images, as a server of a text model does."""

    def do_GET(self) -> None:
        if self.headers["Authorization"] == "Bearer abc":
            super().do_GET()
        else:
            self._send(401, {"error": "no key"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._send(
            400, {"error": "no multimodal model"} if b"image_url" in body else {"error": "too long"}
        )


def test_a_key_is_sent_proxies_are_not_asked_and_one_refused_question_is_no_broken_server(
    monkeypatch: pytest.MonkeyPatch, pictures: list[Image]
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("VCS_RUNTIME_API_KEY", raising=False)
    with fake.serve(Keyed) as (url, _):
        with pytest.raises(ModelError, match="HTTP 401 Unauthorized.*no key"):
            VLLM(url)
        monkeypatch.setenv("VCS_RUNTIME_API_KEY", "abc")
        with pytest.raises(TextError, match="HTTP 400 Bad Request.*no multimodal model"):
            VLLM(url).force([pictures[0]], ANSWER)
        last = probe(VLLM(url))[-1]
    assert (last.name, last.passed) == ("numbers", False)
    assert "too long" in last.detail
