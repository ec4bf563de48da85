"""Exceptions as the statuses of the header, and the last message of each thread."""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final

from vcs_runtime.capi import log
from vcs_runtime.capi.binding import Status
from vcs_runtime.errors import BundleError, DeviceError, TextError

_STATUSES: Final[tuple[tuple[type[BaseException], Status], ...]] = (
    (TextError, Status.VCS_BAD_TEXT),  # before ValueError, its base class
    (ValueError, Status.VCS_INVALID_ARGUMENT),
    (BundleError, Status.VCS_BAD_BUNDLE),
    (OSError, Status.VCS_BAD_BUNDLE),  # scoring reads no other files
    (DeviceError, Status.VCS_DEVICE),
    (MemoryError, Status.VCS_OUT_OF_MEMORY),
)

_last: Final = threading.local()


class Refusal(Exception):
    """An error whose status does not follow from its class."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


def status_of(error: BaseException | None) -> Status:
    """Return the status of an error."""
    if isinstance(error, Refusal):
        return error.status
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return Status.VCS_INTERNAL


def failed(error: BaseException) -> Status:
    """Store the message of an error for this thread, log the traceback of a defect.

    Returns the status.
    """
    status = status_of(error)
    _last.message = str(error) or type(error).__name__
    if status == Status.VCS_INTERNAL:
        _last.message = f"{type(error).__name__}: {error}"
        log.log(log.ERROR, "".join(traceback.format_exception(error)))
    return status


def last_message() -> str:
    """Return the message of this thread's last error; "" if there was none."""
    message: str = getattr(_last, "message", "")
    return message


def returns_status(function: Callable[..., None]) -> Callable[..., int]:
    """Decorate a function so that it returns a status in place of raising an exception."""

    @functools.wraps(function)
    def call(*arguments: Any) -> int:
        try:
            function(*arguments)
        except BaseException as error:  # no exception of any kind may cross into C
            return int(failed(error))
        return 0

    return call
