"""A model on a device, as the embedder and the boundary models use it: batches in, arrays out.

A `Session` can be released, which gives its memory back, and is opened again by its next run: what trains
on a GPU and scores now and then needs the memory in between. Where memory does not suffice for a batch,
`run_batches` cuts what is left anew, to half the tokens.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt

from vcs_runtime.errors import DeviceMemoryError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.batching import TOKEN_BUDGET
from vcs_runtime.inference.device import (
    Device,
    import_onnxruntime,
    open_session,
    run_session,
)

if TYPE_CHECKING:
    import onnxruntime as ort

T = TypeVar("T")
# An arena that grows by what is asked of it fills with pieces of the shapes it met. Every so many runs it
# gives back those that the last run left unused; freeing them each time would have the GPU wait.
_SHRINK_EVERY = 32
# What a token needs on its way through a model, in bytes for each number of its vector: the widest layer's
# inputs and outputs, and attention. A guess that `run_batches` corrects.
_BYTES_PER_WIDTH = 160
_SPARE = 0.8  # of the memory that is free: others on the GPU allocate too
_FEWEST_TOKENS = 512


class Session:
    """An ONNX model on a device. May be used from several threads.

    what   names it in errors;  others as for `device.open_session`
    """

    def __init__(
        self, model: Path, device: Device, threads: int | None = None, *, half: bool = False, what: str
    ) -> None:
        """Open the model; raises BundleError, DeviceError."""
        self.device = device
        self._arguments = (model, device, threads, half)
        self._what = what
        self._lock = threading.Lock()
        self._closed = False
        self._runs = 0
        session = self._open()
        self._session: ort.InferenceSession | None = session
        self.inputs: dict[str, str] = {item.name: item.type for item in session.get_inputs()}
        """The types of the inputs by name, as ONNX Runtime writes them: "tensor(int64)"."""
        self._outputs = [session.get_outputs()[0].name]

    def run(self, inputs: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """The first output of one batch. Raises DeviceError, DeviceMemoryError."""
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._what} is closed")
            if self._session is None:
                self._session = self._open()
            session = self._session
            self._runs += 1
            shrink = self._runs % _SHRINK_EVERY == 0
        [found] = run_session(session, self._outputs, inputs, shrink=shrink)
        array: npt.NDArray[Any] = found
        return array

    def release(self) -> None:
        """Give the model's memory back; the next run opens it again, in the time that opening takes."""
        with self._lock:
            self._session = None

    def close(self) -> None:
        """Give the memory back for good."""
        with self._lock:
            self._closed = True
            self._session = None

    def _open(self) -> ort.InferenceSession:
        model, device, threads, half = self._arguments
        return open_session(model, device, threads, half=half)


class Budget:
    """How many tokens one run may have on a device; halved where memory did not suffice.

    device  whose engine says how many at most, and whose memory is looked at
    width   of the model's vectors: what a token needs;  weights  bytes of the memory that they take
    """

    def __init__(self, device: Device, width: int, weights: int = 0) -> None:
        self._device = device
        self._width = width
        self._weights = weights
        self._tokens: int | None = None

    @property
    def tokens(self) -> int:
        if self._tokens is None:
            self._tokens = TOKEN_BUDGET[self._device.provider_name]
            # An engine has its memory already.
            if self._device.provider_name == "ort-cuda" and (room := self._room()) is not None:
                fitting = int(room * _SPARE) // (_BYTES_PER_WIDTH * self._width)
                self._tokens = max(_FEWEST_TOKENS, min(self._tokens, fitting))
        return self._tokens

    def shorten(self, tokens: int) -> None:
        """No more than half of `tokens` from now on."""
        self._tokens = max(1, tokens // 2)

    def forget(self) -> None:
        """Look at the memory anew before the next run."""
        self._tokens = None

    def _room(self) -> int | None:
        """Bytes that are free and may be taken, the weights being there already; None: nobody knows."""
        free = nvidia.free_memory(self._device.index, nvidia.cuda_major(import_onnxruntime()))
        if free is None or self._device.memory is None:
            return free
        return max(0, min(free, self._device.memory - self._weights))


def run_batches(
    lengths: Sequence[int],
    budget: Budget,
    cut: Callable[[list[int], int], Iterable[tuple[list[int], T]]],
    run: Callable[[list[int], T], None],
) -> None:
    """Run sequences of `lengths` tokens in the batches into which `cut` cuts them.

    cut  given rows and the tokens of a batch: batches, each the rows in it and what `run` wants of it
    run  given those two; may be called for a row again if it raised DeviceMemoryError

    Where memory does not suffice, what was not run yet is cut anew, to half the tokens of the batch that
    failed, and so on down to one row. Raises what `run` raises.
    """
    todo = set(range(len(lengths)))
    while todo:
        for rows, batch in cut(sorted(todo), budget.tokens):
            try:
                run(rows, batch)
            except DeviceMemoryError:
                if len(rows) == 1:
                    raise
                budget.shorten(sum(lengths[row] for row in rows))
                break
            todo.difference_update(rows)


_END: Any = object()


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items, the next one made by a thread while the caller works on this one.

    For a GPU: the processor tokenises and lays out while it computes. A CPU has nothing to gain.
    """
    iterator = iter(items)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, iterator, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, iterator, _END)
            yield item
