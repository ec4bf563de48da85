"""`vcs-runtime capi`: the library through which C and other languages score."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from pathlib import Path

import click

from vcs_runtime import _version
from vcs_runtime.errors import BuildError


@click.group()
def capi() -> None:
    """Score from C, C++, Rust, Go: build the shared library (docs/capi.md)."""


@capi.command()
@click.option("--out", "folder", type=click.Path(path_type=Path, file_okay=False), required=True,
              metavar="DIR", help="Where to put the library, its header and vcs_runtime.pc.")  # fmt: skip
@click.option("--check", is_flag=True, help="Compile the example against it, and run it.")
@click.option("--bundle", default="default", show_default=True, help="What --check scores with.")
def build(folder: Path, check: bool, bundle: str) -> None:
    """Build libvcs_runtime.so for this interpreter and its packages.

    Needs a C compiler, Python's headers, and cffi.
    """
    from vcs_runtime.capi import build as building

    built = building.build(folder)
    click.echo(f"library      {built.file} ({building.SONAME}), {building.HEADER}, vcs_runtime.pc")
    click.echo(f"interpreter  {built.interpreter} (Python {platform.python_version()}, {built.python})")
    click.echo(f"packages     {', '.join(built.packages)}")
    click.echo(f"vcs-runtime  {_version.__version__} ({Path(_version.__file__).parent})")
    if check:
        click.echo(f"example      {_run_example(folder.absolute(), bundle)}")


def _run_example(folder: Path, bundle: str) -> str:
    """Compile `score.c` against the library in `folder` and score a text with itself; what it printed."""
    from vcs_runtime.capi import build as building

    with tempfile.TemporaryDirectory() as made:
        program, text = Path(made, "score"), Path(made, "text")
        text.write_text("A man opens a door. A dog runs into the garden.", "utf-8")
        building.compile_c(
            [building.source("examples") / "score.c"], program, "-std=c11", *building.STRICT,
            f"-I{folder}", f"-L{folder}", "-lvcs_runtime", f"-Wl,-rpath,{folder}",
        )  # fmt: skip
        done = subprocess.run(
            [program, os.fspath(text), os.fspath(text), bundle], capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise BuildError(f"the example ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()
