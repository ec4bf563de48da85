"""The metrics of an experiment: VCS and its components, beside metrics that users know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from vcs_experiments.datasets.published import Foreign
from vcs_experiments.metrics import bertscore, cider
from vcs_experiments.metrics.corpus import Corpus
from vcs_experiments.metrics.lexical import METEOR, METRICS, has_meteor, identity, lexical_scores
from vcs_numba import Params
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.scoring.block_scores import align_all
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.extras import require

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

# The columns of each metric beside VCS. The best reference has the largest value, so substitution
# itself, where less is better, is not among them.
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


class KnownMetrics:
    """BLEU, ROUGE and, where available, METEOR, CIDEr and BERTScore.

    METEOR needs its corpora, and CIDEr needs a corpus for its idf.
    """

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
        if self._corpus:
            fields += ["cider:d/ptb", f"idf:{self._corpus.identity}"]
        if matched:
            fields.append(matched.signature)
        self.signature = "|".join(fields)
        self._pool = _processes(workers) if workers > 1 else None

    def start(self, job: Job, first: int | None = None) -> Callable[[], Scored]:
        """Start scoring a job against its first `first` references (None: all).

        The returned function waits for the scores and returns them.
        """
        references = job.references[:first]
        score = partial(lexical_scores, references, job.generated, meteor=self.meteor)
        lexical: Callable[[], dict[str, float]] = (
            self._pool.submit(score).result if self._pool else score
        )
        return lambda: self._joined(references, job.generated, first, lexical)

    def _joined(
        self,
        references: Sequence[str],
        generated: str,
        first: int | None,
        lexical: Callable[[], dict[str, float]],
    ) -> Scored:
        """Join CIDEr and BERTScore with the scores that other processes compute in the meantime."""
        weighted: dict[str, float] = {}
        matched: list[Scored] = []
        if self._corpus:
            if first not in self._ciders:
                self._ciders[first] = cider.Cider(self._corpus.first(first))
            weighted[cider.COLUMN] = self._ciders[first].score(references, generated)
        if self._matched:
            try:
                matched += self._matched.scores(references, generated, first)
            except TextError as error:
                return error
        scores = lexical() | weighted
        return merge(matched, scores) if matched else scores

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
    """Join the scores against each reference, of which each column's best counts, with others."""
    scores: list[dict[str, float]] = []
    for part in (*single, others):
        if isinstance(part, TextError):
            return part
        scores.append(part)
    *by_reference, rest = scores
    best: dict[str, float] = {}
    for name in by_reference[0]:
        best[name] = max(part[name] for part in by_reference)
    return rest | best


def tolerances(lcts: Sequence[float]) -> str:
    """Return the field of a signature that names the tolerances that were tried."""
    return f"lcts:{','.join(format(lct, 'g') for lct in lcts)}"


@dataclass(frozen=True)
class _Task:
    """A job with its scores so far."""

    job: Job
    known: list[Callable[[], Scored]]  # wait for the known metrics, by number of references
    by_reference: list[Scored] = field(default_factory=list)


class Metrics:
    """VCS and its components at several tolerances, and known metrics: columns and a signature."""

    columns: tuple[str, ...]
    # The last columns, which are not computed here.
    foreign: Mapping[str, Foreign] = MappingProxyType({})

    def __init__(
        self,
        scorer: Scorer,
        known: KnownMetrics,
        options: Options,
        lcts: Sequence[float],
        firsts: Sequence[int | None] = (None,),
    ) -> None:
        self._scorer, self._known, self._options = scorer, known, options
        self._params = {f"LCT{lct:g}": Params(lct=lct) for lct in lcts}
        # Numbers of references that count, each with its columns; None: all.
        self._firsts = firsts
        self.signature = f"{scorer.signature_for(options)}|{tolerances(lcts)}|{known.signature}"

    def add(self, foreign: Mapping[str, Foreign]) -> None:
        """Add columns that were computed elsewhere; raise InputError for a name that is taken."""
        for name in foreign:
            if name in self.columns:
                raise InputError(f"--column: {name!r} is already a column: choose another name")
        self.foreign, self.columns = foreign, (*self.columns, *foreign)

    def score(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Scored]]:
        """Score jobs in order. With several references, the best score of each column counts."""
        tasks = []
        pairs: list[tuple[_Task, tuple[str, str]]] = []
        for job in jobs:
            task = _Task(job, [self._known.start(job, first) for first in self._firsts])
            tasks.append(task)
            pairs += [(task, (reference, job.generated)) for reference in job.references]
        for block in self._scorer.stream(pairs, itemgetter(1), self._options):
            for (task, _), result, evidence in block:
                if evidence is None:
                    task.by_reference.append(TextError(result.error))
                else:
                    task.by_reference.append(self._scores(result, evidence))
        for task in tasks:
            yield task.job, self._merged(task)

    def _merged(self, task: _Task) -> Scored:
        """Join all scores of a task, or return its first error."""
        scores: dict[str, float] = {}
        errors: list[TextError] = []
        for first, known in zip(self._firsts, task.known, strict=True):
            part = merge(task.by_reference[:first], known())
            if isinstance(part, TextError):
                errors.append(part)
                continue
            for name, value in part.items():
                scores[column(name, first)] = value
        return errors[0] if errors else scores

    def _scores(self, result: Result, evidence: Evidence) -> dict[str, float]:
        raise NotImplementedError

    def _records(self, evidence: Evidence) -> dict[str, Any]:
        """Return a pair's `vcs_numba.SCORE_DTYPE` record by the name of the tolerance."""
        return {name: align_all([evidence], params)[0] for name, params in self._params.items()}


def column(name: str, first: int | None) -> str:
    """Return the column of a score against the first references; None for all."""
    return name if first is None else f"{name} {first}ref"


class LongMetrics(Metrics):
    """All metrics of whole descriptions.

    `Cosine` is the cosine of the texts' embeddings, which is GAS.
    """

    def __init__(
        self,
        scorer: Scorer,
        known: KnownMetrics,
        *,
        lcts: Sequence[float],
        chunk_size: int = 1,
        also: Sequence[str] = (),
    ) -> None:
        super().__init__(scorer, known, Options(chunk_size, Params(lct=lcts[0]), also=also), lcts)
        self._beside: list[str] = []
        for metric in self._options.also:
            self._beside += _BESIDE[metric]
        # VCS first: a terminal has room for a few columns.
        self.columns = (
            *(f"VCS_{lct}" for lct in self._params),
            *(f"margin_{lct}" for lct in self._params),
            "Cosine",
            "LAS",
            *(f"NAS_{lct}" for lct in self._params),
            *(LABELS[name] for name in self._beside),
            *known.columns,
        )

    def _scores(self, result: Result, evidence: Evidence) -> dict[str, float]:
        records = self._records(evidence)
        first = next(iter(records.values()))
        scores = {f"VCS_{name}": float(record["vcs"]) for name, record in records.items()}
        scores |= {f"margin_{name}": float(record["margin"]) for name, record in records.items()}
        scores |= {"Cosine": float(first["gas"]), "LAS": float(first["las"])}
        scores |= {LABELS[name]: getattr(result, name) for name in self._beside}
        return scores | {f"NAS_{name}": float(record["nas"]) for name, record in records.items()}
