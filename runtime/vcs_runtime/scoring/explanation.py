"""Explanations of a pair's scores: chunk verdicts, part costs, sentences (docs/guide/explain.md).

All inputs are the results of `vcs_numba.align` and the scorer's chunks. Costs are computed with
`vcs_numba.recombine`, so no formula of the metric is repeated here.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from itertools import combinations
from typing import Any, Final

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
    position,
    reference_chunks,
    verdict_counts,
)
from vcs_runtime.text.cleaning import as_written
from vcs_runtime.util.printable import enumerated

#: The parts that can cost something, and the values with which they cost nothing.
_PERFECT: Final = {
    "gas": {"gas": 1.0},
    "las": {"las_precision": 1.0, "las_recall": 1.0},
    "nas_d": {"nas_d_precision": 1.0, "nas_d_recall": 1.0},
    "nas_l": {"nas_l_precision": 1.0, "nas_l_recall": 1.0},
    "window_regularizer": {"window_regularizer": 0.0},
}
#: The name of each part in sentences.
_PART_NAMES: Final = {
    "gas": "theme (GAS)",
    "las": "content (LAS)",
    "nas_d": "place (NAS-D)",
    "nas_l": "steps (NAS-L)",
    "window_regularizer": "chance (regulariser)",
}
#: Smaller amounts are not worth a sentence: they are 0.000 in print.
_NEGLIGIBLE: Final = 5e-4


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
    written
        The parts of the reference and of the generated text from which the chunks were made, with
        their punctuation.
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
    written: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

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
        values = self.scores.to_dict()
        for metric in (self.result.further, self.strict):
            if metric:
                values |= metric._asdict()
        return values

    @cached_property
    def replaced(self) -> tuple[ReplacedWord, ...]:
        """The replaced words in the order of the generated text; () without substitution."""
        if self.words is None:
            return ()
        reference = [chunk.text for chunk in self.reference]
        generated = [chunk.text for chunk in self.generated]
        return replaced_words(self.words, reference, generated)

    @property
    def flags(self) -> tuple[str, ...]:
        """Facts that the scores do not show (docs/reference/vcs.md, section 13)."""
        n_ref, n_gen = self.similarity.shape
        return flags_of(self.scores._asdict(), n_ref, n_gen, self.result.noted)

    def __repr__(self) -> str:
        chunks = f"{len(self.reference)} and {len(self.generated)} chunks"
        return f"<Explanation of {self.result!r}, {chunks}>"

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{escape(self.conclusion)}</b></p>", self.result._repr_html_()]
        sides = (
            ("generated text", self.generated, self.written[1]),
            ("reference", self.reference, self.written[0]),
        )
        for title, chunks, texts in sides:
            rows = [f"<tr><th></th><th>{title}</th><th>verdict</th><th>similarity</th></tr>"]
            for number, (chunk, text) in enumerate(zip(chunks, texts, strict=True), 1):
                where = f"{chunk.verdict}; {position(chunk, self.noun)}"
                cells = (str(number), escape(text), where, f"{chunk.similarity:z.3f}")
                rows.append(f"<tr><td>{'</td><td>'.join(cells)}</td></tr>")
            parts.append(f"<table>{''.join(rows)}</table>")
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.sentences.values())
        return "".join([*parts, f"<ul>{items}</ul>"])

    def count(self, verdict: str) -> int:
        """Count the chunks of both texts with this verdict."""
        return sum(chunk.verdict == verdict for chunk in (*self.reference, *self.generated))

    @property
    def noun(self) -> str:
        """The word for a chunk: "sentence", "segment" (with times), "word" or "chunk" (several)."""
        chunk_size = self.result.signature.partition("|chunk:")[2].partition("|")[0]
        if chunk_size == "word":
            return "word"
        if chunk_size != "1":
            return "chunk"
        return "segment" if self.by_time else "sentence"

    @property
    def by_time(self) -> bool:
        """Whether time stamps judge order (docs/reference/vcs.md, section 16)."""
        return "+time|" in self.result.signature

    @property
    def conclusion(self) -> str:
        """A summary in plain words: content that is left out, added, repeated or moved."""
        return _conclusion(self)

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Sentences by topic: repeated chunks, VCS, its loss, each part, and substitution.

        Repeated chunks are a topic if there are any, and substitution if it was requested.
        """
        return _sentences(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except matrix and alignment as plain JSON values; positions start at 0.

        Scores of HM-CF and substitution, and the replaced words, are included if requested.
        """
        replaced: dict[str, Any] = {}
        if self.strict is not None:
            replaced["replaced"] = [asdict(word) for word in self.replaced]
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
        The evidence that `Scorer.stream` yields with the result.
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
    reference, generated = map(as_written, evidence.texts, evidence.chunks)
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
        written=(tuple(reference), tuple(generated)),
    )


def shares(scores: Scores) -> dict[str, float]:
    """Divide `1 - vcs` among GAS, LAS, NAS-D, NAS-L and the regulariser by their Shapley values.

    The five parts are made perfect one after the other, and the share of a part is the gain of VCS
    in its step. The gain is averaged over all orders of the parts. So the shares add up to `1 -
    vcs` even where a score is clipped, and do not depend on the order of the parts.
    """
    names = tuple(_PERFECT)
    count = len(names)
    # VCS with every subset of the parts made perfect.
    vcs = {}
    for size in range(count + 1):
        for chosen in combinations(names, size):
            parts: dict[str, float] = {}
            for name in chosen:
                parts |= _PERFECT[name]
            vcs[frozenset(chosen)] = recombine(scores, **parts).vcs
    gains = dict.fromkeys(names, 0.0)
    for perfect, before in vcs.items():
        for name in names:
            if name not in perfect:
                weight = math.factorial(len(perfect)) * math.factorial(count - len(perfect) - 1)
                gains[name] += weight / math.factorial(count) * (vcs[perfect | {name}] - before)
    return gains


def _conclusion(e: Explanation) -> str:
    missing, added = e.count(MISSING), e.count(UNSUPPORTED)
    repeated, moved = e.count(REPEATED), e.count(MOVED)
    if not (missing or added or repeated):
        order = "in another order" if moved else "in the same order"
        if e.by_time and e.count(SHIFTED):
            order = "but at other times"
        return f"The whole reference is there, {order}."

    n_ref, n_gen = len(e.reference), len(e.generated)
    of_text = f"of its {n_gen} {e.noun}s"
    repeat, are = _verb(repeated, "repeats", "repeat"), _verb(moved, "is", "are")
    # Each sentence with the share of its text that it is about.
    parts = [
        (missing / n_ref, f"it leaves out {_missing(e, missing)} of the reference."),
        (added / n_gen, f"{_added(e, added)} in the reference."),
        (repeated / n_gen, f"{repeated} {of_text} {repeat} earlier ones."),
        (moved / n_gen, f"{moved} {of_text} {are} in another order."),
    ]
    parts.sort(key=lambda part: -part[0])
    return " ".join(_capitalised(sentence) for share, sentence in parts if share)


def _missing(e: Explanation, count: int) -> str:
    """Return the missing part of the reference: "all 5 sentences", "2 of 5 sentences"."""
    n_ref = len(e.reference)
    if n_ref == 1:
        return f"the only {e.noun}"
    number = "all" if count == n_ref else f"{count} of"
    return f"{number} {n_ref} {e.noun}s"


def _added(e: Explanation, count: int) -> str:
    """Return the beginning of a sentence on added content: "2 of its 5 sentences are not"."""
    n_gen = len(e.generated)
    if n_gen == 1:
        return f"its only {e.noun} is not"
    if count == n_gen:
        return f"none of its {n_gen} {e.noun}s is"
    return f"{count} of its {n_gen} {e.noun}s {_verb(count, 'is', 'are')} not"


def _sentences(e: Explanation) -> dict[str, str]:
    s = e.scores
    costs = {
        part: f"{_capitalised(name)} cost {e.costs[part]:z.3f}"
        for part, name in _PART_NAMES.items()
    }
    return {
        **_repetition(e),
        "vcs": " ".join(_about_vcs(e)),
        "loss": _loss(e),
        "gas": f"{costs['gas']}: the cosine similarity of both texts is {s.gas:z.3f}.",
        "las": (
            f"{costs['las']}: the mean similarity to the best match is {s.las_precision:z.3f} "
            f"for the generated {e.noun}s and {s.las_recall:z.3f} for those of the reference."
        ),
        "nas_d": f"{costs['nas_d']}: {_distances(e)}.",
        "nas_l": f"{costs['nas_l']}: {_lines(e)}.{_gaps(e)}",
        "window_regularizer": f"{costs['window_regularizer']}: {_chance(e)}.",
        **_substitution(e),
    }


def _about_vcs(e: Explanation) -> list[str]:
    sentences = []
    if e.scores.vcs > 0:
        sentences.append(f"VCS is {e.scores.vcs:.3f}.")
    n_ref, n_gen = e.similarity.shape
    reason = describe(e.scores._asdict(), n_ref, n_gen, e.result.noted)
    if reason:
        sentences.append(reason)
    cost_of_order = e.costs["nas_d"] + e.costs["nas_l"] + e.costs["window_regularizer"]
    if e.by_time and cost_of_order > _NEGLIGIBLE:
        sentences.append(
            "Order is judged by time stamps: segments at different times, or with large overlaps,"
            " lower VCS."
        )
    return sentences


def _loss(e: Explanation) -> str:
    if e.scores.vcs >= 1.0 - _NEGLIGIBLE:
        return "Nothing lowered the score."
    by_cost = sorted(e.costs, key=lambda part: -e.costs[part])
    parts = [f"{_PART_NAMES[part]} {e.costs[part]:z.3f}" for part in by_cost]
    return f"What kept the score from 1: {enumerated(parts)}."


def _substitution(e: Explanation) -> dict[str, str]:
    if e.words is None or e.strict is None:
        return {}
    return {"substitution": describe_substitution(e.words, e.replaced, e.scores, e.strict)}


def _repetition(e: Explanation) -> dict[str, str]:
    count = e.count(REPEATED)
    if not count:
        return {}
    repeat = _verb(count, "repeats", "repeat")
    return {"repeated": f"{count} of {len(e.generated)} {e.noun}s {repeat} an earlier one."}


def _distances(e: Explanation) -> str:
    clauses = []
    for side, whose, other in (
        (e.generated, "", "the reference"),
        (e.reference, " of the reference", "the text"),
    ):
        elsewhere = [chunk for chunk in side if chunk.penalty > 0]
        if not elsewhere:
            continue
        counts = verdict_counts(elsewhere)
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        chunks = f"{len(elsewhere)} of {len(side)} {e.noun}s{whose}"
        clauses.append(
            f"for {chunks}, the most similar one in {other} is not where it was expected"
            f" ({verdicts})"
        )
    if not clauses:
        return "every match is where it was expected"
    return "; ".join(clauses)


def _lines(e: Explanation) -> str:
    clauses = []
    for followed, other, side in (
        ("text", "reference", e.alignment.precision),
        ("reference", "text", e.alignment.recall),
    ):
        if side.x < 2:
            clauses.append(f"a single {e.noun} of the {followed} has no order")
            continue
        jumps, steps = side.segment_method.count("none"), len(side.segment_method)
        jump = _verb(jumps, "jumps", "jump")
        clauses.append(
            f"{jumps} of {steps} steps along the {followed} {jump} backwards or too far ahead"
            f" in the {other}"
        )
    return "; ".join(clauses)


def _chance(e: Explanation) -> str:
    chance = e.scores.window_regularizer
    if chance < _NEGLIGIBLE:
        return "nothing is subtracted for chance"
    return (
        f"with so few {e.noun}s any order would get {chance:.3f} of NAS (order); that part is not"
        " counted"
    )


def _gaps(e: Explanation) -> str:
    """Return a sentence about missing chunks if they cost order as well."""
    costs_order = e.costs["nas_d"] + e.costs["nas_l"] > _NEGLIGIBLE
    return f" Missing {e.noun}s cost order, too." if costs_order and e.count(MISSING) else ""


def _verb(count: int, one: str, many: str) -> str:
    return one if count == 1 else many


def _capitalised(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
