"""What is scored, and what scoring a pair gives back: its result, and the evidence behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vcs_numba import Scores

Reference = str | Sequence[str]
Pair = tuple[Reference, str]


@dataclass(frozen=True, slots=True)
class Result:
    """The scores of one pair, or why it has none.

    scores           every score of docs/vcs.md, section 12; None when the pair could not be scored
    n_ref, n_gen     chunks of the (winning) reference and of the generated text; 0 without scores
    signature        how the score came about
    reference_index  which of several references won; 0 when there is one. With `aggregate="mean"` the scores
                     are means over all references, and this is the reference with the highest VCS
    n_references     how many references there were
    error            why there are no scores, else None
    segmenter        the name of what cut the texts of this pair: one for all of them; None for short texts
    """

    scores: Scores | None
    n_ref: int
    n_gen: int
    signature: str
    reference_index: int = 0
    n_references: int = 1
    error: str | None = None
    segmenter: str | None = None

    @property
    def vcs(self) -> float:
        """The Video Comprehension Score, in [0, 1]; NaN when the pair could not be scored."""
        return math.nan if self.scores is None else self.scores.vcs

    def to_dict(self) -> dict[str, Any]:
        """A flat dictionary for JSON: the scores by name and the counts, or `error`; always the signature."""
        if self.scores is None:
            return {"error": self.error, "signature": self.signature}
        result: dict[str, Any] = {**self.scores._asdict(), "n_ref": self.n_ref, "n_gen": self.n_gen}
        result["segmenter"] = self.segmenter
        if self.n_references > 1:
            result |= {"reference_index": self.reference_index, "n_references": self.n_references}
        return {**result, "signature": self.signature}


class Evidence(NamedTuple):
    """What a pair's scores were computed from: of several references, with the one that won.

    chunks      of the reference, and of the generated text
    similarity  `(n_ref, n_gen)` float64, the cosines of the chunks
    gas         the cosine of the whole texts
    """

    chunks: tuple[list[str], list[str]]
    similarity: npt.NDArray[np.float64]
    gas: float
