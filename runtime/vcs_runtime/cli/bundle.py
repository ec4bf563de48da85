"""`vcs-runtime bundle`: look at bundles, verify them, carry them as one file, make one of two."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from vcs_runtime.bundle import archive
from vcs_runtime.bundle.manifest import MANIFEST, Manifest, read_manifest
from vcs_runtime.bundle.merge import merge
from vcs_runtime.bundle.opening import Bundle, open_bundle
from vcs_runtime.bundle.paths import bundle_folder
from vcs_runtime.cli.tables import console
from vcs_runtime.util.progress import byte_bar

_PATH = click.Path(path_type=Path)


@click.group()
def bundle() -> None:
    """Look at bundles, verify them, carry them as one file, make one of two.

    A bundle is named by its folder; "default" is the embedded default.
    """


@bundle.command()
@click.argument("name", metavar="BUNDLE")
@click.option("--json", "as_json", is_flag=True, help="Print bundle.json as it was read.")
def info(name: str, as_json: bool) -> None:
    """Say what a bundle holds, by its bundle.json alone: nothing is verified."""
    root = bundle_folder(name)
    manifest = read_manifest(root / MANIFEST)
    if as_json:
        click.echo(json.dumps(msgspec.to_builtins(manifest)))
        return
    out = console()
    for key, value in _facts(Bundle(root, manifest)):
        out.print(f"{key:12} {value}", soft_wrap=True, markup=False)


@bundle.command()
@click.argument("name", metavar="BUNDLE")
def verify(name: str) -> None:
    """Check every byte of a bundle, and what its graphs refer to."""
    manifest = open_bundle(name, full=True).manifest
    click.echo(f"{len(manifest.files)} files, {_megabytes(manifest)}: all as {MANIFEST} lists them")


@bundle.command()
@click.argument("name", metavar="BUNDLE")
@click.option("-o", "--output", type=_PATH, required=True, metavar="FILE", help="The file to write.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def pack(name: str, output: Path, force: bool) -> None:
    """Write a bundle into one file, a plain tar; equal bundles are equal files."""
    total = sum(entry.size for entry in read_manifest(bundle_folder(name) / MANIFEST).files)
    with byte_bar("packing", total) as advance:
        archive.pack(name, output, force=force, advance=advance)
    click.echo(output)


@bundle.command()
@click.argument("file", type=_PATH)
@click.option("--to", "target", type=_PATH, required=True, metavar="DIR", help="The folder to make.")
def unpack(file: Path, target: Path) -> None:
    """Unpack the FILE of a bundle; every byte is checked, and the folder is whole or not there."""
    with byte_bar("unpacking", file.stat().st_size) as advance:
        archive.unpack(file, target, advance=advance)
    click.echo(target)


@bundle.command()
@click.option("--embedder", required=True, metavar="BUNDLE", help="Whose embedder is taken.")
@click.option("--segmenter", required=True, metavar="BUNDLE", help="Whose segmenter is taken.")
@click.option("--to", "target", type=_PATH, required=True, metavar="DIR", help="The folder to make.")
@click.option("--name", help="Of the new bundle [default: both names].")
def make(embedder: str, segmenter: str, target: Path, name: str | None) -> None:
    """Make one bundle of two. Files are hard links where possible, so that nothing is stored twice."""
    merge(embedder, segmenter, target, name=name)
    click.echo(target)


def _facts(found: Bundle) -> Iterator[tuple[str, str]]:
    manifest = found.manifest
    yield "bundle", f"{manifest.name} ({found.root})"
    yield "licence", manifest.licence
    yield "source", manifest.source
    yield "files", f"{len(manifest.files)}, {_megabytes(manifest)}, schema {manifest.schema}"
    if spec := manifest.embedder:
        yield "embedder", f"{spec.name}@{found.weights_hash(spec)[:4]}, {spec.precision}, {spec.layout}"
        yield "", f"dimension {spec.dimension}, {spec.max_tokens} tokens, beyond these {spec.long_text}"
        if spec.instruction:
            pooled = "not pooled" if spec.mask_instruction else "pooled"
            yield "", f"instruction {spec.instruction!r} ({pooled})"
        if error := spec.quantization_error:
            yield (
                "",
                f"cosine to the unquantised graph {error.cosine_mean:.6f} on average, "
                f"{error.cosine_min:.6f} at worst, {error.texts} texts",
            )
            if error.vcs_change is not None:
                yield "", f"VCS changes by {error.vcs_change:.6f} on average, {error.pairs} pairs"
    if found_segmenter := manifest.segmenter:
        if rules := found_segmenter.rules:
            yield "segmenter", f"rules: {rules.name}, {rules.language}"
        if model := found_segmenter.model:
            digest = found.weights_hash(model)[:4]
            yield "segmenter", f"{model.name}@{digest}, {model.precision}, threshold {model.threshold:g}"


def _megabytes(manifest: Manifest) -> str:
    return f"{sum(entry.size for entry in manifest.files) / 1e6:,.1f} MB"
