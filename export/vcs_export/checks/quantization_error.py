"""What an embedder's graph loses by quantisation, measured by running it beside an unquantised one."""

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
from vcs_runtime.inference.device import choose_device, open_session, run_session
from vcs_runtime.inference.tokenizer import load_tokenizer

# Chunks for the change of VCS: about a sentence each. Where exactly a text is cut does not matter here.
_CHUNK_WORDS = 15
# A CPU that widens half-precision weights does so once a run: few runs of many tokens.
_TOKENS_A_RUN = 2048
LEAST_COSINES = {"int8": 0.99, "fp8": 0.99}
"""The least mean cosine to unquantised vectors with which a bundle is made, by precision. int4 is
experimental: its loss stands in the bundle, for its user to judge."""


def demo_texts() -> list[str]:
    """The descriptions of `vcs-runtime demo`: what is measured on unless a user brings texts."""
    data = json.loads(files("vcs_runtime").joinpath("data/demo.json").read_text("utf-8"))
    return [data["reference"], *(version["text"] for version in data["versions"])]


def check_loss(loss: QuantizationErrorStats, precision: str, least_cosine: float | None) -> None:
    """Raise ExportError where a loss is larger than what a precision may lose.

    least_cosine  the least mean cosine to take; None: the precision's own, one of `LEAST_COSINES`
    """
    least = LEAST_COSINES.get(precision, -1.0) if least_cosine is None else least_cosine
    if loss.cosine_mean < least:
        raise ExportError(
            f"{precision} loses too much of this model: its vectors have a mean cosine of "
            f"{loss.cosine_mean:.5f} to unquantised ones ({loss.texts} texts), less than {least:g} "
            "(--least-cosine)"
        )


def embedding_loss(
    exact: Path, folder: Path, spec: EmbedderSpec, texts: Sequence[str]
) -> QuantizationErrorStats:
    """How far the vectors of the embedder `spec` in `folder` are from those of the graph `exact`.

    exact   an unquantised graph with the same inputs, its weights beside it
    texts   each is embedded, cut at the model's longest input; neighbours are the pairs whose VCS is
            compared, their chunks fifteen words each

    Raises ExportError if a vector is not finite; DeviceError, BundleError from the runtime.
    """
    chunks = [_chunks(text) for text in texts]
    pieces = list(dict.fromkeys([*texts, *(chunk for part in chunks for chunk in part)]))
    rows = tokens(folder / spec.tokenizer, spec, pieces)
    wanted, got = (_vectors(model, spec, rows) for model in (exact, folder / spec.model))
    if not (np.isfinite(wanted).all() and np.isfinite(got).all()):
        raise ExportError(f"{spec.precision} returned NaN or infinity for a text")
    place = {piece: row for row, piece in enumerate(pieces)}
    whole = [place[text] for text in texts]
    parts = [[place[chunk] for chunk in part] for part in chunks]
    cosines = np.sum(wanted[whole] * got[whole], axis=1)
    changes = np.abs(_scores(wanted, whole, parts) - _scores(got, whole, parts))
    return QuantizationErrorStats(
        texts=len(texts),
        cosine_mean=float(cosines.mean()),
        cosine_min=float(cosines.min()),
        pairs=len(changes),
        vcs_change=float(changes.mean()) if len(changes) else None,
    )


def _chunks(text: str) -> list[str]:
    words = text.split()
    return [" ".join(words[i : i + _CHUNK_WORDS]) for i in range(0, len(words), _CHUNK_WORDS)] or [text]


def tokens(tokenizer: Path, spec: EmbedderSpec, texts: Sequence[str]) -> list[list[int]]:
    """The token ids of each text with their frame, cut at the model's longest input."""
    first, last = spec.special_tokens or ((), ())
    room = spec.max_tokens - len(first) - len(last)
    encodings = load_tokenizer(tokenizer).encode_batch(list(texts), add_special_tokens=False)
    return [[*first, *encoding.ids[:room], *last] for encoding in encodings]


def outputs(
    model: Path, spec: EmbedderSpec, rows: Sequence[Sequence[int]]
) -> Iterator[tuple[list[int], list[Any]]]:
    """Run a graph on the CPU: for each batch, which of the token ids `rows` were in it, and all outputs."""
    session = open_session(model, choose_device("cpu"), half=True)
    names = [output.name for output in session.get_outputs()]
    for batch in batches(rows, _TOKENS_A_RUN, spec.layout, mixed=True):
        yield batch.rows, run_session(session, names, batch.inputs)


def _vectors(model: Path, spec: EmbedderSpec, rows: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    vectors = np.empty((len(rows), spec.dimension))
    for which, (found, *_) in outputs(model, spec, rows):
        vectors[which] = found
    return vectors


def _scores(
    vectors: NDArray[np.float64], texts: Sequence[int], chunks: Sequence[Sequence[int]]
) -> NDArray[np.float64]:
    """The VCS of each text, given by its row, against the one before it."""
    from vcs_numba import score_embeddings

    return np.array(
        [
            score_embeddings(vectors[chunks[i]], vectors[chunks[j]], vectors[texts[i]], vectors[texts[j]]).vcs
            for i, j in pairwise(range(len(texts)))
        ]
    )
