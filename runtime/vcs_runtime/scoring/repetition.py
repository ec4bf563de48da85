"""Which generated chunks repeat an earlier one (docs/guide/explain.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vcs_numba.embeddings import cosine_similarity
from vcs_runtime.text.cleaning import strip_punctuation

#: Chunks that are compared with all earlier ones at a time, so that memory grows with the text alone.
_BLOCK = 256


def repetitions(
    chunks: tuple[Sequence[str], Sequence[str]],
    vectors: tuple[Sequence[npt.NDArray[np.float32]], Sequence[npt.NDArray[np.float32]]] | None,
    match: npt.NDArray[np.int64],
    supported: npt.NDArray[np.bool_],
    threshold: float,
) -> list[int | None]:
    """Find the generated chunks that repeat an earlier one.

    A chunk repeats the first chunk whose words are the same, or whose vector is similar enough. It does not
    repeat that chunk if the reference repeats itself as well, and the chunk has a counterpart of its own. For
    each generated chunk the result is the position of the chunk that it repeats, or None. Without `vectors`,
    only chunks of the same words are alike.
    """
    reference, generated = ([_words(text) for text in texts] for texts in chunks)
    rows = None if vectors is None else vectors[1]
    first = _first_alike(generated, rows, threshold)

    def alike(a: int, b: int) -> bool:
        if reference[a] == reference[b]:
            return True
        if vectors is None:
            return False
        left, right = (vectors[0][i][np.newaxis] for i in (a, b))
        return bool(cosine_similarity(left, right)[0, 0] >= threshold)

    found: list[int | None] = []
    # The first chunk of a group of chunks that are alike, and the reference chunks that the group tells.
    origin = list(range(len(generated)))
    told: dict[int, set[int]] = {}
    for j, (earlier, place) in enumerate(zip(first, match.tolist(), strict=True)):
        origin[j] = origin[earlier]
        group = told.setdefault(origin[j], set())
        own = earlier == j or (
            bool(supported[j]) and place not in group and any(alike(place, other) for other in group)
        )
        if own:
            group.add(place)
        found.append(None if own else earlier)
    return found


def _words(text: str) -> str:
    """Return the words of a text, by which texts that differ in case, punctuation or blanks are the same."""
    return " ".join(strip_punctuation(text).casefold().split()) or text


def _first_alike(
    texts: Sequence[str], vectors: Sequence[npt.NDArray[np.float32]] | None, threshold: float
) -> list[int]:
    """Return for each chunk the position of the first chunk that it is like, or its own position."""
    places: dict[str, int] = {}
    for i, text in enumerate(texts):
        places.setdefault(text, i)
    at = np.fromiter(places.values(), np.int64, len(places))
    first = dict(zip(places, at.tolist(), strict=True))
    if vectors is not None:
        distinct = list(places)
        rows = np.array([vectors[i] for i in at])
        for start in range(0, len(rows), _BLOCK):
            stop = min(start + _BLOCK, len(rows))
            near = np.tril(cosine_similarity(rows[start:stop], rows[:stop]) >= threshold, start - 1)
            for i in np.flatnonzero(near.any(axis=1)).tolist():
                first[distinct[start + i]] = int(at[near[i].argmax()])
    return [first[text] for text in texts]
