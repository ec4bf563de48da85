"""The process: its user, its cores, how it ends during imports, and when it forks."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

MOST_THREADS = 1024
"""Largest number of threads of a model: more take a minute to start, and no machine has the cores.
"""

# Seconds that the main thread has to end by itself after Ctrl-C.
_INTERRUPTED_S = 3.0

is_command = False
"""Whether the process runs the command line, and nothing else.

Settings of libraries that hold for a whole process are changed only in such a process.
"""


def available_cores() -> int:
    """Return the number of cores that this process may use, in a container or under taskset."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_or_cores(threads: int | None) -> int:
    """Return `threads`, or the number of cores if None; raises ValueError if it is out of range."""
    if threads is None or threads == 0:
        return available_cores()
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 < threads <= MOST_THREADS:
        raise ValueError(f"threads must be a number from 1 to {MOST_THREADS}, not {threads!r}")
    return threads


@contextmanager
def ends_when_interrupted() -> Iterator[None]:
    """End the process at once if Ctrl-C is pressed in the block, which only imports modules.

    A KeyboardInterrupt within an import has a long traceback, and compiled modules turn it into
    other errors.
    """
    is_main = threading.current_thread() is threading.main_thread()
    # Another handler ignores the signal, or is a caller's.
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    os.write(2, b"vcs-runtime: interrupted\n")
    os._exit(130)


def end_after_interrupts() -> None:
    """Let Ctrl-C end this process within some seconds, even during a long call of compiled code.

    Python raises KeyboardInterrupt only when such a call returns. A handler that a command sets,
    such as the one of `serve`, is left to its work.
    """
    signals, sender = socket.socketpair()
    sender.setblocking(False)

    def watch() -> None:
        with sender:
            while True:
                [number] = signals.recv(1)
                own = signal.getsignal(number)
                if number == signal.SIGINT and own is signal.default_int_handler:
                    time.sleep(_INTERRUPTED_S)
                    if threading.main_thread().is_alive():  # it has not said so itself
                        _end()
                    os._exit(130)

    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=watch, name="vcs-interrupts", daemon=True).start()


class Unforkable:
    """Work in which a library holds locks. A fork waits until no thread does such work.

    A forked child has the locks of its parent's other threads, but not these threads, so it would
    wait for ever. Any number of threads may do the work at once, each in a `with` block.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._number = 0
        if hasattr(os, "register_at_fork"):
            release = self._changed.release
            os.register_at_fork(before=self._begin, after_in_parent=release, after_in_child=release)

    def __enter__(self) -> None:
        with self._changed:
            self._number += 1

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._number -= 1
            self._changed.notify_all()

    def _begin(self) -> None:
        """Keep others from beginning, and wait until the last one has ended."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._number)


#: Opening a model in ONNX Runtime.
OPENING = Unforkable()
