"""`vcs-runtime kit`: everything that a machine without a network needs, in one folder."""

from __future__ import annotations

from pathlib import Path

import click

from vcs_export.cli.options import log
from vcs_runtime.cli.options import PATH, SectionedCommand, bundle, output_folder, usage_errors
from vcs_runtime.util.extras import require


@click.command(cls=SectionedCommand)
@output_folder(help="Folder to create.")
@click.option(
    "--extra",
    "extras",
    multiple=True,
    metavar="EXTRA",
    help="Extra to include in addition to default and cpu; gpu replaces cpu. May be repeated.",
)
@bundle
@click.option(
    "--python",
    metavar="VERSION",
    help="Python version of the other machine, such as 3.12. [default: as here]",
)
@click.option(
    "--platform",
    metavar="TAG",
    help="Platform tag of the other machine, such as manylinux_2_28_x86_64. [default: as here]",
)
@click.option(
    "--wheel",
    type=PATH,
    metavar="FILE",
    help="Wheel of this version of vcs-runtime. [default: of the checkout or the package index]",
)
def kit(
    output: Path,
    extras: tuple[str, ...],
    bundle: str,
    python: str | None,
    platform: str | None,
    wheel: Path | None,
) -> None:
    """Gather everything for a machine without a network.

    The folder holds this version of vcs-runtime, the packages of its extras, a bundle, licences, a
    bill of materials, checksums, and an installer. pip downloads the packages, with its own
    configuration. Nothing is installed here (docs/guide/air-gap.md).

    \b
    Examples:
      vcs-runtime kit -o kit
      vcs-runtime kit -o kit --extra report --python 3.12 \\
        --platform manylinux_2_28_x86_64
    """
    for module in ("packaging", "cyclonedx", "pip"):
        require(module, "kit", "making a kit")
    from vcs_export.kit.making import SUMS, make_kit
    from vcs_export.kit.packages import Target, this_machine

    with usage_errors():
        here = this_machine()
        target = Target(python or here.python, platform or here.platform)
        digest = make_kit(output, extras=extras, bundle=bundle, target=target, wheel=wheel, log=log)
    log(f"sha256 of {SUMS}: {digest}")
    log("send this line to the installer through another channel, such as mail")
    click.echo(output)
