"""`Scorer`: pairs of texts in, `Result`s out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, TypeVar, overload

from vcs_numba import Params
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import TextError
from vcs_runtime.inference.custom import ScoringEmbedder, TextEmbedder
from vcs_runtime.inference.fitness import calibrate
from vcs_runtime.inference.vector_store import VectorRequest, VectorStore
from vcs_runtime.scoring.block_scores import score_in_groups
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.opening import open_models
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.preparation import GPU_BLOCKS, Block, Preparation, PreparedPair
from vcs_runtime.scoring.result import Evidence, Pair, Reference, Result, Results, as_pairs
from vcs_runtime.scoring.signature import signature
from vcs_runtime.scoring.substitution import WordComparison
from vcs_runtime.segmentation.custom import ScoringSegmenter, TextSegmenter
from vcs_runtime.util.progress import finished_units, progress_bar, units_in_work
from vcs_runtime.util.stages import in_order

T = TypeVar("T")
# A block of pairs, the request for the vectors of its texts, and the number of items before it.
_Requested = tuple[Block[T], VectorRequest, float]


class Scorer:
    """Scores pairs of a reference and a generated text.

    Open a scorer with `Scorer.open`, and use it in a `with` statement.

    Several threads may use one scorer. A score does not depend on the other pairs of a call.
    """

    def __init__(
        self,
        embedder: ScoringEmbedder,
        segmenter: ScoringSegmenter,
        store: VectorStore,
        cache_mb: int,
        max_pair_gb: float,
        words: WordComparison | None = None,
        calibrated: bool = False,
    ) -> None:
        """Put the parts together. Not for users, who call `Scorer.open` or `Scorer.from_config`."""
        self.embedder = embedder
        self.segmenter = segmenter
        self._store = store
        self._preparation = Preparation(
            segmenter,
            (cache_mb << 20) // 16,
            GPU_BLOCKS if embedder.device.is_gpu else 1,
            max_pair_gb,
        )
        self._words = words or WordComparison()
        self._calibration = embedder.calibration if calibrated else None
        self.languages = self._preparation.languages
        """Number of different texts so far, and of those in other scripts and languages."""

    @classmethod
    def open(
        cls,
        bundle: str | os.PathLike[str] | Bundle = "default",
        device: str = "auto",
        *,
        cache: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        cache_mb: int = 256,
        segmenter: str | os.PathLike[str] | Bundle | TextSegmenter = "auto",
        gpu_memory_gb: float | None = None,
        embedder: TextEmbedder | None = None,
        batch_invariant: bool = False,
        max_pair_gb: float = 1.0,
        words: str | os.PathLike[str] | Bundle = "default",
        proof: bool = True,
        calibrated: bool = False,
    ) -> Scorer:
        """Open a scorer on a bundle, whose files are verified by hash; nothing is downloaded.

        The arguments are the fields of `ScorerConfig`. `close` does not close objects of the caller
        (`TextEmbedder`, `TextSegmenter`). If the caller passes both, no bundle is opened.

        Raises BundleError, DeviceError or CacheError if the bundle, the device or the cache folder
        cannot be used, and the errors of `ScorerConfig`.
        """
        return cls.from_config(
            ScorerConfig(
                bundle,
                device,
                cache,
                threads,
                cache_mb,
                segmenter,
                gpu_memory_gb,
                embedder,
                batch_invariant,
                max_pair_gb,
                words,
                proof,
                calibrated,
            )
        )

    @classmethod
    def from_config(cls, config: ScorerConfig) -> Scorer:
        """Open a scorer from a configuration; errors as for `open`."""
        embedder, segmenter = open_models(config)
        store = VectorStore.open(embedder, config.cache, config.cache_mb << 20)
        words = WordComparison(config.words)
        return cls(
            embedder,
            segmenter,
            store,
            config.cache_mb,
            config.max_pair_gb,
            words,
            config.calibrated,
        )

    @property
    def signature(self) -> str:
        """The signature of a score with default options; a `Result` has its own signature."""
        return self.signature_for(Options())

    @property
    def compares_words(self) -> bool:
        """Whether a call has asked for substitution."""
        return self._words.is_open

    @property
    def cache_failure(self) -> str:
        """Why vectors were not stored in the default cache folder; "" if they were."""
        return self._store.failure

    def signature_for(self, options: Options) -> str:
        """Return the signature of a score."""
        return signature(options, self.embedder, self.segmenter, self._words, self._calibration)

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
        """Score one pair: a reference or a list of references, and the generated text.

        The keywords are fields of `Options`. If `also` has "hm-cf", the result has `hm_cf` and its
        parts. If `also` has "substitution", the result has `substitution`, its parts and
        `vcs_strict`.

        Raises TextError, a ValueError that names the text, if a text cannot be scored.
        """
        options = Options(chunk_size, params, aggregate, also=also)
        result, _ = self._score_one(reference, generated, options)
        return result

    def score_short(
        self,
        reference: Reference,
        generated: str,
        *,
        params: Params = Params(),
        aggregate: str = "max",
    ) -> Result:
        """Score a pair of short texts, word by word (VCS_short; docs/reference/vcs.md, section 10).

        Arguments and errors as for `score`.
        """
        options = Options(params=params, aggregate=aggregate, short=True)
        result, _ = self._score_one(reference, generated, options)
        return result

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
    ) -> Results:
        """Score many pairs and return the results in order.

        Pass either `pairs` of `(reference, generated)`, or `references` and `predictions`.

        The keywords are fields of `Options`; `progress` shows a bar if standard error is a
        terminal. A pair that cannot be scored does not stop the others: its result has an `error`,
        and no scores. `Results` is a list with `mean`, `worst`, `to_pandas` and `to_polars`.

        Raises TypeError for texts instead of pairs, or for other arguments than `pairs`, or
        `references` and `predictions`. Raises ValueError if `references` and `predictions` differ
        in length.
        """
        pairs = as_pairs(pairs, references, predictions)
        results = Results()
        with progress_bar(len(pairs), enabled=progress) as advance:
            options = Options(chunk_size, params, aggregate, short, also=also)
            for block in self.stream(pairs, _itself, options):
                for _, result, _ in block:
                    results.append(result)
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
        also: Sequence[str] = (),
    ) -> Explanation:
        """Explain a pair's score, with the best of several references (docs/guide/explain.md).

        Arguments and errors as for `score`. For many pairs, or with other thresholds, pass
        what `stream` yields to `scoring.explanation.explain`.
        """
        options = Options(chunk_size, params, short=short, also=also)
        result, evidence = self._score_one(reference, generated, options)
        return explain(result, evidence, params)

    def stream(
        self, items: Iterable[T], key: Callable[[T], Pair], options: Options = Options()
    ) -> Iterator[list[tuple[T, Result, Evidence | None]]]:
        """Score a stream of items; memory does not grow with the number of items.

        Parameters
        ----------
        items
            Objects of any type. On a GPU a thread reads items ahead, so an item must not depend on
            earlier results.
        key
            Returns the pair `(reference, generated)` of an item. If it raises a TextError, that is
            the item's error.
        options
            How pairs are scored.

        Yields
        ------
        list of (item, Result, Evidence or None)
            A block of items in order, each with its result. The evidence is None if the result has
            an `error`.
        """
        self.signature_for(options)  # before anything is read
        requested = self._requested(items, key, options)
        if self.embedder.device.is_gpu:
            # Three stages work at the same time: a thread reads, splits and tokenises the next
            # blocks, a GPU embeds each, and the caller's thread aligns and writes the one before.
            with closing(in_order(_embed, requested, self.embedder.parallel)) as blocks:
                for block in blocks:
                    yield from self._scored(block, options)
        else:
            for block in map(_embed, requested):
                yield from self._scored(block, options)

    def iter_scores(self, pairs: Iterable[Pair], options: Options = Options()) -> Iterator[Result]:
        """Score a stream of pairs: yield one Result for each pair, in order."""
        blocks = self.stream(pairs, _itself, options)
        return (result for _, result, _ in chain.from_iterable(blocks))

    def iter_evidence(
        self, pairs: Iterable[Pair], options: Options = Options()
    ) -> Iterator[tuple[Result, Evidence | None]]:
        """Score a stream of pairs, and yield each Result with its evidence.

        The evidence is None if the Result has an `error`.
        """
        blocks = self.stream(pairs, _itself, options)
        return ((result, evidence) for _, result, evidence in chain.from_iterable(blocks))

    def release(self) -> None:
        """Free the memory of the models, above all on a GPU; the next call loads them again.

        Call this method between evaluations of a training. Vectors in main memory are not freed.
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

    def __repr__(self) -> str:
        return f"<Scorer {self.signature}>"

    def _score_one(
        self, reference: Reference, generated: str, options: Options
    ) -> tuple[Result, Evidence]:
        pair = (reference, generated)
        [requested] = self._requested([pair], _itself, options)
        [[(_, result, evidence)]] = self._scored(_embed(requested), options)
        if evidence is None:
            raise TextError(result.error)
        return result, evidence

    def _requested(
        self, items: Iterable[T], key: Callable[[T], Pair], options: Options
    ) -> Iterator[_Requested[T]]:
        """Yield the blocks of a stream, each with a request for the vectors of its texts."""
        first = finished_units()
        earlier: list[VectorRequest] = []
        for block in self._preparation.blocks(items, key, options):
            texts: list[str] = []
            for _, pair in block:
                if isinstance(pair, PreparedPair):
                    texts += pair.all_texts()
            earlier = [request for request in earlier if not request.finished]
            request = self._store.request(texts, earlier)
            earlier.append(request)
            yield block, request, first
            first += len(block)

    def _scored(
        self, embedded: _Requested[T], options: Options
    ) -> Iterator[list[tuple[T, Result, Evidence | None]]]:
        block, request, _ = embedded
        line = self.signature_for(options)
        vectors = request.vectors()
        # The one place: stores and devices have the vectors of the model, and all that follows sees
        # calibrated ones.
        if self._calibration:
            vectors = calibrate(vectors, self._calibration)
        return score_in_groups(block, vectors, request.errors, options, line, self._words)


@overload
def score(*, references: str, predictions: str, **options: Any) -> Result: ...
@overload
def score(
    *, references: Iterable[Reference], predictions: Iterable[str], **options: Any
) -> Results: ...
def score(
    *,
    references: str | Iterable[Reference],
    predictions: str | Iterable[str],
    bundle: str | os.PathLike[str] | Bundle = "default",
    device: str = "auto",
    **options: Any,
) -> Result | Results:
    """Score in one call with a temporary scorer; for more than one call, keep a `Scorer`.

    Parameters
    ----------
    references
        A list of references, each a text or a list of texts; or one text.
    predictions
        A list of generated texts of the same length; or one text.
    bundle
        As for `Scorer.open`.
    device
        As for `Scorer.open`.
    **options
        As for `Scorer.score_many`.

    Returns
    -------
    Result or Results
        A Result for two texts, or a TextError if they cannot be scored. Results for two lists: one
        Result for each pair, in order.
    """
    with Scorer.open(bundle, device) as scorer:
        if not isinstance(references, str) or not isinstance(predictions, str):
            return scorer.score_many(references=references, predictions=predictions, **options)
        [result] = scorer.score_many([(references, predictions)], **options)
        if result.error:
            raise TextError(result.error)
        return result


def _embed(requested: _Requested[T]) -> _Requested[T]:
    """Compute the vectors of a block, on the device."""
    block, request, first = requested
    with units_in_work(len(block), first):
        request.run()
    return requested


def _itself(pair: Pair) -> Pair:
    return pair
