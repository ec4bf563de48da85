"""`Scorer`: pairs of texts in, `Result`s out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from vcs_numba import Params, Scores, score_batch
from vcs_numba.embeddings import cosine_similarity
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.errors import TextError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.session import ahead
from vcs_runtime.inference.vector_cache import Vector, VectorCache, VectorStore, cache_identity
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.options import Options, ScorerConfig
from vcs_runtime.scoring.preparation import Block, Preparation, PreparedPair
from vcs_runtime.scoring.result import Evidence, Pair, Reference, Result
from vcs_runtime.scoring.signature import signature
from vcs_runtime.segmentation.segmenter import CHOICES, Segmenter
from vcs_runtime.util.progress import progress_bar

T = TypeVar("T")
_DEFAULTS = Params()


class Scorer:
    """Scores pairs of a reference and a generated text. Open one with `Scorer.open`; use it in `with`.

    It may be used from several threads. Scores do not depend on what is scored together.
    """

    def __init__(self, embedder: Embedder, segmenter: Segmenter, store: VectorStore, memory_mb: int) -> None:
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
        segmenter: str | os.PathLike[str] | Bundle = "auto",
        gpu_mem_gb: float | None = None,
    ) -> Scorer:
        """Open a scorer on a bundle, verified by hash; nothing is downloaded.

        The arguments are those of `ScorerConfig`, which describes them.

        Raises
        ------
        BundleError, DeviceError, CacheError
            The bundle, the device or the cache folder cannot be used.
        ValueError
            `device` is not a device name.
        """
        return cls.from_config(ScorerConfig(bundle, device, cache, threads, memory_mb, segmenter, gpu_mem_gb))

    @classmethod
    def from_config(cls, config: ScorerConfig) -> Scorer:
        """Open a scorer as `config` says. Errors as for `open`."""
        bundle = config.bundle if isinstance(config.bundle, Bundle) else open_bundle(config.bundle)
        segmenter_bundle, use = _segmenter_bundle(config.segmenter, bundle)
        shares = _shares(bundle, segmenter_bundle, use, config.gpu_mem_gb)
        embedder = Embedder.open(bundle, config.device, config.threads, shares[0])
        cache = None
        if config.cache is not None:
            cache = VectorCache(Path(config.cache), cache_identity(embedder), embedder.spec.dimension)
        segmenter = Segmenter.open(
            segmenter_bundle, config.device, config.threads, use=use, gpu_mem_gb=shares[1]
        )
        return cls(
            embedder, segmenter, VectorStore(embedder, cache, config.memory_mb << 20), config.memory_mb
        )

    @property
    def signature(self) -> str:
        """The signature of a score with default options. A `Result` carries that of its own options."""
        return self.signature_for(Options())

    def signature_for(self, options: Options) -> str:
        """The signature of a score with these options."""
        return signature(options, self.embedder, self.segmenter)

    def score(
        self,
        reference: Reference,
        generated: str,
        *,
        chunk_size: int = 1,
        params: Params = _DEFAULTS,
        aggregate: str = "max",
    ) -> Result:
        """Score one pair.

        Parameters
        ----------
        reference
            A text, or several of which the best counts (see `aggregate`).
        generated
            The text to be scored.
        chunk_size
            Segments joined to one chunk (docs/vcs.md, section 1); the papers use 3.
        params
            Parameters of the alignment.
        aggregate
            "max" or "mean" over several references.

        Raises
        ------
        TextError
            A text cannot be scored; the message names it. TextError is a ValueError.
        """
        return self._one(reference, generated, Options(chunk_size, params, aggregate))

    def score_short(
        self, reference: Reference, generated: str, *, params: Params = _DEFAULTS, aggregate: str = "max"
    ) -> Result:
        """Score a pair of short texts (VCS_short; docs/vcs.md, section 10): words are the chunks."""
        return self._one(reference, generated, Options(1, params, aggregate, short=True))

    def score_many(
        self,
        pairs: Iterable[Pair],
        *,
        chunk_size: int = 1,
        params: Params = _DEFAULTS,
        aggregate: str = "max",
        short: bool = False,
        progress: bool = False,
    ) -> list[Result]:
        """Score many pairs `(reference, generated)`, in order. Options as for `score` and `score_short`.

        A pair that cannot be scored does not stop the rest: its Result has `error` and no scores.
        `progress` shows a bar on a terminal's standard error.
        """
        pairs = list(pairs)
        results: list[Result] = []
        with progress_bar(len(pairs), enabled=progress) as advance:
            for block in self.stream(pairs, _itself, Options(chunk_size, params, aggregate, short)):
                results += [result for _, result, _ in block]
                advance(len(block))
        return results

    def explain(
        self,
        reference: Reference,
        generated: str,
        *,
        chunk_size: int = 1,
        params: Params = _DEFAULTS,
        short: bool = False,
    ) -> Explanation:
        """Explain why a pair scores as it does (docs/explain.md); of several references, against the best.

        Arguments and errors as for `score`; `short` as for `score_short`. For many pairs, or for thresholds
        of one's own, give what `stream` yields to `explanation.explain`.
        """
        result, evidence = self._single((reference, generated), Options(chunk_size, params, short=short))
        if evidence is None:
            raise TextError(result.error)
        return explain(result, evidence, params)

    def stream(
        self, items: Iterable[T], key: Callable[[T], Pair], options: Options = Options()
    ) -> Iterator[list[tuple[T, Result, Evidence | None]]]:
        """Score a stream of items in flat memory: every item comes back with its result.

        Parameters
        ----------
        items
            Anything. On a GPU a thread reads them ahead, so they must not depend on what has been yielded.
        key
            The pair `(reference, generated)` of an item. A TextError that it raises is the item's error.
        options
            How pairs are scored.

        Yields
        ------
        list of (item, Result, Evidence or None)
            A block of items, in order. The evidence is None where the result has an `error`.
        """
        blocks = self._preparation.blocks(items, key, options)
        # While a GPU embeds a block, the next one is read and split: rules and tokens are the processor's
        # work, and the learned segmenter is another session.
        for block in ahead(blocks) if self.embedder.device.is_gpu else blocks:
            yield self._score_block(block, options)

    def iter_scores(self, pairs: Iterable[Pair], options: Options = Options()) -> Iterator[Result]:
        """Score a stream of pairs in flat memory: one Result for each pair, in order."""
        return (result for _, result, _ in chain.from_iterable(self.stream(pairs, _itself, options)))

    def iter_evidence(
        self, pairs: Iterable[Pair], options: Options = Options()
    ) -> Iterator[tuple[Result, Evidence | None]]:
        """`iter_scores`, each Result with what it was computed from; None with an `error`."""
        blocks = chain.from_iterable(self.stream(pairs, _itself, options))
        return ((result, evidence) for _, result, evidence in blocks)

    def release(self) -> None:
        """Give the models' memory back, a GPU's first of all; the next call takes it again.

        For scoring now and then beside a training. Vectors that are kept stay: they lie in main memory.
        """
        self.embedder.release()
        self.segmenter.release()

    def close(self) -> None:
        """Give the sessions and their memory back."""
        self._store.close()
        self.embedder.close()
        self.segmenter.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _one(self, reference: Reference, generated: str, options: Options) -> Result:
        result, _ = self._single((reference, generated), options)
        if result.error:
            raise TextError(result.error)
        return result

    def _single(self, pair: Pair, options: Options) -> tuple[Result, Evidence | None]:
        [block] = self._preparation.blocks([pair], _itself, options)
        [(_, result, evidence)] = self._score_block(block, options)
        return result, evidence

    def _score_block(self, block: Block[T], options: Options) -> list[tuple[T, Result, Evidence | None]]:
        good = [pair for _, pair in block if isinstance(pair, PreparedPair)]
        signature = self.signature_for(options)
        try:
            vectors = self._store.get(text for pair in good for text in pair.all_texts())
        except TextError as error:
            # One text that the model refuses must not take the others with it.
            if len(block) > 1:
                return [scored for item in block for scored in self._score_block([item], options)]
            return [(block[0][0], Result(None, 0, 0, signature, error=str(error)), None)]
        grids = [_cosines(chunks, pair.chunks[-1], vectors) for pair in good for chunks in pair.chunks[:-1]]
        gas = [_cosines([text], pair.texts[-1:], vectors)[0, 0] for pair in good for text in pair.texts[:-1]]
        rows = score_batch(grids, gas, options.params) if grids else np.empty(0)
        scored: list[tuple[T, Result, Evidence | None]] = []
        row = 0
        for item, pair in block:
            if isinstance(pair, TextError):
                scored.append((item, Result(None, 0, 0, signature, error=str(pair)), None))
                continue
            count = len(pair.texts) - 1
            result = _result(pair, rows[row : row + count], options, signature)
            won = row + result.reference_index
            chunks = (pair.chunks[result.reference_index], pair.chunks[-1])
            scored.append((item, result, Evidence(chunks, grids[won], float(gas[won]))))
            row += count
        return scored


def _itself(pair: Pair) -> Pair:
    return pair


def _segmenter_bundle(segmenter: str | os.PathLike[str] | Bundle, bundle: Bundle) -> tuple[Bundle, str]:
    """The bundle whose segmenter cuts, and which of its segmenters."""
    if isinstance(segmenter, str) and segmenter in CHOICES:
        return bundle, segmenter
    return segmenter if isinstance(segmenter, Bundle) else open_bundle(segmenter), "auto"


def _shares(
    bundle: Bundle, cutting: Bundle, use: str, gpu_mem_gb: float | None
) -> tuple[float | None, float | None]:
    """What the embedder and the segmenter may take of `gpu_mem_gb`, in proportion to their weights."""
    if gpu_mem_gb is None:
        return None, None
    models = ((bundle, bundle.part("embedder")), (cutting, cutting.part("segmenter")))
    sizes = [part.weights_size(spec) if spec else 0 for part, spec in models]
    if use == "rules" or not sizes[1]:
        return gpu_mem_gb, None
    share = gpu_mem_gb * sizes[1] / sum(sizes)
    return gpu_mem_gb - share, share


def _cosines(
    reference: list[str], generated: list[str], vectors: dict[str, Vector]
) -> npt.NDArray[np.float64]:
    """The similarity matrix `(len(reference), len(generated))` (docs/vcs.md, section 1).

    Clipped, because vectors rounded to float32 may be a hair longer than 1, and no score should exceed 1.
    """
    left, right = (np.array([vectors[text] for text in texts]) for texts in (reference, generated))
    return np.clip(cosine_similarity(left, right), -1.0, 1.0)


def _result(item: PreparedPair, rows: npt.NDArray[Any], options: Options, signature: str) -> Result:
    best = int(np.argmax(rows["vcs"]))
    names = Scores._fields
    if options.aggregate == "mean":
        scores = Scores(*(float(rows[name].mean()) for name in names))
    else:
        scores = Scores(*(float(value) for value in rows[best]))
    return Result(
        scores,
        len(item.chunks[best]),
        len(item.chunks[-1]),
        signature,
        best,
        len(item.texts) - 1,
        segmenter=item.segmenter,
    )
