"""What scoring asks of a vision-language model: the log-probabilities of an answer that is given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from vcs_runtime.errors import InputError, ModelError

_MINUS_INFINITY = -9999.0  # as vLLM writes it
_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"))


@dataclass(frozen=True, slots=True, repr=False)
class Image:
    """One image: the bytes of a PNG or JPEG file, as they are given to the model."""

    data: bytes

    def __post_init__(self) -> None:
        if not any(self.data.startswith(magic) for magic, _ in _KINDS):
            raise InputError("image: neither PNG nor JPEG")

    @property
    def media_type(self) -> str:
        """`image/png` or `image/jpeg`."""
        return next(name for magic, name in _KINDS if self.data.startswith(magic))

    @classmethod
    def read(cls, path: Path) -> Image:
        """An image file. Raises InputError naming it."""
        try:
            return cls(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from None
        except InputError:
            raise InputError(f"{path}: neither PNG nor JPEG") from None


Part = str | Image


@dataclass(frozen=True, slots=True)
class Forced:
    """An answer as the model was made to say it.

    tokens         the answer's tokens as text; joined, they are the answer (spaces aside: a server that
                   decodes each token alone may lose them)
    logprobs       their log-probabilities, natural logarithms, each given all that comes before
    prompt_tokens  tokens of the prompt, images included; None where the model does not say
    """

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    prompt_tokens: int | None = None


class LogProbs(Protocol):
    """A vision-language model that tells log-probabilities. Everything raises ModelError where it cannot."""

    @property
    def fingerprint(self) -> str:
        """What tells this model from others: scores of different fingerprints are not comparable."""

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """Say `answer` after a user's turn of `parts`: texts and images, in the order in which they stand.

        `run` counts repeated samples from 0; a model that always answers the same need not look at it.
        """

    def next(self, parts: Sequence[Part], said: str = "") -> tuple[str, float]:
        """The likeliest next token of an answer that begins with `said`, as text, and its log-probability."""


def check(forced: Forced, answer: str) -> None:
    """Raise ModelError unless the tokens spell the answer and the numbers can be log-probabilities."""
    if len(forced.tokens) != len(forced.logprobs):
        raise ModelError(f"{len(forced.tokens)} tokens, but {len(forced.logprobs)} log-probabilities")
    if _letters("".join(forced.tokens)) != _letters(answer):
        raise ModelError(f"the tokens {list(forced.tokens)} do not spell the answer {answer!r}")
    for token, value in zip(forced.tokens, forced.logprobs, strict=True):
        if not math.isfinite(value) or value > 0 or value <= _MINUS_INFINITY:
            raise ModelError(f"{value!r} is no log-probability (token {token!r})")
    if len(forced.tokens) > 2 and not any(forced.logprobs):  # one or two may be that sure
        raise ModelError(f"all log-probabilities of {answer!r} are zero")


def tail(tokens: Sequence[str], answer: str) -> int:
    """How many of the last `tokens` join to `answer`. Raises ModelError if none do."""
    wanted = _letters(answer)
    joined = ""
    for count, token in enumerate(reversed(tokens), 1):
        joined = _letters(token) + joined
        if joined == wanted:
            return count
        if not wanted.endswith(joined):
            break
    raise ModelError(
        f"the answer {answer!r} is not what the prompt's last tokens join to ({list(tokens[-8:])}): "
        "a token spans the answer's border, or something follows the answer"
    )


def by_word(forced: Forced, answer: str) -> list[float]:
    """The log-probability of each of the answer's words: the sum over its tokens, `(words,)`.

    A token belongs to the word that holds its first character that is no space; one of spaces alone to the
    word that follows.
    """
    words = answer.split(" ")
    ends: list[int] = []
    for word in words:
        ends.append((ends[-1] if ends else 0) + len(word))
    sums = [0.0] * len(words)
    position = word_at = 0
    for token, value in zip(forced.tokens, forced.logprobs, strict=True):
        while position >= ends[word_at] and word_at + 1 < len(words):
            word_at += 1
        sums[word_at] += value
        position += len(_letters(token))
    return sums


def _letters(text: str) -> str:
    return text.replace(" ", "")
