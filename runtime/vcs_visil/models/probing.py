"""Checks of a model before it scores: whether its log-probabilities can be trusted.

Servers return numbers of the right shape that belong to the next token, are all zero, or ignore the
images. Each known fault fails one of these checks. Together they need about thirty short answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.util.numbers import checked_number
from vcs_visil.models.generated import TOP, Generated, Generates, check_generated
from vcs_visil.models.logprobs import Forced, LogProbs, check_forced
from vcs_visil.summaries import Image, Part

TOLERANCE = 0.05
"""Default tolerance in nats: servers with half precision differ by hundredths between two ways of
asking.
"""
_ANSWER = "window river seven"
_START = "window"
_ROOM = 16  # tokens of a generated answer
_PROMPTS = ("Name one thing that you see.", "Write any word.", "What comes to your mind first?")


A = TypeVar("A", bound=Forced | Generated)


@dataclass(frozen=True, slots=True)
class ProbeCheck:
    """The outcome of one check."""

    name: str
    passed: bool
    detail: str  # the measured numbers, or the reason for the failure


def probe(
    model: LogProbs, *, images: bool = True, tolerance: float = TOLERANCE
) -> list[ProbeCheck]:
    """Check a model, up to the first check that fails.

    Parameters
    ----------
    model
        The model.
    images
        Whether the model will receive images.
    tolerance
        Maximum difference in nats between two computations of the same number; above 0.

    Returns
    -------
    list of ProbeCheck
        Outcomes of the checks. Only the last one can be a failure.

    Raises
    ------
    ModelError
        The model does not answer.
    ValueError
        `tolerance` is not above 0.
    """
    return _Forcing(model, tolerance).outcomes(images)


def probe_generated(
    model: Generates, *, images: bool = True, tolerance: float = TOLERANCE, top: int = TOP
) -> list[ProbeCheck]:
    """Check a model that generates, up to the first check that fails.

    Arguments, result and errors are the same as for `probe`; `top` likeliest tokens are requested.
    """
    return _Generating(model, tolerance, top).outcomes(images)


def require_passed(model: LogProbs | Generates, checks: list[ProbeCheck]) -> list[ProbeCheck]:
    """Return the checks of a model, and raise ModelError if one has failed."""
    if not checks[-1].passed:
        raise ModelError(
            f"{model.fingerprint} fails the probe {checks[-1].name}: {checks[-1].detail}"
        )
    return checks


class _Failed(Exception):
    """The reason why a check fails."""


class _Probe(Generic[A]):
    """The checks of one model. Each returns its numbers for people, or raises _Failed."""

    checks: tuple[str, ...]

    def __init__(self, tolerance: float) -> None:
        allowed = "a number of nats above 0"
        self.tolerance = checked_number("tolerance", tolerance, allowed, lambda nats: nats > 0)

    def outcomes(self, images: bool) -> list[ProbeCheck]:
        """Perform the checks up to the first failure; images only if `images` is true."""
        outcomes: list[ProbeCheck] = []
        for name in self.checks:
            if images or name != "images":
                try:
                    outcomes.append(ProbeCheck(name, True, getattr(self, name)()))
                except _Failed as failure:
                    return [*outcomes, ProbeCheck(name, False, str(failure))]
        return outcomes

    def ask(self, parts: Sequence[Part], run: int = 0) -> A:
        """Ask the model the same question each time, after these texts and images."""
        raise NotImplementedError

    def difference(self, first: A, second: A) -> float:
        """Return the largest difference between the numbers of two answers."""
        raise NotImplementedError

    def drift(self, parts: Sequence[Part]) -> float:
        """Return the difference between two runs of one question, so that no cache answers."""
        return self.difference(self.ask(parts, 0), self.ask(parts, 1))

    def same(self) -> str:
        drift = self.drift([_PROMPTS[0]])
        if drift > self.tolerance:
            raise _Failed(
                f"the same question asked twice differs by {drift:.3g} nats, more than"
                f" {self.tolerance:g}: raise --tolerance, and then use several samples"
            )
        return f"the same question asked twice differs by {drift:.2g}"

    def text(self) -> str:
        same = self.drift([_PROMPTS[0]])
        change = self.difference(self.ask([_PROMPTS[0]]), self.ask([_PROMPTS[1]]))
        if change <= 2 * same:
            raise _Failed(
                f"another prompt changes nothing{', or no more than asking again' if same else ''}"
            )
        return f"another prompt changes {change:.2g}"

    def images(self) -> str:
        images, other = _three_images()
        same = self.drift([*images, _PROMPTS[0]])
        least = float("inf")
        for place in range(3):
            swapped = [*images[:place], other, *images[place + 1 :]]
            before, after = self.ask([*images, _PROMPTS[0]]), self.ask([*swapped, _PROMPTS[0]])
            change = self.difference(before, after)
            if change <= 2 * same:
                raise _Failed(
                    f"another image {place + 1} of 3 changes nothing: images are dropped or"
                    " mixed up"
                )
            least = min(least, change)
        # A server of a text model may read the base64 of a file as text, which also changes the
        # answer. A vision model has the same number of tokens for all images of one size.
        plain = self.ask([other, _PROMPTS[0]]).prompt_tokens
        busy = self.ask([_busy(), _PROMPTS[0]]).prompt_tokens
        if plain != busy:
            raise _Failed(
                f"images of one size have {plain} and {busy} tokens, so their files are read as"
                " text"
            )
        return f"another image changes at least {least:.2g}"


class _Forcing(_Probe[Forced]):
    checks = ("numbers", "same", "text", "greedy", "chain", "images")

    def __init__(self, model: LogProbs, tolerance: float) -> None:
        super().__init__(tolerance)
        self.model = model

    def ask(self, parts: Sequence[Part], run: int = 0) -> Forced:
        return self.force(parts, _ANSWER, run)

    def force(self, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
        try:
            forced = self.model.force(parts, answer, run)
        except TextError as error:  # the model cannot give this answer, or takes no images
            raise _Failed(str(error)) from None
        try:
            check_forced(forced, answer)
        except ModelError as error:
            raise _Failed(str(error)) from None
        return forced

    def difference(self, first: Forced, second: Forced) -> float:
        if len(first.logprobs) != len(second.logprobs):
            raise _Failed(
                f"the same answer has different tokens: {first.tokens} and {second.tokens}"
            )
        return max(abs(a - b) for a, b in zip(first.logprobs, second.logprobs, strict=True))

    def numbers(self) -> str:
        forced = self.ask([_PROMPTS[0]])
        if 0.0 in forced.logprobs:
            raise _Failed(
                f"a log-probability of exactly 0 for an unlikely answer: {_tokens(forced)}"
            )
        return _tokens(forced)

    def greedy(self) -> str:
        """Compare the likeliest token with the same token forced, first and later in an answer."""
        worst = 0.0
        for prefix in ("", _START):
            for prompt in _PROMPTS:
                token, value = self.model.next([prompt], prefix)
                if not token.strip() or "\ufffd" in token:
                    continue  # the end, or part of a character, cannot be forced
                forced = self.force([prompt], prefix + token if prefix else token.lstrip())
                # " man" and "man" are different tokens.
                same = prefix or token == token.lstrip() or forced.tokens[-1] == token
                if same and forced.tokens[-1].strip() == token.strip():
                    break
            else:
                raise _Failed(
                    "no likeliest token of any prompt can be forced, so nothing can be compared"
                )
            off = abs(forced.logprobs[-1] - value)
            if off > self.tolerance:
                raise _Failed(
                    f"the likeliest token {token!r} after {prefix!r} has {value:.4f}, but forced"
                    f" it has {forced.logprobs[-1]:.4f} ({_tokens(forced)}): the numbers belong to"
                    " other tokens or to another prompt"
                )
            worst = max(worst, off)
        return f"forced and likeliest token differ by {worst:.2g}"

    def chain(self) -> str:
        whole = self.force([_PROMPTS[0]], _ANSWER)
        start = self.force([_PROMPTS[0]], _START)
        if whole.tokens[: len(start.tokens)] != start.tokens:
            raise _Failed(
                "the beginning of an answer has different tokens without the rest:"
                f" {whole.tokens}, {start.tokens}"
            )
        off = max(abs(a - b) for a, b in zip(whole.logprobs, start.logprobs, strict=False))
        if off > self.tolerance:
            both = f"{_tokens(whole)} and {_tokens(start)}"
            raise _Failed(f"later words change the numbers of earlier ones by {off:.3g}: {both}")
        return f"later words change the numbers of earlier ones by {off:.2g}"


class _Generating(_Probe[Generated]):
    checks = ("numbers", "same", "text", "greedy", "images")

    def __init__(self, model: Generates, tolerance: float, top: int) -> None:
        super().__init__(tolerance)
        self.model, self.top = model, top

    def ask(self, parts: Sequence[Part], run: int = 0) -> Generated:
        try:
            generated = self.model.generate(parts, _ROOM, self.top, run)
            check_generated(generated, self.top)
        except (TextError, ModelError) as error:
            raise _Failed(str(error)) from None
        return generated

    def difference(self, first: Generated, second: Generated) -> float:
        """Return the largest difference at the first place; a token that one lacks counts as 1."""
        one, other = dict(first.top[0]), dict(second.top[0])
        common = [abs(one[token] - other[token]) for token in one.keys() & other.keys()]
        return max([*common, float(one.keys() != other.keys())])

    def numbers(self) -> str:
        return _tokens(self.ask([_PROMPTS[0]]))

    def greedy(self) -> str:
        """Compare each token that was written with the likeliest ones at its place."""
        worst, compared = 0.0, 0
        for prompt in _PROMPTS:
            answer = self.ask([prompt])
            for token, value, listed in zip(
                answer.tokens, answer.logprobs, answer.top, strict=True
            ):
                if listed:
                    highest = max(number for _, number in listed)
                    worst = max(worst, highest - value)
                    compared += 1
                if worst > self.tolerance:
                    raise _Failed(
                        f"the written token {token!r} has {value:.4f}, but another one is likelier"
                        f" ({listed[0][0]!r} with {listed[0][1]:.4f}): the model samples, or the"
                        " numbers belong to other tokens"
                    )
        return f"{compared} written tokens are the likeliest ones, to {worst:.2g}"


def _three_images() -> tuple[list[Image], Image]:
    """Return three images of different colours, and another one of the same size."""
    images = [_image(colour) for colour in ((200, 30, 30), (30, 200, 30), (30, 30, 200))]
    return images, _image((240, 240, 240))


def _image(colour: tuple[int, int, int]) -> Image:
    pixels = np.full((112, 112, 3), colour, np.uint8)
    pixels[28:56, 28:84] = 255 - np.array(colour, np.uint8)
    return Image.from_pixels(pixels)


def _busy() -> Image:
    """Return an image of the size of `_image`, with a file several times as large."""
    blocks = np.random.default_rng(0).integers(0, 256, (14, 14, 3), dtype=np.uint8)
    return Image.from_pixels(np.kron(blocks, np.ones((8, 8, 1), np.uint8)))


def _tokens(answer: Forced | Generated) -> str:
    return " ".join(f"{t!r}:{v:.3f}" for t, v in zip(answer.tokens, answer.logprobs, strict=True))
