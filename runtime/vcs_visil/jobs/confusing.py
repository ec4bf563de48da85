"""Confused summaries for the correspondence test: a changed text, or the keyframes of another video.

Which change a text gets, and whose keyframes a summary gets, is drawn from a seed and the id of the video.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcs_runtime.errors import TextError
from vcs_visil.jobs.items import Item, read_items
from vcs_visil.masking import MASK
from vcs_visil.prompts import Prompts
from vcs_visil.writing import Writer, ask_writer, placeholders

SEED = 20250101
"""Default seed."""
KINDS = ("text", "keyframes")
"""What is confused: the text, changed by a model, or the keyframes, which are another video's."""
CHANGES = (
    "the order of two events", "the colour of a thing", "an object", "a person or an animal", "a place",
    "what someone does", "a number of people or things",
)  # fmt: skip
"""What a text may be changed in."""
_KEPT = 0.5  # of the words: less is another summary, not a confused one
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Donor:
    """A video whose keyframes other videos may get."""

    id: str | int
    video: str | None  # its file; None if all keyframes are image files
    keyframes: Mapping[int, Sequence[Any]]  # of its summaries, by their number


def read_donors(path: Path) -> list[Donor]:
    """Read the keyframes of all videos of a file; raise InputError naming the line."""
    donors = []
    for item in read_items(path):
        listed: dict[int, list[Any]] = {}
        for summary in item.row.get("summaries") or ():
            keyframes = summary.get("keyframes") if isinstance(summary, dict) else None
            if isinstance(keyframes, list) and keyframes:
                listed.setdefault(len(keyframes), keyframes)
        video = item.row.get("video")
        donors.append(Donor(item.id, video if isinstance(video, str) else None, listed))
    return donors


def confuse(
    item: Item, donors: Sequence[Donor], kinds: Sequence[str], seed: int, writer: Writer | None,
    prompts: Prompts,
) -> list[dict[str, Any]]:  # fmt: skip
    """Confuse the summaries of a video, in each kind; raise TextError if nothing can be confused."""
    made = []
    item.summaries()  # all are checked before a model is asked
    for summary in item.several("summaries"):
        if summary.get("corresponds") is False:
            continue
        draw = random.Random(f"{seed} {item.id!r} {summary['name']}")
        for kind in kinds:
            keyframes, text = summary.get("keyframes", []), summary.get("text", "")
            change: dict[str, Any]
            if kind == "text" and text and writer is not None:
                change = {"change": draw.choice(CHANGES)}
                text = change_text(writer, prompts, text, change["change"])
            elif kind == "keyframes" and keyframes:
                donor = _donor(item, donors, len(keyframes), draw)
                change = {"from": donor.id}
                keyframes = [_from(donor, keyframe) for keyframe in donor.keyframes[len(keyframes)]]
            else:
                continue
            made.append({
                "name": f"{summary['name']}, other {kind}", "of": summary["name"], "text": text,
                "keyframes": keyframes, "corresponds": False, "confused": kind, **change,
            })  # fmt: skip
    if not made:
        raise TextError("summaries: there is nothing that can be confused")
    return made


def change_text(writer: Writer, prompts: Prompts, text: str, change: str) -> str:
    """Let a model change a fact of a summary, such as "a place"; the keyframes stay as they are."""
    words = _words(text)

    def checked(answer: str) -> str:
        changed = answer.strip()
        if not changed or MASK in changed:
            raise TextError(f"changed summary: it is empty or holds {MASK}")
        if placeholders(changed) != placeholders(text):
            raise TextError(
                f"changed summary: it names the keyframes {placeholders(changed)}, not {placeholders(text)}"
            )
        if _words(changed) == words:
            raise TextError("changed summary: no word of it has changed")
        left = _words(changed)
        kept = sum(word in left and not left.remove(word) for word in words)  # type: ignore[func-returns-value]
        if kept < _KEPT * len(words):
            raise TextError(f"changed summary: only {kept} of {len(words)} words are left: change less")
        return changed

    return ask_writer(writer, prompts.fill("confuse", summary=text, change=change), checked)


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _donor(item: Item, donors: Sequence[Donor], count: int, draw: random.Random) -> Donor:
    """Draw another video with a summary of as many keyframes."""
    own = item.row.get("video")
    others = [
        donor for donor in donors
        if donor.id != item.id and count in donor.keyframes and (own is None or donor.video != own)
    ]  # fmt: skip
    if not others:
        raise TextError(f"summaries: no other video of the file has a summary with {count} keyframes")
    return draw.choice(others)


def _from(donor: Donor, keyframe: Any) -> Any:
    """Return a keyframe so that it can be read beside another video: a timecode with its file."""
    if (
        isinstance(keyframe, str)
        and donor.video is not None
        and keyframe.count(":") + keyframe.count(";") == 3
    ):
        return {"video": donor.video, "timestamp": keyframe}
    return keyframe
