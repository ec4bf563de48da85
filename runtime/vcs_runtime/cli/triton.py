"""`vcs-runtime triton`: a model repository for NVIDIA's Triton server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click

from vcs_runtime.cli.options import (
    PATH,
    SectionedCommand,
    combined,
    scorer_options,
    usage_errors,
)
from vcs_runtime.cli.scoring import MetricOptions, scoring_options
from vcs_runtime.scoring.options import ScorerConfig


@click.group()
def triton() -> None:
    """Serve scores from NVIDIA's Triton server.

    docs/guide/triton.md shows how.
    """


@dataclass(frozen=True)
class ServerOptions:
    """How Triton serves the model: the values of the command's options."""

    name: str
    copy_bundle: bool
    max_batch_size: int
    queue_delay_us: int
    instances: int
    address: str


@triton.command(cls=SectionedCommand)
@click.argument("folder", metavar="DIR", type=PATH)
@combined(
    "server",
    ServerOptions,
    click.option("--name", default="vcs", metavar="NAME", help="Name of the model."),
    click.option(
        "--copy-bundle", is_flag=True, help="Copy the bundle into DIR, so that DIR can be moved."
    ),
    click.option(
        "--max-batch-size",
        default=64,
        metavar="N",
        help="Maximum number of items in a request, and in requests that are scored together.",
    ),
    click.option(
        "--queue-delay-us",
        default=0,
        metavar="US",
        help="Microseconds that a request may wait for other requests.",
    ),
    click.option(
        "--instances", default=1, metavar="N", help="Number of copies of the model that run."
    ),
    click.option(
        "--address",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="Address to listen on, in the start command of DIR/README.md.",
    ),
)
@scoring_options
@scorer_options
def export(
    folder: Path, server: ServerOptions, metric: MetricOptions, config: ScorerConfig
) -> None:
    """Write a model repository for Triton into DIR.

    DIR must be empty, or must not exist yet. Its README.md says how to start the server. The device
    is a device of the server, which this machine need not have.

    \b
    Example:
      vcs-runtime triton export models --bundle authors --device cuda:0
    """
    from vcs_runtime.triton.repository import Deployment, write_repository

    with usage_errors():
        deployment = Deployment(
            server.name,
            config,
            metric.options,
            copy_bundle=server.copy_bundle,
            max_batch_size=server.max_batch_size,
            queue_delay_us=server.queue_delay_us,
            instances=server.instances,
            address=server.address,
        )
    click.echo(write_repository(folder, deployment))
    click.echo(f"{folder / 'README.md'} has the command that starts the server", err=True)
