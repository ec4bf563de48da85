"""`vcs-runtime engine`: TensorRT engines of a bundle, built ahead of time and checked on a GPU."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_export.cli.options import device_name, log, require_builders
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.cli.options import PATH
from vcs_runtime.util.atomic import file_errors
from vcs_runtime.util.extras import require


@click.group
def engine() -> None:
    """Build TensorRT engines of a bundle, and check them on a GPU."""


@engine.command()
@click.argument("bundle", metavar="BUNDLE")
@click.option("--log", "log_file", type=PATH, metavar="FILE", help="File for the builder's log.")
def build(bundle: str, log_file: Path | None) -> None:
    """Build TensorRT engines of a bundle's encoders and learned segmenter, without a GPU.

    Engines are for GPUs of the compute capabilities 8.0, 8.6, 8.9, 12.0 and 12.1, and for the
    installed release of TensorRT for RTX. They lie in the user's own folder, `engines` in
    VCS_RUNTIME_HOME. Needs `vcs-runtime[export,tensorrt]`.

    \b
    Example:
      vcs-runtime engine build default
    """
    require_builders("export", "building engines")
    from vcs_export.checks.tensorrt_engines import build_engines

    opened = open_bundle(bundle)
    lines: list[str] = []
    try:
        for path in build_engines(opened, log, lines.append):
            click.echo(path)
    finally:
        if log_file:
            with file_errors(log_file):
                log_file.write_text("".join(lines), "utf-8")


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
def check(bundle: str, device: str) -> None:
    """Compare a bundle's engines with CUDA on this GPU, and measure their speed.

    `--device auto` takes engines only where they were faster here. Needs
    `vcs-runtime[gpu,export,tensorrt]`.

    \b
    Example:
      vcs-runtime engine check default
    """
    require_builders("export", "checking engines")
    require("onnx", "export", "checking engines")
    from vcs_export.checks.tensorrt_engines import check_engines

    check_engines(open_bundle(bundle), device, log)
