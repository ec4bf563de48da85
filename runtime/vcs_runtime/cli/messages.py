"""What commands say on standard error, one line each."""

from __future__ import annotations

import click

from vcs_runtime.util.printable import printable


def warn(message: object) -> None:
    """Print a message on standard error, as one line without control characters."""
    click.echo(f"vcs-runtime: {printable(message)}", err=True)
