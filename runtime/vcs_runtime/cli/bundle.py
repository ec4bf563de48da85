"""`vcs-runtime bundle`: inspect, verify, pack, unpack and combine bundles."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from vcs_runtime.bundle import archive
from vcs_runtime.bundle.manifest import (
    MANIFEST,
    CudaGraph,
    EmbedderSpec,
    Manifest,
    SegmenterSpec,
    read_manifest,
)
from vcs_runtime.bundle.merge import merge
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.cli.options import PATH, SectionedCommand, output_file, output_folder, overwrite
from vcs_runtime.cli.tables import console
from vcs_runtime.errors import DeviceError
from vcs_runtime.inference.fitness import describe_unfit, fitness_lines
from vcs_runtime.util.printable import printable
from vcs_runtime.util.progress import byte_bar
from vcs_runtime.util.reading import refuse_special


@click.group()
def bundle() -> None:
    """Inspect, verify, pack and combine bundles.

    A bundle is a folder with models. `default` and `fast` name the bundles that `vcs-runtime fetch`
    builds (docs/guide/bundles.md).
    """


@bundle.command(cls=SectionedCommand)
@click.argument("name", metavar="BUNDLE")
@click.option("--json", "as_json", is_flag=True, help="Print bundle.json.")
def info(name: str, as_json: bool) -> None:
    """Show what a bundle holds.

    Only bundle.json is read; nothing is verified.

    \b
    Example:
      vcs-runtime bundle info default
    """
    root = bundle_folder(name)
    manifest = read_manifest(root / MANIFEST)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(manifest)))
        return
    out = console()
    for key, value in _facts(Bundle(root, manifest)):
        out.print(f"{key:12} {printable(value)}", soft_wrap=True)


@bundle.command(cls=SectionedCommand)
@click.argument("name", metavar="BUNDLE")
def verify(name: str) -> None:
    """Check every file of a bundle against its hash.

    The command also checks the files to which the ONNX graphs refer and, if the embedder runs here,
    the length of a vector.

    \b
    Example:
      vcs-runtime bundle verify default
    """
    from vcs_runtime.inference.embedder import Embedder

    opened = open_bundle(name, full=True)
    manifest = opened.manifest
    if manifest.embedder is not None:
        with suppress(DeviceError), Embedder.open(opened, proof=False) as embedder:
            embedder.embed(["A man opens a door."])
    click.echo(f"{len(manifest.files)} files, {_megabytes(manifest)}: all match {MANIFEST}")


@bundle.command(cls=SectionedCommand)
@click.argument("name", metavar="BUNDLE")
@output_file
@overwrite
def pack(name: str, output: Path, overwrite: bool) -> None:
    """Write a bundle as one tar file.

    Equal bundles give byte-identical files.

    \b
    Example:
      vcs-runtime bundle pack default -o default.tar
    """
    total = sum(entry.size for entry in read_manifest(bundle_folder(name) / MANIFEST).files)
    with byte_bar("packing", total) as advance:
        archive.pack(name, output, force=overwrite, advance=advance)
    click.echo(output)


@bundle.command(cls=SectionedCommand)
@click.argument("file", type=PATH)
@output_folder(help="Folder to create.")
def unpack(file: Path, output: Path) -> None:
    """Unpack a packed bundle into a new folder.

    Every file is checked against its hash. The folder appears only when it is complete.

    \b
    Example:
      vcs-runtime bundle unpack default.tar -o default
    """
    refuse_special(file, file)
    with byte_bar("unpacking", file.stat().st_size) as advance:
        archive.unpack(file, output, advance=advance)
    click.echo(output)


@bundle.command(cls=SectionedCommand)
@click.option("--embedder", required=True, metavar="BUNDLE", help="Bundle whose embedder is used.")
@click.option(
    "--segmenter", required=True, metavar="BUNDLE", help="Bundle whose segmenter is used."
)
@output_folder(help="Folder to create.")
@click.option("--name", metavar="NAME", help="Name of the new bundle. [default: both names]")
def make(embedder: str, segmenter: str, output: Path, name: str | None) -> None:
    """Combine an embedder and a segmenter in a new bundle.

    Files are hard links where possible, so that nothing is stored twice.

    \b
    Example:
      vcs-runtime bundle make --embedder embedder --segmenter sat -o authors
    """
    merge(embedder, segmenter, output, name=name)
    click.echo(output)


def _facts(bundle: Bundle) -> Iterator[tuple[str, str]]:
    manifest = bundle.manifest
    yield "bundle", f"{manifest.name} ({bundle.root})"
    yield "licence", manifest.licence
    yield "source", manifest.source
    yield "files", f"{len(manifest.files)}, {_megabytes(manifest)}, schema {manifest.schema}"
    if manifest.embedder:
        yield from _embedder_facts(bundle, manifest.embedder)
    if manifest.segmenter:
        yield from _segmenter_facts(bundle, manifest.segmenter)


def _embedder_facts(bundle: Bundle, spec: EmbedderSpec) -> Iterator[tuple[str, str]]:
    yield "embedder", f"{bundle.identity(spec)}, {spec.precision}, {spec.layout}"
    if spec.cuda:
        yield "", _second_graph(spec.cuda)
    yield (
        "",
        f"dimension {spec.dimension}, {spec.max_tokens} tokens, beyond these {spec.long_text}",
    )
    if spec.instruction:
        pooled = "not pooled" if spec.mask_instruction else "pooled"
        yield "", f"instruction {spec.instruction!r} ({pooled})"
    for line in fitness_lines(spec):
        yield "", line
    if problem := describe_unfit(bundle):
        yield "", problem
    error = spec.quantization_error
    if error is None:
        return
    cosine = f"{error.cosine_mean:.6f} on average, {error.cosine_min:.6f} at worst"
    yield "", f"cosine to the unquantised graph {cosine}, {error.texts} texts"
    if error.vcs_change is not None:
        change = _change(error.vcs_change, error.vcs_change_p95)
        yield "", f"VCS changes by {change}, {error.pairs} pairs"
    if error.margin_change is not None:
        change = _change(error.margin_change, error.margin_change_p95)
        yield "", f"the margin changes by {change}"


def _segmenter_facts(bundle: Bundle, spec: SegmenterSpec) -> Iterator[tuple[str, str]]:
    if spec.rules:
        yield "segmenter", f"rules: {spec.rules.name}, {spec.rules.language}"
    if spec.model:
        model = spec.model
        yield (
            "segmenter",
            f"{bundle.identity(model)}, {model.precision}, threshold {model.threshold:g}",
        )
        if model.cuda:
            yield "", _second_graph(model.cuda)


def _second_graph(graph: CudaGraph) -> str:
    return ", ".join(filter(None, ("a second graph for CUDA", graph.layout, graph.precision)))


def _change(mean: float, percentile: float | None) -> str:
    rare = "" if percentile is None else f", {percentile:.6f} at the 95th percentile"
    return f"{mean:.6f} on average{rare}"


def _megabytes(manifest: Manifest) -> str:
    return f"{sum(entry.size for entry in manifest.files) / 1e6:,.1f} MB"
