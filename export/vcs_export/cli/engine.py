"""`vcs-runtime engine`: TensorRT engines of a bundle, made ahead of time and checked."""

from __future__ import annotations

from typing import Any

import click

from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference.tensorrt import fitting, trust

_BUNDLE = click.argument("bundle", metavar="BUNDLE")


@click.group()
def engine() -> None:
    """Make and check TensorRT engines of a bundle, for the GPU of this machine.

    Needs `vcs-runtime[gpu,export]`, a GPU and the libraries of TensorRT 10.
    """


@engine.command()
@_BUNDLE
@click.option("--device", default="tensorrt:0", show_default=True, help="The GPU: tensorrt:N.")
@click.option("--shape", "shapes", multiple=True, metavar="ROWSxTOKENS",
              help="Largest batch of an engine; several make an engine each, with the weights once more "
                   "[default: 32x1024].")  # fmt: skip
@click.option("--part", "parts", multiple=True, type=click.Choice(["embedder", "segmenter"]),
              help="Of which model; default: of all that the bundle has.")  # fmt: skip
def build(bundle: str, device: str, shapes: tuple[str, ...], parts: tuple[str, ...]) -> None:
    """Make engines of BUNDLE's graphs and list them in its bundle.json, in place of those for the same GPU.

    Takes minutes. The bundle must be writable; on read-only media, copy it first.
    """
    boxes = [_shape(shape) for shape in shapes] or None
    for path in _tools().build_engines(open_bundle(bundle), device, boxes, parts, tell=_tell):
        click.echo(path)


@engine.command()
@_BUNDLE
@click.option("--device", default="tensorrt:0", show_default=True, help="The GPU: tensorrt:N.")
@click.option(
    "--static", is_flag=True, help="Only what needs no GPU: the graphs' operators, types and ranks."
)
def check(bundle: str, device: str, static: bool) -> None:
    """Check that TensorRT takes BUNDLE's graphs, and that its engines give what CUDA gives, how much faster.

    Parse, build (where there is no engine that fits), parity and speed, in one go. The exit code is 1 if a
    check fails.
    """
    holds = True
    for result in _tools().check_engines(open_bundle(bundle), device, static=static, tell=_tell):
        click.echo(f"{'ok' if result.holds else 'FAILED':6} {result.name}: {result.detail}")
        holds &= result.holds
    if not holds:
        raise click.exceptions.Exit(1)


@engine.command(name="trust")
@_BUNDLE
def trust_(bundle: str) -> None:
    """Let this machine load BUNDLE's engines, which are machine code, though they were made elsewhere."""
    opened = open_bundle(bundle, full=True)
    for found in opened.manifest.engines or ():
        trust(opened, found)
        click.echo(opened.path(found.engine))


@engine.command(name="list")
@_BUNDLE
@click.option("--device", default=0, show_default=True, metavar="N", help="The number of the GPU.")
def list_(bundle: str, device: int) -> None:
    """Say which engines BUNDLE has, and whether they fit this machine."""
    opened = open_bundle(bundle)
    for found in opened.manifest.engines or ():
        click.echo(
            f"{found.model}: {found.part}, up to {found.rows} x {found.tokens}, {found.architecture}, "
            f"TensorRT {found.tensorrt}, ONNX Runtime {found.onnxruntime}"
        )
    for part in ("embedder", "segmenter"):
        if opened.part(part):
            try:
                fits, why = fitting(opened, part, device)
            except DeviceError as error:
                fits, why = (), str(error)
            click.echo(f"{part}: {'fits: ' + fits[0].model if fits else why}")


def _tools() -> Any:
    try:
        from vcs_export.checks import tensorrt_engines
    except ImportError as error:
        raise DeviceError(f"making engines needs `vcs-runtime[export]` ({error})") from None
    return tensorrt_engines


def _shape(text: str) -> tuple[int, int]:
    rows, _, tokens = text.partition("x")
    if not (rows.isdigit() and tokens.isdigit() and int(rows) and int(tokens)):
        raise click.BadParameter(f"{text!r} is no ROWSxTOKENS, as 32x1024 is", param_hint="--shape")
    return int(rows), int(tokens)


def _tell(line: str) -> None:
    click.echo(f"vcs-runtime: {line}", err=True)
