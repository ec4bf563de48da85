"""Scoring the pairs of an experiment by all metrics, resumably: one line of JSON a pair."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vcs_numba import Params
from vcs_runtime.errors import InputError, TextError
from vcs_runtime.experiments.layouts import Problems
from vcs_runtime.experiments.lexical import METEOR, METRICS, identity, lexical_scores, meteor_is_there, need
from vcs_runtime.experiments.matrices import Matrices, Matrix, vcs
from vcs_runtime.jobs import OutputFile
from vcs_runtime.progress import progress_bar
from vcs_runtime.scorer import Scorer
from vcs_runtime.signature import Options, signature

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

Scored = dict[str, float] | TextError
# Pairs that are scored and written at a time: what a job that is stopped may lose.
_BLOCK = 64


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


class Lexical:
    """BLEU, ROUGE and, where its corpora are there, METEOR, in processes of their own."""

    def __init__(self, workers: int) -> None:
        """`workers`: processes; 1 for none but this. Raises DeviceError without the extra `experiments`."""
        need("nltk", "rouge_score")
        self.meteor = meteor_is_there()
        self.columns = (*METRICS[:2], METEOR, *METRICS[2:]) if self.meteor else METRICS
        self.signature = identity(self.meteor)
        self._pool = _processes(workers) if workers > 1 else None

    def start(self, jobs: Sequence[Job]) -> Iterator[dict[str, float]]:
        """The scores of each job, computed while the caller does something else."""
        score = functools.partial(lexical_scores, meteor=self.meteor)
        lists, texts = [job.references for job in jobs], [job.generated for job in jobs]
        return self._pool.map(score, lists, texts, chunksize=4) if self._pool else map(score, lists, texts)

    def close(self) -> None:
        """End the processes."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


def _processes(count: int) -> ProcessPoolExecutor:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    # Spawned: a fork would copy the threads' locks of ONNX Runtime.
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))


def merge(single: Sequence[Scored], others: dict[str, float]) -> Scored:
    """The best of what each reference gave, by column, beside the scores of `others`; or the first error."""
    scores: list[dict[str, float]] = []
    for found in single:
        if isinstance(found, TextError):
            return found
        scores.append(found)
    return others | {name: max(found[name] for found in scores) for name in scores[0]}


class LongMetrics:
    """All metrics of whole descriptions: the known ones, VCS at several tolerances, and what it is made of.

    `Cosine` is that of the whole texts' embeddings, which is GAS.
    """

    def __init__(
        self,
        scorer: Scorer,
        lexical: Lexical,
        *,
        lcts: Sequence[float],
        chunk_size: int = 1,
        cache: Path | None = None,
    ) -> None:
        self._matrices = Matrices(scorer, cache)
        self._lexical = lexical
        self._params = {f"LCT{lct:g}": Params(lct=lct) for lct in lcts}
        self._chunk_size = chunk_size
        own = (
            *(f"VCS_{name}" for name in self._params),
            "Cosine",
            "LAS",
            *(f"NAS_{name}" for name in self._params),
        )
        self.columns = (*lexical.columns, *own)
        line = signature(Options(chunk_size, Params(lct=lcts[0])), scorer.embedder, scorer.segmenter)
        self.signature = f"{line}|lcts:{','.join(format(lct, 'g') for lct in lcts)}|{lexical.signature}"

    def score(self, jobs: Sequence[Job]) -> list[Scored]:
        """The scores of each job by column, or why it has none; of several references each metric's best."""
        known = self._lexical.start(jobs)
        pairs = [(reference, job.generated) for job in jobs for reference in job.references]
        matrices = self._cut_and_embed(pairs)
        good = [matrix for matrix in matrices if isinstance(matrix, Matrix)]
        rows: dict[str, Iterator[Any]] = {
            name: iter(vcs(good, params)) for name, params in self._params.items()
        }
        single: list[Scored] = []
        for matrix in matrices:
            if isinstance(matrix, TextError):
                single.append(matrix)
                continue
            records = {name: next(row) for name, row in rows.items()}
            first = next(iter(records.values()))
            scores = {f"VCS_{name}": float(record["vcs"]) for name, record in records.items()}
            scores |= {"Cosine": float(first["gas"]), "LAS": float(first["las"])}
            single.append(scores | {f"NAS_{name}": float(record["nas"]) for name, record in records.items()})
        results = iter(single)
        return [
            merge(list(islice(results, len(job.references))), others)
            for job, others in zip(jobs, known, strict=True)
        ]

    def _cut_and_embed(self, pairs: Sequence[tuple[str, str]]) -> list[Matrix | TextError]:
        found: list[Matrix | TextError] = []
        segments = self._matrices.cut(pairs)
        good = [
            (pair, cut) for pair, cut in zip(pairs, segments, strict=True) if not isinstance(cut, TextError)
        ]
        try:
            size = self._chunk_size
            matrices = iter(self._matrices.get([g[0] for g in good], [g[1] for g in good], [size])[size])
        except TextError as error:  # one text that the model refuses must not take the others with it
            if len(pairs) == 1:
                return [error]
            return [result for pair in pairs for result in self._cut_and_embed([pair])]
        for cut in segments:
            found.append(cut if isinstance(cut, TextError) else next(matrices))
        return found

    def close(self) -> None:
        """Drop the vectors."""
        self._matrices.close()


def run_jobs(
    jobs: Sequence[Job],
    metrics: Metrics,
    path: Path,
    problems: Problems,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> dict[str, dict[str, float]]:
    """Score `jobs` and append a line each to `path`; returns the scores by id, without what failed.

    Resuming goes on behind the last whole line, which must be of the same jobs and the same signature.
    Raises InputError as `vcs_runtime.jobs` does.
    """
    found: dict[str, dict[str, float]] = {}

    def keep(record: dict[str, Any]) -> None:
        if "error" in record:
            problems.add(f"{record['id']}: {record['error']}: not scored")
        else:
            found[record["id"]] = {name: record[name] for name in metrics.columns}

    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(OutputFile(path, resume=resume, overwrite=overwrite))
        done = 0
        for number, record in enumerate(lines.records() if resume else (), 1):
            if (
                record["signature"] != metrics.signature
                or number > len(jobs)
                or record["id"] != jobs[number - 1].id
            ):
                raise InputError(
                    f"{path} line {number}: {record['id']}, {record['signature']}: of another run; "
                    "resume with the same data and options, or use --overwrite"
                )
            keep(record)
            done = number
        advance = stack.enter_context(progress_bar(len(jobs), enabled=progress, done=done))
        for start in range(done, len(jobs), _BLOCK):
            block = jobs[start : start + _BLOCK]
            records = [
                {"id": job.id, "signature": metrics.signature}
                | ({"error": str(scores)} if isinstance(scores, TextError) else scores)
                for job, scores in zip(block, metrics.score(block), strict=True)
            ]
            lines.append(records)
            for record in records:
                keep(record)
            advance(len(block))
    return found
