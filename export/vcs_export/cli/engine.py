"""`vcs-runtime engine build`: TensorRT engines of a bundle, built ahead of time."""

from __future__ import annotations

import click

from vcs_export.cli.options import device_name, log, require_builders
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.util.extras import require


@click.group
def engine() -> None:
    """Build TensorRT engines of a bundle."""


@engine.command()
@click.argument("bundle", metavar="BUNDLE")
@click.option(
    "--device",
    default="tensorrt:0",
    show_default=True,
    metavar="tensorrt:N",
    callback=device_name,
    help="The GPU.",
)
def build(bundle: str, device: str) -> None:
    """Build TensorRT engines of a bundle's encoders. Experimental: not run on a GPU yet.

    Engines are for the GPU of this machine and lie in the user's own folder, `engines` in
    VCS_RUNTIME_HOME. Results and speed are compared with CUDA's: `--device auto` takes engines only
    where they were faster. Needs `vcs-runtime[gpu,export]` and TensorRT 10 with its Python package
    (`vcs-runtime[tensorrt]`).

    \b
    Example:
      vcs-runtime engine build default
    """
    require_builders("export", "building engines")
    require("onnx", "export", "building engines")
    from vcs_export.checks.tensorrt_engines import build_engines

    for path in build_engines(open_bundle(bundle), device, log):
        click.echo(path)
