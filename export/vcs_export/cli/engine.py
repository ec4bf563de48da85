"""`vcs-runtime engine`: TensorRT engines of a bundle, built ahead of time and checked."""

from __future__ import annotations

import click

from vcs_export.cli.options import require_builders
from vcs_export.cli.reporting import log, print_checks
from vcs_runtime.bundle.manifest import PARTS
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference.device import split_device
from vcs_runtime.inference.tensorrt import fitting, trust
from vcs_runtime.util.extras import require

_BUNDLE = click.argument("bundle", metavar="BUNDLE")
_DEVICE = click.option("--device", default="tensorrt:0", show_default=True, metavar="tensorrt:N",
                       help="The GPU.")  # fmt: skip


@click.group()
def engine() -> None:
    """Build and check TensorRT engines of a bundle.

    An engine is for the GPU of this machine. Needs `vcs-runtime[gpu,export]` and TensorRT 10.
    """


@engine.command()
@_BUNDLE
@_DEVICE
@click.option("--shape", "shapes", multiple=True, metavar="ROWSxTOKENS",
              help="Largest batch of an engine; may be repeated. Each engine holds the weights once more. "
                   "[default: 32x1024]")  # fmt: skip
@click.option("--part", "parts", multiple=True, type=click.Choice(PARTS),
              help="Model to build engines of; may be repeated. [default: all models]")  # fmt: skip
def build(bundle: str, device: str, shapes: tuple[str, ...], parts: tuple[str, ...]) -> None:
    """Build engines of a bundle's models and list them in it.

    Engines for the same GPU are replaced. Building takes minutes. The bundle must be writable; on read-only
    media, copy it first.
    """
    _require()
    from vcs_export.checks.tensorrt_engines import build_engines

    largest = [_shape(shape) for shape in shapes] or None
    for path in build_engines(open_bundle(bundle), device, largest, parts, log=log):
        click.echo(path)


@engine.command()
@_BUNDLE
@_DEVICE
@click.option("--static", is_flag=True, help="Check only operators, types and ranks, without a GPU.")
def check(bundle: str, device: str, static: bool) -> None:
    """Check engines against CUDA: operators, results, speed.

    Engines that are missing, or do not fit this machine, are built. The exit code is 1 if a check fails.
    """
    _require()
    from vcs_export.checks.tensorrt_engines import check_engines

    print_checks(check_engines(open_bundle(bundle), device, static=static, log=log))


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
    """List a bundle's engines, and which fit this machine."""
    try:
        kind, index = split_device(device)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--device") from None
    if kind != "tensorrt":
        raise click.BadParameter(f"{device!r} is not tensorrt:N", param_hint="--device")
    opened = open_bundle(bundle)
    for spec in opened.manifest.engines or ():
        click.echo(
            f"{spec.model}: {spec.part}, up to {spec.rows} x {spec.tokens}, {spec.architecture}, "
            f"TensorRT {spec.tensorrt}, ONNX Runtime {spec.onnxruntime}"
        )
    for part in PARTS:
        if opened.part(part):
            try:
                fits, reason = fitting(opened, part, index)
            except DeviceError as error:
                fits, reason = (), str(error)
            click.echo(f"{part}: {'fits: ' + fits[0].model if fits else reason}")


def _require() -> None:
    require_builders("export", "building engines")
    require("onnx", "export", "building engines")


def _shape(text: str) -> tuple[int, int]:
    rows, _, tokens = text.partition("x")
    if not (rows.isdigit() and tokens.isdigit() and int(rows) and int(tokens)):
        raise click.BadParameter(f"{text!r} is not ROWSxTOKENS, such as 32x1024", param_hint="--shape")
    return int(rows), int(tokens)
