"""Door: argument sets of every command, drawn from click's own tree; right, wrong, twisted, and of wrong kinds."""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from attack.cases import Attack, Door, Ground
from attack.checks import changed, complaints_about, run, snapshot
from attack.damage import NUMBERS, STRINGS
from support.command_line import vcs
from support.stories import story, write_pairs
from vcs_runtime.cli import cli
from vcs_runtime.serve.server import ScoreServer

# What argv can hold: no NUL, and of surrogates those that stand for bytes.
_WORDS = tuple(
    word.replace("\ud800", "\udcff").replace("\udfff", "\udc80") for word in STRINGS if "\0" not in word
)
_NUMBERS = (
    *tuple(map(repr, NUMBERS[:-6])),
    "10" * 20,
    "2147483648",
    "65535",
    "-2147483649",
    "1e300",
    "0.1.2",
)

# Options that write; the rest of the paths are read.
_WRITTEN = {"output", "cache", "plot", "record", "card", "folder"}
# What a lawful large number of these asks for would take hours, or all processors.
_COSTLY = {"resamples", "shuffles", "workers", "actors", "samples", "threads", "frames"}
# Commands that start pip, a compiler, or a network; they are drawn seldom.
_SLOW = {"fetch", "kit", "capi", "doctor", "warm-up", "demo", "triton", "engine", "experiment"}
# Good values of options that are plain texts, by their names.
_GOOD: dict[str, tuple[str, ...]] = {
    "bundle": ("in/bundle",), "embedder": ("in/bundle",), "segmenter": ("auto", "rules", "in/bundle"), "name": ("in/bundle",),
    "device": ("cpu",), "reference_key": ("reference", "note"), "generated_key": ("generated", "note"), "id_key": ("id",),
    "keep": ("note",), "clean": ("markdown", "think,list-numbers"), "baseline": ("scores", "a"), "names": ("a", "b"),
    "host": ("127.0.0.1",), "title": ("A title",), "extra": ("cpu",), "by": ("vcs",), "python": ("3.11",), "dated": ("today",),
    "vllm": ("http://127.0.0.1:9",), "sglang": ("http://127.0.0.1:9",), "stepping": ("http://127.0.0.1:9",), "model": ("m",),
    "address": ("127.0.0.1:9",), "judge": ("a=in/scores.jsonl",), "at": ("0.5", "1"), "shape": ("1x8",), "name_": ("a",),
    "output": ("out/scores.jsonl", "out/scores.csv", "out/new/", "out/report.html"),
}  # fmt: skip
_INPUTS = (
    "in/pairs.jsonl", "in/pairs.jsonl", "in/pairs.csv", "in/scores.jsonl", "in/scores.jsonl", "in/other.jsonl", "in/refs.json",
    "in/systems", "in/systems/a.json", "in/ref.txt", "in/gen.txt", "in/bundle", "in/packed.tar", "in/checkpoint", "in/items.jsonl",
    "in/table.csv",
)  # fmt: skip
_BAD_INPUTS = (
    "in/notes.txt", "in/empty", "in/nowhere", "in/", "in/pipe", "in/null", "in/zero", "in/loop", "in/pairs.jsonl/x", "-", ".",
    "in/bundle/bundle.json", "in/bundle/embedder/model.onnx", "in/\udcff", "in/" + "x" * 300,
)  # fmt: skip
_OUTPUTS = (
    "out/scores.jsonl", "out/scores.csv", "out/scores.parquet", "out/report.html", "out/report.pdf", "out/new", "out/new/deep/er",
    "out/packed.tar",
)  # fmt: skip
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


def _leaves(
    command: click.Command, path: tuple[str, ...], context: click.Context
) -> Iterator[tuple[tuple[str, ...], list[click.Parameter]]]:
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _leaves(found, (*path, name), click.Context(found, parent=context, info_name=name))
    else:
        yield path, command.params


def commands() -> dict[tuple[str, ...], list[click.Parameter]]:
    """Every command with its parameters, from the tree that the script runs."""
    return dict(_leaves(cli, (), click.Context(cli, info_name="vcs-runtime")))


def _furnish(template: Path, ground: Ground) -> None:
    """Fill the folder that every case gets a copy of."""
    inner = template / "in"
    (template / "out").mkdir(parents=True)
    (inner / "systems").mkdir(parents=True)
    rows = [
        {"id": f"v{i}", "reference": story(i, 2), "generated": story(50 + i, 2), "note": i} for i in range(3)
    ]
    write_pairs(inner / "pairs.jsonl", rows)
    (inner / "pairs.csv").write_text("id,reference,generated\na,A dog runs.,A man runs.\n")
    write_pairs(
        inner / "items.jsonl", [{"id": "v", "video": "v.mp4", "summaries": [{"name": "s", "text": story(3)}]}]
    )
    texts = [{row["id"]: row[key] for row in rows} for key in ("reference", "generated", "generated")]
    for name, found in zip(("refs.json", "systems/a.json", "systems/b.json"), texts, strict=True):
        (inner / name).write_text(str(found).replace("'", '"'))
    (inner / "ref.txt").write_text(story(1))
    (inner / "gen.txt").write_text(story(2))
    (inner / "notes.txt").write_text("what must not be lost")
    (inner / "empty").touch()
    shutil.copytree(ground.bundle, inner / "bundle")
    shutil.copytree(ground.bundle.parent / "checkpoint", inner / "checkpoint")
    for name in ("scores.jsonl", "other.jsonl", "table.csv"):
        assert vcs("score", inner / "pairs.jsonl", "-o", inner / name, *ground.engine).code == 0
    assert vcs("bundle", "pack", inner / "bundle", "-o", inner / "packed.tar").code == 0


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

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def _end_at_once(server: ScoreServer) -> None:
    server._listener.close()
    server._service.engine.close()


@contextmanager
def _open(ground: Ground) -> Iterator[Attack]:
    template = ground.folder / "arguments"
    _furnish(template, ground)
    found = commands()
    quick = [path for path in found if path[0] not in _SLOW and path[0] != "export"]
    here = os.getcwd()
    environment = {
        "VCS_RUNTIME_HOME": str(ground.folder / "home"),
        "PIP_NO_INDEX": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }

    def attack(rng: random.Random, folder: Path) -> list[str]:
        path = rng.choice(quick if rng.random() < 0.6 else list(found))
        shutil.copytree(template, folder, dirs_exist_ok=True)
        _add_specials(folder)
        os.chdir(folder)
        try:
            with _emptied(folder / "in/pipe"):
                return _case(rng, folder, path, found[path])
        finally:
            os.chdir(here)

    # A server that listens is another door; here it ends as soon as it begins.
    with patch.object(ScoreServer, "run", _end_at_once), patch.dict(os.environ, environment):
        yield attack


def _case(
    rng: random.Random, folder: Path, path: tuple[str, ...], parameters: list[click.Parameter]
) -> list[str]:
    drawn = Drawn(rng, parameters)
    arguments = [*path, *drawn.arguments]
    before = snapshot(folder)
    done = run(*arguments, stdin=b'{"reference": "A dog.", "generated": "A man."}\n')
    found = complaints_about(done, arguments)
    made = changed(before, snapshot(folder))
    if done.stderr.startswith("Usage: ") and made:
        found.append(f"wrong usage, and yet {made} changed: {arguments}")
    lawful = [os.path.normpath(name) for name in drawn.written if name]
    read = {os.path.normpath(name) for name in drawn.read}
    for name in made:
        if name in read and name not in ("in/null", "in/full"):
            found.append(f"{name} was read, and was changed: {arguments}: {done}")
        # What is "." may hold files of any name.
        if "." not in lawful and not any(
            name.startswith(output) or output.startswith(f"{name}/") for output in lawful
        ):
            found.append(f"{name} was changed, which is no output: {arguments}: {done}")
    return found


class Drawn:
    """Arguments for a command, with what they name to be written and read."""

    def __init__(self, rng: random.Random, parameters: list[click.Parameter]) -> None:
        self.rng = rng
        self.arguments: list[str] = []
        self.written: list[str] = []
        self.read: list[str] = []
        self.twist = rng.choice((0.0, 0.05, 0.2, 0.5))
        options = [p for p in parameters if isinstance(p, click.Option)]
        chosen = [p for p in options if p.required and rng.random() < 0.95]
        others = [p for p in options if p not in chosen and rng.random() < 0.97]
        chosen += rng.sample(others, min(len(others), rng.choice((0, 1, 2, 3, 4, 8))))
        # A bundle that is there is what most commands need.
        chosen += [p for p in options if p.name == "bundle" and p not in chosen and rng.random() < 0.95]
        chosen += [p for p in options if p.name == "output" and p not in chosen and rng.random() < 0.4]
        for option in chosen:
            for _ in range(rng.choice((1, 1, 1, 2)) if rng.random() < 0.3 else 1):
                self.arguments.append(rng.choice(option.opts))
                if not option.is_flag:
                    self.arguments.append(self._value(option))
        for argument in (p for p in parameters if isinstance(p, click.Argument)):
            for _ in range(
                rng.choice((0, 1, 1, 1, 1, 2, 3)) if argument.nargs == -1 else rng.choice((1,) * 19 + (0,))
            ):
                place = rng.choice((0, len(self.arguments)))
                self.arguments[place:place] = [self._value(argument)]
        if rng.random() < 0.03:
            self.arguments.insert(
                rng.randrange(len(self.arguments) + 1), rng.choice((*_WORDS, "--", "--help", "--nothing"))
            )

    def _value(self, parameter: click.Parameter) -> str:
        name = str(parameter.name)
        twisted = self.rng.random() < self.twist
        if name in _WRITTEN:
            found = self.rng.choice(_BAD_OUTPUTS if twisted else _GOOD.get(name, ()) + _OUTPUTS)
            self.written.append(found)
            return found
        if isinstance(parameter.type, click.Path) or (twisted and name in _GOOD and self.rng.random() < 0.5):
            found = self.rng.choice(_BAD_INPUTS if twisted else self._inputs(name))
            self.read.append(found)
            return found
        if twisted:
            return self._twisted(parameter)
        kind: Any = parameter.type
        if isinstance(kind, click.Choice):
            return str(self.rng.choice(kind.choices))
        if isinstance(kind, click.types.IntParamType):
            low = getattr(kind, "min", None)
            return str(int(low or 0) + self.rng.choice((0, 1, 1, 2)))
        if isinstance(kind, click.types.FloatParamType):
            low, high = getattr(kind, "min", None), getattr(kind, "max", None)
            return repr(
                (low or 0) + self.rng.choice((0.01, 0.1, 0.5)) * (1 if high is None else min(1, high))
            )
        return self.rng.choice(_GOOD.get(name, ("a", "b")))

    def _twisted(self, parameter: click.Parameter) -> str:
        if parameter.name in _COSTLY:
            return self.rng.choice(("0", "-1", "nan", "inf", "", "x", "1e300", "2147483648.5", "-9" * 9))
        return self.rng.choice((*_NUMBERS, *_WORDS) if self.rng.random() < 0.5 else _NUMBERS)

    def _inputs(self, name: str) -> tuple[str, ...]:
        fitting = {
            "references": ("in/refs.json", "in/ref.txt"), "reference_file": ("in/refs.json",), "generated": ("in/gen.txt",),
            "prediction_files": ("in/systems/a.json", "in/systems"), "predictions": ("in/systems",), "pairs": ("in/pairs.jsonl", "in/pairs.csv"),
            "files": ("in/scores.jsonl", "in/other.jsonl", "in/table.csv"), "sources": ("in/scores.jsonl", "in/pairs.jsonl"),
            "file": ("in/packed.tar",), "source": ("in/checkpoint",), "items": ("in/items.jsonl",), "texts": ("in/pairs.jsonl",),
        }  # fmt: skip
        return fitting.get(name, ()) * 4 + _INPUTS


ARGUMENTS = Door("arguments", 24, "argument sets of every command", _open)
