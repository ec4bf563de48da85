"""The metrics of an experiment: VCS and its components, beside metrics that users know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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

# The columns of each metric beside VCS; of each the largest counts, so substitution itself is not
# among them.
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
        fields += ["cider:d/ptb", f"idf:{self._corpus.identity}"] if self._corpus else []
        fields += [matched.signature] if matched else []
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
        scores = lexical() | own
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
    *own, rest = scores
    return rest | {name: max(part[name] for part in own) for name in own[0]}


def tolerances(lcts: Sequence[float]) -> str:
    """Return the field of a signature that names the tolerances that were tried."""
    return f"lcts:{','.join(format(lct, 'g') for lct in lcts)}"


class Metrics:
    """VCS and its components at several tolerances, and known metrics: columns and a signature."""

    columns: tuple[str, ...]
    # The last ones, which are not computed here.
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
        # Numbers of references that count, each with columns of its own; None: all.
        self._firsts = firsts
        self.signature = f"{scorer.signature_for(options)}|{tolerances(lcts)}|{known.signature}"

    def add(self, foreign: Mapping[str, Foreign]) -> None:
        """Add columns that were computed elsewhere; raise InputError for a name that is taken."""
        if taken := next((name for name in foreign if name in self.columns), None):
            raise InputError(f"--column: {taken!r} is one of our columns: choose another name")
        self.foreign, self.columns = foreign, (*self.columns, *foreign)

    def score(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Scored]]:
        """Score jobs in order; of several references, each column's best counts."""
        tasks: list[tuple[Job, list[Callable[[], Scored]], list[Scored]]] = [
            (job, [self._known.start(job, first) for first in self._firsts], []) for job in jobs
        ]
        pairs = [
            (single, (reference, job.generated))
            for job, _, single in tasks
            for reference in job.references
        ]
        for block in self._scorer.stream(pairs, itemgetter(1), self._options):
            for (single, _), result, evidence in block:
                single.append(
                    TextError(result.error) if evidence is None else self._scores(result, evidence)
                )
        for job, known, single in tasks:
            scores: dict[str, float] = {}
            error: TextError | None = None
            for first, others in zip(self._firsts, known, strict=True):
                part = merge(single[:first], others())
                if isinstance(part, TextError):
                    error = error or part
                else:
                    scores |= {column(name, first): value for name, value in part.items()}
            yield job, error or scores

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
        own, margins, parts = (
            [f"{name}_{lct}" for lct in self._params] for name in ("VCS", "margin", "NAS")
        )
        self._beside = [name for metric in self._options.also for name in _BESIDE[metric]]
        further = [LABELS[name] for name in self._beside]
        # VCS first: a terminal has room for a few columns.
        self.columns = (*own, *margins, "Cosine", "LAS", *parts, *further, *known.columns)

    def _scores(self, result: Result, evidence: Evidence) -> dict[str, float]:
        records = self._records(evidence)
        first = next(iter(records.values()))
        scores = {f"VCS_{name}": float(record["vcs"]) for name, record in records.items()}
        scores |= {f"margin_{name}": float(record["margin"]) for name, record in records.items()}
        scores |= {"Cosine": float(first["gas"]), "LAS": float(first["las"])}
        scores |= {LABELS[name]: getattr(result, name) for name in self._beside}
        return scores | {f"NAS_{name}": float(record["nas"]) for name, record in records.items()}
