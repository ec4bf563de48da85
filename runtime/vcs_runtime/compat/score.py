"""`compute_vcs_score` and its twin for vectors (docs/migration.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_numba import Alignment, Orientation, Params, Scores, align, score_similarity
from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.inference.custom import as_numbers, is_tensor
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.flags import flags_of_texts
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Evidence, Result
from vcs_runtime.scoring.signature import signature_of
from vcs_runtime.scoring.verdicts import Thresholds
from vcs_runtime.text.cleaning import join_chunks

DEFAULT_CONTEXT_CUTOFF_VALUE: Final = 0.6
DEFAULT_CONTEXT_WINDOW_CONTROL: Final = 4.0
DEFAULT_LCT: Final = 0
DEFAULT_CHUNK_SIZE: Final = 1

# The minimum length of a vector in a cosine, so that a vector of zeros has the cosine 0.
_SHORTEST: Final = 1e-8

SegmenterFunction = Callable[[str], list[str]]
EmbeddingFunction = Callable[[list[str]], Any]


def compute_vcs_score(
    reference_text: str,
    generated_text: str,
    segmenter_fn: SegmenterFunction,
    embedding_fn_las: EmbeddingFunction | None,
    embedding_fn_gas: EmbeddingFunction | None = None,
    chunk_size: int = DEFAULT_CHUNK_SIZE,
    context_cutoff_value: float = DEFAULT_CONTEXT_CUTOFF_VALUE,
    context_window_control: float = DEFAULT_CONTEXT_WINDOW_CONTROL,
    lct: float = DEFAULT_LCT,
    return_all_metrics: bool = False,
    return_internals: bool = False,
) -> dict[str, Any]:
    """Score one pair as the reference package 1.0.0 does, with its rule for small texts.

    Nothing is deleted from the texts. The similarity of two chunks is the product of their vectors,
    which the embedder has to scale to unit length; GAS is a cosine. Products are computed on the
    tensors' device and in their precision.

    Parameters
    ----------
    reference_text
        The reference.
    generated_text
        The text to be scored.
    segmenter_fn
        Splits a text into a list of segments.
    embedding_fn_las
        Returns for a list of chunks an array (n, d): a torch tensor on any device, or an array that
        NumPy reads. None: `embedding_fn_gas`.
    embedding_fn_gas
        Returns an array (2, d) for the list of the two texts. None: `embedding_fn_las`.
    chunk_size
        Number of segments joined to one chunk.
    context_cutoff_value
        `context_cutoff` of `Params`.
    context_window_control
        `context_window` of `Params`.
    lct
        `lct` of `Params`.
    return_all_metrics
        Whether to return all fifteen scores, or only VCS.
    return_internals
        Whether to return the intermediate results, for the pictures.

    Returns
    -------
    dict
        "VCS", or all scores under the package's names; with `return_internals` also "internals".

    Raises
    ------
    TextError
        `segmenter_fn` finds no segment in a text.
    ModelError
        An embedding function does not return one row of finite numbers for each text.
    ValueError
        A parameter is out of range, or a function is not callable.
    """
    embed_chunks = embedding_fn_las or embedding_fn_gas
    embed_texts = embedding_fn_gas or embedding_fn_las
    functions = {
        "segmenter_fn": segmenter_fn,
        "embedding_fn_las": embed_chunks,
        "embedding_fn_gas": embed_texts,
    }
    for name, function in functions.items():
        if not callable(function):
            raise ValueError(f"{name} must be a function, not {type(function).__name__}")
    assert embed_chunks
    assert embed_texts
    config = {
        "chunk_size": chunk_size,
        "context_cutoff_value": context_cutoff_value,
        "context_window_control": context_window_control,
        "lct": lct,
    }
    options = _options(config)
    # In the reference package's order, each list in one call: an embedder's vectors may depend on
    # the texts of the same call.
    whole = _rows(embed_texts([reference_text, generated_text]), 2, "embedding_fn_gas")
    gas = _cosine(whole[:1], whole[1:], "embedding_fn_gas")
    reference = _chunks(reference_text, "reference_text", segmenter_fn, options.chunk_size)
    generated = _chunks(generated_text, "generated_text", segmenter_fn, options.chunk_size)
    similarity = _similarity(
        _rows(embed_chunks(reference), len(reference), "embedding_fn_las"),
        _rows(embed_chunks(generated), len(generated), "embedding_fn_las"),
        "embedding_fn_las",
    )
    return _scored(
        (reference, generated),
        similarity,
        gas,
        config,
        return_all_metrics,
        internals=return_internals,
    )


def compute_vcs_from_embeddings(
    reference_doc_embedding: Any,
    generated_doc_embedding: Any,
    reference_chunk_embeddings: Any,
    generated_chunk_embeddings: Any,
    *,
    reference_chunks: Sequence[str] | None = None,
    generated_chunks: Sequence[str] | None = None,
    context_cutoff_value: float = DEFAULT_CONTEXT_CUTOFF_VALUE,
    context_window_control: float = DEFAULT_CONTEXT_WINDOW_CONTROL,
    lct: float = DEFAULT_LCT,
    return_all_metrics: bool = False,
    return_internals: bool = False,
) -> dict[str, Any]:
    """Score one pair from vectors, as `compute_vcs_score` scores a pair from the texts.

    The function of this name in the authors' unreleased versions computes their later definition.
    This function computes 1.0.0, with `lct` instead of `Rn`, and does not scale the vectors.

    Parameters
    ----------
    reference_doc_embedding
        Vector (d,) or (1, d) of the whole reference: a torch tensor on any device, or an array that
        NumPy reads.
    generated_doc_embedding
        Vector of the whole generated text.
    reference_chunk_embeddings
        Unit vectors (n_ref, d) of the reference's chunks, in their order.
    generated_chunk_embeddings
        Unit vectors (n_gen, d) of the generated text's chunks.
    reference_chunks
        Texts of the reference's chunks, for internals. None: "<chunk 1>", "<chunk 2>", ...
    generated_chunks
        Texts of the generated text's chunks.
    context_cutoff_value
        `context_cutoff` of `Params`.
    context_window_control
        `context_window` of `Params`.
    lct
        `lct` of `Params`.
    return_all_metrics
        Whether to return all fifteen scores, or only VCS.
    return_internals
        Whether to return the intermediate results, for the pictures; their chunk size is None.

    Returns
    -------
    dict
        As for `compute_vcs_score`.

    Raises
    ------
    ModelError
        A number is not finite, or vectors have different lengths.
    ValueError
        A parameter is out of range, or the numbers of texts and vectors differ.
    """
    config = {
        "chunk_size": None,
        "context_cutoff_value": context_cutoff_value,
        "context_window_control": context_window_control,
        "lct": lct,
    }
    gas = _cosine(
        _rows(reference_doc_embedding, 1, "reference_doc_embedding"),
        _rows(generated_doc_embedding, 1, "generated_doc_embedding"),
        "generated_doc_embedding",
    )
    reference = _rows(reference_chunk_embeddings, None, "reference_chunk_embeddings")
    generated = _rows(generated_chunk_embeddings, None, "generated_chunk_embeddings")
    similarity = _similarity(reference, generated, "generated_chunk_embeddings")
    texts = (
        _texts(reference_chunks, len(reference), "reference_chunks"),
        _texts(generated_chunks, len(generated), "generated_chunks"),
    )
    return _scored(texts, similarity, gas, config, return_all_metrics, internals=return_internals)


def explain_internals(
    internals: Mapping[str, Any], thresholds: Thresholds = Thresholds()
) -> Explanation:
    """Explain a pair from its internals (docs/guide/explain.md).

    The internals may also come from the reference package.

    Parameters
    ----------
    internals
        The value under "internals" of `compute_vcs_score`, here or in the reference package.
    thresholds
        Thresholds of the verdicts.

    Returns
    -------
    Explanation
        Verdicts, costs and sentences; `vcs_runtime.report` draws them.

    Raises
    ------
    ValueError
        `internals` lacks a key, or has impossible numbers.
    """
    try:
        options = _options(internals["config"])
        similarity = np.asarray(internals["similarity"]["matrix"], np.float64)
        gas = internals["metrics"]["gas"]["value"]
        texts = internals["texts"]
        chunks = list(texts["reference_chunks"]), list(texts["generated_chunks"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"internals must be a result of compute_vcs_score: {error!r}") from None
    scores = score_similarity(similarity, gas, options.params)
    signature = signature_of(options, ["seg:segmenter_fn"], ["emb:embedding_fn"])
    n_ref, n_gen = similarity.shape
    noted = flags_of_texts(*chunks, options.chunk_size)
    result = Result(scores, n_ref, n_gen, signature, segmenter="segmenter_fn", noted=noted)
    return explain(result, Evidence(chunks, similarity, scores.gas), options.params, thresholds)


def _options(config: Mapping[str, Any]) -> Options:
    params = Params(
        config["lct"],
        config["context_cutoff_value"],
        config["context_window_control"],
        small_text="reference",
    )
    size = config["chunk_size"]  # None where the caller joined the chunks
    return Options(params=params) if size is None else Options(size, params)


def _scored(
    chunks: tuple[list[str], list[str]],
    similarity: npt.NDArray[Any],
    gas: float,
    config: Mapping[str, Any],
    return_all_metrics: bool,
    *,
    internals: bool,
) -> dict[str, Any]:
    params = _options(config).params
    if not internals:
        scores = score_similarity(similarity, gas, params)
        return _named(scores, return_all_metrics)
    alignment = align(similarity, params)
    scores = alignment.scores(gas)
    output = _named(scores, return_all_metrics)
    output["internals"] = internals_of(chunks, similarity, alignment, scores, config)
    return output


def _named(scores: Scores, return_all_metrics: bool) -> dict[str, Any]:
    named = scores.to_reference_dict()
    if not return_all_metrics:
        return {"VCS": named["VCS"]}
    return {key: named[key] for key in KEYS}


def _texts(texts: Sequence[str] | None, count: int, name: str) -> list[str]:
    if texts is None:
        return [f"<chunk {number}>" for number in range(1, count + 1)]
    if isinstance(texts, str) or len(texts) != count:
        raise ValueError(f"{name} must be a list of {count} texts, one for each vector")
    return list(texts)


def _chunks(text: str, name: str, segmenter_fn: SegmenterFunction, chunk_size: int) -> list[str]:
    segments: Any = segmenter_fn(text)
    if isinstance(segments, str) or not all(isinstance(segment, str) for segment in segments):
        raise ModelError("segmenter_fn must return a list of strings")
    if not segments:
        raise TextError(f"{name}: segmenter_fn returned no segments")
    return join_chunks(segments, chunk_size)


def _rows(vectors: Any, count: int | None, name: str) -> Any:
    """Return vectors as a tensor or an array (count, d); one vector alone may have one axis."""
    try:
        rows = vectors if is_tensor(vectors) else np.asarray(as_numbers(vectors), np.float64)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{name} is not an array of numbers: {error}") from error
    if rows.ndim == 1 and count == 1:
        rows = rows.reshape(1, -1)
    if rows.ndim != 2 or not len(rows) or len(rows) != (count or len(rows)):
        raise ModelError(f"{name} has the shape {tuple(rows.shape)}, not ({count or 'n'}, d)")
    return rows


def _similarity(reference: Any, generated: Any, name: str) -> npt.NDArray[np.float64]:
    _check_lengths(reference, generated, name)
    similarity = np.asarray(as_numbers(reference @ generated.T))
    if not np.isfinite(similarity).all():
        raise ModelError(f"{name} has NaN, infinity or too large numbers")
    return similarity


def _cosine(reference: Any, generated: Any, name: str) -> float:
    """Return the cosine of two rows (1, d), computed as PyTorch does if they are tensors."""
    _check_lengths(reference, generated, name)
    units = []
    for row in (reference, generated):
        if is_tensor(row):
            units.append(row / row.norm(dim=1, keepdim=True).clamp_min(_SHORTEST))
        else:
            units.append(row / np.maximum(np.linalg.norm(row, axis=1, keepdims=True), _SHORTEST))
    cosine = float(as_numbers((units[0] * units[1]).sum()))
    if not np.isfinite(cosine):
        raise ModelError(f"{name} has NaN or infinity")
    return cosine


def _check_lengths(reference: Any, generated: Any, name: str) -> None:
    size, other_size = reference.shape[1], generated.shape[1]
    if size != other_size:
        raise ModelError(f"{name} has vectors of {size} and of {other_size} components")


#: The scores in the order of the reference package.
KEYS: Final = (
    "Precision LAS",
    "Recall LAS",
    "LAS",
    "Precision NAS-D",
    "Recall NAS-D",
    "NAS-D",
    "Precision NAS-L",
    "Recall NAS-L",
    "NAS-L",
    "NAS-F1",
    "Window-Regularizer",
    "NAS",
    "GAS",
    "GAS-LAS-Scaled",
    "VCS",
)


def internals_of(
    chunks: tuple[Sequence[str], Sequence[str]],
    similarity: npt.NDArray[Any],
    alignment: Alignment,
    scores: Scores,
    config: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the `internals` of the reference package; `similarity` is (n_ref, n_gen).

    As in the original, chunks of a line count from 1, everything else from 0.
    """
    a = alignment
    reference, generated = chunks
    cutoff = config["context_cutoff_value"]
    # Positions of the generated chunk and of the reference chunk.
    precision_pairs = list(enumerate(a.precision.match.tolist()))
    recall_pairs = [(j, i) for i, j in enumerate(a.recall.match.tolist())]
    return {
        "texts": {
            "reference_chunks": list(reference),
            "generated_chunks": list(generated),
            "reference_length": a.n_ref,
            "generated_length": a.n_gen,
        },
        "similarity": {"matrix": similarity.tolist()},
        "mapping_windows": {"precision": _windows(a.precision), "recall": _windows(a.recall)},
        "alignment": {
            "precision": _matches(a.precision, precision_pairs, chunks),
            "recall": _matches(a.recall, recall_pairs, chunks),
        },
        "metrics": {
            "gas": {"value": scores.gas},
            "las": {
                "precision": scores.las_precision,
                "recall": scores.las_recall,
                "f1": scores.las,
            },
            "nas": {
                "nas_d": {
                    "precision": _distance(a.precision),
                    "recall": _distance(a.recall),
                    "f1": scores.nas_d,
                },
                "nas_l": {
                    "precision": _line(a.precision),
                    "recall": _line(a.recall),
                    "f1": scores.nas_l,
                },
                "regularizer": {
                    "value": scores.window_regularizer,
                    "total_mapping_window_area": a.window_area,
                    "timeline_area": a.grid_area,
                    "min_area": a.min_coverage,
                },
                "nas_f1": scores.nas_f1,
                "regularized_nas": scores.nas,
            },
            "vcs": {"value": scores.vcs, "gas_las_scaled": scores.sas},
        },
        "config": dict(config),
        "best_match": {
            "precision": _best_matches("precision", a.precision, cutoff),
            "recall": _best_matches("recall", a.recall, cutoff),
        },
    }


def _matches(
    side: Orientation,
    pairs: Sequence[tuple[int, int]],
    chunks: tuple[Sequence[str], Sequence[str]],
) -> dict[str, Any]:
    reference, generated = chunks
    return {
        "matches": pairs,
        "indices": side.match.tolist(),
        "similarity_values": side.similarity.tolist(),
        "aligned_segments": [(j + 1, i + 1, generated[j], reference[i]) for j, i in pairs],
    }


def _best_matches(direction: str, side: Orientation, context_cutoff: float) -> dict[str, Any]:
    segments = [_match(i, side, context_cutoff) for i in range(side.x)]
    return {"direction": direction, "segments": segments}


def _windows(side: Orientation) -> list[tuple[int, int]]:
    return list(zip(side.window_start.tolist(), side.window_end.tolist(), strict=True))


def _distance(side: Orientation) -> dict[str, Any]:
    return {
        "value": side.nas_d,
        "mapping_window_height": side.tolerance_height,
        "max_penalty": side.max_penalty,
        "total_penalty": side.total_penalty,
        "penalties": side.penalty.tolist(),
        "in_window": side.in_window.tolist(),
        "in_lct_zone": side.in_lct_zone.tolist(),
    }


def _line(side: Orientation) -> dict[str, Any]:
    points = list(enumerate((side.match + 1).tolist(), 1))
    return {
        "value": side.nas_l,
        "actual_line_length": side.actual_length,
        "floor_ideal_line_length": side.floor_length,
        "ceil_ideal_line_length": side.ceiling_length,
        "average_ideal_line_length": (side.floor_length + side.ceiling_length) / 2,
        "segments": [_segment(i, side, points) for i in range(len(side.segment_method))],
        "floor_path": list(enumerate(side.floor_path.tolist(), 1)),
        "ceil_path": list(enumerate(side.ceiling_path.tolist(), 1)),
        "actual_path": points,
    }


def _segment(i: int, side: Orientation, points: Sequence[tuple[int, int]]) -> dict[str, Any]:
    method = side.segment_method[i]
    return {
        "start": points[i],
        "end": points[i + 1],
        "dx": 1,
        "dy": int(side.segment_dy[i]),
        "threshold": float(side.segment_limit),
        "threshold_with_lct": side.segment_limit_lct,
        "is_calculable": method != "none",
        "calculation_method": method,
        "length": float(side.segment_length[i]),
    }


def _match(chunk: int, side: Orientation, context_cutoff: float) -> dict[str, Any]:
    window = {"start": int(side.window_start[chunk]), "end": int(side.window_end[chunk])}
    match = int(side.match[chunk])
    candidates = side.candidates.of(chunk)
    selection: dict[str, Any] = {
        "max_value": float(side.max_similarity[chunk]),
        "max_index": int(side.max_index[chunk]),
        "context_range": 1 - context_cutoff,
        "context_window": float(side.context_window[chunk]),
        "context_threshold": float(side.context_threshold[chunk]),
        "context_window_applied": bool(side.context_window[chunk] > 0.0),
        "candidates": [],
    }
    if len(candidates) > 1:  # a candidate is listed only beside others
        selection["mapping_window"] = dict(window)
        selection["candidates"] = [
            {
                "index": candidate["index"],
                "similarity": candidate["similarity"],
                "in_window": candidate["in_window"],
                "distance": candidate["distance"],
                "is_selected": candidate["index"] == match,
            }
            for candidate in candidates
        ]
    selection |= {"selected_index": match, "selection_reason": side.reason[chunk]}
    return {"index": chunk, "mapping_window": window, "selection": selection, "valid": True}
