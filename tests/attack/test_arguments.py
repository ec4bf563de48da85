"""Argument sets of every command, drawn from click's tree: right, wrong, twisted."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, changed, fails, run, snapshot
from attack.drawn import NUMBERS, STRINGS, cases, chance, for_argv
from vcs_runtime.cli import cli
from vcs_runtime.serve.server import ScoreServer

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")

_WORDS = [*map(for_argv, STRINGS)]
_NUMBERS = [
    *map(repr, NUMBERS[:-6]),
    "10" * 20,
    "2147483648",
    "65535",
    "-2147483649",
    "1e300",
    "0.1.2",
]
# Options that write; the rest of the paths are read.
_WRITTEN = {"output", "cache", "plot", "record", "card", "folder"}
# What a lawful large number of these asks for would take hours, or all processors.
_COSTLY = {"resamples", "shuffles", "workers", "actors", "samples", "threads", "frames"}
_COSTLY_NUMBERS = ("0", "-1", "nan", "inf", "", "x", "1e300", "2147483648.5", "-9" * 9)
# Commands that start pip, a compiler, or a network; they are drawn seldom.
_SLOW = set("fetch kit capi doctor warm-up demo triton engine experiment export".split())
# Good values of options that are plain texts, by their names.
_GOOD: dict[str, tuple[str, ...]] = {
    "bundle": ("in/bundle",),
    "embedder": ("in/bundle",),
    "segmenter": ("auto", "rules", "in/bundle"),
    "name": ("in/bundle",),
    "device": ("cpu",),
    "reference_key": ("reference", "note"),
    "generated_key": ("generated", "note"),
    "id_key": ("id",),
    "keep": ("note",),
    "clean": ("markdown", "think,list-numbers"),
    "baseline": ("scores", "a"),
    "names": ("a", "b"),
    "host": ("127.0.0.1",),
    "title": ("A title",),
    "extra": ("cpu",),
    "by": ("vcs",),
    "python": ("3.11",),
    "dated": ("today",),
    "vllm": ("http://127.0.0.1:9",),
    "sglang": ("http://127.0.0.1:9",),
    "stepping": ("http://127.0.0.1:9",),
    "model": ("m",),
    "address": ("127.0.0.1:9",),
    "judge": ("a=in/scores.jsonl",),
    "at": ("0.5", "1"),
    "shape": ("1x8",),
    "name_": ("a",),
    "output": ("out/scores.jsonl", "out/scores.csv", "out/new/", "out/report.html"),
    "params": ("in/params.toml",),
}
# Good files of options and arguments, by their names.
_FITTING: dict[str, tuple[str, ...]] = {
    "references": ("in/references.json", "in/ref.txt"),
    "reference_files": ("in/references.json",),
    "generated": ("in/gen.txt",),
    "prediction_files": ("in/systems/a.json", "in/systems"),
    "predictions": ("in/systems",),
    "pairs": ("in/pairs.jsonl", "in/pairs.csv"),
    "files": ("in/scores.jsonl", "in/other.jsonl", "in/scores.csv"),
    "sources": ("in/scores.jsonl", "in/pairs.jsonl"),
    "file": ("in/packed.tar",),
    "source": ("in/checkpoint",),
    "items": ("in/items.jsonl",),
    "texts": ("in/pairs.jsonl",),
    "params": ("in/params.toml",),
}
_INPUTS = (
    "in/pairs.jsonl in/pairs.jsonl in/pairs.csv in/scores.jsonl in/scores.jsonl"
    " in/other.jsonl in/references.json in/systems in/systems/a.json in/ref.txt"
    " in/gen.txt in/bundle in/packed.tar in/checkpoint in/items.jsonl in/scores.csv"
).split()
_BAD_INPUTS = (
    "in/notes.txt",
    "in/empty",
    "in/nowhere",
    "in/",
    "in/pipe",
    "in/null",
    "in/zero",
    "in/loop",
    "in/pairs.jsonl/x",
    "-",
    ".",
    "in/bundle/bundle.json",
    "in/bundle/embedder/model.onnx",
    "in/\udcff",
    "in/" + "x" * 300,
)
_OUTPUTS = (
    "out/scores.jsonl out/scores.csv out/scores.parquet out/report.html out/report.pdf"
    " out/new out/new/deep/er out/packed.tar"
).split()
_BAD_OUTPUTS = (
    *_INPUTS,
    "in/notes.txt",
    "in/empty",
    "in/pairs.jsonl/x",
    "in/loop",
    "in/null",
    "in/full",
    ".",
    "",
    "out/\udcff.html",
    "x" * 300,
)


class Arguments(NamedTuple):
    """Arguments of a command, with what they name to be written and read."""

    words: list[str]
    written: list[str]
    read: list[str]


def _leaves(
    command: click.Command, context: click.Context
) -> Iterator[tuple[tuple[str, ...], list[click.Parameter]]]:
    if not isinstance(command, click.Group):
        yield (), command.params
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        for path, parameters in _leaves(
            inner, click.Context(inner, parent=context, info_name=name)
        ):
            yield (name, *path), parameters


COMMANDS = dict(_leaves(cli, click.Context(cli, info_name="vcs-runtime")))
_QUICK = [path for path in COMMANDS if path[0] not in _SLOW]


@st.composite
def argument_sets(draw: st.DrawFn) -> Arguments:
    """Arguments of one command, most of which may be right."""
    path = draw(st.sampled_from(_QUICK if chance(draw, 60) else list(COMMANDS)))
    drawn = Arguments([], [], [])
    twist = draw(st.sampled_from((0, 5, 20, 50)))
    options = [p for p in COMMANDS[path] if isinstance(p, click.Option)]
    # Required ones and a bundle are what most commands need.
    likely = {"bundle": 95, "output": 40}
    chosen = [p for p in options if chance(draw, 95 if p.required else likely.get(str(p.name), 0))]
    rest = [p for p in options if p not in chosen]
    if rest:
        chosen += draw(
            st.lists(
                st.sampled_from(rest),
                unique=True,
                max_size=draw(st.sampled_from((0, 1, 2, 3, 4, 8))),
            )
        )
    for option in chosen:
        for _ in range(2 if chance(draw, 8) else 1):
            drawn.words.append(draw(st.sampled_from(option.opts)))
            if not option.is_flag:
                drawn.words.append(_value(draw, option, twist, drawn))
    for argument in (p for p in COMMANDS[path] if isinstance(p, click.Argument)):
        several = (0, 1, 1, 1, 1, 2, 3) if argument.nargs == -1 else (1,) * 19 + (0,)
        for _ in range(draw(st.sampled_from(several))):
            place = draw(st.sampled_from((0, len(drawn.words))))
            drawn.words.insert(place, _value(draw, argument, twist, drawn))
    if chance(draw, 3):
        place = draw(st.integers(0, len(drawn.words)))
        drawn.words.insert(place, draw(st.sampled_from((*_WORDS, "--", "--help", "--nothing"))))
    drawn.words[:0] = path
    return drawn


def _value(draw: st.DrawFn, parameter: click.Parameter, twist: int, drawn: Arguments) -> str:
    name, kind = str(parameter.name), parameter.type
    twisted = chance(draw, twist)
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    if name in _WRITTEN:
        value = draw(
            st.sampled_from(_BAD_OUTPUTS if twisted else (*_GOOD.get(name, ()), *_OUTPUTS))
        )
        drawn.written.append(value)
    elif isinstance(kind, click.Path) or (twisted and name in _GOOD and draw(st.booleans())):
        value = draw(
            st.sampled_from(_BAD_INPUTS if twisted else (*_FITTING.get(name, ()) * 4, *_INPUTS))
        )
        drawn.read.append(value)
    elif twisted:
        numbers: Sequence[str] = _COSTLY_NUMBERS if name in _COSTLY else _NUMBERS
        value = draw(st.sampled_from(numbers if name in _COSTLY or draw(st.booleans()) else _WORDS))
    elif isinstance(kind, click.Choice):
        value = str(draw(st.sampled_from(kind.choices)))
    elif isinstance(kind, click.types.IntParamType):
        value = str(int(low or 0) + draw(st.sampled_from((0, 1, 1, 2))))
    elif isinstance(kind, click.types.FloatParamType):
        value = repr(
            (low or 0)
            + draw(st.sampled_from((0.01, 0.1, 0.5))) * (1 if high is None else min(1, high))
        )
    else:
        value = draw(st.sampled_from(_GOOD.get(name, ("a", "b"))))
    return value


def _add_specials(folder: Path) -> None:
    """Add what cannot be copied: a pipe, a link to itself, devices where one may make them."""
    os.mkfifo(folder / "in/pipe")
    (folder / "in/loop").symlink_to("loop")
    for name, minor in (("null", 3), ("zero", 5), ("full", 7)):
        try:
            # Nodes of their own: a command that replaced one would replace nobody else's.
            os.mknod(folder / "in" / name, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
        except PermissionError:
            (folder / "in" / name).touch()


@contextmanager
def _emptied(pipe: Path) -> Iterator[None]:
    """Let whoever reads a pipe find it empty: without a writer, a reader waits."""
    ended = threading.Event()

    def write() -> None:
        while not ended.wait(0.001):
            with suppress(OSError):  # nobody reads, or the pipe is there no more
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write)
        try:
            yield
        finally:
            ended.set()


def _end_at_once(server: ScoreServer) -> None:
    """Stand in for a server that listens, which other tests attack."""
    server._listener.close()
    server._service.engine.close()


def check(files: Path, drawn: Arguments) -> None:
    """Run a command; wrong usage changes nothing, and no file changes that is not an output."""
    with case_folder(files, "in") as folder:
        (folder / "out").mkdir()
        _add_specials(folder)
        home = {
            "VCS_RUNTIME_HOME": str(files.parent / "home"),
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        serve = patch.object(ScoreServer, "run", _end_at_once)
        before = snapshot(folder)
        with chdir(folder), _emptied(folder / "in/pipe"), serve, patch.dict(os.environ, home):
            done = run(*drawn.words, stdin=b'{"reference": "A dog.", "generated": "A man."}\n')
        made = changed(before, folder)
        assert not (made and done.stderr.startswith("Usage: ")), done
        lawful = [os.path.normpath(name) for name in drawn.written if name]
        read = {os.path.normpath(name) for name in drawn.read} - {"in/null", "in/full"}
        assert not read.intersection(made), done
        for name in made:
            # What is "." may hold files of any name.
            of_outputs = any(
                name.startswith(output) or output.startswith(f"{name}/") for output in lawful
            )
            assert of_outputs or "." in lawful, f"{name} was changed, which is no output: {done}"


@cases(40)
@given(drawn=argument_sets())
def test_any_arguments_end_in_a_documented_way_and_change_no_other_file(
    files: Path, drawn: Arguments
) -> None:
    check(files, drawn)


def test_a_traceback_is_seen(files: Path, plant: Any) -> None:
    plant("vcs_runtime.cli.compare.compare_files", fails)
    with pytest.raises(AssertionError, match="wrong exit code"):
        check(files, Arguments("compare in/scores.jsonl in/other.jsonl".split(), [], []))


def test_a_stray_file_is_seen(files: Path, plant: Any) -> None:
    def make(right: Any) -> Any:
        return lambda *arguments, **options: (Path("stray").touch(), right(*arguments, **options))[
            1
        ]

    plant("vcs_runtime.cli.score.is_text_pair", make)
    with pytest.raises(AssertionError, match="which is no output"):
        check(
            files,
            Arguments("score in/pairs.jsonl --bundle in/bundle".split(), [], ["in/pairs.jsonl"]),
        )
