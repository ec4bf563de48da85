"""The metrics of an experiment: VCS and its components, beside metrics that users know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from vcs_experiments.metrics import bertscore, cider
from vcs_experiments.metrics.corpus import Corpus
from vcs_experiments.metrics.lexical import (
    METEOR,
    METRICS,
    has_meteor,
    identity,
    lexical_scores,
)
from vcs_numba import Params, score_batch
from vcs_runtime.errors import TextError
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.extras import require

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

# The columns of each metric beside VCS; of each the largest counts, so substitution itself is not among them.
_BESIDE = {"hm-cf": ("hm_cf", "fine_f1"), "substitution": ("vcs_strict", "margin_strict")}

Scored = dict[str, float] | TextError
"""The scores of a text by column, or why it has none."""
ScoresById = Mapping[str, Mapping[str, float]]
"""Scores by the id of a text, then by column."""


@dataclass(frozen=True, slots=True)
class Job:
    """One text to score against its references, under a name that is unique in the experiment."""

    id: str
    references: tuple[str, ...]
    generated: str


class Metrics(Protocol):
    """The metrics of an experiment: their columns, their signature, and how they score jobs."""

    columns: tuple[str, ...]
    signature: str

    def score(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Scored]]:
        """Score jobs; each comes back with its scores, in order."""


class KnownMetrics:
    """BLEU and ROUGE; METEOR if its corpora are there; CIDEr if there is a corpus for its idf; BERTScore."""

    def __init__(
        self, workers: int, corpus: Corpus | None = None, matched: bertscore.BERTScore | None = None
    ) -> None:
        for module in ("nltk", "rouge_score"):
            require(module, "experiments", "this experiment")
        self.meteor = has_meteor()
        self._corpus = corpus if corpus and len(corpus.documents) > 1 else None
        self._ciders: dict[int | None, cider.Cider] = {}
        self._matched = matched
        meteor = (METEOR,) if self.meteor else ()
        weighted = (cider.COLUMN,) if self._corpus else ()
        columns = bertscore.COLUMNS if matched else ()
        self.columns: tuple[str, ...] = (*METRICS[:2], *meteor, *METRICS[2:], *weighted, *columns)
        fields = [identity(self.meteor)]
        fields += ["cider:d/ptb", f"idf:{self._corpus.identity}"] if self._corpus else []
        fields += [matched.signature] if matched else []
        self.signature = "|".join(fields)
        self._pool = _processes(workers) if workers > 1 else None

    def start(self, job: Job, first: int | None = None) -> Callable[[], Scored]:
        """Begin to score a job in another process."""
        references = job.references[:first]
        score = partial(lexical_scores, references, job.generated, meteor=self.meteor)
        lexical: Callable[[], Scored] = self._pool.submit(score).result if self._pool else score
        return lambda: self._joined(references, job.generated, first, lexical)

    def _joined(
        self, references: Sequence[str], generated: str, first: int | None, lexical: Callable[[], Scored]
    ) -> Scored:
        """Join CIDEr and BERTScore with the scores that other processes compute in the meantime."""
        own: dict[str, float] = {}
        matched: list[Scored] = []
        if self._corpus:
            if first not in self._ciders:
                self._ciders[first] = cider.Cider(self._corpus.first(first))
            own[cider.COLUMN] = self._ciders[first].score(references, generated)
        if self._matched:
            try:
                matched += self._matched.scores(references, generated, first)
            except TextError as error:
                return error
        scores = lexical()
        if isinstance(scores, TextError):
            return scores
        return merge(matched, scores | own) if matched else scores | own

    def close(self) -> None:
        """End the processes."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


def _processes(count: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Spawned: a fork would copy the threads' locks of ONNX Runtime.
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))


def merge(single: Sequence[Scored], others: Scored) -> Scored:
    """Join the scores of a text."""
    scores: list[dict[str, float]] = []
    for part in (*single, others):
        if isinstance(part, TextError):
            return part
        scores.append(part)
    *own, rest = scores
    return rest | {name: max(part[name] for part in own) for name in own[0]}


def realign(evidence: Sequence[Evidence], params: Params) -> npt.NDArray[Any]:
    """Align pairs once more with other parameters, without embedding them."""
    return score_batch([pair.similarity for pair in evidence], [pair.gas for pair in evidence], params)


def tolerances(lcts: Sequence[float]) -> str:
    """Return the field of a signature that names the tolerances that were tried."""
    return f"lcts:{','.join(format(lct, 'g') for lct in lcts)}"


class LongMetrics:
    """All metrics of whole descriptions: the known ones, VCS at several tolerances, and its components.

    `Cosine` is the cosine of the whole texts' embeddings, which is GAS.
    """

    def __init__(
        self, scorer: Scorer, known: KnownMetrics, *, lcts: Sequence[float], chunk_size: int = 1,
        also: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._scorer = scorer
        self._known = known
        self._params = {f"LCT{lct:g}": Params(lct=lct) for lct in lcts}
        self._options = Options(chunk_size, Params(lct=lcts[0]), also=also)
        own = [f"VCS_{name}" for name in self._params]
        margins = [f"margin_{name}" for name in self._params]
        parts = [f"NAS_{name}" for name in self._params]
        self._beside = [name for metric in self._options.also for name in _BESIDE[metric]]
        further = [LABELS[name] for name in self._beside]
        # VCS first: a terminal has room for a few columns.
        self.columns = (*own, *margins, "Cosine", "LAS", *parts, *further, *known.columns)
        self.signature = f"{scorer.signature_for(self._options)}|{tolerances(lcts)}|{known.signature}"

    def score(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Scored]]:
        """Score jobs; of several references, each column's best counts."""
        tasks: list[tuple[Job, Callable[[], Scored], list[Scored]]] = [
            (job, self._known.start(job), []) for job in jobs
        ]
        pairs = [
            (single, (reference, job.generated)) for job, _, single in tasks for reference in job.references
        ]
        for block in self._scorer.stream(pairs, itemgetter(1), self._options):
            for (single, _), result, evidence in block:
                single.append(self._scores(result, evidence))
        for job, known, single in tasks:
            yield job, merge(single, known())

    def _scores(self, result: Result, evidence: Evidence | None) -> Scored:
        if evidence is None:
            return TextError(result.error)
        records = {name: realign([evidence], params)[0] for name, params in self._params.items()}
        first = next(iter(records.values()))
        scores = {f"VCS_{name}": float(record["vcs"]) for name, record in records.items()}
        scores |= {f"margin_{name}": float(record["margin"]) for name, record in records.items()}
        scores |= {"Cosine": float(first["gas"]), "LAS": float(first["las"])}
        scores |= {LABELS[name]: getattr(result, name) for name in self._beside}
        return scores | {f"NAS_{name}": float(record["nas"]) for name, record in records.items()}
