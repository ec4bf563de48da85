"""Why a pair scores as it does: verdicts on chunks, costs of parts, sentences (docs/guide/explain.md).

All inputs are the results of `vcs_numba.align` and the scorer's chunks. Costs are computed with
`vcs_numba.recombine`, so no formula of the metric is repeated here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Alignment, Orientation, Params, Scores, align, recombine
from vcs_runtime.scoring.flags import describe, flags_of
from vcs_runtime.scoring.repetition import repetitions
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.score_table import LABELS

#: Verdicts on generated chunks, and on chunks of the reference.
IN_PLACE, SHIFTED, MOVED, UNSUPPORTED = "in place", "shifted", "moved", "weakly supported"
REPEATED: Final = "repeated"
COVERED, MISSING = "covered", "missing"

#: The meaning of each verdict.
VERDICTS: Final = {
    IN_PLACE: "its counterpart is where it was expected",
    SHIFTED: "in the right order, but not where it was expected: text is missing or was added around it",
    MOVED: "in another order than the reference tells it",
    UNSUPPORTED: "nothing in the reference is like it: possibly invented",
    REPEATED: "says again what an earlier generated chunk has said, and the reference does not",
    COVERED: "the generated text says it",
    MISSING: "nothing in the generated text is like it",
}

#: The parts that can cost something, and the values with which they cost nothing.
_PERFECT: Final = {
    "gas": {"gas": 1.0},
    "las": {"las_precision": 1.0, "las_recall": 1.0},
    "nas_d": {"nas_d_precision": 1.0, "nas_d_recall": 1.0},
    "nas_l": {"nas_l_precision": 1.0, "nas_l_recall": 1.0},
    "window_regularizer": {"window_regularizer": 0.0},
}
_RANGES: Final = {"support": (-1, 1), "rival": (0, 2), "order": (0, 1), "repeat": (-1, 1)}


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of verdicts. docs/guide/explain.md says how they were chosen, and how reliable they are.

    Parameters
    ----------
    support
        Minimum cosine similarity, in [-1, 1], for a match to count as support. Below it a generated chunk is
        weakly supported and a reference chunk missing. The default suits the embedded default model.
    rival
        In [0, 2]. A match that is more similar to another reference chunk by more than this tells the other
        chunk. The reference chunk is then missing, too.
    order
        In [0, 1]. A chunk outside its window is moved if changed order explains at least this part of its
        offset, both as parts of their texts; else it is shifted.
    repeat
        Minimum cosine similarity, in [-1, 1], to an earlier generated chunk for a chunk to be repeated.
        Chunks of the same words are alike at any value.

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
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise ValueError(f"{name} must be a number between {low} and {high}, not {value!r}")


@dataclass(frozen=True)
class Chunk:
    """A chunk, its match on the other side, and the verdict. Positions count chunks from 0.

    Attributes
    ----------
    text
        The chunk.
    verdict
        One of `VERDICTS`.
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
        Number of supported chunks on the same side whose matches are in the other order. Repeated chunks do
        not count.
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


@dataclass(frozen=True)
class Explanation:
    """The chunks of a pair with verdicts, its scores, and the alignment from which they result.

    Attributes
    ----------
    result
        The result that is explained.
    scores
        The scores with the explained reference. They are not `result.scores` if that is a mean over several
        references.
    reference, generated
        The chunks of both texts.
    similarity
        float64 (n_ref, n_gen), the cosines of the chunks.
    alignment
        All intermediate results.
    params
        Parameters of the metric.
    thresholds
        Thresholds of the verdicts.
    by_reference
        The scores with each reference, in their order; empty if they are not known.
    """

    result: Result
    scores: Scores
    reference: tuple[Chunk, ...]
    generated: tuple[Chunk, ...]
    similarity: npt.NDArray[np.float64]
    alignment: Alignment
    params: Params
    thresholds: Thresholds
    by_reference: tuple[Scores, ...] = ()

    @cached_property
    def costs(self) -> dict[str, float]:
        """The part of the loss `1 - vcs` that is due to each part of the score; see `shares`."""
        return shares(self.scores)

    @property
    def flags(self) -> tuple[str, ...]:
        """What the scores cannot tell by themselves; see `scoring.flags`."""
        return flags_of(self.scores._asdict(), self.alignment.n_ref, self.alignment.n_gen)

    def count(self, verdict: str) -> int:
        """Count the chunks of both texts with this verdict."""
        return sum(chunk.verdict == verdict for chunk in (*self.reference, *self.generated))

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Sentences about repeated chunks if there are any, about VCS, and about the loss of each part."""
        return _sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the matrix and the alignment as plain values for JSON; positions count from 0."""
        return {
            "scores": self.scores.to_dict(),
            "flags": list(self.flags),
            "costs": self.costs,
            "sentences": self.sentences,
            "thresholds": asdict(self.thresholds),
            "generated": [asdict(chunk) for chunk in self.generated],
            "reference": [asdict(chunk) for chunk in self.reference],
            "segmenter": self.result.segmenter,
            "reference_index": self.result.reference_index,
            "n_references": self.result.n_references,
            "signature": self.result.signature,
        }


def explain(
    result: Result, evidence: Evidence, params: Params, thresholds: Thresholds = Thresholds()
) -> Explanation:
    """Explain a result.

    Parameters
    ----------
    result
        A result of `Scorer.stream`.
    evidence
        What `Scorer.stream` yields with the result.
    params
        The parameters with which the pair was scored.
    thresholds
        Thresholds of the verdicts.

    Returns
    -------
    Explanation
        Verdicts, costs and sentences.
    """
    alignment = align(evidence.similarity, params)
    return Explanation(
        result=result,
        scores=alignment.scores(evidence.gas),
        reference=_reference(evidence.chunks[0], alignment, thresholds),
        generated=_generated(evidence, alignment.precision, thresholds),
        similarity=evidence.similarity,
        alignment=alignment,
        params=params,
        thresholds=thresholds,
        by_reference=evidence.by_reference,
    )


def shares(scores: Scores) -> dict[str, float]:
    """Divide `1 - vcs` among GAS, LAS, NAS-D, NAS-L and the regulariser by their Shapley values.

    The five parts are made perfect one after the other, and the share of a part is the gain of VCS in its
    step. The gain is averaged over all orders of the parts. So the shares add up to `1 - vcs` whatever is
    clipped, and do not depend on the order of the parts.
    """
    names = tuple(_PERFECT)
    count = len(names)
    vcs = {}
    for size in range(count + 1):
        for chosen in combinations(names, size):
            parts = {part: value for name in chosen for part, value in _PERFECT[name].items()}
            vcs[frozenset(chosen)] = recombine(scores, **parts).vcs
    gains = dict.fromkeys(names, 0.0)
    for perfect, before in vcs.items():
        for name in names:
            if name not in perfect:
                weight = math.factorial(len(perfect)) * math.factorial(count - len(perfect) - 1)
                gains[name] += weight / math.factorial(count) * (vcs[perfect | {name}] - before)
    return gains


def _reference(texts: Sequence[str], alignment: Alignment, thresholds: Thresholds) -> tuple[Chunk, ...]:
    side = alignment.recall
    # A match that is clearly more similar to another reference chunk is not about this one.
    closest = alignment.precision.max_similarity[side.match]
    covered = (side.similarity >= thresholds.support) & (closest - side.similarity <= thresholds.rival)
    verdicts = [COVERED if is_covered else MISSING for is_covered in covered.tolist()]
    return _chunks(texts, side, verdicts, crossings(side.match, covered), [None] * side.x)


def _generated(evidence: Evidence, side: Orientation, thresholds: Thresholds) -> tuple[Chunk, ...]:
    supported = side.similarity >= thresholds.support
    repeats = repetitions(evidence.chunks, evidence.vectors, side.match, supported, thresholds.repeat)
    repeated = np.array([earlier is not None for earlier in repeats])
    # A repeated chunk says nothing about order: a loop would make everything after it cross.
    ordered = supported & ~repeated
    crossed = crossings(side.match, ordered)
    others = max(1, int(ordered.sum()) - 1)
    # Both sides are relative: the offset to the length of the reference, the crossings to the number of
    # chunks.
    by_order = crossed / others >= thresholds.order * side.distance / side.y
    verdicts = np.select(
        [repeated, ~supported, side.in_window | side.tolerated, by_order],
        [REPEATED, UNSUPPORTED, IN_PLACE, MOVED],
        SHIFTED,
    )
    return _chunks(evidence.chunks[1], side, verdicts.tolist(), crossed, repeats)


def _chunks(
    texts: Sequence[str], side: Orientation, verdicts: Sequence[str], crossed: npt.NDArray[np.int64],
    repeats: Sequence[int | None],
) -> tuple[Chunk, ...]:  # fmt: skip
    offsets = np.where(side.match < side.window_start, -side.distance, side.distance)
    windows = zip(side.window_start.tolist(), side.window_end.tolist(), strict=True)
    columns = (texts, verdicts, side.match.tolist(), side.similarity.tolist(), windows, offsets.tolist(),
               side.penalty.tolist(), crossed.tolist(), repeats)  # fmt: skip
    return tuple(Chunk(*row) for row in zip(*columns, strict=True))


def crossings(match: npt.NDArray[np.int64], supported: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Count for each chunk the supported chunks whose matches are in the other order.

    Parameters
    ----------
    match
        int64 (x,), the position of each chunk's match.
    supported
        bool (x,), which chunks are counted.

    Returns
    -------
    ndarray
        int64 (x,): chunks before it with a later match, and chunks after it with an earlier match.
    """
    counts = np.zeros(len(match), dtype=np.int64)
    for i, place in enumerate(match):
        earlier = supported[:i] & (match[:i] > place)
        later = supported[i + 1 :] & (match[i + 1 :] < place)
        counts[i] = earlier.sum() + later.sum()
    return counts


def _sentences(e: Explanation) -> dict[str, str]:
    s, a, cost = e.scores, e.alignment, e.costs
    most = max(cost, key=lambda name: cost[name])
    total = [f"VCS is {s.vcs:.3f}."] if s.vcs > 0 else []
    total += [why] if (why := describe(s._asdict(), a.n_ref, a.n_gen)) else []
    if s.vcs >= 1.0 - 5e-4:
        total.append("Nothing was lost.")
    else:
        parts = ", ".join(f"{LABELS[n]} {c:.3f}" for n, c in sorted(cost.items(), key=lambda x: -x[1]))
        total.append(f"Of the {1 - s.vcs:.3f} lost, most went to {LABELS[most]} ({parts}).")
    return {
        **_repetition(e),
        "vcs": " ".join(total),
        "gas": f"GAS cost {cost['gas']:.3f}: the cosine of the two whole texts is {s.gas:.3f}.",
        "las": (
            f"LAS cost {cost['las']:.3f}: generated chunks are found in the reference with a mean similarity "
            f"of {s.las_precision:.3f}, the reference's in the generated text with {s.las_recall:.3f}; "
            f"{_of(e.count(UNSUPPORTED), a.n_gen, 'generated')} weakly supported, "
            f"{_of(e.count(MISSING), a.n_ref, 'reference')} missing."
        ),
        "nas_d": f"NAS-D cost {cost['nas_d']:.3f}: {_distances(e)}.",
        "nas_l": f"NAS-L cost {cost['nas_l']:.3f}: {_lines(a)}.",
        "window_regularizer": (
            f"The regulariser cost {cost['window_regularizer']:.3f}: the windows cover {a.window_area} of "
            f"{a.grid_area} cells, so {s.window_regularizer:.3f} of NAS would be earned by any order."
        ),
    }


def _repetition(e: Explanation) -> dict[str, str]:
    if not (count := e.count(REPEATED)):
        return {}
    verb = "repeat" if count > 1 else "repeats"
    return {"repeated": f"{_of(count, len(e.generated), 'generated')} {verb} an earlier one."}


def _distances(e: Explanation) -> str:
    misplaced = [(abs(chunk.offset), i) for i, chunk in enumerate(e.generated) if chunk.penalty > 0]
    misplaced_reference = sum(chunk.penalty > 0 for chunk in e.reference)
    if not misplaced and not misplaced_reference:
        return "every match lies where it was expected"
    text = (
        f"{_of(len(misplaced), len(e.generated), 'generated')} and "
        f"{_of(misplaced_reference, len(e.reference), 'reference')} "
        f"outside the place expected ({e.count(MOVED)} moved, {e.count(SHIFTED)} shifted)"
    )
    if misplaced:
        farthest, i = max(misplaced, key=lambda pair: pair[0])
        text += f", farthest generated chunk {i + 1}, by {farthest}"
    return text


def _lines(a: Alignment) -> str:
    clauses = []
    for name, side in (("generated", a.precision), ("reference", a.recall)):
        lost = side.segment_method.count("none")
        steps = len(side.segment_method)
        if side.x < 2:
            clauses.append(f"a single {name} chunk has no order")
            continue
        band = f"{side.floor_length:.1f} to {side.ceiling_length:.1f}"
        where = "inside" if side.nas_l == 1.0 else "outside"
        clauses.append(
            f"{lost} of {steps} steps of the {name} text go back or leap too far, its path of "
            f"{side.actual_length:.1f} is {where} {band}"
        )
    return "; ".join(clauses)


def _of(count: int, total: int, side: str) -> str:
    return f"{count} of {total} {side} chunk{'s' if total > 1 else ''}"


def position(chunk: Chunk) -> str:
    """Describe where a chunk was expected and found, counting from 1: "expected at 4-5, found at 9 (+4)".

    A repeated chunk names the chunk that it repeats: "repeats 3". A chunk without a counterpart was not found
    anywhere, so the position of its match is given as "nearest: 9".
    """
    if chunk.repeats is not None:
        return f"repeats {chunk.repeats + 1}"
    if chunk.verdict in (MISSING, UNSUPPORTED):
        return f"nearest: {chunk.match + 1}"
    first, last = chunk.expected[0] + 1, chunk.expected[1]
    expected = str(first) if first == last else f"{first}-{last}"
    text = f"expected at {expected}, found at {chunk.match + 1}"
    return f"{text} ({chunk.offset:+d})" if chunk.offset else text


def describe_thresholds(thresholds: Thresholds) -> str:
    """Describe thresholds in one line: "support 0.5, rival 0.3, order 1"."""
    return ", ".join(f"{name} {value:g}" for name, value in asdict(thresholds).items())


def verdict_counts(chunks: Iterable[Chunk]) -> dict[str, int]:
    """Count the chunks of each verdict that occurs, in the order of `VERDICTS`."""
    verdicts = [chunk.verdict for chunk in chunks]
    return {name: verdicts.count(name) for name in VERDICTS if name in verdicts}
