"""The steps around scoring that a model can do: caption, keywords, keyframes, summaries, judgements, answers.

Each has a prompt, and a check of what the model writes. What cannot be used is asked for once more, with the
reason; then it is a TextError.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from vcs_runtime.errors import TextError
from vcs_runtime.text.cleaning import check_text
from vcs_runtime.visil.keywords import LIMIT
from vcs_runtime.visil.logprobs import Image, Part
from vcs_runtime.visil.masking import MASK, mask_caption
from vcs_runtime.visil.prompts import Prompts, named, placeholder
from vcs_runtime.visil.score import Summary
from vcs_runtime.visil.timecode import parse_timecode

T = TypeVar("T")
KEYFRAMES = 3
_LONGEST = 2000  # tokens of an answer
_AGAIN = "\n\nYour last answer was: {answer}\nIt cannot be used: {reason}\nAnswer again."
_FENCE = re.compile(r"\s*```(?:json)?\s*(.*?)\s*```\s*", re.DOTALL)
_PLACEHOLDER = re.compile(r"\[KEYFRAME\d+\]")


class Writer(Protocol):
    """A vision-language model that writes. Raises ModelError where it cannot."""

    def write(self, parts: Sequence[Part], max_tokens: int) -> str:
        """Its answer to a user's turn of `parts`."""


def write_caption(writer: Writer, prompts: Prompts, frames: Sequence[Image]) -> str:
    """A detailed paragraph on the video."""

    def checked(text: str) -> str:
        check_text(text, "caption")
        if MASK in text:
            raise TextError(f"caption: it holds {MASK}")
        return text.strip()

    return _ask(writer, prompts.fill("caption", images=frames), checked)


def choose_keywords(writer: Writer, prompts: Prompts, caption: str) -> list[str]:
    """Up to 20 words of the caption, as `mask_caption` takes them."""

    def checked(text: str) -> list[str]:
        words = _json_list(text, str, "keywords")
        if len(words) > LIMIT:
            raise TextError(f"keywords: {len(words)} words, more than {LIMIT}")
        if "video" in words:
            raise TextError("keywords: 'video' is none")
        mask_caption(caption, words)
        return words

    return _ask(writer, prompts.fill("keywords", caption=caption), checked)


def choose_keyframes(
    writer: Writer, prompts: Prompts, frames: Sequence[tuple[str, Image]], fps: Fraction | float, count: int
) -> list[dict[str, str]]:
    """Three moments: `{"timestamp": SMPTE timecode, "description": text}`, in order.

    frames  some of the video's, each with its timecode;  count  how many the video has
    """

    def checked(text: str) -> list[dict[str, str]]:
        chosen = _json_list(text, dict, "keyframes")
        if len(chosen) != KEYFRAMES:
            raise TextError(f"keyframes: {len(chosen)} objects, not {KEYFRAMES}")
        numbers = []
        for entry in chosen:
            if not all(isinstance(entry.get(key), str) for key in ("timestamp", "description")):
                raise TextError("keyframes: each object needs a 'timestamp' and a 'description', both texts")
            numbers.append(parse_timecode(entry["timestamp"], fps, frames=count))
        if sorted(set(numbers)) != numbers:
            raise TextError("keyframes: they are not in the order of time")
        return [{key: entry[key] for key in ("timestamp", "description")} for entry in chosen]

    shown: list[Part] = []
    for timecode, image in frames:
        shown += [f" {timecode} ", image]
    return _ask(writer, prompts.fill("keyframes", images=shown), checked)


def write_summary(
    writer: Writer, prompts: Prompts, frames: Sequence[Image], keyframes: Sequence[Image] = ()
) -> str:
    """Two or three sentences; with keyframes, these are named once each, in order, as [KEYFRAME1], ..."""
    names = [placeholder(i) for i in range(1, len(keyframes) + 1)]

    def checked(text: str) -> str:
        check_text(text, "summary")
        found = _PLACEHOLDER.findall(text)
        if found != names:
            raise TextError(f"summary: it names the keyframes {found}, not {names}, each once and in order")
        return text.strip()

    if keyframes:
        parts = prompts.fill("summarize-keyframes", images=frames, keyframes=named(keyframes))
    else:
        parts = prompts.fill("summarize", images=frames)
    return _ask(writer, parts, checked)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a summary corresponds to its video, and how sure the model is of it, 1 to 5."""

    corresponds: bool
    confidence: int


def judge_summaries(
    writer: Writer, prompts: Prompts, frames: Sequence[Image], summaries: Sequence[Summary]
) -> list[Judgement]:
    """Which of the summaries correspond to the video: the correspondence test (appendix F.5), `(summaries,)`.

    The model sees all of them at once, as numbers: a name might tell the answer.
    """

    def checked(text: str) -> list[Judgement]:
        judged = _json_list(text, dict, "judgements")
        if len(judged) != len(summaries):
            raise TextError(f"judgements: {len(judged)} objects for {len(summaries)} summaries")
        for entry in judged:
            sure = entry.get("confidence")
            if (
                not isinstance(entry.get("corresponds"), bool)
                or type(sure) is not int
                or sure not in range(1, 6)
            ):
                raise TextError(
                    "judgements: each object needs 'corresponds', true or false, and 'confidence', "
                    f"a whole number from 1 to 5, and not {json.dumps(entry)}"
                )
        return [Judgement(entry["corresponds"], entry["confidence"]) for entry in judged]

    shown: list[Part] = []
    for number, summary in enumerate(summaries, 1):
        shown += [f"\n\nSummary {number}: ", *named(summary.keyframes)]
        shown.append(f"{' ' if summary.keyframes and summary.text else ''}{summary.text}")
    return _ask(writer, prompts.fill("correspond", images=frames, summaries=shown), checked)


def answer_question(
    writer: Writer, prompts: Prompts, summary: Summary, question: str, options: Sequence[str]
) -> str:
    """The letter of the option that the model takes, from a summary alone."""
    letters = string.ascii_uppercase[: len(options)]

    def checked(text: str) -> str:
        letter = text.strip().strip("().").upper()
        if len(letter) != 1 or letter not in letters:
            raise TextError(f"answer: {text.strip()[:40]!r} is none of {', '.join(letters)}")
        return letter

    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, options, strict=True))
    given = prompts.given_summary(summary.text, summary.keyframes)
    return _ask(writer, prompts.fill("answer", given=given, question=question, options=listed), checked)


def _ask(writer: Writer, parts: list[Part], checked: Callable[[str], T]) -> T:
    text = writer.write(parts, _LONGEST)
    try:
        return checked(text)
    except TextError as error:
        text = writer.write([*parts, _AGAIN.format(answer=text, reason=error)], _LONGEST)
    try:
        return checked(text)
    except TextError as error:
        raise TextError(f"{error} (asked twice; the model wrote {text[:200]!r})") from None


def _json_list(text: str, kind: type, what: str) -> list[Any]:
    fenced = _FENCE.fullmatch(text)
    try:
        values = json.loads(fenced[1] if fenced else text)
    except (ValueError, RecursionError) as error:
        raise TextError(f"{what}: not JSON: {error}") from None
    if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
        raise TextError(f"{what}: a JSON array of {'strings' if kind is str else 'objects'} was expected")
    return values
