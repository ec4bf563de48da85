"""The quantisation error of models, measured by running them beside unquantised ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vcs_export.errors import ExportError
from vcs_runtime.bundle.manifest import (
    SCHEMA,
    EmbedderSpec,
    LearnedSegmenterSpec,
    Manifest,
    QuantizationErrorStats,
)
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference.batching import batches
from vcs_runtime.inference.device import choose_device, describe, split_device
from vcs_runtime.inference.onnx_session import open_session, run_session
from vcs_runtime.inference.speed import demo_texts as demo_texts
from vcs_runtime.inference.tokenizer import load_tokenizer
from vcs_runtime.segmentation.boundary_model import BoundaryModel

# A CPU widens half-precision weights once a run, so few runs of many tokens are faster.
_TOKENS_A_RUN = 2048
LEAST_COSINES = {"int8": 0.99}
"""The lowest mean cosine to unquantised vectors with which a bundle is built, by precision."""
MOST_CHANGES = {"int8": 0.01}
"""The largest mean change of VCS with which a bundle is built, by precision."""
# Limits of the margin and of the 95th percentiles, as multiples of the limit above. The margin is a
# sum of two scores, and mostly larger than VCS. A match that changes makes NAS jump, so that a few
# pairs move far even if the mean is small.
_MARGIN = 2.0
_PERCENTILE = 5.0

Segmenter = tuple[Path, LearnedSegmenterSpec]
"""A learned segmenter: the folder that its paths start from, and how it is run."""


def check_quantization_error(
    error: QuantizationErrorStats,
    precision: str,
    least_cosine: float | None = None,
    most_change: float | None = None,
) -> None:
    """Raise ExportError if a quantisation error is too large, naming each figure and its limit.

    None takes the precision's limit from `LEAST_COSINES` or `MOST_CHANGES`. `most_change` limits
    the mean change of VCS; 1 accepts any.
    """
    least = LEAST_COSINES.get(precision, -1.0) if least_cosine is None else least_cosine
    failed = []
    if error.cosine_mean < least:
        failed.append(
            f"its vectors have a mean cosine of {error.cosine_mean:.5f} to unquantised ones"
            f" ({error.texts} texts), less than {least:g} (--least-cosine)"
        )
    most = MOST_CHANGES.get(precision, 1.0) if most_change is None else most_change
    if most < 1:
        for figure, value, factor in (
            ("VCS changes by {:.4f} on average", error.vcs_change, 1.0),
            ("VCS changes by {:.4f} at the 95th percentile", error.vcs_change_p95, _PERCENTILE),
            ("the margin changes by {:.4f} on average", error.margin_change, _MARGIN),
            (
                "the margin changes by {:.4f} at the 95th percentile",
                error.margin_change_p95,
                _MARGIN * _PERCENTILE,
            ),
        ):
            if value is not None and value > factor * most:
                failed.append(
                    f"{figure.format(value)} ({error.pairs} pairs), more than {factor * most:g}"
                    " (--most-change)"
                )
    if failed:
        raise ExportError(f"{precision} loses too much of this model: {'; '.join(failed)}")


def embedder_quantization_error(
    exact: Path, folder: Path, spec: EmbedderSpec, texts: Sequence[str], device: str = "cpu"
) -> QuantizationErrorStats:
    """Measure how far an embedder's vectors and scores are from the unquantised graph's (`exact`).

    Paths of `spec` start from `folder`. Cosines are measured on `texts`, and scores on pairs made
    of them (`rewritten_pairs`). `device` is "cpu" or "cuda:N". Raises ExportError if a vector is
    not finite, or zero.
    """
    pairs = rewritten_pairs(texts)
    # Each text, chunk and joined chunks once, in a fixed order.
    distinct = dict.fromkeys(texts)
    for pair in pairs:
        for side in (pair.reference, pair.generated):
            distinct.update(dict.fromkeys((*side, " ".join(side))))
    pieces = list(distinct)
    rows = tokens(folder / spec.tokenizer, spec, pieces)
    graph = spec.cuda if spec.cuda and device != "cpu" else spec
    expected = _vectors(exact, spec.layout, rows, device)
    actual = _vectors(folder / graph.model, graph.layout, rows, device)
    if not (np.isfinite(expected).all() and np.isfinite(actual).all()):
        raise ExportError(f"{spec.precision} returned NaN or infinity for a text")
    if not (expected.any(axis=1).all() and actual.any(axis=1).all()):
        raise ExportError(f"{spec.precision} returned a vector of zeros for a text")
    place = {piece: row for row, piece in enumerate(pieces)}
    whole = [place[text] for text in texts]
    # By rounding, a cosine can exceed 1, and the mean of equal cosines can fall below them. The
    # manifest refuses both.
    cosines = np.clip(np.sum(expected[whole] * actual[whole], axis=1), -1.0, 1.0)
    lowest = float(cosines.min())
    vcs, margin = np.abs(_scores(expected, place, pairs) - _scores(actual, place, pairs)).T
    return QuantizationErrorStats(
        texts=len(texts),
        cosine_mean=max(float(cosines.mean()), lowest),
        cosine_min=lowest,
        pairs=len(pairs),
        vcs_change=float(vcs.mean()),
        vcs_change_p95=float(np.quantile(vcs, 0.95)),
        margin_change=float(margin.mean()),
        margin_change_p95=float(np.quantile(margin, 0.95)),
    )


def tokens(tokenizer: Path, spec: EmbedderSpec, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text with special tokens, cut at the model's longest input."""
    first, last = spec.special_tokens or ((), ())
    room = spec.max_tokens - len(first) - len(last)
    encodings = load_tokenizer(tokenizer).encode_batch(list(texts), add_special_tokens=False)
    return [[*first, *encoding.ids[:room], *last] for encoding in encodings]


def outputs(
    model: Path, layout: str, rows: Sequence[Sequence[int]], device: str
) -> Iterator[tuple[list[int], list[Any]]]:
    """Run a graph on rows of token ids; yield each batch's row indices and all its outputs."""
    session = open_session(model, choose_device(device), half=True)
    names = [output.name for output in session.get_outputs()]
    for batch in batches(rows, _TOKENS_A_RUN, layout, mixed=True):
        yield batch.rows, run_session(session, names, batch.inputs)


def _vectors(
    model: Path, layout: str, rows: Sequence[Sequence[int]], device: str
) -> NDArray[np.float64]:
    """Return the vector of each row of token ids, float64."""
    vectors: NDArray[np.float64] | None = None
    for indices, results in outputs(model, layout, rows, device):
        if vectors is None:
            vectors = np.empty((len(rows), results[0].shape[1]))
        vectors[indices] = results[0]
    assert vectors is not None  # there are always texts
    return vectors


def _scores(
    vectors: NDArray[np.float64], place: Mapping[str, int], pairs: Sequence[ChunkedPair]
) -> NDArray[np.float64]:
    """Return VCS and the margin of each pair, `(pairs, 2)`.

    `place` maps each text and chunk to its row in `vectors`.
    """
    from vcs_numba import score_embeddings

    def of_chunks(side: tuple[str, ...]) -> NDArray[np.float64]:
        chunks: NDArray[np.float64] = vectors[[place[chunk] for chunk in side]]
        return chunks

    def of_whole(side: tuple[str, ...]) -> NDArray[np.float64]:
        whole: NDArray[np.float64] = vectors[place[" ".join(side)]]
        return whole

    scores = np.empty((len(pairs), 2))
    for i, pair in enumerate(pairs):
        reference, generated = pair.reference, pair.generated
        result = score_embeddings(
            of_chunks(reference), of_chunks(generated), of_whole(reference), of_whole(generated)
        )
        scores[i] = result.vcs, result.margin
    return scores


def boundary_agreement(
    reference: Segmenter, other: Segmenter, texts: Sequence[str]
) -> float | None:
    """Return the F1 of `other`'s boundaries against `reference`'s; None if neither has a boundary.

    A boundary is a character whose probability is above the model's threshold. All texts are
    counted together.
    """
    expected, actual = _boundaries(reference, texts), _boundaries(other, texts)
    total = np.count_nonzero(expected) + np.count_nonzero(actual)
    if not total:
        return None
    return float(2 * np.count_nonzero(expected & actual) / total)


def _boundaries(model: Segmenter, texts: Sequence[str]) -> NDArray[np.bool_]:
    folder, spec = model
    bundle = Bundle(
        folder, Manifest(name=spec.name, licence="", source="", files=(), schema=SCHEMA)
    )
    opened = BoundaryModel(bundle, spec, choose_device("cpu"))
    try:
        return np.concatenate(opened.probabilities(texts)) > spec.threshold
    finally:
        opened.close()


# Words of a chunk, about a sentence. Where exactly a text is cut does not matter here.
_CHUNK_WORDS = 15
# Shorter texts are joined: the order of one or two chunks says nothing.
_LEAST_CHUNKS = 3
_OMITTED_WORD = 5  # versions leave out every fifth word
_CHANGED_CHUNK = 3  # versions leave out, or add, every third chunk


@dataclass(frozen=True)
class ChunkedPair:
    """A reference and a generated text, as their chunks."""

    reference: tuple[str, ...]
    generated: tuple[str, ...]


def rewritten_pairs(texts: Sequence[str]) -> list[ChunkedPair]:
    """Make four pairs per text: three with altered versions, and one with the next text.

    A single text has no next text, and gets three pairs.

    With any model VCS is 0 for most neighbours, and the cosines of a text and itself are 1. So
    versions leave out every fifth word, and lose or gain chunks: they order precisions as real
    pairs do (the script `quantization_changes` at 07564bf). Neighbours with fewer than three
    chunks are joined.
    """
    joined = list(_joined(texts))
    pairs = []
    for i, words in enumerate(joined):
        reference, reworded = _chunks(words), _chunks(_reworded(words))
        other = joined[(i + 1) % len(joined)]
        versions = [reworded, _shortened(reworded), _lengthened(reworded, _chunks(other))]
        if other is not words:
            versions.append(_chunks(other))
        pairs += [ChunkedPair(reference, version) for version in versions]
    return pairs


def _joined(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of texts, and of neighbouring short ones together."""
    least = (_LEAST_CHUNKS - 1) * _CHUNK_WORDS + 1
    waiting: list[str] = []
    last: list[str] = []
    for text in texts:
        waiting += text.split() or [text]
        if len(waiting) >= least:
            if last:
                yield last
            last, waiting = waiting, []
    yield last + waiting


def _chunks(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(words[i : i + _CHUNK_WORDS]) for i in range(0, len(words), _CHUNK_WORDS))


def _reworded(words: Sequence[str]) -> list[str]:
    return [word for i, word in enumerate(words, 1) if i % _OMITTED_WORD]


def _shortened(chunks: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(chunk for i, chunk in enumerate(chunks, 1) if i % _CHANGED_CHUNK)


def _lengthened(chunks: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    longer: list[str] = []
    for i, chunk in enumerate(chunks):
        longer.append(chunk)
        if i % _CHANGED_CHUNK == 0:
            longer.append(others[(i // _CHANGED_CHUNK) % len(others)])
    return tuple(longer)


T = TypeVar("T")
Report = Callable[[str], None]
"""Takes one line about a step."""


def unreported(line: str) -> None:
    """Ignore a line about a step."""


class Measuring:
    """A device to measure on, "auto", "cpu" or "cuda:N".

    If "auto" chose a GPU that then fails, the CPU takes its place. Raises ExportError or ValueError
    for another name, and DeviceError.
    """

    def __init__(self, device: str, precision: str, report: Report = unreported) -> None:
        if split_device(device)[0] == "tensorrt":
            raise ExportError(f"device must be auto, cpu or cuda:N, not {device}")
        chosen = choose_device(device)
        self._fallback = device == "auto" and chosen.is_gpu
        self._device = f"cuda:{chosen.index}" if chosen.is_gpu else "cpu"
        self._precision = precision
        self._report = report
        report(f"{precision} is measured on {describe(chosen)}")

    def run(self, work: Callable[[str], T]) -> T:
        """Return the result of `work`, which takes the name of the device."""
        try:
            return work(self._device)
        except DeviceError as error:
            if not self._fallback:
                raise
            self._report(f"{self._precision} is measured on the CPU instead: {error}")
        self._fallback = False
        self._device = "cpu"
        return work(self._device)
