"""Texts between tokens and vectors: an embedder's model runs on batches, and its outputs become vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.errors import BundleError
from vcs_runtime.inference.batching import Batch, batches, fixed_shapes, width_step
from vcs_runtime.inference.device import Device
from vcs_runtime.inference.invariant import ShapeOf
from vcs_runtime.inference.session import Budget, run_batches
from vcs_runtime.inference.tensorrt import row_limit
from vcs_runtime.inference.token_vectors import CollectedStates, TokenVectors
from vcs_runtime.inference.tokenizer import Sequences
from vcs_runtime.util.progress import report_part

FloatArray = npt.NDArray[np.float32]
_Output = tuple[list[int], FloatArray]  # of a batch: the numbers of its sequences, and their vectors


class EmbedderModel:
    """The model of an embedder: how batches are cut for it, run, and pooled."""

    def __init__(
        self,
        spec: EmbedderSpec,
        device: Device,
        layout: str,
        session: Any,
        budget: Budget,
        special_count: int,
    ) -> None:
        self.device = device
        self.layout = layout
        self.session = session
        self.budget = budget
        self._spec = spec
        self._special_count = special_count

    def batches(
        self, sequences: Sequences, rows: Sequence[int], tokens: int
    ) -> Iterator[tuple[list[int], Batch]]:
        """Cut sequences into batches of at most `tokens` tokens, with the numbers of their sequences."""
        layout, skip, mixed = self.layout, sequences.skip, self.device.is_gpu
        most_rows = row_limit(self.device)
        step = width_step(self.device.provider_name, self._spec.max_tokens)
        shape_of: ShapeOf | None = None
        if self.device.batch_invariant:
            shape_of = fixed_shapes(layout, self._spec.max_tokens, most_rows, step)
        ids = [sequences.ids[row] for row in rows]
        for batch in batches(
            ids, tokens, layout, skip, mixed=mixed, most_rows=most_rows, step=step, shape_of=shape_of
        ):
            yield [rows[row] for row in batch.rows], batch

    def run(self, rows: list[int], batch: Batch, states: CollectedStates | None) -> FloatArray:
        """Return the vectors of a batch's sequences, and let `states` keep those of their tokens.

        Raises DeviceError, and BundleError for an array of another shape.
        """
        output: FloatArray
        shown = None
        if states and states.wanted(rows):
            output, shown = self.session.run_with(batch.inputs, [states.layer.value])
        else:
            output = self.session.run(batch.inputs)
        count = len(rows) + batch.fillers
        if output.shape != (count, self._spec.dimension):
            raise BundleError(
                f"{self._spec.name}: the model returned an array {output.shape} for "
                f"{count} texts of dimension {self._spec.dimension}"
            )
        if states and shown is not None:
            states.keep(rows, shown)
        return output[: len(rows)]

    def pool(self, sequences: Sequences, texts: int, outputs: list[_Output]) -> FloatArray:
        """Put the vectors of all batches in order, and average those of a text's windows."""
        vectors = np.empty((len(sequences.ids), self._spec.dimension), np.float32)
        while outputs:  # each is freed as soon as it is copied
            rows, output = outputs.pop()
            vectors[rows] = output
        if not np.isfinite(vectors).all():
            raise BundleError(f"{self._spec.name}: the model returned NaN or infinity")
        owners = sequences.owners
        if len(owners) == texts:
            return vectors
        # Texts of one window keep the vector as the model gave it, to the bit.
        counts = np.array([len(ids) for ids in sequences.ids], np.float64) - self._special_count
        sums = np.zeros((texts, self._spec.dimension), np.float64)
        np.add.at(sums, owners, vectors * counts[:, None])
        several = np.bincount(owners) > 1
        result = np.empty((texts, self._spec.dimension), np.float32)
        norms = np.linalg.norm(sums[several], axis=1, keepdims=True)
        if not norms.all():
            raise BundleError(f"{self._spec.name}: the model's vectors of a long text add up to 0")
        result[several] = sums[several] / norms
        result[~several] = vectors[~several[owners]]
        return result


class TokenisedTexts:
    """Texts between tokens and vectors. For a GPU the batches are laid out, so that it waits for nothing."""

    def __init__(
        self,
        model: EmbedderModel,
        sequences: Sequences,
        texts: int,
        part: tuple[float, float],
        states: CollectedStates | None = None,
    ) -> None:
        self.texts = texts
        self._model = model
        self._sequences = sequences
        self._part = part
        self._states = states
        self._lengths = [len(ids) for ids in sequences.ids]
        self._done = 0
        self._outputs: list[_Output] = []
        self._laid_out: tuple[int, list[tuple[list[int], Batch]]] | None = None
        if model.device.is_gpu:
            tokens = model.budget.tokens
            self._laid_out = tokens, list(self._cut(range(len(self._lengths)), tokens))

    def run(self) -> None:
        """Run the model; raises DeviceError, and BundleError for an array of another shape."""
        run_batches(self._lengths, self._model.budget, self._cut, self._run)

    def vectors(self) -> FloatArray:
        """Return float32 `(texts, dimension)` after `run`; raises BundleError for NaN or infinity."""
        return self._model.pool(self._sequences, self.texts, self._outputs)

    def tokens(self) -> dict[str, TokenVectors]:
        """Return the text's own tokens by text after `run`, once, of those texts that were asked for."""
        return {text: own.of_text() for text, own in self._states.by_text().items()} if self._states else {}

    def _cut(self, rows: Sequence[int], tokens: int) -> Iterable[tuple[list[int], Batch]]:
        # The first call is for all rows, which may be laid out. Later ones are for what memory did not hold.
        laid_out, self._laid_out = self._laid_out, None
        if laid_out and laid_out[0] == tokens:
            return laid_out[1]
        return self._model.batches(self._sequences, rows, tokens)

    def _run(self, rows: list[int], batch: Batch) -> None:
        self._outputs.append((rows, self._model.run(rows, batch, self._states)))
        self._done += sum(self._lengths[row] for row in rows)
        report_part(self._part[0] + self._part[1] * self._done / sum(self._lengths))
