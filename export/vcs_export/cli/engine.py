"""`vcs-runtime engine`: TensorRT engines of a bundle, built ahead of time and checked."""

from __future__ import annotations

import click

from vcs_export.cli.options import device_name, log, print_checks, require_builders
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.device import split_device
from vcs_runtime.util.extras import require


def _tensorrt(context: click.Context, parameter: click.Parameter, device: str) -> str:
    if split_device(device_name(context, parameter, device))[0] != "tensorrt":
        raise click.BadParameter(f"{device!r} is not tensorrt:N")
    return device


_BUNDLE = click.argument("bundle", metavar="BUNDLE")
_DEVICE = click.option("--device", default="tensorrt:0", show_default=True, metavar="tensorrt:N",
                       callback=_tensorrt, help="The GPU.")  # fmt: skip


@click.group()
def engine() -> None:
    """Build and check TensorRT engines of a bundle. Experimental: not run on a GPU yet.

    An engine is for the GPU of this machine. Needs `vcs-runtime[gpu,export]` and TensorRT 10 with its Python
    package (`vcs-runtime[tensorrt]`).
    """


@engine.command()
@_BUNDLE
@_DEVICE
def build(bundle: str, device: str) -> None:
    """Build engines of a bundle's encoders, in fp16. Experimental.

    They lie in the user's own folder, `engines` in VCS_RUNTIME_HOME, for this GPU and these versions.
    """
    _require()
    from vcs_export.checks.tensorrt_engines import build_engines

    for path in build_engines(open_bundle(bundle), device, log):
        click.echo(path)


@engine.command()
@_BUNDLE
@_DEVICE
def check(bundle: str, device: str) -> None:
    """Check engines against CUDA: results and speed.

    The speed is recorded: `--device auto` prefers engines only where they were faster. The exit code is 1 if
    a check fails.
    """
    _require()
    from vcs_export.checks.tensorrt_engines import check_engines

    print_checks(check_engines(open_bundle(bundle), device))


def _require() -> None:
    require_builders("export", "building engines")
    require("onnx", "export", "building engines")
