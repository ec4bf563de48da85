"""Explanations of a pair's scores: chunk verdicts, part costs, sentences (docs/guide/explain.md).

All inputs are the results of `vcs_numba.align` and the scorer's chunks. Costs are computed with
`vcs_numba.recombine`, so no formula of the metric is repeated here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Alignment, Params, Scores, align, recombine
from vcs_runtime.scoring.flags import describe, flags_of
from vcs_runtime.scoring.replaced import ReplacedWord, describe_substitution, replaced_words
from vcs_runtime.scoring.result import Evidence, ReplacedWords, Result, StrictScores
from vcs_runtime.scoring.substitution import strict_scores
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
    verdict_counts,
)
from vcs_runtime.util.extras import require
from vcs_runtime.util.printable import enumerated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: The parts that can cost something, and the values with which they cost nothing.
_PERFECT: Final = {
    "gas": {"gas": 1.0},
    **{
        name: {f"{name}_precision": 1.0, f"{name}_recall": 1.0}
        for name in ("las", "nas_d", "nas_l")
    },
    "window_regularizer": {"window_regularizer": 0.0},
}
#: What each part is, in a word.
_PLAIN: Final = {
    "gas": "theme (GAS)",
    "las": "content (LAS)",
    "nas_d": "place (NAS-D)",
    "nas_l": "steps (NAS-L)",
    "window_regularizer": "chance (regulariser)",
}


@dataclass(frozen=True, repr=False)
class Explanation:
    """The chunks of a pair with verdicts, its scores, and the alignment from which they result.

    Attributes
    ----------
    result
        The result that is explained.
    scores
        The scores with the explained reference. They are not `result.scores` if that is a mean over
        several references.
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
    words
        The words of both texts; None if the pair was scored without substitution.
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
    words: ReplacedWords | None = None

    @cached_property
    def costs(self) -> dict[str, float]:
        """The part of the loss `1 - vcs` that is due to each part of the score; see `shares`."""
        return shares(self.scores)

    @cached_property
    def strict(self) -> StrictScores | None:
        """Substitution of the explained reference, and the scores that substitution lowers.

        None if the pair was scored without substitution.
        """
        return None if self.words is None else strict_scores(self.words.pairs, self.scores)

    @property
    def values(self) -> dict[str, float]:
        """All scores with the explained reference, by name.

        HM-CF and substitution are included if they were requested.
        """
        further = (metric._asdict() for metric in (self.result.further, self.strict) if metric)
        return self.scores.to_dict() | {
            name: value for scores in further for name, value in scores.items()
        }

    @cached_property
    def replaced(self) -> tuple[ReplacedWord, ...]:
        """The replaced words in the order of the generated text; () without substitution."""
        if self.words is None:
            return ()
        reference, generated = (
            [chunk.text for chunk in side] for side in (self.reference, self.generated)
        )
        return replaced_words(self.words, reference, generated)

    @property
    def flags(self) -> tuple[str, ...]:
        """Facts that the scores do not show (docs/reference/vcs.md, section 13)."""
        return flags_of(self.scores._asdict(), self.alignment.n_ref, self.alignment.n_gen)

    def __repr__(self) -> str:
        chunks = f"{len(self.reference)} and {len(self.generated)} chunks"
        return f"<Explanation of {self.result!r}, {chunks}>"

    def plot(self) -> Figure:
        """Return the figure `vcs_runtime.report.figures.summary`.

        Raises MissingExtraError without matplotlib.
        """
        require("matplotlib", "report", "a figure")
        # By name, since this package imports none above it.
        figures = import_module("vcs_runtime.report.figures")
        return figures.summary(self)  # type: ignore[no-any-return]

    def count(self, verdict: str) -> int:
        """Count the chunks of both texts with this verdict."""
        return sum(chunk.verdict == verdict for chunk in (*self.reference, *self.generated))

    @property
    def noun(self) -> str:
        """The word for a chunk: "sentence", "segment" (with times), "word" or "chunk" (several)."""
        kind = self.result.signature.partition("|chunk:")[2].partition("|")[0]
        return {"1": "segment" if self.by_time else "sentence", "word": "word"}.get(kind, "chunk")

    @property
    def by_time(self) -> bool:
        """Whether time stamps judge order (docs/reference/vcs.md, section 16)."""
        return "+time|" in self.result.signature

    @property
    def conclusion(self) -> str:
        """A summary in plain words: content that is left out, added, repeated or moved."""
        missing, added, again, moved = map(self.count, (MISSING, UNSUPPORTED, REPEATED, MOVED))
        if not (missing or added or again):
            order = "in another order" if moved else "in the same order"
            if self.by_time and self.count(SHIFTED):
                order = "but at other times"
            return f"All of it is there, {order}."
        of_ref, of_gen = len(self.reference), len(self.generated)
        n_gen = f"{of_gen} {self.noun}s"
        lost = f"{'all' if missing == of_ref else f'{missing} of'} {of_ref} {self.noun}s"
        are = _verb(added, "is", "are")
        none = f"none of its {n_gen} is" if added == of_gen else f"{added} of its {n_gen} {are} not"
        if of_ref == 1:
            lost = f"the only {self.noun}"
        if of_gen == 1:
            none = f"its only {self.noun} is not"
        parts = [
            (missing / of_ref, f"it leaves out {lost} of the reference."),
            (added / of_gen, f"{none} in the reference."),
            (
                again / of_gen,
                f"{again} of its {n_gen} {_verb(again, 'repeats', 'repeat')} earlier ones.",
            ),
            (
                moved / of_gen,
                f"{moved} of its {n_gen} {_verb(moved, 'is', 'are')} in another order.",
            ),
        ]
        parts.sort(key=lambda part: -part[0])
        return " ".join(text[0].upper() + text[1:] for share, text in parts if share)

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Sentences about repeated chunks if there are any, about VCS, about the loss of each part.

        If the pair was scored with substitution, one says what was replaced.
        """
        return _sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all but the matrix and the alignment as plain JSON values, with positions from 0.

        The scores of HM-CF and of substitution are there only if they were asked for, and so are
        the replaced words.
        """
        replaced = (
            {} if self.strict is None else {"replaced": [asdict(word) for word in self.replaced]}
        )
        return {
            "scores": self.values,
            "flags": list(self.flags),
            "costs": self.costs,
            "sentences": self.sentences,
            "thresholds": asdict(self.thresholds),
            "generated": [asdict(chunk) for chunk in self.generated],
            "reference": [asdict(chunk) for chunk in self.reference],
            **replaced,
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
    alignment = align(evidence.similarity, params, evidence.times)
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
        words=evidence.words,
    )


def shares(scores: Scores) -> dict[str, float]:
    """Divide `1 - vcs` among GAS, LAS, NAS-D, NAS-L and the regulariser by their Shapley values.

    The five parts are made perfect one after the other, and the share of a part is the gain of VCS
    in its step. The gain is averaged over all orders of the parts. So the shares add up to `1 -
    vcs` whatever is clipped, and do not depend on the order of the parts.
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
    total = [f"VCS is {s.vcs:.3f}."] if s.vcs > 0 else []
    total += [why] if (why := describe(s._asdict(), a.n_ref, a.n_gen)) else []
    if e.by_time and cost["nas_d"] + cost["nas_l"] + cost["window_regularizer"] > 5e-4:
        total.append(
            "Time stamps judge order: segments at other times, or that overlap much, lower VCS."
        )
    parts = [f"{_PLAIN[n]} {c:z.3f}" for n, c in sorted(cost.items(), key=lambda x: -x[1])]
    lost = f"The loss of {1 - s.vcs:.3f} is made up of {enumerated(parts)}."
    said = {n: f"{text[0].upper()}{text[1:]} cost {cost[n]:z.3f}" for n, text in _PLAIN.items()}
    return {
        **_repetition(e),
        "vcs": " ".join(total),
        "loss": "Nothing was lost." if s.vcs >= 1.0 - 5e-4 else lost,
        "gas": f"{said['gas']}: the cosine similarity of both texts is {s.gas:z.3f}.",
        "las": (
            f"{said['las']}: the mean similarity to the best match is {s.las_precision:z.3f} "
            f"for the generated {e.noun}s and {s.las_recall:z.3f} for those of the reference."
        ),
        "nas_d": f"{said['nas_d']}: {_distances(e)}.",
        "nas_l": f"{said['nas_l']}: {_lines(e)}.{_gaps(e)}",
        "window_regularizer": f"{said['window_regularizer']}: {_chance(e)}.",
        **_substitution(e),
    }


def _substitution(e: Explanation) -> dict[str, str]:
    if e.words is None or e.strict is None:
        return {}
    return {"substitution": describe_substitution(e.words, e.replaced, e.scores, e.strict)}


def _repetition(e: Explanation) -> dict[str, str]:
    count = e.count(REPEATED)
    said = (
        f"{count} of {len(e.generated)} {e.noun}s {_verb(count, 'repeats', 'repeat')} an earlier"
        " one."
    )
    return {"repeated": said} if count else {}


def _distances(e: Explanation) -> str:
    clauses = []
    for side, whose, other in (
        (e.generated, "", "the reference"),
        (e.reference, " of the reference", "the text"),
    ):
        if elsewhere := [chunk for chunk in side if chunk.penalty > 0]:
            counts = ", ".join(
                f"{count} {verdict}" for verdict, count in verdict_counts(elsewhere).items()
            )
            of = f"{len(elsewhere)} of {len(side)} {e.noun}s{whose}"
            clauses.append(
                f"{of} {_verb(len(elsewhere), 'stands', 'stand')} elsewhere in {other} ({counts})"
            )
    return "; ".join(clauses) or "every match is where it was expected"


def _lines(e: Explanation) -> str:
    clauses = []
    a = e.alignment
    for followed, other, side in (
        ("text", "reference", a.precision),
        ("reference", "text", a.recall),
    ):
        lost, steps = side.segment_method.count("none"), len(side.segment_method)
        if side.x < 2:
            clauses.append(f"a single {e.noun} of the {followed} has no order")
        else:
            jumps = (
                f"{lost} of {steps} steps {_verb(lost, 'jumps', 'jump')} backwards or too far ahead"
            )
            clauses.append(f"following the {followed}, {jumps} in the {other}")
    return "; ".join(clauses)


def _chance(e: Explanation) -> str:
    if (chance := e.scores.window_regularizer) < 5e-4:
        return "nothing is taken off for chance"
    return (
        f"with so few {e.noun}s any order would get {chance:.3f} of NAS (order); that part is not"
        " counted"
    )


def _gaps(e: Explanation) -> str:
    """Say that what is missing costs order as well, where it does."""
    lost = e.costs["nas_d"] + e.costs["nas_l"] > 5e-4
    return f" Missing {e.noun}s cost order, too." if lost and e.count(MISSING) else ""


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many
