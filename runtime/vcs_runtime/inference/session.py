"""Running a model on a device: the embedder and the learned segmenter pass batches, and get arrays.

A `Session` can be released, which frees its memory; its next run opens it again. A program that
trains on a GPU and scores from time to time needs the memory in between. If memory does not suffice
for a batch, `FittingBatches` cuts the remaining sequences into batches of half the tokens.
"""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy.typing as npt

from vcs_runtime.errors import DeviceError, DeviceMemoryError, VcsError
from vcs_runtime.inference import nvidia
from vcs_runtime.inference.batching import TOKEN_BUDGET
from vcs_runtime.inference.device import Device, import_onnxruntime
from vcs_runtime.inference.onnx_session import open_session, run_session
from vcs_runtime.inference.rtx_session import RtxSession
from vcs_runtime.util.stages import check_stopped

if TYPE_CHECKING:
    from vcs_runtime.inference.onnx_session import ModelSession

T = TypeVar("T")
_REQUESTED = re.compile(r"requested buffer of size (\d+)")
# The arena holds as much memory as the largest batch needed. After this number of runs it frees the
# memory that the last run did not use; doing so after each run would make the GPU wait.
_SHRINK_EVERY = 32
# Bytes of the arena for each token and each component of the model's vectors. They were measured on
# the real CUDA provider without a GPU, as the smallest limit under which batches of 16,384 tokens
# run. In the layout varlen NV-Embed needs 39 and MiniLM 45; packed 48, and 98 where half of the
# places are padding. MiniLM in fp32 needs 96 at 256 tokens, SaT 70 in padded fp16 and 118 in fp32
# at 512 tokens.
_BYTES_PER_WIDTH = 120
_VARLEN_BYTES_PER_WIDTH = 48
_SPARE = 0.8  # usable share of the free memory: other programs on the GPU allocate too
_FEWEST_TOKENS = 512
# Number of runs without a failure after which a halved budget is doubled again.
_RUNS_TO_RECOVER = 64


class Session:
    """An ONNX model on a device. Several threads may use it. Errors name the model `what`."""

    def __init__(
        self,
        model: Path,
        device: Device,
        threads: int | None = None,
        *,
        half: bool = False,
        what: str,
    ) -> None:
        self.device = device
        self._arguments = (model, device, threads, half)
        self._what = what
        self._lock = threading.Lock()
        self._closed = False
        self._runs = 0
        self._crowded = False
        self._shown: list[str] = []
        # ONNX Runtime changes CUDA's current GPU. Each thread has a current GPU, and the one of the
        # caller's thread must not change.
        self._thread: ThreadPoolExecutor | None = None
        if device.is_gpu:
            self._thread = ThreadPoolExecutor(1, f"{what} on GPU {device.index}")
        self._process = os.getpid()
        self._session: ModelSession | None = None
        self.inputs: dict[str, str]
        """Types of the inputs by name, as ONNX Runtime writes them: "tensor(int64)"."""
        self._do(self._begin)

    def _do(self, task: Callable[..., T], *arguments: Any) -> T:
        """Call `task` in the GPU's thread.

        A forked child has no such thread and calls `task` directly; ONNX Runtime then raises an
        error.
        """
        if self._thread is None or os.getpid() != self._process:
            return task(*arguments)
        return self._thread.submit(task, *arguments).result()

    def _begin(self) -> None:
        self._session = self._open()
        self.inputs = {item.name: item.type for item in self._session.get_inputs()}
        self._outputs = [self._session.get_outputs()[0].name]

    def show(self, value: str, check: Callable[[Any], None]) -> None:
        """Expose an intermediate tensor as an output, and pass this output to `check`.

        The model is opened again.
        """
        self._do(self._show, value, check)

    def _show(self, value: str, check: Callable[[Any], None]) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._what} is closed")
            if value in self._shown:
                return
            self._session = None  # free its memory before the model is opened again
            self._shown.append(value)
            try:
                session = self._open()
                check(next(output for output in session.get_outputs() if output.name == value))
            except VcsError:
                self._shown.remove(value)
                raise
            self._session = session

    def run(
        self, inputs: dict[str, npt.NDArray[Any]], shown: Sequence[str] = ()
    ) -> list[npt.NDArray[Any]]:
        """Return the first output of one batch, then the `shown` values; raises DeviceError."""
        return self._do(self._run, inputs, shown)

    def _run(
        self, inputs: dict[str, npt.NDArray[Any]], shown: Sequence[str]
    ) -> list[npt.NDArray[Any]]:
        with self._lock:
            if self._closed:
                raise RuntimeError(f"{self._what} is closed")
            if self._session is None:
                self._session = self._open()
            session = self._session
            self._runs += 1
            shrink = self._crowded or self._runs % _SHRINK_EVERY == 0
        try:
            outputs = run_session(session, [*self._outputs, *shown], inputs, shrink=shrink)
        except DeviceError as error:
            if isinstance(error, DeviceMemoryError):
                self._crowded = True  # the next run that fits frees unused memory of the arena
            raise type(error)(f"{self._arguments[0]}: {error}") from None
        self._crowded = self._crowded and not shrink
        return outputs

    def release(self) -> None:
        """Free the model's memory; the next run opens the model again, which takes time."""
        self._do(self._free)

    def close(self) -> None:
        """Free the model's memory; the session cannot run any more."""
        self._closed = True
        self._do(self._free)
        if self._thread:
            self._thread.shutdown(wait=False)
            self._thread = None

    def _free(self) -> None:
        with self._lock:
            session = self._session
            if isinstance(session, RtxSession) and session.release() and not self._closed:
                return  # the next run loads its weights again
            self._session = None

    def _open(self) -> ModelSession:
        model, device, threads, half = self._arguments
        return open_session(model, device, threads, half=half, shown=self._shown)


class SessionPool:
    """One model on several GPUs, used like a `Session`: a batch runs on a GPU that is free."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.inputs = sessions[0].inputs
        self._sessions = sessions
        self._free: queue.SimpleQueue[Session] = queue.SimpleQueue()
        for session in sessions:
            self._free.put(session)

    def show(self, value: str, check: Callable[[Any], None]) -> None:
        """Expose an intermediate tensor on all GPUs, as `Session.show`."""
        for session in self._sessions:
            session.show(value, check)

    def run(
        self, inputs: dict[str, npt.NDArray[Any]], shown: Sequence[str] = ()
    ) -> list[npt.NDArray[Any]]:
        """Return the outputs of one batch, as `Session.run`, on a free GPU, which errors name."""
        session = self._free.get()
        try:
            return session.run(inputs, shown)
        except DeviceError as error:
            raise type(error)(f"cuda:{session.device.index}: {error}") from None
        finally:
            self._free.put(session)

    def release(self) -> None:
        """Free the memory of all sessions, as `Session.release`."""
        for session in self._sessions:
            session.release()

    def close(self) -> None:
        """Close all sessions, as `Session.close`."""
        for session in self._sessions:
            session.close()


class Budget:
    """Largest number of tokens of one run on a device.

    It is halved when memory does not suffice. After some runs without a failure it is doubled
    again, up to its initial value, since other programs on the GPU may have freed memory. If that
    fails, the next attempt comes after twice as many runs. `width` is the length of the model's
    vectors, and `weights` is the size of its weights on a GPU in bytes. With several GPUs, the one
    with the least memory decides.
    """

    def __init__(
        self,
        device: Device,
        width: int,
        weights: int = 0,
        layout: str = "padded",
        others: Sequence[Device] = (),
    ) -> None:
        self._device = device
        self._others = others
        self._most = TOKEN_BUDGET[device.provider_name]
        self._bytes = width * (_VARLEN_BYTES_PER_WIDTH if layout == "varlen" else _BYTES_PER_WIDTH)
        self._weights = weights
        self._missing = 0  # bytes of weights that are still to be loaded
        self._full: int | None = None
        self._tokens = 0
        self._runs_to_recover = _RUNS_TO_RECOVER
        self._runs = 0
        self._recovered = False

    @property
    def is_fixed(self) -> bool:
        """Whether batches have fixed shapes and cannot be made smaller."""
        return self._device.batch_invariant

    @property
    def is_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self._device.is_gpu

    @property
    def tokens(self) -> int:
        """Largest number of tokens, padding included, of the next run."""
        if self._full is None:
            self._full = self._tokens = self._fitting()
        return self._tokens

    def shorten(self, tokens: int) -> None:
        """Allow no more than half of `tokens` for the next runs."""
        if self._recovered:  # doubling failed: the next attempt comes later
            self._runs_to_recover *= 2
        self._tokens = min(self.tokens, max(1, tokens // 2))
        self._runs = 0
        self._recovered = False

    def succeed(self) -> None:
        """Count a run without a failure."""
        if self._full is None or self._tokens >= self._full:
            return
        self._runs += 1
        if self._runs >= self._runs_to_recover:
            self._tokens = min(self._full, 2 * self._tokens)
            self._runs = 0
            self._recovered = True

    def forget(self) -> None:
        """Read the free memory again before the next run.

        The weights are loaded again for that run.
        """
        self._full = None
        self._missing = self._weights

    def _fitting(self) -> int:
        if self._device.provider_name != "ort-cuda":
            return self._most
        tokens = self._most
        for gpu in (self._device, *self._others):
            room = self._room(gpu)
            if room is not None:
                tokens = min(tokens, int(room * _SPARE) // self._bytes)
        return max(_FEWEST_TOKENS, tokens)

    def _room(self, gpu: Device) -> int | None:
        """Return the bytes available after the weights are loaded; None if unknown."""
        free = nvidia.free_memory(gpu.index, nvidia.cuda_major(import_onnxruntime()))
        if free is None:
            return None
        rooms = [free - self._missing]
        if gpu.memory is not None:
            rooms.append(gpu.memory - self._weights)
        return max(0, min(rooms))


def _too_long(error: DeviceMemoryError, tokens: int, on_gpu: bool) -> DeviceMemoryError:
    """Return an error with the memory that one text needs, and advice."""
    wanted = _REQUESTED.search(str(error))
    if on_gpu or not wanted:
        return error
    size = int(wanted[1])
    return DeviceMemoryError(
        f"not enough memory for a text of {tokens:,} tokens on a CPU: one array needs"
        f" {size / 1e9:,.1f} GB. Attention grows with the square of the length: use a GPU or a"
        " smaller window (`export --max-tokens`, max_length of Embedder.embed), or export an"
        f" older decoder again ({error})"
    )


class FittingBatches(Generic[T]):
    """Batches of all sequences, made smaller where memory does not suffice for one.

    `cut(rows, tokens)` cuts sequences into batches of at most `tokens` tokens. Iterating ends early
    if nobody waits for the results any more (`util.stages.check_stopped`).
    """

    def __init__(
        self,
        lengths: Sequence[int],
        budget: Budget,
        cut: Callable[[list[int], int], Iterable[tuple[list[int], T]]],
    ) -> None:
        self._lengths = lengths
        self._budget = budget
        self._cut = cut
        self._failed = False

    def __iter__(self) -> Iterator[tuple[list[int], T]]:
        remaining = set(range(len(self._lengths)))
        while remaining:
            for rows, batch in self._cut(sorted(remaining), self._budget.tokens):
                check_stopped()
                self._failed = False
                yield rows, batch
                if self._failed:
                    break
                self._budget.succeed()
                remaining.difference_update(rows)

    def failed(self, rows: list[int], error: DeviceMemoryError) -> None:
        """Cut the remaining sequences into batches of half the tokens of the failed batch.

        Raises DeviceMemoryError if the batch is a single sequence, or has a fixed shape.
        """
        if self._budget.is_fixed:
            raise DeviceMemoryError(
                f"{error}; batches of fixed shapes cannot be made smaller: allow more memory, or"
                " leave out --batch-invariant"
            ) from None
        if len(rows) == 1:
            raise _too_long(error, self._lengths[rows[0]], self._budget.is_gpu) from None
        self._budget.shorten(sum(self._lengths[row] for row in rows))
        self._failed = True
