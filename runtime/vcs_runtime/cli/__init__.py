"""The command line, `vcs-runtime`.

Exit codes: 0 all scored; 1 some pairs could not be scored; 2 wrong usage, unreadable input, or a
machine that lacks something; 3 a defect of this program; 130 interrupted; 141 the reader of the
output has gone. Errors are one line on standard error. With VCS_RUNTIME_DEBUG=1 in the environment,
the traceback of a defect follows.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import NoReturn

import click

from vcs_runtime._version import __version__
from vcs_runtime.cli.messages import VERBOSE, warn
from vcs_runtime.errors import VcsError
from vcs_runtime.util import process
from vcs_runtime.util.atomic import reason_of
from vcs_runtime.util.printable import printable

# The commands under the headings of `vcs-runtime --help`, with the package of their modules and
# summaries. A module is imported when its command runs, so that neither this help nor `score` waits
# for the imports of other commands. This package never imports the packages above it, so their
# commands are found by name.
_HERE, _EXPORT = "vcs_runtime.cli", "vcs_export.cli"
_EXPERIMENTS, _VISIL = "vcs_experiments.cli", "vcs_visil.cli"
_SECTIONS = {
    "Scoring": {
        "score": (_HERE, "Score generated texts against their references."),
        "explain": (_HERE, "Show what is missing, invented or moved in a text."),
        "report": (_HERE, "Write a report as HTML or PDF, or a picture."),
        "compare": (_HERE, "Compare systems by their score files."),
    },
    "Set-up": {
        "demo": (_HERE, "Score good and bad versions of a built-in story."),
        "fetch": (_EXPORT, "Download the default model, or build a faster one from it."),
        "doctor": (_HERE, "Check that this machine has everything for scoring."),
        "kit": (_EXPORT, "Gather everything for a machine without a network."),
        "warm-up": (_HERE, "Compile code in advance, for a faster first score."),
    },
    "Other models": {
        "bundle": (_HERE, "Inspect, verify, pack and combine bundles."),
        "export": (_EXPORT, "Build a bundle from a model's files."),
        "engine": (_EXPORT, "Build and check TensorRT engines of a bundle."),
    },
    "Experiments, servers and other languages": {
        "experiment": (_EXPERIMENTS, "Repeat the papers' experiments with your data."),
        "visil": (_VISIL, "Measure how much information a summary of a video loses."),
        "serve": (_HERE, "Serve scores over HTTP."),
        "triton": (_HERE, "Serve scores from NVIDIA's Triton server."),
        "capi": (_HERE, "Build the library for C, C++, Rust and Go."),
    },
}
_PACKAGES = {
    name: package for section in _SECTIONS.values() for name, (package, _) in section.items()
}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_PACKAGES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _PACKAGES:
            similar = get_close_matches(cmd_name, _PACKAGES, 1)
            if similar and not ctx.resilient_parsing:
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {similar[0]!r}?")
            return None
        name = cmd_name.replace("-", "_")
        with process.ends_when_interrupted():
            command: click.Command = getattr(import_module(f"{_PACKAGES[cmd_name]}.{name}"), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, _PACKAGES))
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), text) for name, (_, text) in commands.items()]
                )


def _cite(context: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(import_module("vcs_runtime.cli.citation").bibtex(), nl=False)
        context.exit()


def _set_verbose(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    context.meta[VERBOSE] = value


@click.group(
    cls=_Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "show_default": True,
    },
)
@click.version_option(__version__, prog_name="vcs-runtime")
@click.option(
    "--cite",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_cite,
    help="Show what to cite, as BibTeX, and exit.",
)
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    expose_value=False,
    callback=_set_verbose,
    help="Report which device runs the models of a command, and why.",
)
def cli() -> None:
    """Score how well a description tells the story of a video.

    The Video Comprehension Score (VCS) compares a generated text with a reference text: theme,
    content, and order of events. Scoring runs offline and without PyTorch.

    \b
    First steps:
      vcs-runtime fetch default
      vcs-runtime demo
      vcs-runtime score pairs.jsonl -o scores.jsonl

    \b
    The metric, and CLIP-CC-Bench, a benchmark of long descriptions:
      https://github.com/Multimodal-Intelligence-Lab/Video-Comprehension-Score
      https://arxiv.org/abs/2608.04302
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line, and end the process; an error becomes one line and an exit code."""
    process.is_command = True
    if sys.stdout is None:  # closed (`>&-`): what is printed must not seem to arrive
        nowhere = os.fdopen(os.open(os.devnull, os.O_RDONLY), "wb", 0)
        sys.stdout = io.TextIOWrapper(nowhere, write_through=True)
    _escape_unencodable()
    try:
        code = cli(arguments, prog_name="vcs-runtime", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        code = exit_.exit_code
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        click.echo(printable(message.getvalue(), keep="\n"), nl=False, err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        warn("interrupted; finished output is kept")
        code = 130
    except VcsError as error:
        warn(error)
        code = 2
    except BrokenPipeError:
        # The reader of the output has gone (`| head`). Python would report it again at exit.
        sys.stderr.close()
        code = 141  # as a shell reports the signal SIGPIPE
    except MemoryError as error:
        reason = f": {error}" if str(error) else ""
        warn(f"out of memory{reason}; finished output is kept")
        code = 2
    except OSError as error:
        name = "standard output" if error.errno == errno.EBADF else "error"
        warn(f"{error.filename or name}: {reason_of(error, error.filename)}")
        code = 2
    except SystemExit:
        if not type(sys.stdout).__name__.endswith("PacifyFlushWrapper"):
            raise
        code = 141  # click has seen that the reader has gone
    except BaseException as error:  # a panic of the tokenizer is one
        code = _unexpected(error)
    sys.exit(code)


def _escape_unencodable() -> None:
    """Let output streams escape characters that their encoding lacks: ids may hold any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and (
            stream.errors == "strict" or "utf" not in stream.encoding.lower()
        ):
            stream.reconfigure(errors="backslashreplace")


def _unexpected(error: BaseException) -> int:
    warn(
        f"unexpected {type(error).__name__}: {error}. This is a defect of vcs-runtime: please"
        " report it with the traceback, which VCS_RUNTIME_DEBUG=1 shows. Finished output is kept"
    )
    if os.environ.get("VCS_RUNTIME_DEBUG") == "1":
        traceback.print_exc()
    return 3
