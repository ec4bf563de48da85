"""Why a pair scores as it does: verdicts on chunks, costs of parts, sentences (docs/guide/explain.md).

All inputs are the results of `vcs_numba.align` and the scorer's chunks. Costs are computed with
`vcs_numba.recombine`, so no formula of the metric is repeated here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Alignment, Params, Scores, align, recombine
from vcs_runtime.scoring.flags import describe, flags_of
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.scoring.verdicts import (
    MISSING,
    MOVED,
    REPEATED,
    SHIFTED,
    UNSUPPORTED,
    Chunk,
    Thresholds,
    generated_chunks,
    reference_chunks,
)

#: The parts that can cost something, and the values with which they cost nothing.
_PERFECT: Final = {
    "gas": {"gas": 1.0},
    "las": {"las_precision": 1.0, "las_recall": 1.0},
    "nas_d": {"nas_d_precision": 1.0, "nas_d_recall": 1.0},
    "nas_l": {"nas_l_precision": 1.0, "nas_l_recall": 1.0},
    "window_regularizer": {"window_regularizer": 0.0},
}


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
        """What the scores cannot tell by themselves (docs/reference/vcs.md, section 13)."""
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
        reference=reference_chunks(evidence, alignment, thresholds),
        generated=generated_chunks(evidence, alignment, thresholds),
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
