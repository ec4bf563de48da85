"""Messages of commands on standard error, one line each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import click

from vcs_runtime.errors import UnfitModelWarning
from vcs_runtime.util.printable import printable

#: The key of a context's `meta` that holds --verbose.
VERBOSE = f"{__name__}.verbose"


def warn(message: object) -> None:
    """Print a message on standard error, as one line without control characters."""
    click.echo(f"vcs-runtime: {printable(message)}", err=True)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print Python's warnings in the block as `warn` does, without the place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", UnfitModelWarning)
        warnings.showwarning = lambda message, *_: warn(message)
        yield


def verbose() -> bool:
    """Whether the running command has --verbose, an option of `vcs-runtime` itself."""
    return bool(click.get_current_context().meta.get(VERBOSE))
