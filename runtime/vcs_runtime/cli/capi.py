"""`vcs-runtime capi`: the library through which C and other languages score."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from pathlib import Path

import click

from vcs_runtime import _version
from vcs_runtime.cli.options import NamedPath, SectionedCommand, bundle
from vcs_runtime.errors import BuildError


@click.group()
def capi() -> None:
    """Build the library for C, C++, Rust and Go.

    docs/guide/capi.md shows how to call the library.
    """


@capi.command(cls=SectionedCommand)
@click.option(
    "-o",
    "--output",
    "folder",
    type=NamedPath(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="Folder for the library, its header and vcs_runtime.pc.",
)
@click.option("--check", is_flag=True, help="Compile and run the example program with the library.")
@bundle
def build(folder: Path, check: bool, bundle: str) -> None:
    """Build libvcs_runtime.so for this Python.

    The library uses this interpreter and its packages. Building needs a C compiler, Python's
    headers, and `vcs-runtime[capi]`.

    \b
    Example:
      vcs-runtime capi build -o vcs --check
    """
    from vcs_runtime.capi import build as building

    built = building.build(folder)
    click.echo(f"library      {built.file} ({building.SONAME}), {building.HEADER}, vcs_runtime.pc")
    click.echo(
        f"interpreter  {built.interpreter} (Python {platform.python_version()}, {built.python})"
    )
    click.echo(f"packages     {', '.join(built.packages)}")
    click.echo(f"vcs-runtime  {_version.__version__} ({Path(_version.__file__).parent})")
    if check:
        click.echo(f"example      {_run_example(folder.absolute(), bundle)}")


def _run_example(folder: Path, bundle: str) -> str:
    """Compile `score.c` with the library in `folder`, run the program and return its output.

    The program scores a text against the same text.
    """
    from vcs_runtime.capi import build as building

    with tempfile.TemporaryDirectory() as temporary:
        program, text = Path(temporary, "score"), Path(temporary, "text")
        text.write_text("A man opens a door. A dog runs into the garden.", "utf-8")
        building.compile_c(
            [building.source("examples") / "score.c"],
            program,
            "-std=c11",
            *building.STRICT,
            f"-I{folder}",
            f"-L{folder}",
            "-lvcs_runtime",
            f"-Wl,-rpath,{folder}",
        )
        done = subprocess.run(
            [program, os.fspath(text), os.fspath(text), bundle],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise BuildError(f"the example failed ({done.returncode}): {done.stderr.strip()}")
    return done.stdout.strip()
