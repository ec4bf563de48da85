"""Pairs embedded once, for experiments that align them under several settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter

from vcs_experiments.datasets.texts import Case, Problems
from vcs_experiments.metrics.scoring import tolerances
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.progress import progress_bar

_BLOCK = 64


@dataclass(frozen=True)
class Embedded:
    """A case, with what alignment needs of it by chunk size."""

    case: Case
    evidence: dict[int, Evidence] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str]:
        """The reference and the generated text."""
        return self.case.reference, self.case.generated


def embed(
    cases: Sequence[Case], scorer: Scorer, chunk_sizes: Sequence[int], problems: Problems
) -> Iterator[list[Embedded]]:
    """Embed cases block by block; yield those that can be scored at every chunk size, in order."""
    with progress_bar(len(cases), "embedding", "texts") as advance:
        for start in range(0, len(cases), _BLOCK):
            block = [Embedded(case) for case in cases[start : start + _BLOCK]]
            errors: dict[int, str] = {}
            # A block at every chunk size before the next block: the scorer splits and embeds its texts once.
            for chunk_size in chunk_sizes:
                stream = scorer.stream(block, attrgetter("pair"), Options(chunk_size))
                for item, result, evidence in chain.from_iterable(stream):
                    if evidence is None:
                        errors.setdefault(id(item), str(result.error))
                    else:
                        item.evidence[chunk_size] = evidence
            for item in block:
                if id(item) in errors:
                    problems.add(f"{item.case.id}: {errors[id(item)]}: not scored")
            yield [item for item in block if id(item) not in errors]
            advance(len(block))


def signature_of(scorer: Scorer, chunk_sizes: Sequence[int], lcts: Sequence[float]) -> str:
    """Return the signature of results under several settings."""
    settings = f"chunks:{','.join(map(str, chunk_sizes))}|{tolerances(lcts)}"
    return f"{scorer.signature_for(Options(chunk_sizes[0]))}|{settings}"
