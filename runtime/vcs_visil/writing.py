"""Texts that a model writes around scoring, such as captions, keywords and summaries.

Each step has a prompt and a check of the answer. If the answer cannot be used, the model is asked
once more, with the reason. If the second answer cannot be used either, the step raises TextError.

The reasons are part of the model's prompt: another wording of these errors may change its answer.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from vcs_runtime.errors import TextError
from vcs_runtime.text.cleaning import check_text
from vcs_visil.frames import parse_timecode
from vcs_visil.masking import MASK, MAX_KEYWORDS, mask_caption
from vcs_visil.prompts import Prompts, builtin, named, placeholder
from vcs_visil.summaries import Image, Part, Summary, Video

T = TypeVar("T")
KEYFRAMES = 3
"""Number of keyframes of a video."""
_MAX_TOKENS = 2000
_AGAIN = "\n\nYour last answer was: {answer}\nIt cannot be used: {reason}\nAnswer again."
_FENCE = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)
_PLACEHOLDER = re.compile(r"\[KEYFRAME\d+\]")


class Writer(Protocol):
    """A vision-language model that writes. Methods raise ModelError if the model fails."""

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        """Return the answer to a user's turn of texts and images, up to `max_tokens` tokens."""


def write_caption(writer: Writer, prompts: Prompts, frames: Sequence[Image]) -> str:
    """Write a caption: a detailed paragraph about the video."""

    def checked(text: str) -> str:
        check_text(text, "caption")
        if MASK in text:
            raise TextError(f"caption: it must not contain {MASK}")
        return text.strip()

    return ask_writer(writer, prompts.fill("caption", images=frames), checked)


def choose_keywords(writer: Writer, prompts: Prompts, caption: str) -> list[str]:
    """Choose up to 20 words of the caption, in the form that `mask_caption` expects."""

    def checked(text: str) -> list[str]:
        words = _json_list(text, str, "keywords")
        if len(words) > MAX_KEYWORDS:
            raise TextError(f"keywords: {len(words)} words, more than {MAX_KEYWORDS}")
        if "video" in words:
            raise TextError("keywords: 'video' cannot be a keyword")
        mask_caption(caption, words)
        return words

    return ask_writer(writer, prompts.fill("keywords", caption=caption), checked)


def choose_keyframes(
    writer: Writer,
    prompts: Prompts,
    frames: Sequence[tuple[str, Image]],
    fps: Fraction | float,
    count: int,
) -> list[dict[str, str]]:
    """Choose three keyframes of a video."""

    def checked(text: str) -> list[dict[str, str]]:
        chosen = _json_list(text, dict, "keyframes")
        if len(chosen) != KEYFRAMES:
            raise TextError(f"keyframes: {len(chosen)} objects, not {KEYFRAMES}")
        numbers = []
        for entry in chosen:
            if not all(isinstance(entry.get(key), str) for key in ("timestamp", "description")):
                raise TextError(
                    "keyframes: each object needs a 'timestamp' and a 'description', both texts"
                )
            numbers.append(parse_timecode(entry["timestamp"], fps, frames=count))
        if sorted(set(numbers)) != numbers:
            raise TextError("keyframes: they are not in the order of time")
        return [{key: entry[key] for key in ("timestamp", "description")} for entry in chosen]

    images: list[Part] = []
    for timecode, image in frames:
        images += [f" {timecode} ", image]
    return ask_writer(writer, prompts.fill("keyframes", images=images), checked)


def write_summary(
    writer: Writer, prompts: Prompts, frames: Sequence[Image], keyframes: Sequence[Image] = ()
) -> str:
    """Write a summary of two or three sentences."""
    names = [placeholder(i) for i in range(1, len(keyframes) + 1)]

    def checked(text: str) -> str:
        check_text(text, "summary")
        present = placeholders(text)
        if present != names:
            raise TextError(
                f"summary: it names the keyframes {present}, not {names}, each once and in order"
            )
        return text.strip()

    if keyframes:
        parts = prompts.fill("summarize-keyframes", images=frames, keyframes=named(keyframes))
    else:
        parts = prompts.fill("summarize", images=frames)
    return ask_writer(writer, parts, checked)


@dataclass(frozen=True, slots=True)
class Judgement:
    """A model's judgement of a summary."""

    corresponds: bool
    confidence: int


def judge_summaries(
    writer: Writer, prompts: Prompts, frames: Sequence[Image], summaries: Sequence[Summary]
) -> list[Judgement]:
    """Judge which summaries correspond to the video (the paper's appendix F.5).

    The model sees all summaries at once under numbers, because a name might reveal the answer.
    """

    def checked(text: str) -> list[Judgement]:
        judged = _json_list(text, dict, "judgements")
        if len(judged) != len(summaries):
            raise TextError(f"judgements: {len(judged)} objects for {len(summaries)} summaries")
        for entry in judged:
            confidence = entry.get("confidence")
            if (
                not isinstance(entry.get("corresponds"), bool)
                or type(confidence) is not int
                or confidence not in range(1, 6)
            ):
                raise TextError(
                    "judgements: each object needs 'corresponds', true or false, and 'confidence', "
                    f"a whole number from 1 to 5, and not {json.dumps(entry)}"
                )
        return [Judgement(entry["corresponds"], entry["confidence"]) for entry in judged]

    listed: list[Part] = []
    for number, summary in enumerate(summaries, 1):
        listed += [f"\n\nSummary {number}: ", *named(summary.keyframes)]
        listed.append(f"{' ' if summary.keyframes and summary.text else ''}{summary.text}")
    return ask_writer(writer, prompts.fill("correspond", images=frames, summaries=listed), checked)


def answer_question(
    writer: Writer, prompts: Prompts, shown: Summary | Video, question: str, options: Sequence[str]
) -> str:
    """Answer a question from a summary alone, or from the frames of the video."""
    letters = string.ascii_uppercase[: len(options)]

    def checked(text: str) -> str:
        letter = text.strip().strip("().").upper()
        if len(letter) != 1 or letter not in letters:
            raise TextError(f"answer: {text.strip()[:40]!r} is not one of {', '.join(letters)}")
        return letter

    listed = "\n".join(
        f"{letter}. {option}" for letter, option in zip(letters, options, strict=True)
    )
    given = prompts.given(shown, "answer")
    return ask_writer(
        writer, prompts.fill("answer", given=given, question=question, options=listed), checked
    )


def answered(
    writer: Writer,
    text: str,
    questions: Sequence[tuple[str, Sequence[str], str]],
    prompts: Prompts | None = None,
) -> float:
    """Return the share of questions about a video that a model answers rightly from a text alone.

    It is a reward for captions: a model cannot answer from information that the text lacks.

    Parameters
    ----------
    writer
        The model that answers.
    text
        The caption.
    questions
        Questions with options and the letter of the right one: `("Who runs?", ["A dog", "A cat"],
        "A")`.
    prompts
        The prompts; None for the built-in ones.

    Returns
    -------
    float
        The share, in [0, 1]. An answer that is none of the letters counts as wrong.

    Raises
    ------
    TextError
        The text is empty, there is no question, or a question's letter is not one of its options.
    ModelError
        The model fails.
    """
    shown = Summary(check_text(text, "text"))
    if not questions:
        raise TextError("questions: the list is empty")
    for number, (_, options, letter) in enumerate(questions):
        if letter not in list(string.ascii_uppercase[: len(options)]):
            raise TextError(
                f"questions[{number}]: {letter!r} is not a letter of its {len(options)} options"
            )
    right = 0
    for question, options, letter in questions:
        with suppress(TextError):
            right += (
                answer_question(writer, prompts or builtin(), shown, question, options) == letter
            )
    return right / len(questions)


def placeholders(text: str) -> list[str]:
    """Return the placeholders of keyframes in a summary, in order."""
    return _PLACEHOLDER.findall(text)


def ask_writer(writer: Writer, parts: list[Part], checked: Callable[[str], T]) -> T:
    """Ask a model, and once more with the reason if `checked` raises TextError for its answer."""
    text = writer.write(parts, _MAX_TOKENS)
    try:
        return checked(text)
    except TextError as error:
        text = writer.write([*parts, _AGAIN.format(answer=text, reason=error)], _MAX_TOKENS)
    try:
        return checked(text)
    except TextError as error:
        raise TextError(f"{error} (asked twice; the model wrote {text[:200]!r})") from None


def _json_list(text: str, kind: type, label: str) -> list[Any]:
    fenced = _FENCE.fullmatch(text)
    try:
        values = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as error:
        raise TextError(f"{label}: not JSON: {error}") from None
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise TextError(
            f"{label}: a JSON array of {'strings' if kind is str else 'objects'} was expected"
        )
    return values
