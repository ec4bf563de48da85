"""Texts to vectors: tokens, windows, batches, and one ONNX Runtime session."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from vcs_runtime.bundle.layouts import EMBEDDER_INPUTS
from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.bundle.opening import DIGITS, Bundle, open_bundle
from vcs_runtime.errors import BundleError, DeviceError, DeviceMemoryError
from vcs_runtime.inference.batching import Batch, batches, fixed_shapes, width_step
from vcs_runtime.inference.device import Device, each_device
from vcs_runtime.inference.session import Budget, FittingBatches, SessionPool
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
# Texts that are tokenised at a time: the token ids of a long list of texts are never in memory at
# once.
_PORTION_TEXTS = 4096
_PORTION_CHARACTERS = 2_000_000
# How far the length of a vector may be from 1; bfloat16 rounds to 1 in 256.
_LENGTH_ERROR = 1e-2


class Embedder:
    """The embedding model of a bundle.

    Open one with `Embedder.open`; close it, or use it in `with`.
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
        digests = [engine.sha256 for engine in device.engines]
        own = bundle.device_hash(self.spec, device.provider_name, digests) or device.provider_name
        precision = () if device.is_gpu or not device.precision else (self._precision,)
        self.cache_identity = "|".join((bundle.model_hash(self.spec), own, *precision, *self._ways))
        """Everything besides its text on which a cached vector depends."""
        self._tokenizer = TextTokenizer(load_tokenizer(bundle.path(self.spec.tokenizer)), self.spec)
        spec = replace(self.spec, model=graph.model)
        self._bundle = f"bundle {bundle.root}"
        self._model = bundle.path(graph.model)

        def opened(where: Device) -> Any:
            return open_part(bundle, "embedder", where, threads, spec=spec, what="the embedder")

        self.parallel = 1 + len(others)
        if others:
            with ThreadPoolExecutor(self.parallel) as pool:
                self._session = SessionPool(list(pool.map(opened, (device, *others))))
        else:
            self._session = opened(device)
        if self._session.inputs != dict.fromkeys(EMBEDDER_INPUTS[self._layout], "tensor(int64)"):
            raise BundleError(
                f"bundle {bundle.root}: {graph.model} has the inputs {self._session.inputs}, "
                f"which are not those of a {self._layout} graph"
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
            Largest number of CPU threads. None: every core.
        gpu_memory_gb
            GB (10^9 bytes) of a GPU's memory that the model may take, weights included, on each
            GPU. None: no limit.
        batch_invariant
            Whether a GPU runs batches of fixed shapes, so that a vector does not depend on the
            other texts. On a CPU it never does.

        Returns
        -------
        Embedder
            The open embedder.

        Raises
        ------
        BundleError
            The bundle is missing or damaged, or has no embedder.
        DeviceError
            The device is not available.
        ValueError
            `device` is not the name of a device.
        """
        opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
        first, *others = (
            choose_for(opened, "embedder", name, gpu_memory_gb, batch_invariant)
            for name in each_device(device)
        )
        if others:
            first = dataclasses.replace(first, reason=f"named: {1 + len(others)} GPUs")
        return cls(opened, first, threads, others)

    def embed(
        self, texts: Sequence[str], instruction: str | None = None, max_length: int | None = None
    ) -> FloatArray:
        """Embed texts (docs/reference/vcs.md, section 1).

        A row depends on its text alone, not on the other texts: to the bit on a CPU, within
        rounding on a GPU unless the embedder is `batch_invariant`. The `long_text` of the bundle
        decides about texts beyond the window. They are embedded in windows of nearly equal length,
        whose vectors are averaged by token count and normalised ("window_mean"), cut at the right
        end, closing special tokens kept ("truncate_text") or lost ("truncate"), or refused
        ("error").

        Parameters
        ----------
        texts
            The texts.
        instruction
            Put before each text. None: the instruction of the bundle, which is "" for VCS. With
            `mask_instruction` in the bundle, the model reads it but does not pool it.
        max_length
            Lowers the window of the model: tokens, special tokens included.

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
                f"max_length must be in [{special + 1}, {self.spec.max_tokens}], not {max_length}"
            )
        prefix = self.spec.instruction if instruction is None else instruction
        check_string(prefix, "instruction")
        distinct = {text: row for row, text in enumerate(dict.fromkeys(texts))}
        vectors = np.empty((len(distinct), self.spec.dimension), np.float32)
        start = 0
        portions = self._portions(list(distinct), prefix, limit)
        for portion in (
            in_order(_run, portions, self.parallel) if self.device.is_gpu else map(_run, portions)
        ):
            vectors[start : start + portion.texts] = portion.vectors()
            start += portion.texts
        return (
            vectors if len(distinct) == len(texts) else vectors[[distinct[text] for text in texts]]
        )

    def prepare(self, texts: Sequence[str], tokens: TokenRequest | None = None) -> TokenisedTexts:
        """Return distinct texts as token ids, with the bundle's instruction.

        Nothing runs on the device.

        `tokens` asks for half-precision vectors of tokens. None: no token vectors. Raises
        TextError.
        """
        sequences = self._sequences(texts, self.spec.instruction, self.spec.max_tokens, tokens)
        states = (
            CollectedStates(tokens, texts, sequences, np.float16, self.name) if tokens else None
        )
        return TokenisedTexts(self, sequences, len(texts), states=states)

    def _batches(self, sequences: Sequences, rows: Sequence[int], tokens: int) -> Iterator[Batch]:
        """Cut the sequences of these `rows` into batches of at most `tokens` tokens."""
        most_rows = row_limit(self.device)
        step = width_step(self.device.provider_name, self.spec.max_tokens)
        shape_of = None
        if self.device.batch_invariant:
            shape_of = fixed_shapes(self._layout, self.spec.max_tokens, most_rows, step)
        return batches(
            [*map(sequences.ids.__getitem__, rows)],
            tokens,
            self._layout,
            sequences.skip,
            mixed=self.device.is_gpu,
            most_rows=most_rows,
            step=step,
            shape_of=shape_of,
        )

    def show_tokens(self, layer: int | None = None, *, keep_vectors: bool = True) -> TokenLayer:
        """Let the model show the token states of a layer.

        `layer` None selects the states that the pooling takes, and 0 the embeddings.

        The model is opened again. BundleError if it shows none; DeviceError where the device
        cannot, or with `keep_vectors` where vectors of texts would change.
        """
        if self.spec.layout != "padded":  # that of all encoders, and of nothing else
            raise nothing_to_show(self._bundle)
        found = find_layer(self._model, layer, self._bundle)
        self._session.show(found.value, partial(self._check_states, keep_vectors=keep_vectors))
        return found

    def _check_states(self, output: Any, keep_vectors: bool) -> None:
        """Refuse an output without a vector for each token.

        Also refuse an output that would change the vectors of texts.
        """
        # Texts lie one after the other there.
        if len(output.shape) != (2 if self._layout == "varlen" else 3):
            raise nothing_to_show(self._bundle)
        # OpenVINO and a CPU in half precision round at other places where a further value is an
        # output.
        rounds = output.type == "tensor(float16)" and not self.device.is_gpu
        if keep_vectors and (rounds or self.device.precision == "bf16"):
            where = f"{self.device.provider_name}: in {self._precision}"
            other = "a bundle in fp32" if rounds else "openvino:fp32"
            raise DeviceError(
                f"{where}, vectors of tokens would change those of texts; {other} shows them"
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
        TokenisedTexts(self, sequences, len(texts), states=states).run()
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
    def signature_fields(self) -> tuple[str, ...]:
        """The fields of the signature that name the model and how it runs."""
        spec = self.spec
        return (
            f"emb:{self._identity}",
            *(
                (f"instr:{sha256(spec.instruction.encode()).hexdigest()[:DIGITS]}",)
                if spec.instruction
                else ()
            ),
            f"long:{spec.long_text}/{spec.max_tokens}",
            f"prec:{self._precision}",
            f"engine:{self._engine}",
            *self._ways,
        )

    @property
    def _precision(self) -> str:
        return self.device.precision_of(self.spec.precision, self.spec.cuda)

    @property
    def _ways(self) -> tuple[str, ...]:
        """Fields for settings that change rounding: instructions, and shapes of batches."""
        instructions = self.device.instructions
        return (
            *((f"isa:{instructions}",) if instructions else ()),
            *(("batch:invariant",) if self.device.batch_invariant else ()),
        )

    def _portions(self, texts: list[str], instruction: str, limit: int) -> Iterator[TokenisedTexts]:
        start = 0
        while start < len(texts):
            sizes = accumulate(map(len, texts[start : start + _PORTION_TEXTS]))
            count = max(1, sum(size <= _PORTION_CHARACTERS for size in sizes))
            portion = texts[start : start + count]
            part = start / len(texts), len(portion) / len(texts)
            yield TokenisedTexts(
                self, self._sequences(portion, instruction, limit), len(portion), part
            )
            start += len(portion)

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


class TokenisedTexts:
    """Texts between tokens and vectors.

    For a GPU the batches are laid out, so that it waits for nothing.
    """

    def __init__(
        self,
        embedder: Embedder,
        sequences: Sequences,
        texts: int,
        # Of the work in hand: what comes before, and its share.
        part: tuple[float, float] = (0.0, 1.0),
        states: CollectedStates | None = None,
    ) -> None:
        self.texts = texts
        self._embedder = embedder
        self._sequences = sequences
        self._part = part
        self._states = states
        self._lengths = [*map(len, sequences.ids)]
        self._outputs: list[tuple[list[int], FloatArray]] = []
        self._laid_out: tuple[int, list[tuple[list[int], Batch]]] | None = None
        if embedder.device.is_gpu:
            tokens = embedder._budget.tokens
            self._laid_out = tokens, list(self._cut(range(len(self._lengths)), tokens))

    def run(self) -> None:
        """Run the model on all batches.

        Raises DeviceError, or BundleError if an array has another shape.
        """
        session, spec, states = self._embedder._session, self._embedder.spec, self._states
        done, total = 0, sum(self._lengths)
        batches = FittingBatches(self._lengths, self._embedder._budget, self._cut)
        for rows, batch in batches:
            shown = [states.layer.value] if states and states.wanted(rows) else []
            try:
                output, *of_tokens = session.run(batch.inputs, shown)
            except DeviceMemoryError as error:
                batches.failed(rows, error)
                continue
            count = len(rows) + batch.fillers
            if output.shape != (count, spec.dimension):
                raise BundleError(
                    f"{spec.name}: the model returned an array {output.shape} for "
                    f"{count} texts of dimension {spec.dimension}"
                )
            if states and of_tokens:
                starts = batch.inputs.get("starts")
                states.keep(
                    rows, of_tokens[0] if starts is None else np.split(of_tokens[0], starts[1:-1])
                )
            self._outputs.append((rows, output[: len(rows)]))
            done += sum(map(self._lengths.__getitem__, rows))
            report_part(self._part[0] + self._part[1] * done / total)

    def vectors(self) -> FloatArray:
        """Return the vectors as float32 `(texts, dimension)` after `run`.

        Raises BundleError if a vector does not have unit length.

        The vectors of a text's windows are averaged by token count.
        """
        spec, owners = self._embedder.spec, self._sequences.owners
        vectors = np.empty((len(self._lengths), spec.dimension), np.float32)
        while self._outputs:  # each is freed as soon as it is copied
            rows, output = self._outputs.pop()
            vectors[np.array(rows)] = output
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        if not np.isfinite(lengths).all() and not np.isfinite(vectors).all():
            raise BundleError(f"{spec.name}: the model returned NaN or infinity")
        if (off := np.abs(lengths - 1).max(initial=0)) > _LENGTH_ERROR:
            raise BundleError(
                f"{self._embedder._bundle}: {spec.name} returned vectors of length"
                f" {lengths.min():.3g} to {lengths.max():.3g}, off by {off:.2g}: they must be of"
                " length 1"
            )
        if len(owners) == self.texts:
            return vectors
        # Texts of one window keep the vector as the model gave it, to the bit.
        windows = np.bincount(owners)
        first = np.cumsum(windows) - windows
        result = vectors.take(first, axis=0)
        several = np.flatnonzero(windows > 1)
        sums = np.zeros((len(several), spec.dimension))
        special = self._embedder._tokenizer.special_count
        weights = np.array(self._lengths)[:, None] - special
        for window in range(windows.max()):
            longer = windows[several] > window
            own = first[several[longer]] + window
            sums[longer] += vectors[own] * weights[own]
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        if not norms.all():
            raise BundleError(f"{spec.name}: the model's vectors of a long text add up to 0")
        result[several] = sums / norms
        return result

    def tokens(self) -> dict[str, TokenVectors]:
        """Return the token vectors of the requested texts by text, without special tokens.

        Call this method once, after `run`.
        """
        return (
            {text: own.of_text() for text, own in self._states.by_text().items()}
            if self._states
            else {}
        )

    def _cut(self, rows: Sequence[int], tokens: int) -> Iterable[tuple[list[int], Batch]]:
        # The first call is for all rows, which may be laid out. Later ones are for what memory did
        # not hold.
        laid_out, self._laid_out = self._laid_out, None
        if laid_out and laid_out[0] == tokens:
            return laid_out[1]
        cut = self._embedder._batches(self._sequences, rows, tokens)
        return (([*map(rows.__getitem__, batch.rows)], batch) for batch in cut)


def embedder_spec(bundle: Bundle) -> EmbedderSpec:
    """Return a bundle's embedder; BundleError if there is none."""
    if bundle.manifest.embedder is None:
        raise BundleError(f"bundle {bundle.root}: it holds no embedder")
    return bundle.manifest.embedder


def _run(portion: TokenisedTexts) -> TokenisedTexts:
    portion.run()
    return portion
