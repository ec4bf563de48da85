"""`Scorer`: pairs of texts in, `Result`s out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from vcs_numba import Params, Scores, score_batch
from vcs_numba.embeddings import cosine_similarity
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.errors import TextError
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.session import ahead
from vcs_runtime.inference.vector_cache import (
    Vector,
    VectorCache,
    VectorStore,
    cache_identity,
)
from vcs_runtime.result import Result
from vcs_runtime.segmentation.segmenter import CHOICES, Segmenter
from vcs_runtime.signature import Options, signature
from vcs_runtime.text.cleaning import (
    check_text,
    clean_segments,
    join_chunks,
    short_words,
    strip_punctuation,
)
from vcs_runtime.text.contractions import expand_contractions
from vcs_runtime.util.lru import Recent
from vcs_runtime.util.progress import progress_bar

if TYPE_CHECKING:
    from vcs_runtime.explain import Explanation

T = TypeVar("T")
Reference = str | Sequence[str]
Pair = tuple[Reference, str]

# Pairs are scored in blocks: large enough for full batches, small enough that a job which is stopped loses
# little. About 40,000 tokens; for short captions the number of pairs bounds it.
_BLOCK_CHARACTERS = 200_000
_BLOCK_PAIRS = 1024
_DEFAULTS = Params()


@dataclass
class _Prepared:
    """A pair on its way to the vectors: its texts (references, then the generated one), and their chunks.

    segmenter  the name of what cuts the texts; None for short texts
    stripped   the texts as the boundary model is to see them, until it has cut them; else empty
    """

    texts: list[str]
    segmenter: str | None
    chunks: list[list[str]] = field(default_factory=list)
    stripped: list[str] = field(default_factory=list)

    def all_texts(self) -> Iterator[str]:
        for text, chunks in zip(self.texts, self.chunks, strict=True):
            yield text
            yield from chunks


_Block = list[tuple[T, _Prepared | TextError]]


@dataclass(frozen=True)
class _View:
    """A text without punctuation, and its segments by rules; None where the boundary model must cut it."""

    stripped: str
    segments: list[str] | None

    def size(self) -> int:
        return len(self.stripped) + sum(map(len, self.segments or ()))


class Evidence(NamedTuple):
    """What a pair's scores were computed from: of several references, with the one that won.

    chunks      of the reference, and of the generated text
    similarity  `(n_ref, n_gen)` float64, the cosines of the chunks
    gas         the cosine of the whole texts
    """

    chunks: tuple[list[str], list[str]]
    similarity: npt.NDArray[np.float64]
    gas: float


class Scorer:
    """Scores pairs of a reference and a generated text. Open one with `Scorer.open`; use it in `with`.

    It may be used from several threads. Scores do not depend on what is scored together.
    """

    def __init__(
        self,
        embedder: Embedder,
        segmenter: Segmenter,
        store: VectorStore,
        views: Recent[_View],
        segments: Recent[list[str]],
    ) -> None:
        self.embedder = embedder
        self.segmenter = segmenter
        self._store = store
        self._views = views
        self._segments = segments

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
        """Open a scorer on a bundle (a folder, or "default"), verified by hash; nothing is downloaded.

        device     "auto" (a TensorRT engine if the bundle has one that fits, else CUDA, else the CPU), "cpu",
                   "cuda:N", "tensorrt:N"; a named device is used or refused
        cache      folder in which vectors are kept between runs and shared by processes
        threads    CPU threads of the model; default: every core this process may use
        memory_mb  for vectors of texts that come again: within it each distinct text is embedded once (and,
                   within a sixteenth of it each, cut once by rules and once by the model)
        segmenter  "auto": rules for pairs whose texts all have sentence punctuation, the model for all
                   others, as far as the bundle has them; "rules" or "learned": that one for every pair;
                   or another bundle, whose segmenter is used in place of this one's
        gpu_mem_gb GB (10^9 bytes) of a GPU's memory that both models together may take, weights included:
                   each gets a part as its weights are large; default: no limit

        Raises BundleError, DeviceError, CacheError; ValueError for a `device` that is no device name.
        """
        opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        cutting, use = _segmenter_bundle(segmenter, opened)
        shares = _shares(opened, cutting, use, gpu_mem_gb)
        embedder = Embedder.open(opened, device, threads, shares[0])
        vectors = None
        if cache is not None:
            vectors = VectorCache(Path(cache), cache_identity(embedder), embedder.spec.dimension)
        cutter = Segmenter.open(cutting, device, threads, use=use, gpu_mem_gb=shares[1])
        memory = memory_mb << 20
        views: Recent[_View] = Recent(memory // 16, _View.size)
        segments: Recent[list[str]] = Recent(memory // 16, lambda pieces: sum(map(len, pieces)))
        return cls(embedder, cutter, VectorStore(embedder, vectors, memory), views, segments)

    @property
    def signature(self) -> str:
        """The signature of a score with default options. A `Result` carries that of its own options."""
        return signature(Options(), self.embedder, self.segmenter)

    def score(
        self,
        reference: Reference,
        generated: str,
        *,
        chunk_size: int = 1,
        params: Params = _DEFAULTS,
        aggregate: str = "max",
    ) -> Result:
        """Score one pair. `reference` is a text or several; of several the best counts (`aggregate`).

        chunk_size  segments joined to one chunk (docs/vcs.md, section 1); the papers use 3
        params      of the alignment core
        aggregate   "max" or "mean" over several references

        Raises TextError (a ValueError) that names the text which cannot be scored.
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
        options = Options(chunk_size, params, aggregate, short)
        results = []
        with progress_bar(len(pairs), enabled=progress) as advance:
            for result in self.iter_scores(pairs, options):
                results.append(result)
                advance(1)
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
        """Why a pair scores as it does (docs/explain.md); of several references, against the best.

        Arguments and errors as for `score`; `short` as for `score_short`. `iter_evidence` and
        `explain.explain` do the same for many pairs, with thresholds of one's own.
        """
        from vcs_runtime.explain import explain

        options = Options(chunk_size, params, short=short)
        result, evidence = self._single((reference, generated), options)
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
            Anything; on a GPU a thread reads them ahead, so they must not depend on what has been yielded.
        key
            The pair `(reference, generated)` of an item. A TextError that it raises is the item's error.
        options
            How pairs are scored.

        Yields
        ------
        list of (item, Result, Evidence or None)
            A block of items, in order. The evidence is None where the result has an `error`.
        """
        blocks = self._blocks(items, key, options)
        # While a GPU embeds a block, the next one is read and cut: its rules and tokens are the processor's
        # work, its boundary model is another session.
        for block in ahead(blocks) if self.embedder.device.is_gpu else blocks:
            yield self._score_block(block, options)

    def iter_scores(self, pairs: Iterable[Pair], options: Options = Options()) -> Iterator[Result]:
        """Score a stream of pairs in flat memory: one Result for each pair, in order."""
        return (result for result, _ in self.iter_evidence(pairs, options))

    def iter_evidence(
        self, pairs: Iterable[Pair], options: Options = Options()
    ) -> Iterator[tuple[Result, Evidence | None]]:
        """`iter_scores`, each Result with what it was computed from; None with an `error`."""
        for block in self.stream(pairs, _itself, options):
            for _, result, evidence in block:
                yield result, evidence

    def _blocks(self, items: Iterable[T], key: Callable[[T], Pair], options: Options) -> Iterator[_Block[T]]:
        """The items in blocks, their texts cut and ready to be embedded."""
        block: _Block[T] = []
        characters = 0
        for item in items:
            try:
                prepared = self._prepare(key(item), options)
                characters += sum(map(len, prepared.texts))
                block.append((item, prepared))
            except TextError as error:
                block.append((item, error))
            if characters >= _BLOCK_CHARACTERS or len(block) >= _BLOCK_PAIRS:
                self._cut_learned(block, options)
                yield block
                block, characters = [], 0
        if block:
            self._cut_learned(block, options)
            yield block

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
        block: _Block[Pair] = [(pair, self._prepare(pair, options))]
        self._cut_learned(block, options)
        [(_, result, evidence)] = self._score_block(block, options)
        return result, evidence

    def _prepare(self, pair: Pair, options: Options) -> _Prepared:
        try:
            reference, generated = pair
        except (TypeError, ValueError):
            raise TextError(f"pair: must be (reference, generated), not {type(pair).__name__}") from None
        if isinstance(reference, str) or not isinstance(reference, Sequence):
            named = {"reference": reference}
        elif reference:
            named = {f"reference[{i}]": text for i, text in enumerate(reference)}
        else:
            raise TextError("reference: the list is empty")
        named["generated"] = generated
        texts = {what: check_text(text, what) for what, text in named.items()}
        return self._short(texts) if options.short else self._cut(texts, options)

    def _short(self, texts: dict[str, str]) -> _Prepared:
        chunks = {what: short_words(text) for what, text in texts.items()}
        for what, words in chunks.items():
            if not words:
                raise TextError(f"{what}: the text holds nothing but punctuation and stop words")
        return _Prepared(list(texts.values()), None, list(chunks.values()))

    def _cut(self, texts: dict[str, str], options: Options) -> _Prepared:
        """Cut a pair by rules, or leave it to the boundary model: one of them cuts all texts of a pair."""
        views = [self._view(text, what) for what, text in texts.items()]
        cut = [view.segments for view in views if view.segments is not None]
        if len(cut) < len(views):
            # The model sees no punctuation, not even where there is some (docs/vcs.md, section 1).
            stripped = [view.stripped for view in views]
            return _Prepared(list(texts.values()), self.segmenter.model_name, [], stripped)
        chunks = [join_chunks(segments, options.chunk_size) for segments in cut]
        return _Prepared(list(texts.values()), self.segmenter.rules_name, chunks)

    def _view(self, text: str, what: str) -> _View:
        """How a text is cut by rules, remembered: a reference that comes again costs nothing."""
        if (kept := self._views.get(text)) is not None:
            return kept
        expanded = expand_contractions(text)
        stripped = strip_punctuation(expanded)
        if not stripped.strip():
            raise TextError(f"{what}: the text holds nothing but punctuation")
        sentences = self.segmenter.sentences(expanded, what)
        view = _View(stripped, None if sentences is None else clean_segments(sentences))
        self._views.put(text, view)
        return view

    def _cut_learned(self, block: _Block[T], options: Options) -> None:
        """Cut what was left to the boundary model, all texts in one call."""
        waiting = [pair for _, pair in block if isinstance(pair, _Prepared) and pair.stripped]
        segments: dict[str, list[str]] = {}
        missing: dict[str, None] = {}
        for text in (text for pair in waiting for text in pair.stripped):
            if (kept := self._segments.get(text)) is not None:
                segments[text] = kept
            else:
                missing[text] = None
        for text, pieces in zip(missing, self.segmenter.split_learned(list(missing)), strict=True):
            segments[text] = clean_segments(pieces)
            self._segments.put(text, segments[text])
        for pair in waiting:
            pair.chunks = [join_chunks(segments[text], options.chunk_size) for text in pair.stripped]
            pair.stripped = []

    def _score_block(self, block: _Block[T], options: Options) -> list[tuple[T, Result, Evidence | None]]:
        good = [pair for _, pair in block if isinstance(pair, _Prepared)]
        line = signature(options, self.embedder, self.segmenter)
        try:
            vectors = self._store.get(text for pair in good for text in pair.all_texts())
        except TextError as error:
            # One text that the model refuses must not take the others with it.
            if len(block) > 1:
                return [scored for item in block for scored in self._score_block([item], options)]
            return [(block[0][0], Result(None, 0, 0, line, error=str(error)), None)]
        grids = [_cosines(chunks, pair.chunks[-1], vectors) for pair in good for chunks in pair.chunks[:-1]]
        gas = [_cosines([text], pair.texts[-1:], vectors)[0, 0] for pair in good for text in pair.texts[:-1]]
        rows = score_batch(grids, gas, options.params) if grids else np.empty(0)
        scored: list[tuple[T, Result, Evidence | None]] = []
        row = 0
        for item, pair in block:
            if isinstance(pair, TextError):
                scored.append((item, Result(None, 0, 0, line, error=str(pair)), None))
                continue
            count = len(pair.texts) - 1
            result = _result(pair, rows[row : row + count], options, line)
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


def _result(item: _Prepared, rows: npt.NDArray[Any], options: Options, line: str) -> Result:
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
        line,
        best,
        len(item.texts) - 1,
        segmenter=item.segmenter,
    )
