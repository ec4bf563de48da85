"""Corrupted versions of descriptions, without a language model; and the files of a whole set.

Each moves, drops, repeats or inserts whole segments. The draws depend on the seed, the scene and
the case, not on the order of the other scenes; so the same descriptions give the same files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from vcs_experiments.datasets.texts import POSITIONS, Problems, scene_key
from vcs_runtime.errors import InputError
from vcs_runtime.segmentation.segmenter import Segmenter
from vcs_runtime.util.atomic import write_whole

LEVELS = 10
# With fewer segments, some cases would be the text itself, or empty.
LEAST_SEGMENTS = 4
_SWAPPED = 3  # segments that local permutation reorders among themselves

Segments = list[str]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A rewrite of a description, as the authors' files have it."""

    category: str
    id: str  # of its kind, such as "3.5"
    name: str
    text: str
    valid: bool  # whether it tells the same story


@dataclass(frozen=True)
class Source:
    """A description to corrupt."""

    segments: Segments
    others: Segments  # of all other descriptions
    draw: np.random.Generator


def omission(source: Source, share: float) -> Segments:
    """Drop a share of the segments, chosen at random; the rest stays in order."""
    count = _count(source.segments, share)
    dropped = set(source.draw.choice(len(source.segments), count, replace=False).tolist())
    return [segment for i, segment in enumerate(source.segments) if i not in dropped]


def hallucination(source: Source, share: float) -> Segments:
    """Insert segments of other descriptions at random places: a share of the text's number."""
    return _insert(source, _foreign(source, _count(source.segments, share)))


def repetition(source: Source, share: float) -> Segments:
    """Insert copies of a share of the segments at random places."""
    chosen = source.draw.choice(len(source.segments), _count(source.segments, share), replace=False)
    return _insert(source, [source.segments[i] for i in chosen])


def inversion(source: Source) -> Segments:
    """Reverse the order of the segments."""
    return source.segments[::-1]


def local_permutation(source: Source) -> Segments:
    """Reverse every run of three segments: [1 2 3 4 5 6] becomes [3 2 1 6 5 4]."""
    reordered: Segments = []
    for i in range(0, len(source.segments), _SWAPPED):
        reordered += source.segments[i : i + _SWAPPED][::-1]
    return reordered


def global_permutation(source: Source) -> Segments:
    """Shuffle the segments, into an order that differs from the original."""
    order = np.arange(len(source.segments))
    while (order == np.sort(order)).all():
        order = source.draw.permutation(order)
    return [source.segments[i] for i in order]


def rotation(source: Source) -> Segments:
    """Put the second half first."""
    half = -(-len(source.segments) // 2)
    return source.segments[half:] + source.segments[:half]


# Names and ids as in the authors' set where it has the case.
CASES: tuple[tuple[str, str, str, Callable[[Source], Segments]], ...] = (
    (
        "Content Additions & Omissions",
        "3.2",
        "Scattered Segments Repetition (~50%)",
        lambda s: repetition(s, 0.5),
    ),
    ("Content Additions & Omissions", "3.3", "Addition (~50%)", lambda s: hallucination(s, 0.5)),
    ("Content Additions & Omissions", "3.4", "Addition (~80%)", lambda s: hallucination(s, 0.8)),
    ("Content Additions & Omissions", "3.5", "Deletion (~50%)", lambda s: omission(s, 0.5)),
    ("Content Additions & Omissions", "3.6", "Deletion (~80%)", lambda s: omission(s, 0.8)),
    ("Chronology", "6.1", "Reverse Segments Order", inversion),
    ("Chronology", "6.2", "Jumble Segments Order", global_permutation),
    ("Chronology", "6.3", "Rotate Half Paragraph", rotation),
    ("Chronology", "6.4", "Local Permutation", local_permutation),
)


def addition(source: Source, position: str) -> list[Segments]:
    """Insert foreign segments: at level k of 10, k tenths of the text's number of segments.

    They are inserted in one piece, or scattered if `position` is "random".
    """
    count = len(source.segments)
    foreign = _foreign(source, count)
    places = source.draw.integers(0, count + 1, count)
    levels = []
    for added in _amounts(count):
        if position == "random":
            levels.append(_placed(source.segments, foreign[:added], places[:added].tolist()))
        else:
            at = {"beginning": 0, "middle": count // 2, "end": count}[position]
            levels.append(source.segments[:at] + foreign[:added] + source.segments[at:])
    return levels


def deletion(source: Source, position: str) -> list[Segments]:
    """Delete k tenths of the segments at level k of 10; one is left at the last level."""
    order = _touched(source, position)
    levels = []
    for amount in _amounts(len(order)):
        deleted = set(order[: min(amount, len(order) - 1)])
        levels.append([segment for i, segment in enumerate(source.segments) if i not in deleted])
    return levels


def chronology(source: Source, position: str) -> list[Segments]:
    """Reverse k tenths of the segments (two at least) in their places, at level k of 10."""
    order = _touched(source, position)
    levels = []
    for amount in _amounts(len(order)):
        places = sorted(order[: max(amount, 2)])
        moved = list(source.segments)
        for i, j in zip(places, reversed(places), strict=True):
            moved[i] = source.segments[j]
        levels.append(moved)
    return levels


GRADED: dict[str, Callable[[Source, str], list[Segments]]] = {
    "addition": addition,
    "deletion": deletion,
    "chronology": chronology,
}


def split(
    descriptions: Mapping[str, str], segmenter: Segmenter, problems: Problems
) -> dict[str, Segments]:
    """Split descriptions by id into segments; texts of fewer than four become problems."""
    segments: dict[str, Segments] = {}
    for name in sorted(descriptions, key=scene_key):
        if name != Path(name).name or name.startswith("."):
            raise InputError(f"id {name!r} must be a plain file name")
        [sentences] = segmenter.split([descriptions[name]])
        pieces = [" ".join(sentence.split()) for sentence in sentences if sentence.strip()]
        if len(pieces) < LEAST_SEGMENTS:
            problems.add(
                f"description {name}: {len(pieces)} segments, {LEAST_SEGMENTS} are needed: left out"
            )
        else:
            segments[name] = pieces
    if len(segments) < 2:
        raise InputError(
            "at least two descriptions are needed: hallucinations are segments of another one"
        )
    return segments


def write(
    segments: Mapping[str, Segments],
    out: Path,
    *,
    seed: int,
    rewrites: Mapping[str, Sequence[Rewrite]] = MappingProxyType({}),
    advance: Callable[[int], None] = lambda count: None,
) -> None:
    """Write `comparison/SCENE.json` and `KIND/POSITION/SCENE.json` for each description."""
    for name, pieces in segments.items():
        others: Segments = []
        for other, foreign in segments.items():
            if other != name:
                others += foreign
        every = list(rewrites.get(name, ()))
        for category, id_, case, corrupt in CASES:
            text = " ".join(corrupt(_source(name, case, pieces, others, seed)))
            every.append(Rewrite(category, id_, case, text, False))
        value: dict[str, Any] = {"ground_truth": " ".join(pieces)}
        value["categories"] = _categories(every)
        _write(out / "comparison" / f"{name}.json", value)
        for kind, grade in GRADED.items():
            for position in POSITIONS:
                levels = grade(_source(name, f"{kind}/{position}", pieces, others, seed), position)
                texts = {str(level): " ".join(moved) for level, moved in enumerate(levels, 1)}
                value = {"ground_truth": " ".join(pieces), "iterations": texts}
                _write(out / kind / position / f"{name}.json", value)
        advance(1)


def _categories(rewrites: Sequence[Rewrite]) -> list[dict[str, Any]]:
    """Group rewrites as the authors' files do, in the order of their ids."""
    categories: dict[str, list[dict[str, Any]]] = {}
    for rewrite in sorted(rewrites, key=lambda rewrite: tuple(map(int, rewrite.id.split(".")))):
        entry = {
            "id": rewrite.id,
            "name": rewrite.name,
            "description": rewrite.text,
            "valid": rewrite.valid,
        }
        categories.setdefault(rewrite.category, []).append(entry)
    return [{"category": category, "test_cases": cases} for category, cases in categories.items()]


def _source(name: str, case: str, segments: Segments, others: Segments, seed: int) -> Source:
    digest = hashlib.sha256(f"{seed}\0{name}\0{case}".encode()).digest()
    return Source(segments, others, np.random.default_rng(int.from_bytes(digest[:16])))


def _count(segments: Sequence[str], share: float) -> int:
    return min(max(1, round(share * len(segments))), len(segments) - 1)


def _amounts(count: int) -> list[int]:
    return [max(1, round(level * count / LEVELS)) for level in range(1, LEVELS + 1)]


def _foreign(source: Source, count: int) -> Segments:
    chosen = source.draw.choice(len(source.others), count, replace=len(source.others) < count)
    return [source.others[i] for i in chosen]


def _insert(source: Source, new: Segments) -> Segments:
    places = source.draw.integers(0, len(source.segments) + 1, len(new))
    return _placed(source.segments, new, places.tolist())


def _placed(segments: Segments, new: Segments, places: Sequence[int]) -> Segments:
    """Insert `new[i]` before segment `places[i]`, or at the end."""
    before: dict[int, Segments] = {}
    for place, segment in zip(places, new, strict=True):
        before.setdefault(place, []).append(segment)
    result: Segments = []
    for i, segment in enumerate(segments):
        result += [*before.get(i, ()), segment]
    return result + before.get(len(segments), [])


def _touched(source: Source, position: str) -> list[int]:
    """List the indices of all segments, in the order in which rising levels change them."""
    count = len(source.segments)
    if position == "random":
        return [int(i) for i in source.draw.permutation(count)]
    order = list(range(count))
    if position == "end":
        return order[::-1]
    if position == "middle":
        return sorted(order, key=lambda i: abs(2 * i - (count - 1)))
    return order


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")
