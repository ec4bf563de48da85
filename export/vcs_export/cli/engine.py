"""`vcs-runtime engine`: TensorRT engines of a bundle, built ahead of time and checked on a GPU."""

from __future__ import annotations

from typing import TextIO

import click

from vcs_export.cli.options import log, require_builders
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli.options import SectionedCommand


@click.group
def engine() -> None:
    """Build and check TensorRT engines of a bundle."""


@engine.command(cls=SectionedCommand)
@click.argument("bundle", metavar="BUNDLE")
@click.option(
    "--log",
    "builder_log",
    type=click.File("w", "utf-8"),
    metavar="FILE",
    help="File for the log of TensorRT.",
)
def build(bundle: str, builder_log: TextIO | None) -> None:
    """Build TensorRT engines of a bundle, without a GPU.

    The engines run the bundle's encoder and learned segmenter on GPUs of the compute capabilities
    8.0, 8.6, 8.9, 12.0 and 12.1, with the installed release of TensorRT for RTX. They are stored in
    `engines` in VCS_RUNTIME_HOME. This needs `vcs-runtime[export,tensorrt]`.

    \b
    Example:
      vcs-runtime engine build default
    """
    require_builders("export", "building engines")
    from vcs_export.checks.tensorrt_engines import build_engines

    for path in build_engines(open_bundle(bundle), log, builder_log):
        click.echo(path)


@engine.command(cls=SectionedCommand)
@click.argument("bundle", metavar="BUNDLE")
def check(bundle: str) -> None:
    """Compare a bundle's engines with CUDA on the first GPU.

    The command compares results and speed. `--device auto` uses engines only if they were faster
    here. This needs `vcs-runtime[gpu,export,tensorrt]`.

    \b
    Example:
      vcs-runtime engine check default
    """
    require_builders("export", "checking engines")
    from vcs_export.checks.tensorrt_engines import check_engines

    check_engines(open_bundle(bundle), log)
