"""Vision-language models on servers, and in the APIs of OpenAI and Gemini.

vLLM and SGLang score prompts. Any other OpenAI-style server is asked step by step for the likeliest
tokens, or, like the APIs, for log-probabilities of its answers. The tokens of an answer are
searched from the end of the prompt, because only the server knows how many tokens an image has.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote, urlsplit

from vcs_runtime.errors import InputError, ModelError, TextError
from vcs_runtime.util.json_http import Client, get_at, number
from vcs_visil.models.generated import LEAST, TOP, Generated
from vcs_visil.models.logprobs import Forced, answer_length
from vcs_visil.summaries import Image, Part, as_base64

TIMEOUT = 600.0
"""Default time in seconds to wait for an answer."""
_CHAT = "/v1/chat/completions"
_FIELD = "{prompt}"


def chat_content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    """Return texts and images as the content of a message of OpenAI's chat API."""
    if not any(isinstance(part, Image) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    content: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, str):
            content.append({"type": "text", "text": part})
        else:
            url = f"data:{part.media_type};base64,{as_base64(part)}"
            content.append({"type": "image_url", "image_url": {"url": url}})
    return content


class Chat:
    """A server with the chat API of OpenAI.

    Its fingerprint is the kind of server and the model's name.
    """

    _KIND = ""

    def __init__(self, url: str, model: str | None = None, *, timeout: float = TIMEOUT) -> None:
        """Ask the server for its models; `model` is None for its only one.

        `timeout` is in seconds.
        """
        self._client = Client(url, timeout)
        answer = self._client.get("/v1/models")
        try:
            names = [str(entry["id"]) for entry in answer["data"]]
        except (KeyError, TypeError):
            raise ModelError(f"{url}: the server lists no models") from None
        if model is None and len(names) == 1:
            model = names[0]
        if model not in names:
            listed = ", ".join(map(repr, names)) or "none"
            raise ModelError(f"{url}: the server has no model {model!r}, but {listed}")
        self._model = model
        self.fingerprint = f"{self._KIND}:{model}"

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        """Write a free answer of at most `max_tokens` tokens, greedily."""
        choice, _ = self._ask(parts, "", max_tokens=max_tokens)
        return str(get_at(choice, str, "message", "content"))

    def _ask(self, parts: Sequence[Part], prefix: str, **options: Any) -> tuple[Any, Any]:
        """Return the first choice of the answer, which continues `prefix`, and the whole answer."""
        messages = [{"role": "user", "content": chat_content(parts)}]
        body = {"model": self._model, "messages": messages, "temperature": 0, **options}
        if prefix:
            messages.append({"role": "assistant", "content": prefix})
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        answer = self._client.post(_CHAT, body)
        return get_at(answer, dict, "choices", 0), answer


class VLLM(Chat):
    """A vLLM server, which returns the prompt's log-probabilities (`prompt_logprobs`)."""

    _KIND = "vllm"

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """Score an answer with one call: it is the assistant's turn and part of the prompt."""
        _, answered = self._ask(
            parts, answer, max_tokens=1, prompt_logprobs=0, return_token_ids=True
        )
        if answered.get("prompt_logprobs") is None:
            raise ModelError(
                f"{self.fingerprint}: the server does not score prompts (no prompt_logprobs): use"
                " --model stepping:URL"
            )
        entries = get_at(answered, list, "prompt_logprobs")
        ids = get_at(answered, list, "prompt_token_ids")
        if len(ids) != len(entries):
            raise ModelError(
                f"{self.fingerprint}: the server returned {len(ids)} tokens, but {len(entries)}"
                " log-probabilities"
            )
        # The first token has no entry. Other entries list the prompt's token, and likelier ones.
        prompt = []
        for token, entry in zip(ids, entries, strict=True):
            prompt.append(get_at(entry, dict, str(token)) if entry else {})
        texts = [entry.get("decoded_token") or "" for entry in prompt]
        count = answer_length(texts, answer)
        values = tuple(number(entry.get("logprob")) for entry in prompt[-count:])
        return Forced(tuple(texts[-count:]), values, len(ids) - count)

    def next(self, parts: Sequence[Part], prefix: str = "") -> tuple[str, float]:
        """Return the token that the server generates after `prefix`, and its log-probability."""
        choice, _ = self._ask(parts, prefix, max_tokens=1, logprobs=True, top_logprobs=1)
        token = get_at(choice, dict, "logprobs", "content", 0)
        return get_at(token, str, "token"), number(token.get("logprob"))


class Stepping(Chat):
    """An OpenAI-style server with log-probabilities of generated tokens: one call per token.

    Each token of the answer must be among the `top` likeliest. The server must continue a turn of
    the assistant that has begun. This is checked, with one more call, if the server reports prompt
    tokens.
    """

    _KIND = "openai"

    def __init__(
        self, url: str, model: str | None = None, *, timeout: float = TIMEOUT, top: int = TOP
    ) -> None:
        """Ask the server for its models, as `Chat` does."""
        super().__init__(url, model, timeout=timeout)
        self._top = top

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """Score an answer token by token, each time with the longest token that continues it."""
        tokens: list[str] = []
        values: list[float] = []
        prefix, first = "", None
        while prefix != answer:
            choice, length = self._step(parts, prefix)
            if not tokens:
                first = length
            self._check_length(first, length, len(tokens), prefix)
            candidates = self._likeliest(choice, prefix)
            fitting = _fitting(candidates, answer[len(prefix) :])
            if not fitting and not prefix:  # some tokenizers write the first word with a space
                fitting = [pair for pair in _fitting(candidates, f" {answer}") if pair[0].strip()]
            if not fitting:
                raise TextError(
                    f"{self.fingerprint}: the next token of {answer!r} after {prefix!r} is not"
                    f" among the {len(candidates)} likeliest: request more with --top, or use a"
                    " server that scores prompts"
                )
            text, value = max(fitting, key=lambda pair: len(pair[0]))
            prefix += text if prefix else text.lstrip(" ")
            tokens.append(text)
            values.append(value)
        if first is not None:
            self._check_length(first, self._step(parts, prefix)[1], len(tokens), prefix)
        return Forced(tuple(tokens), tuple(values), first)

    def next(self, parts: Sequence[Part], prefix: str = "") -> tuple[str, float]:
        """Return the likeliest of the tokens that the server returns after `prefix`."""
        return max(self._likeliest(self._step(parts, prefix)[0], prefix), key=lambda pair: pair[1])

    def _step(self, parts: Sequence[Part], prefix: str) -> tuple[Any, int | None]:
        """Generate one token; return the choice, and the number of tokens before it if reported."""
        choice, answer = self._ask(
            parts, prefix, max_tokens=1, logprobs=True, top_logprobs=self._top
        )
        return choice, (answer.get("usage") or {}).get("prompt_tokens")

    def _check_length(self, first: int | None, length: int | None, count: int, prefix: str) -> None:
        if first is not None and length is not None and length != first + count:
            raise TextError(
                f"{self.fingerprint}: the prompt has {length} tokens after {prefix!r}, not"
                f" {first + count}: the server begins a new turn instead of going on, or splits"
                " these words differently"
            )

    def _likeliest(self, choice: Any, prefix: str) -> list[tuple[str, float]]:
        if not get_at(choice, list, "logprobs", "content"):
            raise TextError(
                f"{self.fingerprint}: the likeliest token after {prefix!r} is the end, and the"
                " server returns no other tokens"
            )
        listed = get_at(choice, list, "logprobs", "content", 0, "top_logprobs")
        if not listed:
            raise ModelError(f"{self.fingerprint}: the server returns no likeliest tokens")
        return [(get_at(entry, str, "token"), number(entry.get("logprob"))) for entry in listed]


def _fitting(candidates: Sequence[tuple[str, float]], rest: str) -> list[tuple[str, float]]:
    """Return the candidates, tokens with their log-probabilities, that `rest` begins with."""
    return [(text, value) for text, value in candidates if text and rest.startswith(text)]


class SGLang:
    """An SGLang server, asked through `/generate`.

    That takes plain text, so a chat template is needed.
    """

    def __init__(self, url: str, template: str, image: str, *, timeout: float = TIMEOUT) -> None:
        """Ask the server for its model.

        `template` holds `{prompt}` once; `image` stands for an image.
        """
        if template.count(_FIELD) != 1:
            raise InputError(f"template: it must contain {_FIELD} once")
        self._client = Client(url, timeout)
        self._template, self._image = template, image
        path = get_at(self._client.get("/get_model_info"), str, "model_path")
        self.fingerprint = f"sglang:{PurePath(path).name}"

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """Score an answer with one call: the answer stands at the end of the prompt."""
        about = self._ask(parts, answer, 1, logprob_start_len=0)
        listed = get_at(about, list, "input_token_logprobs")
        texts = [get_at(entry, (str, type(None)), 2) or "" for entry in listed]
        count = answer_length(texts, answer)
        values = tuple(number(get_at(entry, (int, float), 0)) for entry in listed[-count:])
        return Forced(tuple(texts[-count:]), values, len(listed) - count)

    def next(self, parts: Sequence[Part], prefix: str = "") -> tuple[str, float]:
        """Return the token that the server generates after `prefix`, and its log-probability."""
        entry = get_at(self._ask(parts, prefix, 1), list, "output_token_logprobs", 0)
        return get_at(entry, str, 2), number(get_at(entry, (int, float), 0))

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        """Write a free answer of at most `max_tokens` tokens, greedily."""
        return str(get_at(self._answer(parts, "", max_tokens), str, "text"))

    def _ask(self, parts: Sequence[Part], prefix: str, max_tokens: int, **options: Any) -> Any:
        logs = {"return_logprob": True, "return_text_in_logprobs": True, **options}
        return get_at(self._answer(parts, prefix, max_tokens, **logs), dict, "meta_info")

    def _answer(self, parts: Sequence[Part], prefix: str, max_tokens: int, **options: Any) -> Any:
        text = "".join(part if isinstance(part, str) else self._image for part in parts)
        body = {
            "text": self._template.replace(_FIELD, text) + prefix,
            "sampling_params": {"temperature": 0, "max_new_tokens": max_tokens},
            **options,
        }
        images = [as_base64(part) for part in parts if isinstance(part, Image)]
        if images:
            body["image_data"] = images
        return self._client.post("/generate", body)


class OpenAI(Chat):
    """A server with the chat API of OpenAI that returns `logprobs` with `top_logprobs`."""

    _KIND = "openai"
    _limit = "max_tokens"

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        """Answer a user's turn greedily, with the log-probabilities of its tokens."""
        choice, answer = self._ask(
            parts, "", max_tokens=max_tokens, logprobs=True, top_logprobs=top
        )
        message = get_at(choice, dict, "message")
        if message.get("refusal"):
            raise TextError(
                f"{self.fingerprint}: the model refuses: {str(message['refusal'])[:200]}"
            )
        text = get_at(message, str, "content")
        if choice.get("logprobs") is None:
            raise ModelError(
                f"{self.fingerprint}: the server returns no log-probabilities (logprobs)"
            )
        tokens, values = list[str](), list[float]()
        listed = list[tuple[tuple[str, float], ...]]()
        part = b""  # of a character, whose first bytes are a token
        for entry in get_at(choice, list, "logprobs", "content"):
            token, value = _logprob(entry, "logprob")
            likeliest = [_logprob(one, "logprob") for one in entry.get("top_logprobs") or ()]
            data = bytes(entry["bytes"]) if entry.get("bytes") else token.encode()
            whole = part + data
            if part:
                tokens[-1] = _decoded(whole)
                values[-1] += value
            else:
                tokens.append(_decoded(whole) if entry.get("bytes") else token)
                values.append(value)
                listed.append(tuple(likeliest))
            part = b"" if _is_text(whole) else whole
        length = (answer.get("usage") or {}).get("prompt_tokens")
        return Generated(text, tuple(tokens), tuple(values), tuple(listed), length)

    def _ask(self, parts: Sequence[Part], prefix: str, **options: Any) -> tuple[Any, Any]:
        limit = options.pop("max_tokens")
        try:
            return super()._ask(parts, prefix, **options, **{self._limit: limit})
        except TextError as error:
            # Newer models of OpenAI refuse the old name; other servers do not know the new one.
            if self._limit != "max_tokens" or "max_completion_tokens" not in str(error):
                raise
            self._limit = "max_completion_tokens"
            return super()._ask(parts, prefix, **options, **{self._limit: limit})


class Gemini:
    """A model of the Gemini API (`generateContent` with `responseLogprobs`)."""

    def __init__(self, url: str, model: str | None, *, timeout: float = TIMEOUT) -> None:
        """Check the arguments; nothing is sent yet.

        The path of `url` is "/v1beta" unless it has one.
        """
        if not model:
            raise ValueError("the model is missing: give --model-name")
        self._client = Client(url, timeout, "x-goog-api-key: ")
        folder = "" if urlsplit(url).path.strip("/") else "/v1beta"
        self._path = f"{folder}/models/{quote(model, safe='')}:generateContent"
        self.fingerprint = f"gemini:{model}"

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        """Answer a user's turn greedily, with the log-probabilities of its tokens."""
        candidate, text, length = self._ask(parts, max_tokens, responseLogprobs=True, logprobs=top)
        if candidate.get("logprobsResult") is None:
            raise ModelError(
                f"{self.fingerprint}: the API returns no log-probabilities (logprobsResult)"
            )
        tokens, values = list[str](), list[float]()
        for entry in get_at(candidate, list, "logprobsResult", "chosenCandidates"):
            token, value = _logprob(entry, "logProbability")
            tokens.append(token)
            values.append(value)
        listed = []
        without: list[dict[str, Any]] = [{"candidates": []}] * len(tokens)
        for place in candidate["logprobsResult"].get("topCandidates") or without:
            entries = get_at(place, list, "candidates")
            listed.append(tuple(_logprob(entry, "logProbability") for entry in entries))
        return Generated(text, tuple(tokens), tuple(values), tuple(listed), length)

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        """Write a free answer of at most `max_tokens` tokens, greedily."""
        return self._ask(parts, max_tokens)[1]

    def _ask(
        self, parts: Sequence[Part], max_tokens: int, **options: Any
    ) -> tuple[dict[str, Any], str, int | None]:
        """Return the first candidate, its text without thoughts, and the prompt's token count."""
        content: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, str):
                content.append({"text": part})
            else:
                data = {"mimeType": part.media_type, "data": as_base64(part)}
                content.append({"inlineData": data})
        settings = {"temperature": 0, "candidateCount": 1, "maxOutputTokens": max_tokens, **options}
        answer = self._client.post(
            self._path,
            {"contents": [{"role": "user", "parts": content}], "generationConfig": settings},
        )
        if not answer.get("candidates"):
            reason = (answer.get("promptFeedback") or {}).get("blockReason", "no reason is given")
            raise TextError(f"{self.fingerprint}: the API does not answer this question ({reason})")
        candidate: dict[str, Any] = get_at(answer, dict, "candidates", 0)
        pieces = (candidate.get("content") or {}).get("parts") or []
        text = "".join(get_at(piece, str, "text") for piece in pieces if not piece.get("thought"))
        if not text.strip():
            raise TextError(
                f"{self.fingerprint}: the answer is empty ({candidate.get('finishReason')})"
            )
        return candidate, text, (answer.get("usageMetadata") or {}).get("promptTokenCount")


def _logprob(entry: Any, field: str) -> tuple[str, float]:
    """Return a token and its log-probability, or `LEAST` for a lower one.

    APIs differ in the number for impossible.
    """
    token, value = get_at(entry, str, "token"), number(entry.get(field))
    return token, max(value, LEAST)  # in this order NaN stays NaN, which is refused later


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
