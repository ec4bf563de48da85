"""Help of every command: complete, in plain sentences, the same option for the same thing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from support.command_line import vcs
from vcs_runtime.cli import cli
from vcs_runtime.cli.options import ALL_OPTIONS

COLUMNS = 80
# Names that other commands give to the same thing: --overwrite, -o/--output.
OTHER_NAMES = {"--force", "--to", "--out"}


def walk(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            if subcommand:
                yield from walk(subcommand, (*path, name))


COMMANDS = [
    pytest.param(command, id=" ".join(path) or "vcs-runtime") for path, command in walk(cli)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_of_whole_phrases(command: click.Command) -> None:
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.help, option.opts
            assert option.help[-1] in ".])", option.help
            assert option.help[0].isupper() or not option.help[0].isalpha(), option.help


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_option_for_the_same_thing(command: click.Command) -> None:
    names = {name for option in command.params for name in option.opts}
    assert not names & OTHER_NAMES
    assert ("-o" in names) == ("--output" in names)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal(command: click.Command) -> None:
    assert command.help
    context = click.Context(command, terminal_width=COLUMNS, **cli.context_settings)
    context.meta[ALL_OPTIONS] = True
    lines = command.get_help(context).splitlines()
    assert not [line for line in lines if len(line) > COLUMNS or re.search(r"\bx[<>]", line)]
    if isinstance(command, click.Group):
        context = click.Context(command)
        names = command.list_commands(context)
        limit = COLUMNS - 2 - 6 - max(map(len, names))  # as click reckons
        for name in names:
            subcommand = command.get_command(context, name)
            assert subcommand
            assert not subcommand.get_short_help_str(limit).endswith("..."), subcommand.help


def test_every_command_is_listed_once_with_its_own_summary() -> None:
    lines = vcs("--help", COLUMNS=str(COLUMNS)).stdout.splitlines()
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command
        [line] = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.split(maxsplit=1)[1] == command.get_short_help_str(COLUMNS)
    assert max(map(len, lines)) <= COLUMNS


def test_sections_hold_every_option_of_a_command() -> None:
    context = click.Context(cli)
    for name in ("score", "explain", "report"):
        command = cli.get_command(context, name)
        assert command
        printed = vcs(name, "--help-all").stdout
        assert "\nScoring:\n" in printed
        usual = vcs(name, "--help").stdout
        assert usual.endswith(f"\nMore options: vcs-runtime {name} --help-all\n")
        for option in command.params:
            names = {other for other in option.opts if other.startswith("--")}
            assert names <= set(printed.split()), option.opts
            if names:
                assert names.isdisjoint(usual.split()) == getattr(option, "advanced", False), (
                    option.opts
                )
    assert "--help-all" not in vcs("demo", "--help").stdout
    assert vcs("demo", "--help-all").stdout == vcs("demo", "--help").stdout


@pytest.mark.parametrize(("path", "command"), [*walk(cli)])
def test_options_that_take_numbers_refuse_nan_and_infinity(
    path: tuple[str, ...], command: click.Command
) -> None:
    for option in command.params:
        # The type first: a command whose option took such a number would run.
        if isinstance(option.type, click.types.FloatParamType):
            for wrong in ("nan", "inf", "-inf"):
                with pytest.raises(click.BadParameter):
                    option.type.convert(wrong, option, None)
                done = vcs(*path, f"{option.opts[-1]}={wrong}")
                assert done.code == 2
                error = done.stderr.splitlines()[-1]
                assert error.startswith(f"Error: Invalid value for '{option.opts[-1]}'"), error
