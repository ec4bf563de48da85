"""Models behind APIs that give log-probabilities of generated answers: OpenAI's chat API, and Gemini's.

The key of an API comes from the environment (`vcs_runtime.util.json_http.KEY`) and is sent in a header.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.util.json_http import Client, get_at, number
from vcs_visil.images import Part, as_base64
from vcs_visil.models.generated import LEAST, Generated
from vcs_visil.models.servers import TIMEOUT, Chat


class OpenAI(Chat):
    """A server with the chat API of OpenAI that returns `logprobs` with `top_logprobs`."""

    _KIND = "openai"
    _limit = "max_tokens"

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        """Answer a user's turn greedily, with the log-probabilities of its tokens."""
        choice, answer = self._ask(parts, "", max_tokens=max_tokens, logprobs=True, top_logprobs=top)
        message = get_at(choice, dict, "message")
        if message.get("refusal"):
            raise TextError(f"{self.fingerprint}: the model refuses: {str(message['refusal'])[:200]}")
        text = get_at(message, str, "content")
        if choice.get("logprobs") is None:
            raise ModelError(f"{self.fingerprint}: the server returns no log-probabilities (logprobs)")
        tokens, values = list[str](), list[float]()
        listed = list[tuple[tuple[str, float], ...]]()
        part = b""  # of a character, whose first bytes are a token
        for entry in get_at(choice, list, "logprobs", "content"):
            token, value = get_at(entry, str, "token"), _value(entry.get("logprob"))
            top_entries = entry.get("top_logprobs") or []
            likeliest = tuple((get_at(e, str, "token"), _value(e.get("logprob"))) for e in top_entries)
            whole = part + bytes(entry["bytes"]) if entry.get("bytes") else part + token.encode()
            if part:
                tokens[-1], values[-1] = _decoded(whole), values[-1] + value
            else:
                tokens.append(_decoded(whole) if entry.get("bytes") else token)
                values.append(value)
                listed.append(likeliest)
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
        """Check the arguments; nothing is sent yet. The path of `url` is "/v1beta" unless it has one."""
        if not model:
            raise ValueError("model is missing: the API has many")
        self._client = Client(url, timeout, "x-goog-api-key: ")
        folder = "" if urlsplit(url).path.strip("/") else "/v1beta"
        self._path = f"{folder}/models/{quote(model, safe='')}:generateContent"
        self.fingerprint = f"gemini:{model}"

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        """Answer a user's turn greedily, with the log-probabilities of its tokens."""
        candidate, text, length = self._ask(parts, max_tokens, responseLogprobs=True, logprobs=top)
        if candidate.get("logprobsResult") is None:
            raise ModelError(f"{self.fingerprint}: the API returns no log-probabilities (logprobsResult)")
        chosen = [
            (get_at(entry, str, "token"), _value(entry.get("logProbability")))
            for entry in get_at(candidate, list, "logprobsResult", "chosenCandidates")
        ]
        listed = tuple(
            tuple(
                (get_at(entry, str, "token"), _value(entry.get("logProbability")))
                for entry in get_at(place, list, "candidates")
            )
            for place in candidate["logprobsResult"].get("topCandidates")
            or [{"candidates": []}] * len(chosen)
        )
        tokens, values = zip(*chosen, strict=True) if chosen else ((), ())
        return Generated(text, tokens, values, listed, length)

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        """Write a free answer of at most `max_tokens` tokens, greedily."""
        return self._ask(parts, max_tokens)[1]

    def _ask(
        self, parts: Sequence[Part], max_tokens: int, **options: Any
    ) -> tuple[dict[str, Any], str, int | None]:
        """Return the first candidate, its text without thoughts, and the number of tokens of the prompt."""
        content = [
            {"text": part}
            if isinstance(part, str)
            else {"inlineData": {"mimeType": part.media_type, "data": as_base64(part)}}
            for part in parts
        ]
        settings = {"temperature": 0, "candidateCount": 1, "maxOutputTokens": max_tokens, **options}
        answer = self._client.post(
            self._path, {"contents": [{"role": "user", "parts": content}], "generationConfig": settings}
        )
        if not answer.get("candidates"):
            reason = (answer.get("promptFeedback") or {}).get("blockReason", "no reason is given")
            raise TextError(f"{self.fingerprint}: the API does not answer this question ({reason})")
        candidate: dict[str, Any] = get_at(answer, dict, "candidates", 0)
        pieces = (candidate.get("content") or {}).get("parts") or []
        text = "".join(get_at(piece, str, "text") for piece in pieces if not piece.get("thought"))
        if not text.strip():
            raise TextError(f"{self.fingerprint}: the answer is empty ({candidate.get('finishReason')})")
        return candidate, text, (answer.get("usageMetadata") or {}).get("promptTokenCount")


def _value(value: Any) -> float:
    """Return a log-probability, or `LEAST` for a lower one: APIs differ in the number for impossible."""
    return max(number(value), LEAST)  # in this order NaN stays NaN, which is refused later


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
