"""`vcs-runtime warm-up`: compile Numba's kernels once for this machine."""

from __future__ import annotations

import time

import click

from vcs_runtime.cli.options import SectionedCommand


@click.command("warm-up", cls=SectionedCommand)
def warm_up() -> None:
    """Compile code in advance, for a faster first score.

    Numba's cache keeps the machine code of alignment and tokenizer, so that no later process
    compiles them. Scoring works without this command, but the first score then takes longer.

    \b
    Example:
      vcs-runtime warm-up
    """
    from vcs_numba import warm_up as compile_all

    started = time.perf_counter()
    compile_all()
    click.echo(
        f"alignment and tokenizer are compiled and cached ({time.perf_counter() - started:.1f} s)"
    )
