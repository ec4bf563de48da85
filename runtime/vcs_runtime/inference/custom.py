"""Embedders that a caller passes: their interface, and the adapter that a scorer uses."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from vcs_numba.embeddings import unit_rows
from vcs_runtime.bundle.manifest import Calibration
from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.inference.device import Device
from vcs_runtime.inference.environment import environment
from vcs_runtime.inference.token_vectors import TokenLayer, TokenRequest, TokenVectors

_SHOWN: Final = 60  # characters of a text in an error


class TextEmbedder(Protocol):
    """An embedder that `Scorer.open(embedder=...)` accepts: any object with these two members."""

    @property
    def identity(self) -> str:
        """Name of the model and its version for the signature, without white space and "|"."""

    def embed(self, texts: list[str]) -> Any:
        """Embed texts.

        Parameters
        ----------
        texts
            Distinct texts, up to some thousands: the caller divides them into batches.

        Returns
        -------
        array
            (len(texts), d): anything that NumPy reads as numbers, or a torch tensor on any device.
            Rows may have any length but 0.

        Raises
        ------
        TextError
            A text cannot be embedded. Its pair then has this error, and the other pairs are still
            scored. Every other exception ends the scoring call.
        """


class PreparedTexts(Protocol):
    """Texts that are ready for the device. Call each method once, `run` first."""

    def run(self) -> None:
        """Run the model on the device."""

    def vectors(self) -> npt.NDArray[np.float32]:
        """Return the unit vectors of the texts, (texts, d)."""

    def tokens(self) -> dict[str, TokenVectors]:
        """Return the token vectors by text, for the texts whose tokens were requested."""


class ScoringEmbedder(Protocol):
    """Members of an embedder that a scorer uses: of an `Embedder` or a `CustomEmbedder`."""

    @property
    def name(self) -> str:
        """Name of the embedder in errors."""

    @property
    def device(self) -> Device:
        """Device on which the embedder runs."""

    @property
    def parallel(self) -> int:
        """Number of GPUs that embed at a time."""

    @property
    def dimension(self) -> int | None:
        """Length of a vector; None if only a vector shows it."""

    @property
    def cache_identity(self) -> str:
        """Everything besides its text on which a cached vector depends."""

    @property
    def calibration(self) -> Calibration | None:
        """The constants that calibrate its vectors, if there are any."""

    @property
    def signature_fields(self) -> tuple[str, ...]:
        """The fields of the signature that name the embedder and how it runs."""

    def prepare(self, texts: Sequence[str], tokens: TokenRequest | None = None) -> PreparedTexts:
        """Prepare distinct texts for the device.

        Raises TextError if one of them cannot be embedded.
        """

    def show_tokens(self, layer: int | None = None) -> TokenLayer:
        """Return a layer, and show the states of this layer from now on.

        Raises VcsError if there are no states to show.
        """

    def release(self) -> None:
        """Free memory until the next use."""

    def close(self) -> None:
        """Free memory; the embedder cannot be used any more."""


class CustomEmbedder:
    """Adapter for a caller's embedder that checks its output and scales it to unit length.

    Only one thread at a time calls the caller's object, because tokenizers and models in Python are
    often not thread-safe.
    """

    def __init__(self, embedder: TextEmbedder) -> None:
        self.name = checked_identity(embedder, "embedder", "embed")
        self.device = Device("custom", "CPUExecutionProvider", "the embedder is the caller's")
        self.parallel = 1
        self.dimension = None
        self.calibration = None
        self.cache_identity = "|".join(["custom", self.name, *environment([])])
        self.signature_fields = (f"emb:{self.name}",)
        self._embedder = embedder
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return checked unit vectors (len(texts), d) from the caller's object.

        Raises TextError for a text without a valid vector, and ModelError for other wrong output.
        """
        with self._lock, naming_errors(f"embedder {self.name}"):
            returned = self._embedder.embed(list(texts))
        try:
            numbers = np.asarray(as_numbers(returned))
            if numbers.dtype.kind not in "biufV":  # texts, dates, complex; bfloat16 of JAX is a V
                raise TypeError(f"its type is {numbers.dtype}")
            rows = numbers.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise self._wrong(f"something that is not an array of numbers: {error}") from error
        if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
            raise self._wrong(
                f"an array of shape {rows.shape} for {len(texts)} texts; the shape must be"
                f" ({len(texts)}, d)"
            )
        not_finite = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(not_finite):
            raise self._wrong(f"NaN or infinity for the text {_shown(texts[not_finite[0]])}")
        zeros = np.flatnonzero(~rows.any(axis=1))
        if len(zeros):
            raise TextError(
                f"embedder {self.name}: a vector of zeros for the text {_shown(texts[zeros[0]])}"
            )
        return unit_rows(rows, f"embedder {self.name}")

    def prepare(self, texts: Sequence[str], tokens: TokenRequest | None = None) -> PreparedTexts:
        """Embed texts now, because only embedding shows which texts the caller's object refuses."""
        return _Embedded(self.embed(texts))

    def show_tokens(self, layer: int | None = None) -> TokenLayer:
        """Refuse: the caller's object embeds whole texts. Raises ModelError."""
        raise ModelError(
            f"embedder {self.name}: it embeds whole texts and has no vectors of tokens"
        )

    def release(self) -> None:
        """Do nothing: the model belongs to the caller."""

    def close(self) -> None:
        """Do nothing: the model belongs to the caller."""

    def _wrong(self, output: str) -> ModelError:
        return ModelError(f"embedder {self.name}: embed returned {output}")


class _Embedded:
    """Texts with their vectors."""

    def __init__(self, vectors: npt.NDArray[np.float32]) -> None:
        self._vectors = vectors

    def run(self) -> None:
        """Do nothing: the vectors exist already."""

    def vectors(self) -> npt.NDArray[np.float32]:
        """Return the vectors."""
        return self._vectors

    def tokens(self) -> dict[str, TokenVectors]:
        """Return nothing: no tokens are known."""
        return {}


@contextmanager
def naming_errors(name: str) -> Iterator[None]:
    """Add the name of the caller's object to its errors: to TextErrors, or as a note to others."""
    try:
        yield
    except TextError as error:
        raise TextError(f"{name}: {error}") from error
    except Exception as error:
        error.add_note(f"The {name} raised this.")
        raise


def as_numbers(values: Any) -> Any:
    """Return `values` in a form that NumPy reads.

    Torch tensors, alone or in a list, are copied from their device to the CPU.

    The copies are float64, because NumPy has no bfloat16.
    """
    if isinstance(values, list | tuple):
        if values and is_tensor(values[0]):
            return [as_numbers(value) for value in values]
        return values
    if is_tensor(values):
        return values.detach().cpu().double().numpy()
    return values


def checked_identity(custom: Any, argument: str, method: str) -> str:
    """Return the `identity` of a caller's object, which must also have the named method."""
    if not callable(getattr(custom, method, None)):
        raise TypeError(f"{argument}: {type(custom).__name__} has no method `{method}(texts)`")
    identity = getattr(custom, "identity", None)
    if identity is None:
        raise TypeError(
            f"{argument}: {type(custom).__name__} has no `identity`, a name for the signature"
        )
    if (
        not isinstance(identity, str)
        or not identity
        or "|" in identity
        or any(map(str.isspace, identity))
    ):
        raise ValueError(
            f"{argument}: `identity` must be a name without white space and '|', not {identity!r}"
        )
    return identity


def is_tensor(value: Any) -> bool:
    """Whether `value` is a tensor of PyTorch, without importing PyTorch."""
    return hasattr(value, "detach") and hasattr(value, "cpu")


def _shown(text: str) -> str:
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}..."
    return repr(text)
