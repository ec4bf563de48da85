"""`vcs-runtime engine`: TensorRT engines of a bundle, built ahead of time and checked."""

from __future__ import annotations

import click

from vcs_export.cli.options import device_name, log, print_checks, require_builders
from vcs_runtime.bundle.manifest import PARTS
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference.device import split_device
from vcs_runtime.inference.tensorrt import describe_speed, fitting, speed, trust
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

    Engines for the same GPU are replaced. The bundle must be writable; on read-only media, copy it first.
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


@engine.command(name="trust")
@_BUNDLE
def trust_(bundle: str) -> None:
    """Allow this machine to load engines built elsewhere.

    An engine is machine code: trust only bundles of people whom you trust.
    """
    opened = open_bundle(bundle, full=True)
    for spec in opened.manifest.engines or ():
        trust(opened, spec)
        click.echo(opened.path(spec.engine))


@engine.command(name="list")
@_BUNDLE
@_DEVICE
def list_(bundle: str, device: str) -> None:
    """List a bundle's engines, which fit, and their speed."""
    opened = open_bundle(bundle)
    for spec in opened.manifest.engines or ():
        click.echo(
            f"{spec.model}: {spec.part}, up to {spec.rows} x {spec.tokens}, {spec.gpu or 'unknown GPU'} "
            f"({spec.architecture}), TensorRT {spec.tensorrt}, ONNX Runtime {spec.onnxruntime}"
        )
    for part in PARTS:
        if opened.part(part):
            try:
                fits, reason = fitting(opened, part, split_device(device)[1])
            except DeviceError as error:
                fits, reason = (), str(error)
            if fits:
                models = ", ".join(spec.model for spec in fits)
                reason = f"fits: {models}; {describe_speed(opened, speed(opened, fits))}"
            click.echo(f"{part}: {reason}")


def _require() -> None:
    require_builders("export", "building engines")
    require("onnx", "export", "building engines")
