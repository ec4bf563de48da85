"""Pairs and their results: `Result`, and the `Evidence` from which a result is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba import HmCf, Scores, Substitution
from vcs_runtime.scoring.flags import describe, flags_of
from vcs_runtime.scoring.score_table import (
    ALL,
    FURTHER,
    HEADLINE,
    HM_CF,
    LABELS,
    SCORES,
    SMALLER_IS_BETTER,
    SUBSTITUTION,
    up_to,
)
from vcs_runtime.util.extras import require
from vcs_runtime.words.reading import TextWords

Reference = str | Sequence[str]
Pair = tuple[Reference, str]
_SHOWN = up_to(HEADLINE)  # in a notebook


class _ScoresByName:
    """Every score of `score_table` as a property: `result.las` is that of `result.scores`."""

    __slots__ = ()

    if TYPE_CHECKING:  # what editors complete
        vcs = margin = gas = las = las_precision = las_recall = sas = nas = nas_f1 = (
            window_regularizer
        ) = 0.0
        nas_d = nas_d_precision = nas_d_recall = nas_l = nas_l_precision = nas_l_recall = 0.0
        coarse = fine_precision = fine_recall = fine_f1 = hm_cf = 0.0
        substitution = replaced_things = replaced_actions = replaced_qualities = replaced_names = (
            0.0
        )
        vcs_strict = margin_strict = 0.0


def _property(name: str, part: str) -> property:
    """Return the property of a score; its value is NaN for a result without the `part`.

    `part` is the attribute of the result that holds the score.
    """
    when = "" if part == "scores" else "without `also`, or "
    return property(
        lambda result: float(getattr(getattr(result, part), name, math.nan)),
        doc=f"{ALL[name].meaning}; NaN {when}if the pair could not be scored.",
    )


for _part, _names in (("scores", SCORES), ("further", HM_CF), ("strict", SUBSTITUTION)):
    for _name in _names:
        setattr(_ScoresByName, _name, _property(_name, _part))


class StrictScores(NamedTuple):
    """Substitution of a pair, and what it lowers (docs/reference/vcs.md, section 15)."""

    substitution: float
    replaced_things: float
    replaced_actions: float
    replaced_qualities: float
    replaced_names: float
    vcs_strict: float
    margin_strict: float


@dataclass(frozen=True, slots=True, repr=False)
class Result(_ScoresByName):
    """The scores of one pair, or the reason why it has none.

    Every score is an attribute of its own, too: `result.vcs`, `result.las`. It is NaN without
    scores.

    Attributes
    ----------
    scores
        Every score of docs/reference/vcs.md, section 12; None if the pair could not be scored.
    n_ref
        Number of chunks of the reference, of several the winning one; 0 without scores.
    n_gen
        Number of chunks of the generated text; 0 without scores.
    signature
        How the score came about.
    reference_index
        Index of the best reference: the one with the highest VCS, then margin, then GAS, then the
        other scores, so that the order of the references changes no score. With `aggregate="mean"`
        the scores are means over all references.
    n_references
        Number of references.
    error
        Why there are no scores; None if there are.
    segmenter
        Name of the segmenter that split all texts of the pair; None for short texts.
    further
        HM-CF and its parts; None if `Options.also` does not ask for it. With several references,
        those of the one with the highest HM-CF.
    strict
        Substitution and what it lowers; None if `Options.also` does not ask for it. With several
        references, those of the best one, or the means.
    """

    scores: Scores | None
    n_ref: int
    n_gen: int
    signature: str
    reference_index: int = 0
    n_references: int = 1
    error: str | None = None
    segmenter: str | None = None
    further: HmCf | None = None
    strict: StrictScores | None = None

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics beside VCS that the result has."""
        return tuple(
            metric for metric, own in zip(FURTHER, (self.further, self.strict), strict=True) if own
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """Facts not in the scores, such as "below_gate" (docs/reference/vcs.md, section 13)."""
        return (
            () if self.scores is None else flags_of(self.scores._asdict(), self.n_ref, self.n_gen)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a flat dictionary for JSON: scores, counts, flags and the signature.

        A pair without scores has only `error` and the signature.
        """
        if self.scores is None:
            return {"error": self.error, "signature": self.signature}
        result: dict[str, Any] = self.scores._asdict()
        result |= self.further._asdict() if self.further else {}
        result |= self.strict._asdict() if self.strict else {}
        result |= {"n_ref": self.n_ref, "n_gen": self.n_gen}
        result |= {"flags": list(self.flags), "segmenter": self.segmenter}
        if self.n_references > 1:
            result |= {"reference_index": self.reference_index, "n_references": self.n_references}
        return {**result, "signature": self.signature}

    def __repr__(self) -> str:
        if self.scores is None:
            return f"Result(error={self.error!r})"
        flags = f", flags={self.flags}" if self.flags else ""
        return (
            f"Result({', '.join(f'{name}={getattr(self, name):z.3f}' for name in _SHOWN)}{flags})"
        )

    def _repr_html_(self) -> str:
        return Results([self])._repr_html_()


class Results(list[Result]):
    """A list of the results of many pairs, with mean scores and export to tables of libraries."""

    def mean(self) -> dict[str, float]:
        """Return the mean of each score over the pairs that have scores; {} if none has."""
        rows = [result.to_dict() for result in self if result.scores is not None]
        names = [name for name in ALL if rows and all(name in row for row in rows)]
        return {name: math.fsum(row[name] for row in rows) / len(rows) for name in names}

    def worst(
        self,
        n: int,
        pairs: Iterable[Pair],
        *,
        ids: Iterable[str | int] | None = None,
        score: str = "margin",
        explain: Callable[[Reference, str], Any] | None = None,
    ) -> list[dict[str, str | int | float]]:
        """Return the n worst pairs as rows for an experiment tracker, the worst first.

        Parameters
        ----------
        n
            Number of rows; pairs without scores are left out.
        pairs
            The pairs (reference, generated) that were scored, in the order of the results.
        ids
            The name of each pair; by default its position, from 0.
        score
            The score that ranks; where it is equal margin, VCS and GAS decide.
        explain
            `Scorer.explain`: the reason is what one can see in the pair, as `score --worst` prints
            it. Without it, the reason is what the flags say, or "".

        Returns
        -------
        list of dict
            `id`, `reference` (of several the best one), `generated`, the score by its name, and
            `reason`.

        Raises
        ------
        ValueError
            `n` is below 1, the numbers of pairs or ids are not that of the results, or `score` does
            not rank.
        """
        pairs, ranking = list(pairs), (score, "margin", "vcs", "gas")
        names = list(range(len(pairs)) if ids is None else ids)
        for what, given in (("pairs", pairs), ("ids", names)):
            if len(given) != len(self):
                raise ValueError(f"{what}: {len(given)}, but there are {len(self)} results")
        if n < 1:
            raise ValueError(f"n must be 1 or more, not {n}")
        if score not in ALL or score in SMALLER_IS_BETTER:
            raise ValueError(f"score: pairs are not ranked by {score!r}")
        scored = [row for row in zip(self, names, pairs, strict=True) if row[0].scores is not None]
        if any(math.isnan(getattr(result, score)) for result, _, _ in scored):
            raise ValueError(f"score: the results have no {score!r}: score them with `also`")
        scored.sort(key=lambda row: [getattr(row[0], name) for name in ranking])
        rows: list[dict[str, str | int | float]] = []
        for result, name, (reference, generated) in scored[:n]:
            assert result.scores is not None
            text = reference if isinstance(reference, str) else reference[result.reference_index]
            reason = explain(reference, generated).conclusion if explain else ""
            reason = reason or describe(result.scores._asdict(), result.n_ref, result.n_gen)
            row = {"id": name, "reference": text, "generated": generated}
            rows.append({**row, score: getattr(result, score), "reason": reason})
        return rows

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row for each pair.

        Raises MissingExtraError without pandas.
        """
        return require("pandas", (), "to_pandas").DataFrame([result.to_dict() for result in self])

    def to_polars(self) -> Any:
        """Return a polars DataFrame with one row for each pair.

        Raises MissingExtraError without polars.
        """
        rows = [result.to_dict() for result in self]
        return require("polars", (), "to_polars").DataFrame(rows, infer_schema_length=None)

    def _repr_html_(self) -> str:
        rows = [[LABELS[name] for name in _SHOWN] + ["flags or error"]]
        for result in self:
            why = result.error or ", ".join(result.flags)
            rows.append([*(f"{getattr(result, name):z.3f}" for name in _SHOWN), escape(why)])
        lines = ("<tr><td>" + "</td><td>".join(row) + "</td></tr>" for row in rows)
        return f"<table>{''.join(lines)}</table>"


class ReplacedWords(NamedTuple):
    """The words of a pair, and which of them another word replaced."""

    reference: TextWords
    generated: TextWords
    pairs: Substitution


class Evidence(NamedTuple):
    """The inputs of a pair's scores, for the best reference if there are several.

    Attributes
    ----------
    chunks
        The chunks of the reference, and of the generated text.
    similarity
        float64 (n_ref, n_gen), the cosines of the chunks.
    gas
        The cosine of the whole texts.
    by_reference
        The scores with each reference, in their order; empty if they are not known.
    vectors
        Unit vectors of the chunks, float32 (n_ref, d) and (n_gen, d); None if only their cosines
        are known.
    words
        The words of both texts; None if `Options.also` does not ask for substitution.
    times
        Start and end of the chunks in seconds, float64 (n_ref, 2) and (n_gen, 2), if windows are by
        time.
    """

    chunks: tuple[list[str], list[str]]
    similarity: npt.NDArray[np.float64]
    gas: float
    by_reference: tuple[Scores, ...] = ()
    vectors: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None
    words: ReplacedWords | None = None
    times: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None


def merit(scores: Scores) -> tuple[float, ...]:
    """Return the sort key for the best of several references: VCS, margin, GAS, then all scores.

    With all other scores at its end, references that tie give the same result in any order.
    """
    return (scores.vcs, scores.margin, scores.gas, *scores)


def as_pairs(
    pairs: Iterable[Pair] | None,
    references: Iterable[Reference] | None,
    predictions: Iterable[str] | None,
) -> list[Pair]:
    """Return a list of pairs, given as pairs or as references and predictions.

    See `Scorer.score_many`.
    """
    if (pairs is None) == (references is None and predictions is None):
        raise TypeError("give either pairs, or references and predictions")
    if pairs is not None:
        pairs = list(pairs)
        if pairs and all(isinstance(pair, str) for pair in pairs):
            raise TypeError("pairs: expected pairs (reference, generated), not texts")
        return pairs
    if (
        references is None
        or predictions is None
        or isinstance(references, str)
        or isinstance(predictions, str)
    ):
        raise TypeError("references and predictions: expected two lists of equal length")
    references, predictions = list(references), list(predictions)
    if predictions and not any(isinstance(text, str) for text in predictions):
        raise TypeError(
            "predictions: expected texts; several texts a pair belong to references: swapped?"
        )
    if len(references) != len(predictions):
        raise ValueError(
            f"predictions: {len(predictions)} texts, but there are {len(references)} references"
        )
    return list(zip(references, predictions, strict=True))
