"""`Scorer`: pairs of texts in, `Result`s out."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

from vcs_numba import Params, Scores, score_batch
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import TextError
from vcs_runtime.inference.custom import ScoringEmbedder, TextEmbedder
from vcs_runtime.inference.session import ahead
from vcs_runtime.inference.vector_cache import Vector, VectorCache, VectorStore
from vcs_runtime.scoring.cosines import cosines
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.hm_cf import hm_cf_of
from vcs_runtime.scoring.opening import open_models
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.preparation import Block, Preparation, PreparedPair
from vcs_runtime.scoring.result import Evidence, Pair, Reference, Result, as_pairs, merit
from vcs_runtime.scoring.signature import signature
from vcs_runtime.segmentation.custom import ScoringSegmenter, TextSegmenter
from vcs_runtime.text.scripts import ScriptCounts
from vcs_runtime.util.progress import progress_bar, units_in_work

T = TypeVar("T")


class Scorer:
    """Scores pairs of a reference and a generated text. Open one with `Scorer.open` and use it in `with`.

    Several threads may use one scorer. A score does not depend on the other pairs of a call.
    """

    def __init__(
        self, embedder: ScoringEmbedder, segmenter: ScoringSegmenter, store: VectorStore, memory_mb: int
    ) -> None:
        """Put the parts together. Not for users, who call `Scorer.open` or `Scorer.from_config`."""
        self.embedder = embedder
        self.segmenter = segmenter
        self._store = store
        self._preparation = Preparation(segmenter, (memory_mb << 20) // 16)

    @classmethod
    def open(
        cls,
        bundle: str | os.PathLike[str] | Bundle = "default",
        device: str = "auto",
        *,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        memory_mb: int = 256,
        segmenter: str | os.PathLike[str] | Bundle | TextSegmenter = "auto",
        gpu_mem_gb: float | None = None,
        embedder: TextEmbedder | None = None,
    ) -> Scorer:
        """Open a scorer on a bundle, whose files are verified by hash; nothing is downloaded.

        `embedder` and `segmenter` may be objects of the caller: a `TextEmbedder` has `embed(texts)` and
        `identity`, a `TextSegmenter` has `split(texts)` and `identity`. The bundle's model takes the place of
        one that is not given; with both, no bundle is opened. `close` leaves them open.

        `ScorerConfig`, which has the same fields, says more about each.

        Parameters
        ----------
        bundle
            Folder of the bundle, or "default".
        device
            "auto", "cpu", "cuda:N" or "tensorrt:N".
        cache
            Folder of a vector cache, which runs and processes share. None: no folder.
        threads
            CPU threads of the model. None: all cores that this process may use.
        memory_mb
            MiB for vectors in memory.
        segmenter
            "auto", "rules", "learned", "punkt", another bundle, or an object of the caller.
        gpu_mem_gb
            GB (10^9 bytes) of GPU memory for all models together. None: no limit.
        embedder
            Embedder of the caller. None: the bundle's.

        Returns
        -------
        Scorer
            The scorer. Close it, or use it in `with`.

        Raises
        ------
        BundleError, DeviceError, CacheError
            The bundle, the device or the cache folder cannot be used.
        ValueError
            `device` is not the name of a device, or an `identity` is not a name.
        TypeError
            An object of the caller lacks a member.
        """
        return cls.from_config(
            ScorerConfig(bundle, device, cache, threads, memory_mb, segmenter, gpu_mem_gb, embedder)
        )

    @classmethod
    def from_config(cls, config: ScorerConfig) -> Scorer:
        """Open a scorer from a configuration; errors as for `open`."""
        embedder, segmenter = open_models(config)
        cache = None
        if config.cache is not None:
            cache = VectorCache(Path(config.cache), embedder.cache_identity, embedder.dimension)
        return cls(
            embedder, segmenter, VectorStore(embedder, cache, config.memory_mb << 20), config.memory_mb
        )

    @property
    def signature(self) -> str:
        """The signature of a score with default options; a `Result` holds the one of its own options."""
        return self.signature_for(Options())

    def signature_for(self, options: Options) -> str:
        """Return the signature of a score with these options."""
        return signature(options, self.embedder, self.segmenter)

    @property
    def scripts(self) -> ScriptCounts:
        """How many texts were read so far, repeated ones once, and how many are not in Latin script."""
        return self._preparation.scripts

    def score(
        self,
        reference: Reference,
        generated: str,
        *,
        chunk_size: int = 1,
        params: Params = Params(),
        aggregate: str = "max",
        also: Sequence[str] = (),
    ) -> Result:
        """Score one pair.

        Parameters
        ----------
        reference
            A text, or several references (see `aggregate`).
        generated
            The text to be scored.
        chunk_size
            Number of segments joined to one chunk (docs/reference/vcs.md, section 1); the papers use 3.
        params
            Parameters of the metric.
        aggregate
            With several references: "max" for the scores with the best one, "mean" for the mean of all.
        also
            Metrics beside VCS: "hm-cf" for `result.hm_cf` and its parts.

        Returns
        -------
        Result
            The scores, the numbers of chunks and the signature.

        Raises
        ------
        TextError
            A text cannot be scored; the message names it. TextError is a ValueError.
        """
        options = Options(chunk_size, params, aggregate, also=also)
        return self._score_one(reference, generated, options)[0]

    def score_short(
        self, reference: Reference, generated: str, *, params: Params = Params(), aggregate: str = "max"
    ) -> Result:
        """Score a pair of short texts, word by word (VCS_short; docs/reference/vcs.md, section 10).

        Arguments and errors are those of `score`.
        """
        return self._score_one(reference, generated, Options(1, params, aggregate, short=True))[0]

    def score_many(
        self,
        pairs: Iterable[Pair] | None = None,
        *,
        references: Iterable[Reference] | None = None,
        predictions: Iterable[str] | None = None,
        chunk_size: int = 1,
        params: Params = Params(),
        aggregate: str = "max",
        short: bool = False,
        also: Sequence[str] = (),
        progress: bool = False,
    ) -> list[Result]:
        """Score many pairs. A pair that cannot be scored does not stop the others.

        Parameters
        ----------
        pairs
            Pairs `(reference, generated)`.
        references
            In place of `pairs`: n references, each a text or several.
        predictions
            The n generated texts, in the order of `references`.
        chunk_size
            Number of segments joined to one chunk, as for `score`.
        params
            Parameters of the metric.
        aggregate
            "max" or "mean" over several references, as for `score`.
        short
            Whether words are the chunks, as for `score_short`.
        also
            Metrics beside VCS, as for `score`.
        progress
            Whether a progress bar is shown if standard error is a terminal.

        Returns
        -------
        list of Result
            One result for each pair, in order. It has an `error` and no scores if its pair cannot be scored.

        Raises
        ------
        TypeError
            There are texts where pairs belong, or not either `pairs` or both of `references` and
            `predictions`.
        ValueError
            `references` and `predictions` differ in length.
        """
        pairs = as_pairs(pairs, references, predictions)
        results: list[Result] = []
        with progress_bar(len(pairs), enabled=progress) as advance:
            options = Options(chunk_size, params, aggregate, short, also=also)
            for block in self.stream(pairs, _itself, options):
                results += [result for _, result, _ in block]
                advance(len(block))
        return results

    def explain(
        self,
        reference: Reference,
        generated: str,
        *,
        chunk_size: int = 1,
        params: Params = Params(),
        short: bool = False,
    ) -> Explanation:
        """Explain the score of a pair (docs/guide/explain.md), with several references against the best.

        Arguments and errors are those of `score` and `score_short`. For many pairs, or with other thresholds,
        pass what `stream` yields to `scoring.explanation.explain`.
        """
        options = Options(chunk_size, params, short=short)
        return explain(*self._score_one(reference, generated, options), params)

    def stream(
        self, items: Iterable[T], key: Callable[[T], Pair], options: Options = Options()
    ) -> Iterator[list[tuple[T, Result, Evidence | None]]]:
        """Score a stream of items; memory does not grow with the number of items.

        Parameters
        ----------
        items
            Anything. On a GPU a thread reads them ahead, so they must not depend on what has been yielded.
        key
            Returns the pair `(reference, generated)` of an item. If it raises a TextError, that is the item's
            error.
        options
            How pairs are scored.

        Yields
        ------
        list of (item, Result, Evidence or None)
            A block of items in order, each with its result. The evidence is None if the result has an
            `error`.
        """
        blocks = self._preparation.blocks(items, key, options)
        # While a GPU embeds a block, a thread reads and splits the next one: rules and tokens are work for
        # the CPU, and the learned segmenter has its own session.
        for block in ahead(blocks) if self.embedder.device.is_gpu else blocks:
            yield self._score_block(block, options)

    def iter_scores(self, pairs: Iterable[Pair], options: Options = Options()) -> Iterator[Result]:
        """Score a stream of pairs: yield one Result for each pair, in order."""
        return (result for _, result, _ in chain.from_iterable(self.stream(pairs, _itself, options)))

    def iter_evidence(
        self, pairs: Iterable[Pair], options: Options = Options()
    ) -> Iterator[tuple[Result, Evidence | None]]:
        """Score a stream of pairs: yield each Result with its evidence, or with None if it has an `error`."""
        blocks = chain.from_iterable(self.stream(pairs, _itself, options))
        return ((result, evidence) for _, result, evidence in blocks)

    def release(self) -> None:
        """Free the memory of the models, above all on a GPU; the next call takes it again.

        Meant for scoring now and then during a training. Vectors in main memory are not freed.
        """
        self.embedder.release()
        self.segmenter.release()

    def close(self) -> None:
        """Close the sessions and free their memory. The scorer cannot be used afterwards."""
        self._store.close()
        self.embedder.close()
        self.segmenter.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _score_one(self, reference: Reference, generated: str, options: Options) -> tuple[Result, Evidence]:
        [block] = self._preparation.blocks([(reference, generated)], _itself, options)
        [(_, result, evidence)] = self._score_block(block, options)
        if evidence is None:
            raise TextError(result.error)
        return result, evidence

    def _score_block(self, block: Block[T], options: Options) -> list[tuple[T, Result, Evidence | None]]:
        try:
            with units_in_work(len(block)):
                vectors = self._store.get(
                    text for _, pair in block if isinstance(pair, PreparedPair) for text in pair.all_texts()
                )
        except TextError as error:
            # One text that the model refuses must not take the others with it.
            if len(block) > 1:
                return [scored for entry in block for scored in self._score_block([entry], options)]
            block, vectors = [(block[0][0], error)], {}
        compared = [(item, pair, _compare(pair, vectors)) for item, pair in block]
        every = [evidence for _, _, candidates in compared for evidence in candidates]
        rows = score_batch(
            [evidence.similarity for evidence in every], [evidence.gas for evidence in every], options.params
        )
        signature = self.signature_for(options)
        scored: list[tuple[T, Result, Evidence | None]] = []
        first = 0
        for item, pair, candidates in compared:
            if isinstance(pair, TextError):
                scored.append((item, Result(None, 0, 0, signature, error=str(pair)), None))
                continue
            scores = [Scores._make(row) for row in rows[first : first + len(candidates)].tolist()]
            result = _result(pair, scores, options, signature)
            if pair.sentences:
                coarse = [evidence.gas for evidence in candidates]
                further = hm_cf_of(pair.sentences, coarse, vectors, options.aggregate)
                result = replace(result, further=further)
            evidence = candidates[result.reference_index]._replace(by_reference=tuple(scores))
            scored.append((item, result, evidence))
            first += len(candidates)
        return scored


def _itself(pair: Pair) -> Pair:
    return pair


def _compare(pair: PreparedPair | TextError, vectors: dict[str, Vector]) -> list[Evidence]:
    """Compute the evidence for each reference of a pair; none for a pair with an error."""
    if isinstance(pair, TextError):
        return []
    *references, generated = pair.texts
    *reference_chunks, generated_chunks = pair.chunks
    generated_vectors = [vectors[text] for text in generated_chunks]
    return [
        Evidence(
            (chunks, generated_chunks),
            cosines(chunks, generated_chunks, vectors),
            float(cosines([reference], [generated], vectors)[0, 0]),
            vectors=([vectors[text] for text in chunks], generated_vectors),
        )
        for reference, chunks in zip(references, reference_chunks, strict=True)
    ]


def _result(pair: PreparedPair, scores: list[Scores], options: Options, signature: str) -> Result:
    best = 0
    if len(scores) > 1:
        keys = [(merit(own), len(chunks)) for own, chunks in zip(scores, pair.chunks, strict=False)]
        best = keys.index(max(keys))
    if options.aggregate == "mean":
        # Exactly rounded sums do not depend on the order of the references either.
        reported = Scores._make(math.fsum(values) / len(scores) for values in zip(*scores, strict=True))
    else:
        reported = scores[best]
    return Result(
        reported,
        len(pair.chunks[best]),
        len(pair.chunks[-1]),
        signature,
        best,
        len(pair.texts) - 1,
        segmenter=pair.segmenter,
    )
