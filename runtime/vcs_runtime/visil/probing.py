"""What a model must pass before it scores: that its numbers are what they are taken for.

Servers return numbers of the right shape that are off by a token, all zero, or blind to the images. Each such
fault that is known shows in one of these checks, which need some thirty short answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.visil import png
from vcs_runtime.visil.logprobs import Forced, Image, LogProbs, Part, check

TOLERANCE = 0.05  # nats; half-precision servers differ by hundredths from one way of asking to the other
_ANSWER = "window river seven"
_START = "window"
_PROMPTS = ("Name one thing that you see.", "Write any word.", "What comes to your mind first?")


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was found, and whether it was passed."""

    name: str
    passed: bool
    found: str


def probe(model: LogProbs, *, images: bool = True, tolerance: float = TOLERANCE) -> list[Check]:
    """Ask `model` what is known to go wrong; the checks, up to the first that fails.

    images     whether it will be given images
    tolerance  nats by which two ways to the same number may differ; above 0

    Raises ModelError where the model does not answer.
    """
    if not tolerance > 0:
        raise ValueError(f"tolerance must be a number above 0, not {tolerance!r}")
    found: list[Check] = []
    for name, examine in _CHECKS:
        if images or examine is not _images:
            try:
                found.append(Check(name, True, examine(model, tolerance)))
            except _Failed as failure:
                return [*found, Check(name, False, str(failure))]
    return found


def require(model: LogProbs, *, images: bool = True, tolerance: float = TOLERANCE) -> list[Check]:
    """As `probe`; raises ModelError for a check that is not passed."""
    found = probe(model, images=images, tolerance=tolerance)
    if not found[-1].passed:
        raise ModelError(f"{model.fingerprint}: it fails the probe: {found[-1].name}: {found[-1].found}")
    return found


class _Failed(Exception):
    """A check that is not passed: why."""


def _numbers(model: LogProbs, tolerance: float) -> str:
    forced = _forced(model, [_PROMPTS[0]], _ANSWER)
    if 0.0 in forced.logprobs:
        raise _Failed(f"a log-probability of exactly 0 for an unlikely answer: {_shown(forced)}")
    return _shown(forced)


def _same(model: LogProbs, tolerance: float) -> str:
    drift = _drift(model, [_PROMPTS[0]])
    if drift > tolerance:
        raise _Failed(
            f"the same question twice differs by {drift:.3g} nats, more than {tolerance:g}: a larger "
            "tolerance accepts it; then take several samples"
        )
    return f"the same question twice differs by {drift:.2g}"


def _text(model: LogProbs, tolerance: float) -> str:
    same = _drift(model, [_PROMPTS[0]])
    change = _difference(*(_forced(model, [prompt], _ANSWER) for prompt in _PROMPTS[:2]))
    if change <= 2 * same:
        raise _Failed(f"another prompt changes nothing{', or no more than asking again' if same else ''}")
    return f"another prompt changes {change:.2g}"


def _greedy(model: LogProbs, tolerance: float) -> str:
    """The forced answer's numbers against the model's own, for its likeliest token: first, and later."""
    worst = 0.0
    for said in ("", _START):
        for prompt in _PROMPTS:
            token, value = model.next([prompt], said)
            if not token.strip() or "\ufffd" in token:
                continue  # the end, or part of a character: it cannot be forced
            forced = _forced(model, [prompt], said + token if said else token.lstrip())
            same = said or token == token.lstrip() or forced.tokens[-1] == token  # " man" is no "man"
            if same and forced.tokens[-1].strip() == token.strip():
                break
        else:
            raise _Failed("no prompt has a likeliest token that can be forced; nothing can be compared")
        off = abs(forced.logprobs[-1] - value)
        if off > tolerance:
            raise _Failed(
                f"the likeliest token {token!r} after {said!r} has {value:.4f}, forced it has "
                f"{forced.logprobs[-1]:.4f} ({_shown(forced)}): numbers of other tokens, or another prompt"
            )
        worst = max(worst, off)
    return f"forced and likeliest token differ by {worst:.2g}"


def _chain(model: LogProbs, tolerance: float) -> str:
    whole, start = (_forced(model, [_PROMPTS[0]], answer) for answer in (_ANSWER, _START))
    count = len(start.tokens)
    if whole.tokens[:count] != start.tokens:
        raise _Failed(f"an answer's beginning is cut otherwise alone: {whole.tokens} and {start.tokens}")
    off = max(abs(a - b) for a, b in zip(whole.logprobs, start.logprobs, strict=False))
    if off > tolerance:
        raise _Failed(
            f"what follows changes what came before by {off:.3g}: {_shown(whole)} and {_shown(start)}"
        )
    return f"what follows changes what came before by {off:.2g}"


def _images(model: LogProbs, tolerance: float) -> str:
    shown = [_image(colour) for colour in ((200, 30, 30), (30, 200, 30), (30, 30, 200))]
    other = _image((240, 240, 240))
    same = _drift(model, [*shown, _PROMPTS[0]])
    least = float("inf")
    for place in range(3):
        swapped = [*shown[:place], other, *shown[place + 1 :]]
        change = _difference(*(_forced(model, [*some, _PROMPTS[0]], _ANSWER) for some in (shown, swapped)))
        if change <= 2 * same:
            raise _Failed(f"another image {place + 1} of 3 changes nothing: images are dropped or mixed up")
        least = min(least, change)
    # A server of a text model may take a file's base64 for text, which also changes something. A vision model
    # has as many tokens for images of one size, whatever they show.
    plain, busy = (_forced(model, [some, _PROMPTS[0]], _ANSWER).prompt_tokens for some in (other, _busy()))
    if plain != busy:
        raise _Failed(f"images of one size have {plain} and {busy} tokens: their files are read as text")
    return f"another image changes at least {least:.2g}"


_CHECKS: tuple[tuple[str, Callable[[LogProbs, float], str]], ...] = (
    ("numbers", _numbers), ("same", _same), ("text", _text), ("greedy", _greedy), ("chain", _chain),
    ("images", _images),
)  # fmt: skip


def _forced(model: LogProbs, parts: Sequence[Part], answer: str, run: int = 0) -> Forced:
    try:
        forced = model.force(parts, answer, run)
    except TextError as error:  # it cannot say this, or takes no images
        raise _Failed(str(error)) from None
    try:
        check(forced, answer)
    except ModelError as error:
        raise _Failed(str(error)) from None
    return forced


def _drift(model: LogProbs, parts: Sequence[Part]) -> float:
    """By how much the same question twice differs: as two runs, so that a cache does not answer."""
    return _difference(*(_forced(model, parts, _ANSWER, run) for run in (0, 1)))


def _difference(first: Forced, second: Forced) -> float:
    if len(first.logprobs) != len(second.logprobs):
        raise _Failed(f"the same answer is cut in two ways: {first.tokens} and {second.tokens}")
    return max(abs(a - b) for a, b in zip(first.logprobs, second.logprobs, strict=True))


def _image(colour: tuple[int, int, int]) -> Image:
    pixels = np.full((112, 112, 3), colour, np.uint8)
    pixels[28:56, 28:84] = 255 - np.array(colour, np.uint8)
    return Image(png.encode(pixels))


def _busy() -> Image:
    """An image as large as `_image`'s, in a file several times as long."""
    blocks = np.random.default_rng(0).integers(0, 256, (14, 14, 3), dtype=np.uint8)
    return Image(png.encode(np.kron(blocks, np.ones((8, 8, 1), np.uint8))))


def _shown(forced: Forced) -> str:
    return " ".join(f"{t!r}:{v:.3f}" for t, v in zip(forced.tokens, forced.logprobs, strict=True))
