"""`Scorer`: pairs of texts in, `Result`s out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import TypeVar

from vcs_numba import Params
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import TextError
from vcs_runtime.inference.custom import ScoringEmbedder, TextEmbedder
from vcs_runtime.inference.vector_store import VectorRequest, VectorStore
from vcs_runtime.scoring.block_scores import score_in_groups
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.opening import open_models
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.preparation import GPU_BLOCKS, Preparation, PreparedPair
from vcs_runtime.scoring.requested import Requested, embed
from vcs_runtime.scoring.result import Evidence, Pair, Reference, Result, as_pairs
from vcs_runtime.scoring.signature import signature
from vcs_runtime.scoring.substitution import WordComparison
from vcs_runtime.segmentation.custom import ScoringSegmenter, TextSegmenter
from vcs_runtime.util.progress import finished_units, progress_bar
from vcs_runtime.util.renamed import refusing_former_keywords
from vcs_runtime.util.stages import in_order

T = TypeVar("T")


class Scorer:
    """Scores pairs of a reference and a generated text. Open one with `Scorer.open` and use it in `with`.

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
    ) -> None:
        """Put the parts together. Not for users, who call `Scorer.open` or `Scorer.from_config`."""
        self.embedder = embedder
        self.segmenter = segmenter
        self._store = store
        self._preparation = Preparation(
            segmenter, (cache_mb << 20) // 16, GPU_BLOCKS if embedder.device.is_gpu else 1, max_pair_gb
        )
        self._words = words or WordComparison()
        self.scripts = self._preparation.scripts
        """How many texts were read so far, repeated ones once, and how many are not in Latin script."""

    @classmethod
    @refusing_former_keywords
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
    ) -> Scorer:
        """Open a scorer on a bundle, whose files are verified by hash; nothing is downloaded.

        `embedder` and `segmenter` may be objects of the caller (`TextEmbedder`, `TextSegmenter`), which
        `close` leaves open. With both, no bundle is opened. `ScorerConfig`, with the same fields, says more.

        Parameters
        ----------
        bundle
            Folder of the bundle, or "default".
        device
            "auto", "cpu", "openvino", "openvino:fp32", "cuda:N", "cuda:all" or "tensorrt:N".
        cache
            Folder of a vector cache, which runs and processes share. None: no folder.
        threads
            CPU threads of the model. None: all cores that this process may use.
        cache_mb
            MiB for vectors in memory.
        segmenter
            "auto", "rules", "learned", "consistent", "punkt", another bundle, or an object of the caller.
        gpu_memory_gb
            GB (10^9 bytes) of GPU memory for all models together. None: no limit.
        embedder
            Embedder of the caller. None: the bundle's.
        batch_invariant
            Whether a pair has the same score on a GPU whatever else is scored with it.
        max_pair_gb
            GB (10^9 bytes) for the similarities of one pair. A pair that needs more is refused.
        words
            Bundle whose token vectors compare words, for substitution.

        Returns
        -------
        Scorer
            The scorer. Close it, or use it in `with`.

        Raises
        ------
        BundleError, DeviceError, CacheError
            The bundle, the device or the cache folder cannot be used.
        ValueError
            `device` is not the name of a device, an `identity` is not a name, or a number is out of range.
        TypeError
            An object of the caller lacks a member.
        """
        return cls.from_config(
            ScorerConfig(
                bundle, device, cache, threads, cache_mb, segmenter, gpu_memory_gb, embedder, batch_invariant,
                max_pair_gb, words,
            )
        )  # fmt: skip

    @classmethod
    def from_config(cls, config: ScorerConfig) -> Scorer:
        """Open a scorer from a configuration; errors as for `open`."""
        embedder, segmenter = open_models(config)
        store = VectorStore.open(embedder, config.cache, config.cache_mb << 20)
        words = WordComparison(config.words)
        return cls(embedder, segmenter, store, config.cache_mb, config.max_pair_gb, words)

    @property
    def signature(self) -> str:
        """The signature of a score with default options; a `Result` holds the one of its own options."""
        return self.signature_for(Options())

    @property
    def compares_words(self) -> bool:
        """Whether substitution has been asked for."""
        return self._words.is_open

    def signature_for(self, options: Options) -> str:
        """Return the signature of a score."""
        return signature(options, self.embedder, self.segmenter, self._words)

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
            Metrics beside VCS: "hm-cf" for `result.hm_cf` and its parts, "substitution" for
            `result.substitution`, its parts, and `result.vcs_strict`.

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
        also: Sequence[str] = (),
    ) -> Explanation:
        """Explain the score of a pair (docs/guide/explain.md), with several references against the best.

        Arguments and errors are those of `score`. For many pairs, or with other thresholds, pass what
        `stream` yields to `scoring.explanation.explain`.
        """
        options = Options(chunk_size, params, short=short, also=also)
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

        Raises
        ------
        ValueError
            The segmenter is "consistent": `score_many` has all texts of a job, a stream has not.
        """
        self.signature_for(options)  # before anything is read
        requested = self._requested(items, key, options)
        if self.embedder.device.is_gpu:
            # Three stages work at the same time: a thread reads, splits and tokenises the blocks to come, a
            # GPU embeds each, and the caller's thread aligns and writes the one before.
            with closing(in_order(embed, requested, self.embedder.parallel)) as embedded:
                for one in embedded:
                    yield from self._scored(one, options)
        else:
            for one in map(embed, requested):
                yield from self._scored(one, options)

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
        pair = (reference, generated)
        [requested] = self._requested([pair], _itself, options)
        [[(_, result, evidence)]] = self._scored(embed(requested), options)
        if evidence is None:
            raise TextError(result.error)
        return result, evidence

    def _requested(
        self, items: Iterable[T], key: Callable[[T], Pair], options: Options
    ) -> Iterator[Requested[T]]:
        """Yield the blocks of a stream, each with a request for the vectors of its texts."""
        first = finished_units()
        earlier: list[VectorRequest] = []
        for block in self._preparation.blocks(items, key, options):
            pairs = (pair for _, pair in block if isinstance(pair, PreparedPair))
            earlier = [request for request in earlier if not request.finished]
            request = self._store.request((text for pair in pairs for text in pair.all_texts()), earlier)
            earlier.append(request)
            yield Requested(block, request, first)
            first += len(block)

    def _scored(
        self, embedded: Requested[T], options: Options
    ) -> Iterator[list[tuple[T, Result, Evidence | None]]]:
        vectors, errors = embedded.request.vectors(), embedded.request.errors
        line = self.signature_for(options)
        return score_in_groups(embedded.block, vectors, errors, options, line, self._words)


def _itself(pair: Pair) -> Pair:
    return pair
