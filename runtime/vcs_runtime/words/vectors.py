"""Static vectors of words, from the rows of the table that a bundle's embedder begins with.

The vector of a word is the mean of the rows of its tokens, less the mean row of the table, scaled to unit
length. No model runs for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.bundle.word_rows import StoredRows, find_word_rows
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.tokenizer import encoded, load_tokenizer
from vcs_runtime.util.lru import LRUCache

FloatArray = npt.NDArray[np.float32]

#: Bytes of the vectors that are remembered: some 20,000 words of the default bundle.
MEMORY_BYTES: Final = 32 << 20
_BLOCK_BYTES: Final = 1 << 20
# In some tokenizers a word inside a text has other tokens than one at its beginning. So one stands before it.
_LEAD: Final = "a "


class WordVectors:
    """The static vectors of words."""

    def __init__(self, bundle: Bundle, memory_bytes: int = MEMORY_BYTES) -> None:
        stored = find_word_rows(bundle)
        assert bundle.manifest.embedder is not None  # find_word_rows would have refused it
        self.width = stored.width
        self._tokenizer = load_tokenizer(bundle.path(bundle.manifest.embedder.tokenizer))
        if (tokens := self._tokenizer.get_vocab_size()) > stored.rows:
            raise BundleError(
                f"{bundle.root}: the tokenizer has {tokens:,} tokens, and the embedder vectors of "
                f"{stored.rows:,}"
            )
        self._number = stored.number
        self._rows = np.memmap(
            stored.file, _dtype(stored.number), "r", stored.offset, (stored.rows, stored.width)
        )
        self._mean = _mean_row(stored)
        if not np.isfinite(self._mean).all():
            raise BundleError(f"{bundle.root}: NaN or infinity among the embedder's token vectors")
        self._remembered: LRUCache[FloatArray] = LRUCache(memory_bytes, lambda vector: vector.nbytes)

    def of(self, forms: Sequence[str]) -> FloatArray:
        """Return the vectors of words."""
        vectors = np.zeros((len(forms), self.width), np.float32)
        for row, form in enumerate(forms):
            vector = self._remembered.get(form)
            if vector is None:
                vector = self._computed(form)
                self._remembered.put(form, vector)
            vectors[row] = vector
        return vectors

    def _computed(self, form: str) -> FloatArray:
        encoding = encoded(self._tokenizer.encode, _LEAD + form)
        places = zip(encoding.ids, encoding.offsets, strict=True)
        ids = [token for token, (_, stop) in places if stop > len(_LEAD)]
        if not ids:
            return np.zeros(self.width, np.float32)
        vector = _widened(self._rows[ids], self._number).sum(axis=0) / len(ids) - self._mean
        # An exact sum, in place of one whose order a library would choose for the processor.
        length = math.sqrt(math.fsum((vector * vector).tolist()))
        unit: FloatArray = (vector / length if length else vector).astype(np.float32)
        return unit


def _dtype(number: str) -> np.dtype[Any]:
    return np.dtype({"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}[number])


def _widened(rows: npt.NDArray[Any], number: str) -> npt.NDArray[np.float64]:
    """Return rows as float64; NumPy lacks bfloat16, which is the upper half of a float32."""
    if number == "bfloat16":
        rows = (rows.astype(np.uint32) << 16).view(np.float32)
    return rows.astype(np.float64)


def _mean_row(stored: StoredRows) -> npt.NDArray[np.float64]:
    """Return the mean of all rows, added in order. They are read in blocks, which are freed at once."""
    kind = _dtype(stored.number)
    total = np.zeros(stored.width, np.float64)
    at_once = max(1, _BLOCK_BYTES // (stored.width * kind.itemsize))
    with stored.file.open("rb") as file:
        file.seek(stored.offset)
        for start in range(0, stored.rows, at_once):
            count = min(at_once, stored.rows - start)
            block = np.frombuffer(file.read(count * stored.width * kind.itemsize), kind)
            rows = _widened(block.reshape(count, stored.width), stored.number)
            rows[0] += total  # so that the sum does not depend on where a block ends
            total = np.add.reduce(rows, axis=0)
    return total / stored.rows
