"""The metrics of an experiment: VCS and what it is made of, beside those that users know."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from vcs_numba import Params, score_batch
from vcs_runtime.errors import TextError
from vcs_runtime.experiments import bertscore
from vcs_runtime.experiments.lexical import METEOR, METRICS, identity, lexical_scores, meteor_is_there, need
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.scorer import Scorer

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

Scored = dict[str, float] | TextError


@dataclass(frozen=True, slots=True)
class Job:
    """One text to score against its references, under a name that is unique in the experiment."""

    id: str
    references: tuple[str, ...]
    generated: str


class Metrics(Protocol):
    """What scores the jobs of an experiment."""

    columns: tuple[str, ...]
    signature: str

    def score(self, jobs: Sequence[Job]) -> list[Scored]:
        """The scores of each job by column, or why it has none."""


class KnownMetrics:
    """BLEU and ROUGE; METEOR where its corpora are there; BERTScore where the model shows tokens' states."""

    def __init__(self, workers: int, states: bertscore.TokenStates | None = None) -> None:
        """`workers`: processes; 1 for none but this. Raises DeviceError without the extra `experiments`."""
        need("nltk", "rouge_score")
        self.meteor = meteor_is_there()
        self._states = states
        meteor = (METEOR,) if self.meteor else ()
        matched = bertscore.COLUMNS if states else ()
        self.columns: tuple[str, ...] = (*METRICS[:2], *meteor, *METRICS[2:], *matched)
        self.signature = identity(self.meteor) + ("|bertscore:last-layer" if states else "")
        self._pool = _processes(workers) if workers > 1 else None

    def start(self, jobs: Sequence[Job]) -> Iterator[Scored]:
        """The scores of each job; those of n-grams are computed while the caller does something else."""
        score = functools.partial(lexical_scores, meteor=self.meteor)
        lists, texts = [job.references for job in jobs], [job.generated for job in jobs]
        lexical = self._pool.map(score, lists, texts, chunksize=4) if self._pool else map(score, lists, texts)
        return (
            merge(self._matched(job), scores) if self._states else scores
            for job, scores in zip(jobs, lexical, strict=True)
        )

    def _matched(self, job: Job) -> list[Scored]:
        """BERTScore against each reference."""
        assert self._states is not None
        try:
            states = self._states.get([*job.references, job.generated])
        except TextError as error:
            return [error]
        generated = states[job.generated]
        return [bertscore.bertscore(states[reference], generated) for reference in job.references]

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
    """The best of what each reference gave, by column, beside the scores of `others`; or the first error."""
    scores: list[dict[str, float]] = []
    for found in (*single, others):
        if isinstance(found, TextError):
            return found
        scores.append(found)
    *own, others = scores
    return others | {name: max(found[name] for found in own) for name in own[0]}


def realign(evidence: Sequence[Evidence], params: Params) -> npt.NDArray[Any]:
    """All scores under other `params`, embedded as they are: records of `vcs_numba.SCORE_DTYPE`."""
    return score_batch([pair.similarity for pair in evidence], [pair.gas for pair in evidence], params)


class LongMetrics:
    """All metrics of whole descriptions: the known ones, VCS at several tolerances, and what it is made of.

    `Cosine` is that of the whole texts' embeddings, which is GAS.
    """

    def __init__(
        self, scorer: Scorer, known: KnownMetrics, *, lcts: Sequence[float], chunk_size: int = 1
    ) -> None:
        self._scorer = scorer
        self._known = known
        self._params = {f"LCT{lct:g}": Params(lct=lct) for lct in lcts}
        self._options = Options(chunk_size, Params(lct=lcts[0]))
        own = [f"VCS_{name}" for name in self._params]
        parts = [f"NAS_{name}" for name in self._params]
        self.columns = (*known.columns, *own, "Cosine", "LAS", *parts)
        line = scorer.signature_for(self._options)
        self.signature = f"{line}|lcts:{','.join(format(lct, 'g') for lct in lcts)}|{known.signature}"

    def score(self, jobs: Sequence[Job]) -> list[Scored]:
        """The scores of each job by column, or why it has none; of several references each metric's best."""
        known = self._known.start(jobs)
        single = self._single([(reference, job.generated) for job in jobs for reference in job.references])
        return [
            merge(list(islice(single, len(job.references))), others)
            for job, others in zip(jobs, known, strict=True)
        ]

    def _single(self, pairs: Sequence[tuple[str, str]]) -> Iterator[Scored]:
        found = list(self._scorer.iter_evidence(pairs, self._options))
        evidence = [pair for _, pair in found if pair is not None]
        rows = {name: iter(realign(evidence, params)) for name, params in self._params.items()}
        for result, pair in found:
            if pair is None:
                yield TextError(result.error)
                continue
            records = {name: next(row) for name, row in rows.items()}
            first = next(iter(records.values()))
            scores = {f"VCS_{name}": float(record["vcs"]) for name, record in records.items()}
            scores |= {"Cosine": float(first["gas"]), "LAS": float(first["las"])}
            yield scores | {f"NAS_{name}": float(record["nas"]) for name, record in records.items()}
