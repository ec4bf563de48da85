"""Messages of commands on standard error, one line each."""

from __future__ import annotations

import click

from vcs_runtime.util.printable import printable

#: The key of a context's `meta` that holds --verbose.
VERBOSE = f"{__name__}.verbose"


def warn(message: object) -> None:
    """Print a message on standard error, as one line without control characters."""
    click.echo(f"vcs-runtime: {printable(message)}", err=True)


def verbose() -> bool:
    """Whether the running command has --verbose, an option of `vcs-runtime` itself."""
    return bool(click.get_current_context().meta.get(VERBOSE))
