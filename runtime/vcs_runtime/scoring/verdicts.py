"""Verdicts on chunks (such as in place or moved) and their rules (docs/guide/explain.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Alignment, Orientation
from vcs_numba.embeddings import cosine_similarity
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.text.cleaning import strip_punctuation
from vcs_runtime.util.stages import check_stopped

#: Number of chunks that are compared with all earlier ones at a time: memory grows only linearly.
_BLOCK = 256


def repetitions(
    chunks: tuple[Sequence[str], Sequence[str]],
    vectors: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None,
    match: npt.NDArray[np.int64],
    supported: npt.NDArray[np.bool_],
    threshold: float,
) -> list[int | None]:
    """Find the generated chunks that repeat an earlier one.

    A chunk repeats the first chunk with the same words or a similar enough vector. It does not
    repeat that chunk if the reference repeats itself as well, and the chunk has another match
    there. For each generated chunk the result is the position of the chunk that it repeats, or
    None. Without `vectors`, only chunks of the same words are alike.
    """
    reference = [_words(text) for text in chunks[0]]
    generated = [_words(text) for text in chunks[1]]
    rows = None if vectors is None else vectors[1]
    first = _first_alike(generated, rows, threshold)

    def alike(a: int, others: set[int]) -> bool:
        if any(reference[a] == reference[b] for b in others):
            return True
        if vectors is None or not others:
            return False
        check_stopped()
        cosines = cosine_similarity(vectors[0][[a]], vectors[0][list(others)])
        return bool(cosines.max() >= threshold)

    repeats: list[int | None] = []
    # Chunks that are alike form a group. The first chunk of each chunk's group, and the matches of
    # each group in the reference.
    origin = list(range(len(generated)))
    matches: dict[int, set[int]] = {}
    for j, (earlier, place) in enumerate(zip(first, match.tolist(), strict=True)):
        origin[j] = origin[earlier]
        group = matches.setdefault(origin[j], set())
        if earlier == j:
            is_new = True
        elif not supported[j] or place in group:
            is_new = False
        else:
            is_new = alike(place, group)
        if is_new:
            group.add(place)
            repeats.append(None)
        else:
            repeats.append(earlier)
    return repeats


def _words(text: str) -> str:
    """Return the words of a text, without differences in case, punctuation or white space.

    Texts with equal words count as the same. A text without words is returned unchanged.
    """
    return " ".join(strip_punctuation(text).casefold().split()) or text


def _first_alike(
    texts: Sequence[str], vectors: npt.NDArray[np.float32] | None, threshold: float
) -> list[int]:
    """Return the position of the first similar chunk for each chunk, or the chunk's position."""
    places: dict[str, int] = {}
    for i, text in enumerate(texts):
        places.setdefault(text, i)
    at = np.fromiter(places.values(), np.int64, len(places))
    first = dict(zip(places, at.tolist(), strict=True))
    if vectors is not None:
        distinct = list(places)
        rows = vectors[at]
        for start in range(0, len(rows), _BLOCK):
            check_stopped()
            stop = min(start + _BLOCK, len(rows))
            near = np.tril(cosine_similarity(rows[start:stop], rows[:stop]) >= threshold, start - 1)
            for i in np.flatnonzero(near.any(axis=1)).tolist():
                first[distinct[start + i]] = int(at[near[i].argmax()])
    return [first[text] for text in texts]


#: Verdicts on generated chunks, and on chunks of the reference.
IN_PLACE, SHIFTED, MOVED, UNSUPPORTED = "in place", "shifted", "moved", "weakly supported"
REPEATED: Final = "repeated"
COVERED, MISSING = "covered", "missing"

#: The meaning of each verdict.
VERDICTS: Final = {
    IN_PLACE: "its match in the reference is where it was expected",
    SHIFTED: (
        "in the right order, but not where it was expected: text around it is missing or was added"
    ),
    MOVED: "in a different order from the reference",
    UNSUPPORTED: "the reference has nothing like it: possibly invented",
    REPEATED: "repeats an earlier generated chunk, where the reference does not repeat itself",
    COVERED: "the generated text has it",
    MISSING: "the generated text has nothing like it",
}
_RANGES: Final = {"support": (-1, 1), "rival": (0, 2), "order": (0, 1), "repeat": (-1, 1)}


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of verdicts. docs/benchmarks/explanations.md says how reliable they are.

    Parameters
    ----------
    support
        Minimum cosine similarity, in [-1, 1], for a match to count as support. Below it a generated
        chunk is weakly supported and a reference chunk missing. The default suits the embedded
        default model.
    rival
        In [0, 2]. A match that is more similar to another reference chunk by more than this
        counts as a match of the other chunk. The reference chunk is then missing, too.
    order
        In [0, 1]. A chunk outside its window is moved if changed order explains at least this part
        of its offset, both as parts of their texts; else it is shifted.
    repeat
        Minimum cosine similarity, in [-1, 1], to an earlier generated chunk for a chunk to be
        repeated. Chunks of the same words are alike at any value.

    Raises
    ------
    ValueError
        A value is out of range. The message names the field.
    """

    support: float = 0.5
    rival: float = 0.3
    order: float = 1.0
    repeat: float = 0.95

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not low <= value <= high:
                raise ValueError(f"{name} must be a number between {low} and {high}, not {value!r}")


@dataclass(frozen=True)
class Chunk:
    """A chunk, its match on the other side, and the verdict. Positions count chunks from 0.

    Attributes
    ----------
    text
        The chunk.
    verdict
        "in place", "shifted", "moved", "weakly supported" or "repeated" for a generated chunk;
        "covered" or "missing" for a chunk of the reference.
    match
        Position of the match on the other side.
    similarity
        Cosine similarity of chunk and match.
    expected
        The mapping window on the other side, half-open.
    offset
        Chunks between match and window, negative before the window.
    penalty
        The cost in NAS-D, as a part of the other side's length.
    crossed
        Number of supported chunks on the same side whose matches are in the other order. Repeated
        chunks do not count.
    repeats
        Position of the generated chunk that a repeated chunk repeats; None for other verdicts.
    """

    text: str
    verdict: str
    match: int
    similarity: float
    expected: tuple[int, int]
    offset: int
    penalty: float
    crossed: int
    repeats: int | None = None


def reference_chunks(
    evidence: Evidence, alignment: Alignment, thresholds: Thresholds
) -> tuple[Chunk, ...]:
    """Return the chunks of the reference with their verdicts, covered or missing."""
    side = alignment.recall
    # A match that is clearly more similar to another reference chunk does not cover this one.
    closest = alignment.precision.max_similarity[side.match]
    is_supported = side.similarity >= thresholds.support
    covered = is_supported & (closest - side.similarity <= thresholds.rival)
    verdicts = np.where(covered, COVERED, MISSING).tolist()
    crossed = crossings(side.match, covered)
    return _chunks(evidence.chunks[0], side, verdicts, crossed, [None] * side.x)


def generated_chunks(
    evidence: Evidence, alignment: Alignment, thresholds: Thresholds
) -> tuple[Chunk, ...]:
    """Return the chunks of the generated text with their verdicts."""
    side = alignment.precision
    supported = side.similarity >= thresholds.support
    repeats = repetitions(
        evidence.chunks, evidence.vectors, side.match, supported, thresholds.repeat
    )
    repeated = np.array([earlier is not None for earlier in repeats])
    # A repeated chunk says nothing about order: a loop would make everything after it cross.
    ordered = supported & ~repeated
    crossed = crossings(side.match, ordered)
    others = max(1, int(ordered.sum()) - 1)
    # Both sides are relative: the offset to the length of the reference, the crossings to the
    # number of chunks.
    by_order = crossed / others >= thresholds.order * side.distance / side.y
    verdicts = np.select(
        [repeated, ~supported, side.in_window | side.tolerated, by_order],
        [REPEATED, UNSUPPORTED, IN_PLACE, MOVED],
        SHIFTED,
    )
    return _chunks(evidence.chunks[1], side, verdicts.tolist(), crossed, repeats)


def _chunks(
    texts: Sequence[str],
    side: Orientation,
    verdicts: Sequence[str],
    crossed: npt.NDArray[np.int64],
    repeats: Sequence[int | None],
) -> tuple[Chunk, ...]:
    offsets = np.where(side.match < side.window_start, -side.distance, side.distance)
    windows = zip(side.window_start.tolist(), side.window_end.tolist(), strict=True)
    columns = (
        texts,
        verdicts,
        side.match.tolist(),
        side.similarity.tolist(),
        windows,
        offsets.tolist(),
        side.penalty.tolist(),
        crossed.tolist(),
        repeats,
    )
    return tuple(Chunk(*row) for row in zip(*columns, strict=True))


def crossings(
    match: npt.NDArray[np.int64], supported: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Count for each chunk the supported chunks with matches in the opposite order.

    The counts are int64 (x,).
    """
    later = _later_below(match, supported)
    return later + _later_below(-match[::-1], supported[::-1])[::-1]


def _later_below(
    places: npt.NDArray[np.int64], supported: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Count for each chunk the supported chunks after it with a smaller place, int64 (x,)."""
    ranks = np.unique(places, return_inverse=True)[1].tolist()
    # A Fenwick tree: counts of ranks, so that the time hardly grows faster than the chunks.
    tree = [0] * (len(ranks) + 1)
    counts = []
    for rank, counted in zip(reversed(ranks), reversed(supported.tolist()), strict=True):
        below = 0
        node = rank
        while node > 0:
            below += tree[node]
            node &= node - 1
        counts.append(below)
        node = rank + 1
        while counted and node < len(tree):
            tree[node] += 1
            node += node & -node
    return np.array(counts[::-1], np.int64)


def position(chunk: Chunk, noun: str) -> str:
    """Describe where a chunk stands and what it matches, counting from 1.

    For a generated chunk: "matches reference sentence 9; expected: 4-5". For a
    reference chunk: "found in sentence 9; expected: 4-5". For a repeated chunk, the
    chunk that it repeats; for a chunk without a counterpart, the nearest chunk.
    """
    if chunk.repeats is not None:
        return f"repeats {noun} {chunk.repeats + 1}"
    place = f"{noun} {chunk.match + 1}"
    if chunk.verdict in (MISSING, UNSUPPORTED):
        return f"nearest: {place}"
    first, last = chunk.expected[0] + 1, chunk.expected[1]
    expected = str(first) if first == last else f"{first}-{last}"
    is_misplaced = chunk.offset != 0
    if chunk.verdict == COVERED:
        text = f"found in {place}"
        return f"{text}; expected: {expected}" if is_misplaced else text
    text = f"matches reference {place}"
    return f"{text}; expected: {expected}" if is_misplaced else text


def describe_thresholds(thresholds: Thresholds) -> str:
    """Describe thresholds in one line: "support 0.5, rival 0.3, order 1"."""
    return ", ".join(f"{name} {value:g}" for name, value in asdict(thresholds).items())


def verdict_counts(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Count the chunks of each verdict that occurs, in the order of `VERDICTS`."""
    verdicts = [chunk.verdict for chunk in chunks]
    return {name: verdicts.count(name) for name in VERDICTS if name in verdicts}
