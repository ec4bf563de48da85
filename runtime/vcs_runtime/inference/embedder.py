"""Texts to vectors: tokens, windows, batches, and one ONNX Runtime session."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS
from vcs_runtime.bundle.manifest import Calibration, EmbedderSpec
from vcs_runtime.bundle.opening import DIGITS, Bundle, open_bundle
from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError
from vcs_runtime.inference.batching import Batch, batches, fixed_batches, fixed_shapes, width_step
from vcs_runtime.inference.device import Device, each_device
from vcs_runtime.inference.environment import model_identity, rounding_fields
from vcs_runtime.inference.proof import check, subject_on
from vcs_runtime.inference.session import Budget, FittingBatches, Session, SessionPool
from vcs_runtime.inference.tensorrt import choose_for, engine_name, open_part, row_limit
from vcs_runtime.inference.token_vectors import (
    CollectedStates,
    TokenLayer,
    TokenRequest,
    TokenVectors,
    find_layer,
    nothing_to_show,
)
from vcs_runtime.inference.tokenizer import Sequences, TextTokenizer, load_tokenizer
from vcs_runtime.text.cleaning import check_string, check_texts
from vcs_runtime.util.progress import report_part
from vcs_runtime.util.stages import in_order

FloatArray = npt.NDArray[np.float32]
# Limits of texts that are tokenised at a time, so that memory never holds the token ids of a long
# list of texts.
_PORTION_TEXTS = 4096
_PORTION_CHARACTERS = 2_000_000
# Largest distance of a vector's length from 1; bfloat16 rounds to 1 in 256.
_LENGTH_ERROR = 1e-2


_Session: TypeAlias = Session | SessionPool


class Embedder:
    """The embedding model of a bundle.

    Open an embedder with `Embedder.open`. Close it, or use it in a `with` statement.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: Device,
        threads: int | None = None,
        others: Sequence[Device] = (),
    ) -> None:
        """Open the model on `device`, and on `others` too. Users call `Embedder.open`."""
        self.spec: EmbedderSpec = device.suited(embedder_spec(bundle))
        self.device = device
        graph = self.spec.cuda or self.spec
        self._layout = graph.layout
        self._identity = bundle.identity(self.spec)
        self._engine = engine_name(bundle, self.spec, device)
        self.cache_identity = model_identity(bundle, self.spec, device, self._engine)
        """Everything besides its text on which a cached vector depends."""
        self._tokenizer = TextTokenizer(load_tokenizer(bundle.path(self.spec.tokenizer)), self.spec)
        spec = replace(self.spec, model=graph.model)
        self._bundle = f"bundle {bundle.root}"
        self._model = bundle.path(graph.model)

        def opened(target: Device) -> Any:
            return open_part(bundle, "embedder", target, threads, spec=spec, what="the embedder")

        self.parallel = 1 + len(others)
        self._session: _Session
        if others:
            with ThreadPoolExecutor(self.parallel) as pool:
                self._session = SessionPool(list(pool.map(opened, (device, *others))))
        else:
            self._session = opened(device)
        if self._session.inputs != dict.fromkeys(EMBEDDER_INPUTS[self._layout], "tensor(int64)"):
            raise BundleError(
                f"bundle {bundle.root}: {graph.model} has the inputs {self._session.inputs}, which"
                f" do not match the layout {self._layout}"
            )
        weights = bundle.weights_size(self.spec) if device.is_gpu else 0
        self._budget = Budget(device, self.spec.dimension, weights, self._layout, others)

    @classmethod
    def open(
        cls,
        bundle: str | os.PathLike[str] | Bundle = "default",
        device: str = "auto",
        threads: int | None = None,
        gpu_memory_gb: float | None = None,
        *,
        batch_invariant: bool = False,
        proof: bool = True,
    ) -> Embedder:
        """Open the embedder of a bundle on a device; nothing is downloaded.

        Parameters
        ----------
        bundle
            Folder of the bundle, or "default", or an opened bundle.
        device
            "auto", "cpu", "openvino", "openvino:fp32", "cuda:N", "cuda:all" (every GPU), either
            with ":fp32" at the end, or "tensorrt:N". A named device is used or refused.
        threads
            Maximum number of CPU threads. None: every core.
        gpu_memory_gb
            GB (10^9 bytes) of a GPU's memory that the model may take, weights included, on each
            GPU. None: no limit.
        batch_invariant
            Whether a GPU runs batches of fixed shapes, so that a vector does not depend on the
            other texts. On a CPU a vector never does.
        proof
            Whether the model must reproduce the vectors stored in its bundle when it is first
            opened here (docs/guide/bundles.md).

        Returns
        -------
        Embedder
            The open embedder.

        Raises
        ------
        BundleError
            The bundle is missing or damaged, or has no embedder.
        DeviceError
            The device is not available, or gives other vectors than the bundle's (ProofError).
        ValueError
            `device` is not the name of a device.
        """
        opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        devices = [
            choose_for(opened, "embedder", name, gpu_memory_gb, batch_invariant)
            for name in each_device(device)
        ]
        first = devices[0]
        if len(devices) > 1:
            first = dataclasses.replace(first, reason=f"named: {len(devices)} GPUs")
        embedder = cls(opened, first, threads, devices[1:])
        if proof:
            check(subject_on(opened, embedder.spec, devices, embedder.run_each))
        return embedder

    def run_each(self, texts: Sequence[str]) -> list[FloatArray]:
        """Return one vector for each text; the model runs again for a repeated text."""
        prepared = self.prepare(texts)
        prepared.run()
        return list(prepared.vectors())

    def embed(
        self, texts: Sequence[str], instruction: str | None = None, max_length: int | None = None
    ) -> FloatArray:
        """Embed texts (docs/reference/vcs.md, section 1).

        A row depends only on its text: exactly on a CPU, and within rounding on a GPU unless the
        embedder is `batch_invariant`. The `long_text` of the bundle says what happens to texts
        beyond the window. "window_mean" embeds windows of nearly equal length, averages their
        vectors by token count, and normalises the mean. "truncate_text" cuts the right end of the
        text and keeps the closing special tokens, "truncate" cuts them too, and "error" refuses the
        text.

        Parameters
        ----------
        texts
            The texts.
        instruction
            Words to put before each text. None: the instruction of the bundle, which is "" for VCS.
            With `mask_instruction` in the bundle, the model reads it but does not pool it.
        max_length
            A smaller window than the model has, in tokens, special tokens included.

        Returns
        -------
        ndarray
            float32 `(len(texts), dimension)`, rows of unit length.

        Raises
        ------
        TextError
            A text is not valid, or too long. The message names it: `texts[3]: ...`.
        ValueError
            `max_length` is out of range.
        DeviceError
            The device fails, or its memory does not suffice.
        BundleError
            The model returned NaN, infinity, vectors that are not of unit length, or another shape.
        """
        check_texts(texts)
        limit = self.spec.max_tokens if max_length is None else max_length
        special = self._tokenizer.special_count
        if not special < limit <= self.spec.max_tokens:
            raise ValueError(
                f"max_length must be from {special + 1} to {self.spec.max_tokens}, not {max_length}"
            )
        prefix = self.spec.instruction if instruction is None else instruction
        check_string(prefix, "instruction")
        distinct = list(dict.fromkeys(texts))
        vectors = np.empty((len(distinct), self.spec.dimension), np.float32)
        start = 0
        portions = self._portions(distinct, prefix, limit)
        finished: Iterator[TokenisedTexts]
        if self.device.is_gpu:  # while it works on one portion, the next one is tokenised
            finished = in_order(_run, portions, self.parallel)
        else:
            finished = map(_run, portions)
        for portion in finished:
            vectors[start : start + portion.texts] = portion.vectors()
            start += portion.texts
        if len(distinct) == len(texts):
            return vectors
        rows = {text: row for row, text in enumerate(distinct)}
        return vectors[[rows[text] for text in texts]]

    def prepare(self, texts: Sequence[str], tokens: TokenRequest | None = None) -> TokenisedTexts:
        """Return distinct texts as token ids, with the bundle's instruction.

        Nothing runs on the device.

        `tokens` asks for half-precision vectors of tokens. None: no token vectors. Raises
        TextError.
        """
        sequences = self._sequences(texts, self.spec.instruction, self.spec.max_tokens, tokens)
        states = None
        if tokens:
            states = CollectedStates(tokens, texts, sequences, np.float16, self.name)
        return TokenisedTexts(self._runner(), sequences, len(texts), states=states)

    def show_tokens(self, layer: int | None = None, *, keep_vectors: bool = True) -> TokenLayer:
        """Let the model show the token states of a layer.

        `layer` None selects the states that the pooling takes, and 0 the embeddings.

        The model is opened again. Raises BundleError if the graph has no such states, and
        DeviceError if the device cannot show them. With `keep_vectors`, also raises DeviceError if
        the vectors of texts would change.
        """
        if self.spec.layout != "padded":  # the layout of all encoders, and of no other model
            raise nothing_to_show(self._bundle)
        shown = find_layer(self._model, layer, self._bundle)
        self._session.show(shown.value, partial(self._check_states, keep_vectors=keep_vectors))
        return shown

    def _check_states(self, output: Any, keep_vectors: bool) -> None:
        """Refuse an output without a vector for each token.

        Also refuse an output that would change the vectors of texts.
        """
        # In the layout varlen, texts lie one after the other along one axis.
        axes = 2 if self._layout == "varlen" else 3
        if len(output.shape) != axes:
            raise nothing_to_show(self._bundle)
        # With a further output, OpenVINO and a CPU in half precision round at other places.
        rounds = output.type == "tensor(float16)" and not self.device.is_gpu
        if keep_vectors and (rounds or self.device.precision == "bf16"):
            where = f"{self.device.provider_name}: in {self._precision}"
            other = "a bundle in fp32" if rounds else "openvino:fp32"
            raise DeviceError(
                f"{where}, reading vectors of tokens would change the vectors of texts: use {other}"
            )

    def token_vectors(
        self, texts: Sequence[str], layer: TokenLayer, instruction: str = ""
    ) -> dict[str, TokenVectors]:
        """Return the token vectors of distinct texts by text, in single precision.

        Special tokens are included.
        """
        request = TokenRequest(layer, texts)
        sequences = self._sequences(texts, instruction, self.spec.max_tokens, request)
        states = CollectedStates(request, texts, sequences, np.float32, self.name)
        TokenisedTexts(self._runner(), sequences, len(texts), states=states).run()
        return states.by_text()

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.spec.name

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.spec.dimension

    @property
    def calibration(self) -> Calibration | None:
        """The constants that calibrate its vectors, if the bundle has them."""
        return self.spec.calibration

    @property
    def signature_fields(self) -> tuple[str, ...]:
        """The fields of the signature that name the model and how it runs."""
        spec = self.spec
        fields = [f"emb:{self._identity}"]
        if spec.instruction:
            digest = sha256(spec.instruction.encode()).hexdigest()
            fields.append(f"instr:{digest[:DIGITS]}")
        fields.append(f"long:{spec.long_text}/{spec.max_tokens}")
        fields.append(f"prec:{self._precision}")
        fields.append(f"engine:{self._engine}")
        return *fields, *rounding_fields(self.device)

    @property
    def _precision(self) -> str:
        return self.device.precision_of(self.spec.precision, self.spec.cuda)

    def _portions(self, texts: list[str], instruction: str, limit: int) -> Iterator[TokenisedTexts]:
        """Tokenise texts in portions that are limited in texts and characters."""
        start = 0
        while start < len(texts):
            sizes = accumulate(map(len, texts[start : start + _PORTION_TEXTS]))
            count = max(1, sum(size <= _PORTION_CHARACTERS for size in sizes))
            portion = texts[start : start + count]
            sequences = self._sequences(portion, instruction, limit)
            part = start / len(texts), len(portion) / len(texts)
            yield TokenisedTexts(self._runner(), sequences, len(portion), part)
            start += len(portion)

    def _runner(self) -> _Runner:
        return _Runner(
            self.spec, self.device, self._layout, self._session, self._budget, self._bundle
        )

    def _sequences(
        self, texts: Sequence[str], instruction: str, limit: int, tokens: TokenRequest | None = None
    ) -> Sequences:
        return self._tokenizer.sequences(list(texts), instruction, limit, spans=tokens is not None)

    def release(self) -> None:
        """Free the session and its memory for now; the next call opens the session again."""
        self._session.release()
        self._budget.forget()

    def close(self) -> None:
        """Free the session and its memory; the embedder cannot be used any more."""
        self._session.close()

    def __enter__(self) -> Embedder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclasses.dataclass(frozen=True)
class _Runner:
    """The embedder's model on its device, as tokenised texts use it."""

    spec: EmbedderSpec
    device: Device
    layout: str  # of the graph that the device runs
    session: _Session
    budget: Budget
    bundle: str  # name of the bundle in errors

    def batches(self, sequences: Sequences, rows: Sequence[int], tokens: int) -> Iterator[Batch]:
        """Cut the sequences of these `rows` into batches of at most `tokens` tokens."""
        ids = [sequences.ids[row] for row in rows]
        most_rows = row_limit(self.device)
        step = width_step(self.device.provider_name, self.spec.max_tokens)
        if self.device.batch_invariant:
            shape_of = fixed_shapes(self.layout, self.spec.max_tokens, most_rows, step)
            return fixed_batches(ids, shape_of, self.layout, sequences.skip)
        return batches(
            ids,
            tokens,
            self.layout,
            sequences.skip,
            mixed=self.device.is_gpu,
            most_rows=most_rows,
            step=step,
        )

    def run(self, batch: Batch, shown: Sequence[str]) -> list[FloatArray]:
        """Return the vectors of one batch, without its fillers, then each `shown` value.

        Raises DeviceError, or BundleError if the vectors have another shape.
        """
        vectors, *values = self.session.run(batch.inputs, shown)
        count = len(batch.rows) + batch.fillers
        if vectors.shape != (count, self.spec.dimension):
            raise BundleError(
                f"{self.spec.name}: the model returned an array {vectors.shape} for "
                f"{count} texts of dimension {self.spec.dimension}"
            )
        return [vectors[: len(batch.rows)], *values]

    def check_lengths(self, vectors: FloatArray) -> None:
        """Raise BundleError if a vector does not have unit length."""
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        # A length may also be infinite because the squares of finite numbers overflow.
        if not np.isfinite(lengths).all() and not np.isfinite(vectors).all():
            raise BundleError(f"{self.spec.name}: the model returned NaN or infinity")
        error = np.abs(lengths - 1).max(initial=0)
        if error > _LENGTH_ERROR:
            raise BundleError(
                f"{self.bundle}: {self.spec.name} returned vectors of length {lengths.min():.3g}"
                f" to {lengths.max():.3g}, but the length must be 1 (largest difference"
                f" {error:.2g})"
            )


class TokenisedTexts:
    """Texts as token ids, whose vectors the model computes in `run`.

    For a GPU the batches are laid out beforehand, so that it never waits for them.
    """

    def __init__(
        self,
        runner: _Runner,
        sequences: Sequences,
        texts: int,
        # Shares of the whole work: what comes before these texts, and these texts.
        part: tuple[float, float] = (0.0, 1.0),
        states: CollectedStates | None = None,
    ) -> None:
        self.texts = texts
        self._runner = runner
        self._sequences = sequences
        self._part = part
        self._states = states
        self._lengths = list(map(len, sequences.ids))
        self._outputs: list[tuple[list[int], FloatArray]] = []
        # The budget in tokens with which batches were laid out, and the batches.
        self._laid_out: tuple[int, list[tuple[list[int], Batch]]] | None = None
        if runner.device.is_gpu:
            tokens = runner.budget.tokens
            self._laid_out = tokens, list(self._cut(range(len(self._lengths)), tokens))

    def run(self) -> None:
        """Run the model on all batches.

        Raises DeviceError, or BundleError if an array has another shape.
        """
        states = self._states
        finished, total = 0, sum(self._lengths)
        fitting = FittingBatches(self._lengths, self._runner.budget, self._cut)
        for rows, batch in fitting:
            shown = []
            if states and states.wanted(rows):
                shown.append(states.layer.value)
            try:
                vectors, *values = self._runner.run(batch, shown)
            except DeviceMemoryError as error:
                fitting.failed(rows, error)
                continue
            if states and values:
                states.keep(rows, _by_sequence(values[0], batch))
            self._outputs.append((rows, vectors))
            finished += sum(self._lengths[row] for row in rows)
            before, share = self._part
            report_part(before + share * finished / total)

    def vectors(self) -> FloatArray:
        """Return the vectors as float32 `(texts, dimension)` after `run`.

        Raises BundleError if a vector does not have unit length.

        The vectors of a text's windows are averaged by token count.
        """
        vectors = np.empty((len(self._lengths), self._runner.spec.dimension), np.float32)
        while self._outputs:  # each is freed as soon as it is copied
            rows, output = self._outputs.pop()
            vectors[np.array(rows)] = output
        self._runner.check_lengths(vectors)
        if len(self._sequences.owners) == self.texts:
            return vectors
        return self._averaged(vectors)

    def _averaged(self, vectors: FloatArray) -> FloatArray:
        """Return one vector per text from the vectors of all windows."""
        windows = np.bincount(self._sequences.owners)  # number of windows of each text
        first = np.cumsum(windows) - windows
        # Texts of one window keep the model's vector bit for bit.
        result = vectors.take(first, axis=0)
        several = np.flatnonzero(windows > 1)
        sums = np.zeros((len(several), vectors.shape[1]))
        weights = np.array(self._lengths)[:, None] - self._sequences.special_count
        for window in range(windows.max()):
            longer = windows[several] > window
            rows = first[several[longer]] + window
            sums[longer] += vectors[rows] * weights[rows]
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        if not norms.all():
            raise BundleError(
                f"{self._runner.spec.name}: the model's vectors of a long text add up to 0"
            )
        result[several] = sums / norms
        return result

    def tokens(self) -> dict[str, TokenVectors]:
        """Return the token vectors of the requested texts by text, without special tokens.

        Call this method once, after `run`.
        """
        if self._states is None:
            return {}
        return {text: tokens.of_text() for text, tokens in self._states.by_text().items()}

    def _cut(self, rows: Sequence[int], tokens: int) -> Iterable[tuple[list[int], Batch]]:
        # The first call is for all rows, which may be laid out already. Later calls are for rows
        # whose batches did not fit in memory.
        laid_out, self._laid_out = self._laid_out, None
        if laid_out and laid_out[0] == tokens:
            return laid_out[1]
        cut = self._runner.batches(self._sequences, rows, tokens)
        return (([rows[i] for i in batch.rows], batch) for batch in cut)


def _by_sequence(states: FloatArray, batch: Batch) -> Iterable[FloatArray]:
    """Return the states of each sequence of a batch, and of its fillers."""
    starts = batch.inputs.get("starts")
    if starts is None:  # (sequences, width, ...)
        return states
    return np.split(states, starts[1:-1])


def embedder_spec(bundle: Bundle) -> EmbedderSpec:
    """Return the settings of a bundle's embedder; raises BundleError if it has no embedder."""
    if bundle.manifest.embedder is None:
        raise BundleError(f"bundle {bundle.root}: it holds no embedder: choose another bundle")
    return bundle.manifest.embedder


def _run(portion: TokenisedTexts) -> TokenisedTexts:
    portion.run()
    return portion
