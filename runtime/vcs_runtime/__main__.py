"""Run the command line: `vcs-runtime`, or `python -m vcs_runtime`."""

from __future__ import annotations

from typing import NoReturn

from vcs_runtime.util import process


def main() -> NoReturn:
    """Run the command line in this process.

    An interrupt then ends the process without a traceback.
    """
    with process.ends_when_interrupted():
        from vcs_runtime.cli import main as run
    process.end_after_interrupts()
    run()


if __name__ == "__main__":
    main()
