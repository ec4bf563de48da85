"""Answers that a model generates, with log-probabilities of tokens and of likely others.

APIs that cannot score an answer return these numbers. The probability of the true words is then
read off where the generated answer, or one of the likeliest tokens beside it, agrees with them.
This is approximate: each word is conditioned on what the model wrote before it, and a word that is
not among the likeliest tokens has a floor for its number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vcs_runtime.errors import ModelError, TextError
from vcs_visil.summaries import Part

TOP = 20
"""Default number of likeliest tokens to request per token; OpenAI and Gemini return no more."""
FLOOR = -10.0
"""Default lowest log-probability of a word in nats."""
KNOWN = ("generated", "top", "part", "none")
"""How the number of a word is known, best first.

"generated": the model wrote the word. "top": the rest of the word is one of the likeliest tokens
beside what the model wrote. "part": only a beginning of the word is, so its number is an upper
bound. "none": the floor.
"""
LEAST = -9999.0
"""Log-probability that stands for impossible tokens, as OpenAI and vLLM write it."""
_ROUNDING = 1e-3  # numbers in half precision may be above 0 by as much


@dataclass(frozen=True, slots=True)
class Generated:
    """An answer that a model has generated.

    Attributes
    ----------
    text
        The answer, as the server returns it beside its tokens.
    tokens
        Tokens of the answer as text.
    logprobs
        Natural log-probability of each token, given everything before it.
    top
        The likeliest tokens at the place of each token, with their log-probabilities.
    prompt_tokens
        Number of tokens of the prompt, images included; None if the model does not report it.
    """

    text: str
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    top: tuple[tuple[tuple[str, float], ...], ...]
    prompt_tokens: int | None = None


class Generates(Protocol):
    """A model that reports log-probabilities of what it generates.

    Methods raise ModelError if it fails.
    """

    @property
    def fingerprint(self) -> str:
        """Identity of the model: scores of different fingerprints are not comparable."""

    def generate(self, parts: Sequence[Part], max_tokens: int, top: int, run: int = 0) -> Generated:
        """Answer a user's turn greedily.

        Parameters
        ----------
        parts
            The user's turn: texts and images in order.
        max_tokens
            Largest number of tokens of the answer.
        top
            Number of likeliest tokens to report at each place.
        run
            Number of the repetition, from 0. A deterministic model may ignore it.

        Returns
        -------
        Generated
            The answer with its log-probabilities.
        """


def check_generated(generated: Generated, top: int) -> None:
    """Raise TextError for an empty answer, ModelError for missing or foreign log-probabilities."""
    if not generated.text.strip():
        raise TextError("the model's answer is empty")
    if not generated.tokens:
        raise ModelError("the server returns no log-probabilities of its answers")
    if not len(generated.tokens) == len(generated.logprobs) == len(generated.top):
        raise ModelError(
            f"{len(generated.tokens)} tokens, but {len(generated.logprobs)} log-probabilities and "
            f"{len(generated.top)} lists of likeliest tokens"
        )
    if "".join(generated.tokens).strip() != generated.text.strip():
        raise ModelError(
            f"the tokens {list(generated.tokens[:12])} do not spell the answer"
            f" {generated.text[:80]!r}: the log-probabilities belong to another text or another"
            " tokenizer"
        )
    most = max(map(len, generated.top))
    if most < top:  # at some places a server may have fewer, but not everywhere
        raise ModelError(
            f"the server returns {most} likeliest tokens instead of {top}: "
            + (f"request this number with --top {most}" if most else "it cannot be used")
        )
    for value in [*generated.logprobs, *(value for listed in generated.top for _, value in listed)]:
        if math.isnan(value) or value > _ROUNDING:
            raise ModelError(f"{value!r} is not a log-probability")
    if len(generated.tokens) > 2 and not any(generated.logprobs):
        raise ModelError(f"all log-probabilities of {generated.text[:80]!r} are zero")


def known_words(
    generated: Generated, words: Sequence[str], floor: float
) -> list[tuple[float, str]]:
    """Read the log-probabilities of words off a generated answer, word by word.

    Capitals do not count: a model may begin a sentence with the word.
    """
    places: dict[int, tuple[int, float]] = {}
    spaces: list[float] = []
    offset = 0
    for i, token in enumerate(generated.tokens):
        if token.strip():
            # Tokens of spaces only belong to the word after them, as in a forced answer.
            places[offset + len(token) - len(token.lstrip())] = (i, math.fsum(spaces))
            spaces = []
        else:
            spaces.append(generated.logprobs[i])
        offset += len(token)
    starts = [match.start() for match in re.finditer(r"\S+", "".join(generated.tokens))]
    numbers = []
    for i, word in enumerate(words):
        place = places.get(starts[i]) if i < len(starts) else None
        value, known = _word(generated, *place, word) if place else (-math.inf, "none")
        numbers.append((min(0.0, max(floor, value)), known))
    return numbers


def _word(generated: Generated, place: int, total: float, word: str) -> tuple[float, str]:
    """Return the number of a word that begins at the token `place`, and how it is known."""
    rest = word
    first = True
    while place < len(generated.tokens):
        chosen = _fitting(generated.tokens[place], first)
        value = generated.logprobs[place]
        listed = [(_fitting(token, first), number) for token, number in generated.top[place]]
        whole = [number for token, number in listed if token == rest]
        begins = [
            (len(token), number) for token, number in listed if token and rest.startswith(token)
        ]
        if chosen == rest:
            return total + value, "generated"
        if whole:
            return total + max(whole), "top"
        if not (chosen and rest.startswith(chosen)):
            if begins:
                return total + max(begins)[1], "part"
            return -math.inf, "none"
        rest = rest[len(chosen) :]
        total += value
        first = False
        place += 1
    return -math.inf, "none"


def _fitting(token: str, first: bool) -> str:
    """Return the letters with which a token begins or continues a word, or "" for another word."""
    if not first and token[:1].isspace():
        return ""
    return token.strip().lower()
