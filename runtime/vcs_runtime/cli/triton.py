"""`vcs-runtime triton`: a model repository for NVIDIA's Triton server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from vcs_runtime.cli.score import chosen_options, engine_of, engine_options, scoring_options
from vcs_runtime.scoring.options import ScorerConfig


@click.group()
def triton() -> None:
    """Score from NVIDIA's Triton inference server (docs/triton.md)."""


@triton.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", default="vcs", show_default=True, help="Of the model.")
@click.option("--copy-bundle", is_flag=True, help="Put the bundle into DIR, too, so that DIR can be moved.")
@click.option("--max-batch-size", default=64, show_default=True, metavar="N",
              help="Items of one request, and of the requests that are scored together.")  # fmt: skip
@click.option("--queue-delay-us", default=0, show_default=True, metavar="US",
              help="Microseconds that a request may wait for others.")  # fmt: skip
@click.option("--instances", default=1, show_default=True, metavar="N", help="Copies of the model.")
@click.option("--address", default="127.0.0.1", show_default=True, metavar="A",
              help="Which the start command in DIR's README binds http, grpc and metrics to.")  # fmt: skip
@scoring_options
@engine_options
@click.pass_context
def export(
    context: click.Context,
    /,
    folder: Path,
    name: str,
    copy_bundle: bool,
    max_batch_size: int,
    queue_delay_us: int,
    instances: int,
    address: str,
    **options_given: Any,
) -> None:
    """Write a model repository into DIR, which must be empty or not be there.

    Its README.md says how to start the server. The device is the server's: it need not be here.
    """
    from vcs_runtime.triton.repository import Deployment, write_repository

    config = ScorerConfig(**engine_of(options_given))
    options = chosen_options(context, **options_given)
    try:
        deployment = Deployment(
            name, config, options, copy_bundle, max_batch_size, queue_delay_us, instances, address
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    click.echo(write_repository(folder, deployment))
    click.echo(f"start it as {folder / 'README.md'} says", err=True)
