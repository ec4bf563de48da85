"""The quantisation error of an embedder, measured by running its graph beside an unquantised one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcs_export.errors import ExportError
from vcs_runtime.bundle.manifest import EmbedderSpec, QuantizationErrorStats
from vcs_runtime.inference.batching import batches
from vcs_runtime.inference.device import choose_device
from vcs_runtime.inference.onnx_session import open_session, run_session
from vcs_runtime.inference.tokenizer import load_tokenizer

# Words of a chunk, about a sentence, for the change of VCS. Where exactly a text is cut does not matter here.
_CHUNK_WORDS = 15
# A CPU widens half-precision weights once a run, so few runs of many tokens are faster.
_TOKENS_A_RUN = 2048
LEAST_COSINES = {"int8": 0.99, "fp8": 0.99}
"""The lowest mean cosine to unquantised vectors with which a bundle is built, by precision.

int4 is experimental and has no limit: the bundle holds its quantisation error, for the user to judge."""


def demo_texts() -> list[str]:
    """Return the descriptions of `vcs-runtime demo`, on which is measured unless a user brings texts."""
    data = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    return [data["reference"], *(version["text"] for version in data["versions"])]


def check_quantization_error(
    error: QuantizationErrorStats, precision: str, least_cosine: float | None
) -> None:
    """Refuse a quantisation error that is too large.

    Parameters
    ----------
    error
        The measured error.
    precision
        Precision of the matrices.
    least_cosine
        The lowest mean cosine to accept. None takes the precision's own, one of `LEAST_COSINES`.

    Raises
    ------
    ExportError
        The mean cosine is lower.
    """
    least = LEAST_COSINES.get(precision, -1.0) if least_cosine is None else least_cosine
    if error.cosine_mean < least:
        raise ExportError(
            f"{precision} loses too much of this model: its vectors have a mean cosine of "
            f"{error.cosine_mean:.5f} to unquantised ones ({error.texts} texts), less than {least:g} "
            "(--least-cosine)"
        )


def embedder_quantization_error(
    exact: Path, folder: Path, spec: EmbedderSpec, texts: Sequence[str], device: str = "cpu"
) -> QuantizationErrorStats:
    """Measure how far an embedder's vectors are from those of an unquantised graph.

    Parameters
    ----------
    exact
        An unquantised graph with the inputs of `spec`, its weights beside it.
    folder
        The folder that the paths of `spec` start from.
    spec
        How the embedder is run.
    texts
        Texts to embed, each cut at the model's longest input. The VCS of neighbouring texts is compared;
        their chunks have fifteen words each.
    device
        "cpu" or "cuda:N": where both graphs are run.

    Returns
    -------
    error
        Cosines between the vectors, and the change of VCS.

    Raises
    ------
    ExportError
        A vector is not finite.
    BundleError, DeviceError
        The runtime cannot run a graph.
    """
    chunks = [_chunks(text) for text in texts]
    pieces = list(dict.fromkeys([*texts, *(chunk for part in chunks for chunk in part)]))
    rows = tokens(folder / spec.tokenizer, spec, pieces)
    graph = spec.cuda if spec.cuda and device != "cpu" else spec
    expected = _vectors(exact, spec.layout, rows, device)
    actual = _vectors(folder / graph.model, graph.layout, rows, device)
    if not (np.isfinite(expected).all() and np.isfinite(actual).all()):
        raise ExportError(f"{spec.precision} returned NaN or infinity for a text")
    place = {piece: row for row, piece in enumerate(pieces)}
    whole = [place[text] for text in texts]
    parts = [[place[chunk] for chunk in part] for part in chunks]
    # Rounding takes a cosine above 1, and the mean of equal ones below them: the manifest refuses both.
    cosines = np.clip(np.sum(expected[whole] * actual[whole], axis=1), -1.0, 1.0)
    lowest = float(cosines.min())
    changes = np.abs(_scores(expected, whole, parts) - _scores(actual, whole, parts))
    return QuantizationErrorStats(
        texts=len(texts),
        cosine_mean=max(float(cosines.mean()), lowest),
        cosine_min=lowest,
        pairs=len(changes),
        vcs_change=float(changes.mean()) if len(changes) else None,
    )


def _chunks(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[i : i + _CHUNK_WORDS]) for i in range(0, len(words), _CHUNK_WORDS)] or [text]


def tokens(tokenizer: Path, spec: EmbedderSpec, texts: Sequence[str]) -> list[list[int]]:
    """Tokenise texts as an embedder is fed.

    Parameters
    ----------
    tokenizer
        A `tokenizer.json`.
    spec
        How the embedder is run.
    texts
        The texts.

    Returns
    -------
    rows
        Token ids of each text with special tokens, cut at the model's longest input.
    """
    first, last = spec.special_tokens or ((), ())
    room = spec.max_tokens - len(first) - len(last)
    encodings = load_tokenizer(tokenizer).encode_batch(list(texts), add_special_tokens=False)
    return [[*first, *encoding.ids[:room], *last] for encoding in encodings]


def outputs(
    model: Path, layout: str, rows: Sequence[Sequence[int]], device: str
) -> Iterator[tuple[list[int], list[Any]]]:
    """Run a graph.

    Parameters
    ----------
    model
        The graph.
    layout
        Its input layout.
    rows
        Token ids of each text.
    device
        "cpu" or "cuda:N".

    Yields
    ------
    batch
        Indices of the rows in a batch, and all outputs of the graph.
    """
    session = open_session(model, choose_device(device), half=True)
    names = [output.name for output in session.get_outputs()]
    for batch in batches(rows, _TOKENS_A_RUN, layout, mixed=True):
        yield batch.rows, run_session(session, names, batch.inputs)


def _vectors(model: Path, layout: str, rows: Sequence[Sequence[int]], device: str) -> NDArray[np.float64]:
    order, batches_of = zip(*outputs(model, layout, rows, device), strict=True)
    vectors = np.concatenate([first for first, *_ in batches_of]).astype(np.float64)
    found: NDArray[np.float64] = vectors[np.argsort(np.concatenate(order))]
    return found


def _scores(
    vectors: NDArray[np.float64], texts: Sequence[int], chunks: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """Return the VCS of each text, given by its row, against the text before it."""
    from vcs_numba import score_embeddings

    return np.array(
        [
            score_embeddings(vectors[chunks[i]], vectors[chunks[j]], vectors[texts[i]], vectors[texts[j]]).vcs
            for i, j in pairwise(range(len(texts)))
        ]
    )
