"""The interface of a vision-language model that scores: log-probabilities of a fixed answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vcs_runtime.errors import ModelError
from vcs_visil.summaries import Part

_MINUS_INFINITY = -9999.0  # as vLLM writes it


@dataclass(frozen=True, slots=True)
class Forced:
    """Log-probabilities of an answer that the model was forced to give.

    Attributes
    ----------
    tokens
        Tokens of the answer as text. Joined, they are the answer, except for spaces: a server that
        decodes each token alone may lose them.
    logprobs
        Natural log-probability of each token, given everything before it.
    prompt_tokens
        Number of tokens of the prompt, images included; None if the model does not report it.
    """

    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    prompt_tokens: int | None = None


class LogProbs(Protocol):
    """A vision-language model that reports log-probabilities.

    Methods raise ModelError if the model fails.
    """

    @property
    def fingerprint(self) -> str:
        """Identity of the model: scores of different fingerprints are not comparable."""

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        """Return the log-probabilities of an answer.

        Parameters
        ----------
        parts
            The user's turn: texts and images in order.
        answer
            The assistant's turn, word for word.
        run
            Number of the repetition, from 0. A deterministic model may ignore it.

        Returns
        -------
        Forced
            Tokens of the answer with their log-probabilities.
        """

    def next(self, parts: Sequence[Part], prefix: str = "") -> tuple[str, float]:
        """Return the likeliest next token.

        Parameters
        ----------
        parts
            The user's turn: texts and images in order.
        prefix
            Beginning of the assistant's turn, which the token continues.

        Returns
        -------
        tuple of str and float
            The token as text, and its log-probability.
        """


def check_forced(forced: Forced, answer: str) -> None:
    """Raise ModelError unless the tokens spell the answer with possible log-probabilities."""
    if len(forced.tokens) != len(forced.logprobs):
        raise ModelError(
            f"{len(forced.tokens)} tokens, but {len(forced.logprobs)} log-probabilities"
        )
    if _letters("".join(forced.tokens)) != _letters(answer):
        raise ModelError(f"the tokens {list(forced.tokens)} do not spell the answer {answer!r}")
    for token, value in zip(forced.tokens, forced.logprobs, strict=True):
        if not math.isfinite(value) or value > 0 or value <= _MINUS_INFINITY:
            raise ModelError(f"{value!r} is not a log-probability (token {token!r})")
    if len(forced.tokens) > 2 and not any(forced.logprobs):  # one or two tokens can be certain
        raise ModelError(f"all log-probabilities of {answer!r} are zero")


def answer_length(tokens: Sequence[str], answer: str) -> int:
    """Count the tokens at the end of a prompt that join to the answer; ModelError if none do."""
    letters = _letters(answer)
    joined = ""
    for count, token in enumerate(reversed(tokens), 1):
        joined = _letters(token) + joined
        if joined == letters:
            return count
        if not letters.endswith(joined):
            break
    raise ModelError(
        f"the last tokens of the prompt do not join to the answer {answer!r} ({list(tokens[-8:])}):"
        " a token spans the border of the answer, or something follows the answer"
    )


def by_word(forced: Forced, answer: str) -> list[float]:
    """Sum the log-probabilities (nats) of the tokens of each word.

    A token belongs to the word that contains its first character other than a space. A token of
    spaces only belongs to the next word.
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
