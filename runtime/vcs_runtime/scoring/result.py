"""Pairs and their results: `Result`, and the `Evidence` from which a result is computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from operator import attrgetter
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from vcs_numba import HmCf, Scores, Substitution
from vcs_runtime.scoring.flags import describe, flags_of
from vcs_runtime.scoring.score_table import ALL, HEADLINE, LABELS, SMALLER_IS_BETTER, up_to
from vcs_runtime.util.extras import require
from vcs_runtime.words.reading import TextWords

Reference = str | Sequence[str]
Pair = tuple[Reference, str]
_SHOWN = up_to(HEADLINE)  # in a notebook


class _Score:
    """A score as an attribute of a result; NaN if the result does not have it.

    `part` is the attribute of the result that holds the score.
    """

    def __init__(self, part: str) -> None:
        self._part = part

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        condition = "" if self._part == "scores" else "without `also`, or "
        self.__doc__ = f"{ALL[name].meaning}; NaN {condition}if the pair could not be scored."

    @overload
    def __get__(self, result: None, owner: type) -> _Score: ...
    @overload
    def __get__(self, result: _ScoresByName, owner: type) -> float: ...
    def __get__(self, result: _ScoresByName | None, owner: type) -> float | _Score:
        if result is None:
            return self
        scores = getattr(result, self._part)
        return float(getattr(scores, self._name, math.nan))


class _ScoresByName:
    """Every score of `score_table` as an attribute, such as `result.las`."""

    __slots__ = ()

    vcs = _Score("scores")
    margin = _Score("scores")
    gas = _Score("scores")
    las = _Score("scores")
    las_precision = _Score("scores")
    las_recall = _Score("scores")
    sas = _Score("scores")
    nas = _Score("scores")
    nas_f1 = _Score("scores")
    nas_d = _Score("scores")
    nas_d_precision = _Score("scores")
    nas_d_recall = _Score("scores")
    nas_l = _Score("scores")
    nas_l_precision = _Score("scores")
    nas_l_recall = _Score("scores")
    window_regularizer = _Score("scores")

    coarse = _Score("further")
    fine_precision = _Score("further")
    fine_recall = _Score("further")
    fine_f1 = _Score("further")
    hm_cf = _Score("further")

    substitution = _Score("strict")
    replaced_things = _Score("strict")
    replaced_actions = _Score("strict")
    replaced_qualities = _Score("strict")
    replaced_names = _Score("strict")
    vcs_strict = _Score("strict")
    margin_strict = _Score("strict")


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
    """The scores of one pair, or the reason why there are no scores.

    Every score is also an attribute, such as `result.vcs`. Without scores the attribute is NaN.

    Attributes
    ----------
    scores
        Every score of docs/reference/vcs.md, section 12; None if the pair could not be scored.
    n_ref
        Number of chunks of the reference, or of the best one of several; 0 without scores.
    n_gen
        Number of chunks of the generated text; 0 without scores.
    signature
        The line that says how the score was computed.
    reference_index
        Index of the best reference: by the highest VCS, then margin, then GAS, then the other
        scores. So the order of the references changes no score. With `aggregate="mean"` the scores
        are means over all references.
    n_references
        Number of references.
    error
        Why there are no scores; None if there are scores.
    segmenter
        Name of the segmenter that split all texts of the pair; None for short texts.
    further
        HM-CF and its parts; None if `Options.also` does not ask for it. With several references,
        they belong to the reference with the highest HM-CF.
    strict
        Substitution and the scores that it lowers; None if `Options.also` does not ask for it. With
        several references, they belong to the best one, or are means.
    noted
        Flags that follow from the texts and not from the scores: "not_split", or no flag.
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
    noted: tuple[str, ...] = ()

    @property
    def also(self) -> tuple[str, ...]:
        """The metrics of the result in addition to VCS."""
        metrics = []
        if self.further:
            metrics.append("hm-cf")
        if self.strict:
            metrics.append("substitution")
        return tuple(metrics)

    @property
    def flags(self) -> tuple[str, ...]:
        """Facts that no score shows, such as "below_gate" (docs/reference/vcs.md, section 13)."""
        if self.scores is None:
            return ()
        return flags_of(self.scores._asdict(), self.n_ref, self.n_gen, self.noted)

    def to_dict(self) -> dict[str, Any]:
        """Return a flat dictionary for JSON: scores, counts, flags and the signature.

        A pair without scores has only `error` and the signature.
        """
        if self.scores is None:
            return {"error": self.error, "signature": self.signature}
        result: dict[str, Any] = self.scores._asdict()
        if self.further:
            result |= self.further._asdict()
        if self.strict:
            result |= self.strict._asdict()
        result["n_ref"] = self.n_ref
        result["n_gen"] = self.n_gen
        result["flags"] = list(self.flags)
        result["segmenter"] = self.segmenter
        if self.n_references > 1:
            result["reference_index"] = self.reference_index
            result["n_references"] = self.n_references
        result["signature"] = self.signature
        return result

    def __repr__(self) -> str:
        if self.scores is None:
            return f"Result(error={self.error!r})"
        parts = [f"{name}={getattr(self, name):z.3f}" for name in _SHOWN]
        if self.flags:
            parts.append(f"flags={self.flags}")
        return f"Result({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return Results([self])._repr_html_()


class Results(list[Result]):
    """A list of the results of many pairs, with mean scores and export to pandas and polars."""

    def mean(self) -> dict[str, float]:
        """Return the mean of each score over the scored pairs; {} if no pair was scored."""
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
            The score that ranks the pairs. Ties are ranked by margin, VCS and GAS.
        explain
            `Scorer.explain`: the reason is the conclusion of the explanation, as `score --worst`
            prints it. Without this function, the reason explains the flags, or is "".

        Returns
        -------
        list of dict
            `id`, `reference` (the best one of several), `generated`, the score by its name, and
            `reason`.

        Raises
        ------
        ValueError
            `n` is below 1, there are more or fewer pairs or ids than results, or `score` does not
            rank pairs.
        """
        pairs = list(pairs)
        names = list(range(len(pairs)) if ids is None else ids)
        if len(pairs) != len(self):
            raise ValueError(f"pairs must have the length {len(self)}, not {len(pairs)}")
        if len(names) != len(self):
            raise ValueError(f"ids must have the length {len(self)}, not {len(names)}")
        if n < 1:
            raise ValueError(f"n must be 1 or more, not {n}")
        if score not in ALL or score in SMALLER_IS_BETTER:
            raise ValueError(f"score: pairs are not ranked by {score!r}")
        scored = [row for row in zip(self, names, pairs, strict=True) if row[0].scores is not None]
        if any(math.isnan(getattr(result, score)) for result, _, _ in scored):
            raise ValueError(f"score: the results have no {score!r}: score them with `also`")
        ranking = attrgetter(score, "margin", "vcs", "gas")
        scored.sort(key=lambda row: ranking(row[0]))
        rows: list[dict[str, str | int | float]] = []
        for result, name, (reference, generated) in scored[:n]:
            assert result.scores is not None
            text = reference if isinstance(reference, str) else reference[result.reference_index]
            reason = explain(reference, generated).conclusion if explain else ""
            if not reason:
                reason = describe(result.scores._asdict(), result.n_ref, result.n_gen, result.noted)
            rows.append(
                {
                    "id": name,
                    "reference": text,
                    "generated": generated,
                    score: getattr(result, score),
                    "reason": reason,
                }
            )
        return rows

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row for each pair.

        Raises MissingExtraError without pandas.
        """
        return require("pandas", (), "to_pandas").DataFrame(self._rows())

    def to_polars(self) -> Any:
        """Return a polars DataFrame with one row for each pair.

        Raises MissingExtraError without polars.
        """
        return require("polars", (), "to_polars").DataFrame(self._rows(), infer_schema_length=None)

    def _rows(self) -> list[dict[str, Any]]:
        """Return the results as objects, with the margin beside VCS, where tables show it."""
        rows = []
        for result in self:
            row = result.to_dict()
            front: dict[str, Any] = {name: row[name] for name in ("vcs", "margin") if name in row}
            rows.append(front | row)
        return rows

    def _repr_html_(self) -> str:
        rows = [[*(LABELS[name] for name in _SHOWN), "flags or error"]]
        for result in self:
            row = [f"{getattr(result, name):z.3f}" for name in _SHOWN]
            row.append(escape(result.error or ", ".join(result.flags)))
            rows.append(row)
        lines = ["<tr><td>" + "</td><td>".join(row) + "</td></tr>" for row in rows]
        return f"<table>{''.join(lines)}</table>"


class ReplacedWords(NamedTuple):
    """The words of a pair, and the words that were replaced."""

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
    texts
        The reference and the generated text, from which the chunks were made.
    """

    chunks: tuple[list[str], list[str]]
    similarity: npt.NDArray[np.float64]
    gas: float
    by_reference: tuple[Scores, ...] = ()
    vectors: tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]] | None = None
    words: ReplacedWords | None = None
    times: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    texts: tuple[str, str] = ("", "")


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
    """Return a list of pairs, as `Scorer.score_many` takes them."""
    if (pairs is None) == (references is None and predictions is None):
        raise TypeError("give either pairs, or references and predictions")
    if pairs is not None:
        pairs = list(pairs)
        if pairs and all(isinstance(pair, str) for pair in pairs):
            raise TypeError("pairs must be pairs (reference, generated), not texts")
        return pairs
    if (
        references is None
        or predictions is None
        or isinstance(references, str)
        or isinstance(predictions, str)
    ):
        raise TypeError("references and predictions must be two lists of equal length")
    references, predictions = list(references), list(predictions)
    if predictions and not any(isinstance(text, str) for text in predictions):
        raise TypeError(
            "predictions must be texts; only references may have several texts for a pair: were"
            " they swapped?"
        )
    if len(references) != len(predictions):
        raise ValueError(
            f"predictions: {len(predictions)} texts, but there are {len(references)} references"
        )
    return list(zip(references, predictions, strict=True))
