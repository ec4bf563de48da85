"""`vcs-runtime warm-up`: compile the alignment core once for this machine."""

from __future__ import annotations

import time

import click


@click.command("warm-up")
def warm_up() -> None:
    """Compile the alignment core into Numba's cache, so that the first score of every process is fast."""
    from vcs_numba import warm_up as compile_all

    started = time.perf_counter()
    compile_all()
    click.echo(f"the alignment core is compiled and cached ({time.perf_counter() - started:.1f} s)")
