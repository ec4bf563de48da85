"""The command line, `vcs-runtime`.

Exit codes: 0 all scored; 1 some pairs could not be; 2 wrong usage, unreadable input, or a machine that lacks
something; 3 a defect of this program; 130 interrupted. Errors are one line on standard error; with
VCS_RUNTIME_DEBUG=1 in the environment, a defect's traceback follows.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module

import click

from vcs_runtime._version import __version__
from vcs_runtime.errors import VcsError

# The module of each command, imported when the command is asked for, so that `score` starts without what the
# others need. The commands of `vcs_export` are found by name only: this package never imports that one.
_MODULES = {
    **dict.fromkeys(("score", "explain", "report", "compare", "experiment", "demo"), "vcs_runtime.cli"),
    "fetch": "vcs_export.cli",
    "warm-up": "vcs_runtime.cli",
    "export": "vcs_export.cli",
    "bundle": "vcs_runtime.cli",
    "engine": "vcs_export.cli",
    **dict.fromkeys(("capi", "visil", "triton", "doctor"), "vcs_runtime.cli"),
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(import_module(f"{_MODULES[cmd_name]}.{name}"), name)
        return command


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="vcs-runtime")
def cli() -> None:
    """Score how well a generated description tells the story of a reference: offline, without PyTorch."""


def main() -> None:
    """Run the command line and turn what it raises into one line and an exit code."""
    try:
        code = cli(standalone_mode=False)
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("vcs-runtime: interrupted; what was finished is kept", err=True)
        code = 130
    except VcsError as error:
        click.echo(f"vcs-runtime: {error}", err=True)
        code = 2
    except BrokenPipeError:
        # Who reads our output has gone (`| head`). Python would complain once more when it flushes at exit.
        sys.stderr.close()
        code = 1
    except OSError as error:
        click.echo(f"vcs-runtime: {error.filename or 'error'}: {error.strerror or error}", err=True)
        code = 2
    except Exception as error:
        click.echo(
            f"vcs-runtime: unexpected {type(error).__name__}: {error}: a defect of vcs-runtime; "
            "VCS_RUNTIME_DEBUG=1 shows where; what was finished is kept",
            err=True,
        )
        if os.environ.get("VCS_RUNTIME_DEBUG") == "1":
            traceback.print_exc()
        code = 3
    sys.exit(code)
