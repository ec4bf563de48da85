"""Why a pair scores as it does: a verdict for every chunk, what each part cost, in words (docs/explain.md).

Everything is read off `vcs_numba.align` and the scorer's chunks; what a part costs is asked of
`vcs_numba.recombine`. No formula of the metric stands here.
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
from vcs_runtime.scoring.result import Evidence, Result

#: Verdicts on generated chunks, and on the reference's.
IN_PLACE, SHIFTED, MOVED, UNSUPPORTED = "in place", "shifted", "moved", "weakly supported"
COVERED, MISSING = "covered", "missing"

#: What a verdict says.
VERDICTS: Final = {
    IN_PLACE: "its counterpart is where it was expected",
    SHIFTED: "in the right order, but not where it was expected: text is missing or was added around it",
    MOVED: "in another order than the reference tells it",
    UNSUPPORTED: "nothing in the reference is like it: possibly invented",
    COVERED: "the generated text has its like",
    MISSING: "nothing in the generated text is like it",
}

#: The parts that cost, and what they are when they cost nothing.
_PERFECT: Final = {
    "gas": {"gas": 1.0},
    "las": {"las_precision": 1.0, "las_recall": 1.0},
    "nas_d": {"nas_d_precision": 1.0, "nas_d_recall": 1.0},
    "nas_l": {"nas_l_precision": 1.0, "nas_l_recall": 1.0},
    "window_regularizer": {"window_regularizer": 0.0},
}


@dataclass(frozen=True)
class Thresholds:
    """Where verdicts begin. docs/explain.md says how the values were chosen, and what they get right.

    support  in [-1, 1]: a chunk whose match is less similar is weakly supported, or missing. It belongs to
             the embedding model: this one to the embedded default
    rival    in [0, 2]: a reference chunk is missing, too, if its match is by more than this closer to another
             reference chunk: then it tells that one
    order    in [0, 1]: a chunk outside its window is moved if changed order explains at least this part of
             its offset, both as parts of their texts; else it is shifted
    """

    support: float = 0.5
    rival: float = 0.3
    order: float = 1.0

    def __post_init__(self) -> None:
        for name, low, high in (("support", -1, 1), ("rival", 0, 2), ("order", 0, 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise ValueError(f"{name} must be a number between {low} and {high}, not {value!r}")


@dataclass(frozen=True)
class Chunk:
    """A chunk, its match on the other side, and the verdict. Positions count chunks from 0.

    expected  the mapping window, half-open; offset: chunks between match and window, negative before it
    penalty   NAS-D's charge, as a part of the other side's length
    crossed   with how many supported chunks of its own side it stands in another order than their matches
    """

    text: str
    verdict: str
    match: int
    similarity: float
    expected: tuple[int, int]
    offset: int
    penalty: float
    crossed: int


@dataclass(frozen=True)
class Explanation:
    """A pair's chunks with verdicts, its scores, and the alignment behind them.

    similarity  `(n_ref, n_gen)` float64
    scores      of this reference; with several references and `aggregate="mean"` not `result.scores`
    """

    result: Result
    scores: Scores
    reference: tuple[Chunk, ...]
    generated: tuple[Chunk, ...]
    similarity: npt.NDArray[np.float64]
    alignment: Alignment
    params: Params
    thresholds: Thresholds

    @cached_property
    def costs(self) -> dict[str, float]:
        """What each part took from a VCS of 1; the sum is `1 - vcs`. See `shares`."""
        return shares(self.scores)

    def count(self, verdict: str) -> int:
        """How many chunks have this verdict."""
        return sum(chunk.verdict == verdict for chunk in (*self.reference, *self.generated))

    @cached_property
    def sentences(self) -> dict[str, str]:
        """One sentence for VCS and for each part: what pulled it down, and what that cost."""
        return _sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values for JSON, without the matrix; positions count from 0."""
        return {
            "scores": self.scores.to_dict(),
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
    """Explain a Result of `Scorer.stream` that was scored with `params`."""
    alignment = align(evidence.similarity, params)
    reference, generated = evidence.chunks
    return Explanation(
        result=result,
        scores=alignment.scores(evidence.gas),
        reference=_reference(reference, alignment, thresholds),
        generated=_generated(generated, alignment.precision, thresholds),
        similarity=evidence.similarity,
        alignment=alignment,
        params=params,
        thresholds=thresholds,
    )


def shares(scores: Scores) -> dict[str, float]:
    """`1 - vcs`, divided among GAS, LAS, NAS-D, NAS-L and the regulariser by their Shapley values.

    A part's share is what VCS gains when the part is made perfect, averaged over all orders in which the five
    can be made perfect one after the other. So the shares add up whatever was clipped on the way, and none
    depends on which part is named first.
    """
    names = tuple(_PERFECT)
    count = len(names)
    vcs = {}
    for size in range(count + 1):
        for chosen in combinations(names, size):
            parts = {part: value for name in chosen for part, value in _PERFECT[name].items()}
            vcs[frozenset(chosen)] = recombine(scores, **parts).vcs
    found = dict.fromkeys(names, 0.0)
    for done, before in vcs.items():
        for name in names:
            if name not in done:
                weight = math.factorial(len(done)) * math.factorial(count - len(done) - 1)
                found[name] += weight / math.factorial(count) * (vcs[done | {name}] - before)
    return found


def _reference(texts: Sequence[str], alignment: Alignment, thresholds: Thresholds) -> tuple[Chunk, ...]:
    side = alignment.recall
    # How close the match is to any chunk: if clearly closer than to this one, it is not about this one.
    closest = alignment.precision.max_similarity[side.match]
    covered = (side.similarity >= thresholds.support) & (closest - side.similarity <= thresholds.rival)
    verdicts = [COVERED if here else MISSING for here in covered.tolist()]
    return _chunks(texts, side, verdicts, crossings(side.match, covered))


def _generated(texts: Sequence[str], side: Orientation, thresholds: Thresholds) -> tuple[Chunk, ...]:
    supported = side.similarity >= thresholds.support
    crossed = crossings(side.match, supported)
    others = max(1, int(supported.sum()) - 1)
    # Of the reference's length the offset is one part, of the generated chunks those crossed are another.
    by_order = crossed / others >= thresholds.order * side.distance / side.y
    verdicts = np.select(
        [~supported, side.in_window | side.tolerated, by_order], [UNSUPPORTED, IN_PLACE, MOVED], SHIFTED
    )
    return _chunks(texts, side, verdicts.tolist(), crossed)


def _chunks(
    texts: Sequence[str], side: Orientation, verdicts: Sequence[str], crossed: npt.NDArray[np.int64]
) -> tuple[Chunk, ...]:
    offsets = np.where(side.match < side.window_start, -side.distance, side.distance)
    windows = zip(side.window_start.tolist(), side.window_end.tolist(), strict=True)
    columns = (texts, verdicts, side.match.tolist(), side.similarity.tolist(), windows, offsets.tolist(),
               side.penalty.tolist(), crossed.tolist())  # fmt: skip
    return tuple(Chunk(*row) for row in zip(*columns, strict=True))


def crossings(match: npt.NDArray[np.int64], supported: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """For each chunk, how many supported ones before it match behind its match, or behind it before it."""
    found = np.zeros(len(match), dtype=np.int64)
    for i, at in enumerate(match):
        found[i] = (supported[:i] & (match[:i] > at)).sum() + (
            supported[i + 1 :] & (match[i + 1 :] < at)
        ).sum()
    return found


def _sentences(e: Explanation) -> dict[str, str]:
    s, a, cost = e.scores, e.alignment, e.costs
    most = max(cost, key=lambda name: cost[name])
    lost = f"VCS is {s.vcs:.3f}: "
    if s.vcs >= 1.0 - 5e-4:
        lost += "nothing was lost."
    else:
        parts = ", ".join(f"{LABELS[n]} {c:.3f}" for n, c in sorted(cost.items(), key=lambda x: -x[1]))
        lost += f"of the {1 - s.vcs:.3f} lost, most went to {LABELS[most]} ({parts})."
    return {
        "vcs": lost,
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


def _distances(e: Explanation) -> str:
    off = [(abs(chunk.offset), i) for i, chunk in enumerate(e.generated) if chunk.penalty > 0]
    back = sum(chunk.penalty > 0 for chunk in e.reference)
    if not off and not back:
        return "every match lies where it was expected"
    text = (
        f"{_of(len(off), len(e.generated), 'generated')} and {_of(back, len(e.reference), 'reference')} "
        f"outside the place expected ({e.count(MOVED)} moved, {e.count(SHIFTED)} shifted)"
    )
    if off:
        farthest, i = max(off, key=lambda pair: pair[0])
        text += f", farthest generated chunk {i + 1}, by {farthest}"
    return text


def _lines(a: Alignment) -> str:
    said = []
    for name, side in (("generated", a.precision), ("reference", a.recall)):
        lost = side.segment_method.count("none")
        steps = len(side.segment_method)
        if side.x < 2:
            said.append(f"a single {name} chunk has no order")
            continue
        band = f"{side.floor_length:.1f} to {side.ceiling_length:.1f}"
        where = "inside" if side.nas_l == 1.0 else "outside"
        said.append(
            f"{lost} of {steps} steps of the {name} text go back or leap too far, its path of "
            f"{side.actual_length:.1f} is {where} {band}"
        )
    return "; ".join(said)


def _of(count: int, total: int, what: str) -> str:
    return f"{count} of {total} {what} chunk{'s' if total > 1 else ''}"


#: The field's names of the scores.
LABELS: Final = {
    "vcs": "VCS", "gas": "GAS", "las": "LAS", "las_precision": "LAS precision", "las_recall": "LAS recall",
    "sas": "SAS", "nas": "NAS", "nas_f1": "NAS F1", "nas_d": "NAS-D", "nas_d_precision": "NAS-D precision",
    "nas_d_recall": "NAS-D recall", "nas_l": "NAS-L", "nas_l_precision": "NAS-L precision",
    "nas_l_recall": "NAS-L recall", "window_regularizer": "regulariser",
}  # fmt: skip


def position(chunk: Chunk) -> str:
    """Where a chunk was expected and what its verdict amounts to, counting from 1: "4-5, found at 9 (+4)"."""
    first, last = chunk.expected[0] + 1, chunk.expected[1]
    expected = str(first) if first == last else f"{first}-{last}"
    found = f"expected at {expected}, found at {chunk.match + 1}"
    return f"{found} ({chunk.offset:+d})" if chunk.offset else found


def thresholds_said(thresholds: Thresholds) -> str:
    """The thresholds in a line: "support 0.5, rival 0.3, order 1"."""
    return ", ".join(f"{name} {value:g}" for name, value in asdict(thresholds).items())


def verdict_counts(chunks: Iterable[Chunk]) -> dict[str, int]:
    """How many chunks have which verdict, in the order of `VERDICTS`."""
    found = [chunk.verdict for chunk in chunks]
    return {name: found.count(name) for name in VERDICTS if name in found}
