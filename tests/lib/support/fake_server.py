"""A made-up language model, and servers on loopback that speak for it in the documented shapes, or
faultily.

The model's distribution over its vocabulary is drawn from the hash of all that comes before: exact,
alive to every byte, and without any arithmetic in common with what is tested.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from support.waiting import HANGS_AFTER_S

WORDS = "window river seven man drives sedan street car dog the a lamp"
VOCABULARY = [
    *map(chr, range(32, 127)),
    "\n",
    *(form for word in WORDS.split() for form in (word, " " + word)),
    " sed",
    "an",
    "<image>",
    "<turn>",
    "<reply>",
]
VOCABULARY = list(dict.fromkeys(VOCABULARY))
VOCABULARY.remove(" sedan")  # of two tokens
IDS = {token: i for i, token in enumerate(VOCABULARY)}
_LONGEST = max(map(len, VOCABULARY))
IMAGE_TOKENS = 5
MODEL = "made/up"

Faulty = Callable[[Any], Any]


def tokenize(text: str) -> list[str]:
    """Longest match first."""
    tokens = []
    while text:
        size = next(n for n in range(min(_LONGEST, len(text)), 0, -1) if text[:n] in IDS)
        tokens.append(text[:size])
        text = text[size:]
    return tokens


@lru_cache(maxsize=100_000)
def distribution(before: str) -> tuple[float, ...]:
    """The log-probabilities of all tokens behind `before`."""
    seed = int.from_bytes(hashlib.sha256(before.encode()).digest()[:8], "big")
    logits = 2 * np.random.default_rng(seed).standard_normal(len(VOCABULARY))
    return tuple((logits - np.log(np.exp(logits).sum())).tolist())


def prompt_of(parts: Sequence[str | bytes]) -> list[str]:
    """The tokens of a user's turn; an image is several tokens, which know its bytes."""
    tokens = ["<turn>"]
    for part in parts:
        if isinstance(part, bytes):
            digest = hashlib.sha256(part).hexdigest()[:8]
            tokens += [f"<image>{digest}{i}" for i in range(IMAGE_TOKENS)]
        else:
            tokens += tokenize(part)
    return [*tokens, "<reply>"]


def scored(tokens: Sequence[str]) -> list[float | None]:
    """Each token's log-probability given those before; None of the first, and of images."""
    values: list[float | None] = [None]
    for i in range(1, len(tokens)):
        known = tokens[i] in IDS
        values.append(distribution("\0".join(tokens[:i]))[IDS[tokens[i]]] if known else -1.5)
    return values


def forced(parts: Sequence[str | bytes], answer: str) -> list[float]:
    """What the model truly says of an answer's tokens."""
    tokens = [*prompt_of(parts), *tokenize(answer)]
    return [value for value in scored(tokens)[-len(tokenize(answer)) :] if value is not None]


def likeliest(tokens: Sequence[str]) -> list[tuple[str, float]]:
    values = distribution("\0".join(tokens))
    return sorted(zip(VOCABULARY, values, strict=True), key=lambda pair: -pair[1])


def hash_of(token: str) -> int:
    return hashlib.sha256(token.encode()).digest()[0]


class Fault:
    """A fault: `prompt` changes the tokens that a server sees, `values` the numbers it returns."""

    def prompt(self, tokens: list[str]) -> list[str]:
        return tokens

    def values(self, values: list[float | None]) -> list[float | None]:
        return values

    def status(self) -> int:
        return 200

    def end(self) -> None:
        """Called when the test is over."""


class OffByOne(Fault):
    def values(self, values: list[float | None]) -> list[float | None]:
        return [*values[1:], -2.0]


class AllZero(Fault):
    def values(self, values: list[float | None]) -> list[float | None]:
        return [None, *[0.0] * (len(values) - 1)]


class LastZero(Fault):
    def values(self, values: list[float | None]) -> list[float | None]:
        return [*values[:-1], 0.0]


class LooksAhead(Fault):
    """What follows a token lowers its number."""

    def values(self, values: list[float | None]) -> list[float | None]:
        return [*(value and value - 0.3 for value in values[:-1]), values[-1]]


class NotANumber(Fault):
    def values(self, values: list[float | None]) -> list[float | None]:
        return [*values[:-1], math.nan]


class ImagesDropped(Fault):
    def prompt(self, tokens: list[str]) -> list[str]:
        return ["<image>" if token.startswith("<image>") else token for token in tokens]


class OnlyTheFirstImage(Fault):
    def prompt(self, tokens: list[str]) -> list[str]:
        seen: list[str] = []
        for token in tokens:
            late = (
                token.startswith("<image>")
                and sum(t.startswith("<image>") for t in seen) >= IMAGE_TOKENS
            )
            seen.append("<image>" if late else token)
        return seen


class ImagesAsText(Fault):
    """An image has as many tokens as its file is long."""

    def prompt(self, tokens: list[str]) -> list[str]:
        return [
            token
            for token in tokens
            for _ in range(1 + hash_of(token) % 5 * token.startswith("<image>"))
        ]


class Deaf(Fault):
    """The prompt's text is lost: only its length counts."""

    def prompt(self, tokens: list[str]) -> list[str]:
        return ["<turn>", *tokens[tokens.index("<reply>") :]]


class Drifting(Fault):
    def __init__(self) -> None:
        self.draw = np.random.default_rng(1)

    def values(self, values: list[float | None]) -> list[float | None]:
        return [value and value - self.draw.uniform(0, 0.5) for value in values]


class Broken(Fault):
    def status(self) -> int:
        return 500


class Slow(Fault):
    """Answers when the test is over: whoever waits until then has no limit."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def status(self) -> int:
        self._over.wait(HANGS_AFTER_S)
        return 200

    def end(self) -> None:
        self._over.set()


class Handler(BaseHTTPRequestHandler):
    fault: Fault
    log: list[tuple[str, Any]]

    def do_GET(self) -> None:
        answers = {
            "/v1/models": {"data": [{"id": MODEL}]},
            "/get_model_info": {"model_path": f"/models/{MODEL}"},
        }
        self._send(200, answers[self.path])

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.log.append((self.path, body))
        status = self.fault.status()
        self._send(status, self.answer(body) if status == 200 else {"error": "out of order"})

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _send(self, status: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        with suppress(BrokenPipeError):  # who asked has not waited
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        pass

    def turn(self, body: dict[str, Any]) -> list[str]:
        """The tokens of the messages, the assistant's beginning included."""
        content = body["messages"][0]["content"]
        parts: list[str | bytes] = (
            [content]
            if isinstance(content, str)
            else [
                part["text"] if part["type"] == "text" else part["image_url"]["url"].encode()
                for part in content
            ]
        )
        said = body["messages"][1]["content"] if len(body["messages"]) > 1 else ""
        assert not said or (body["continue_final_message"] and not body["add_generation_prompt"])
        return [*self.fault.prompt(prompt_of(parts)), *tokenize(said)]

    def one(self, value: float) -> Any:
        """A single number through the fault."""
        return self.fault.values([None, value])[-1]


class VLLMHandler(Handler):
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens = self.turn(body)
        [(token, value), *_] = likeliest(tokens)
        content = [{"token": token, "logprob": value, "top_logprobs": []}]
        answer: dict[str, Any] = {
            "choices": [{"message": {"content": token}, "logprobs": {"content": content}}],
            "prompt_logprobs": None,
        }
        if "prompt_logprobs" in body:
            values = self.fault.values(scored(tokens))
            ids = [IDS.get(token, 9999) for token in tokens]
            answer["prompt_token_ids"] = ids
            answer["prompt_logprobs"] = [
                (
                    value
                    if i == 0
                    else {str(id_): {"logprob": value, "rank": 1, "decoded_token": token}}
                )
                for i, (id_, token, value) in enumerate(zip(ids, tokens, values, strict=True))
            ]
            answer["prompt_logprobs"][0] = None
        return answer


class SteppingHandler(Handler):
    new_turn = False

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        tokens = self.turn(body)
        if self.new_turn and len(body["messages"]) > 1:
            tokens = [*tokens, "<turn>", "<reply>"]
        entries = [
            {"token": token, "logprob": self.one(value)} for token, value in likeliest(tokens)
        ]
        content = [{**entries[0], "top_logprobs": entries[: body["top_logprobs"]]}]
        return {
            "choices": [
                {"message": {"content": entries[0]["token"]}, "logprobs": {"content": content}}
            ],
            "usage": {"prompt_tokens": len(tokens)},
        }


class NewTurnHandler(SteppingHandler):
    new_turn = True


class SGLangHandler(Handler):
    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["text"].removeprefix("<turn>")
        question, _, said = text.rpartition("<reply>")
        images = iter(body.get("image_data", ()))
        parts: list[str | bytes] = []
        for i, piece in enumerate(question.split("<image>")):
            parts += [next(images).encode(), piece] if i else [piece]
        tokens = [*self.fault.prompt(prompt_of(parts)), *tokenize(said)]
        [(token, value), *_] = likeliest(tokens)
        about: dict[str, Any] = {
            "output_token_logprobs": [[value, IDS[token], token]],
            "prompt_tokens": len(tokens),
        }
        if body.get("logprob_start_len") == 0:
            values = self.fault.values(scored(tokens))
            about["input_token_logprobs"] = [
                [value, IDS.get(token, 9999), token]
                for token, value in zip(tokens, values, strict=True)
            ]
        return {"text": token, "meta_info": about}


@contextmanager
def serve(
    kind: type[Handler], fault: Fault | None = None
) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A server on loopback: its URL, and what it was asked."""
    log: list[tuple[str, Any]] = []
    handler = type("Served", (kind,), {"fault": fault or Fault(), "log": log})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        handler.fault.end()
        server.shutdown()
        server.server_close()
        thread.join()
