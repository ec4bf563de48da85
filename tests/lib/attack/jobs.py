"""Doors: jobs that are killed, disturbed, and meet each other or a full disk. Not a line is lost or doubled."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from attack.cases import Attack, Door, Ground, UnavailableError
from attack.checks import complaints_about
from attack.processes import Command, lines_in, wait_for_lines, warm_up
from support.stories import story, write_pairs
from vcs_runtime.scoring import preparation

# Jobs write small blocks here, so that a disturbance finds them between two of many.
PAIRS, _BLOCK_PAIRS = 700, 60
_PAUSE_S = 0.02
_FORMATS = ("scores.jsonl", "scores.jsonl", "scores.jsonl", "scores.csv", "scores.parquet")


@contextmanager
def _jobs(
    ground: Ground, attack: Callable[[random.Random, Path, Path, dict[str, bytes], Ground], list[str]]
) -> Iterator[Attack]:
    if not hasattr(os, "fork") or not Path("/proc/self/stat").exists():
        raise UnavailableError("needs fork and /proc")
    warm_up()
    template = ground.folder / f"jobs-{attack.__name__}"
    template.mkdir(parents=True)
    rows = [
        {"id": f"v{i}", "reference": story(i % 40, 1), "generated": story(100 + i % 60, 1) * (i % 9 > 0)}
        for i in range(PAIRS)
    ]
    write_pairs(template / "pairs.jsonl", rows)
    right = {}
    for name in dict.fromkeys(_FORMATS):
        # In a process of its own: a session of this one would not live in its forks.
        done = Command(
            template, ["score", template / "pairs.jsonl", "-o", template / name, *ground.engine], forked=False
        ).wait()
        assert done.code == 1, done
        right[name] = (template / name).read_bytes()

    def case(rng: random.Random, folder: Path) -> list[str]:
        return attack(rng, folder, template / "pairs.jsonl", right, ground)

    # A process that is not forked keeps its large blocks, and must write the same bytes.
    with patch.object(preparation, "BLOCK_PAIRS", _BLOCK_PAIRS):
        yield case


def _lines(output: Path) -> Path:
    """Where a job keeps its lines until a table is made of them."""
    return output if output.suffix == ".jsonl" else output.with_name(f"{output.name}.jsonl")


def python_was_starting(stderr: str) -> bool:
    """Return whether Ctrl-C came before the first line of the command's own `main`, and Python told of it."""
    return stderr.endswith("KeyboardInterrupt\n") and ", in main\n" not in stderr


def _kills(
    rng: random.Random, folder: Path, pairs: Path, right: dict[str, bytes], ground: Ground
) -> list[str]:
    """Kill a job at random moments, continue it each time, until it ends by itself."""
    output = folder / rng.choice(_FORMATS)
    lines = _lines(output)
    arguments = ["score", pairs, "-o", output, "--resume", *ground.engine]
    found: list[str] = []
    kept, done = b"", None
    for _ in range(rng.randint(1, 4)):
        real = rng.random() < 0.1
        command = Command(folder, list(arguments), forked=not real, pause_s=_PAUSE_S)
        if rng.random() < 0.6:
            wait_for_lines(command, lines, rng, PAIRS)
            time.sleep(rng.random() * 0.02)
        else:
            time.sleep(rng.random() * (1.5 if real else 0.3))
        signum = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
        command.send(signum)
        done = command.wait()
        if output.exists() and output != lines:
            break  # the table is there: the job was over
        if done.code not in (-signum, 130, 0, 1):
            found.append(f"signal {signum}: exit code {done.code}: {done.stderr[-400:]}")
        if "Traceback" in done.stderr and not (real and python_was_starting(done.stderr)):
            found.append(f"signal {signum}: {done.stderr[-800:]}")
        now = lines.read_bytes() if lines.exists() else b""
        whole = now[: now.rfind(b"\n") + 1]
        if not whole.startswith(kept):
            found.append(f"signal {signum} took back lines that were finished")
        kept = whole
    if output.suffix == ".jsonl" or not output.exists():
        done = Command(folder, list(arguments), forked=True).wait()
        found += complaints_about(done, arguments)
    if not output.exists() or output.read_bytes() != right[output.name]:
        found.append(f"the output differs from that of an undisturbed run: {done}")
    # One that is killed while it writes the table leaves that: a run of a day later removes it.
    partial = f".{output.name}.partial-" if output.suffix != ".jsonl" else "/"
    if left := sorted(
        path.name for path in folder.iterdir() if path != output and not path.name.startswith(partial)
    ):
        found.append(f"{left} left behind")
    return found


PRECIOUS = b"what must not be lost\n"


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def _replace(path: Path) -> None:
    path.with_name("other").write_bytes(PRECIOUS)
    path.with_name("other").replace(path)


_CHANGES: dict[str, Callable[[Path], object]] = {
    "remove": Path.unlink,
    "replace": _replace,
    "rename": lambda path: path.rename(path.with_name("elsewhere")),
    "truncate": lambda path: os.truncate(path, path.stat().st_size // 2),
    "append": lambda path: _append(path, PRECIOUS),
    "shrink input": lambda path: os.truncate(path, path.stat().st_size // 3),
    "grow input": lambda path: _append(
        path, b'{"id": "new", "reference": "A dog.", "generated": "A man."}\n'
    ),
}


def _disturbances(
    rng: random.Random, folder: Path, pairs: Path, right: dict[str, bytes], ground: Ground
) -> list[str]:
    """Change a file of a job that stands still, and let it go on: it must notice."""
    own_pairs = folder / "own.jsonl"
    shutil.copy(pairs, own_pairs)
    output = folder / "scores.jsonl"
    arguments = ["score", own_pairs, "-o", output, *ground.engine]
    command = Command(folder, list(arguments), forked=True, pause_s=_PAUSE_S)
    wait_for_lines(command, output, rng, PAIRS - 300)
    if not command.stop():
        return complaints_about(command.wait(), arguments)
    finished = lines_in(output)
    kind = rng.choice(list(_CHANGES))
    _CHANGES[kind](own_pairs if kind.endswith("input") else output)
    state = output.read_bytes() if output.exists() else None
    os.kill(command.pid, signal.SIGCONT)
    done = command.wait()
    found = complaints_about(done, arguments, codes=(0, 1, 2))
    if kind.endswith("input"):
        # What is read already cannot change; a job that ends has a line for each pair that it counted.
        if done.code != 2 and output.read_bytes() != right["scores.jsonl"]:
            found.append(f"{kind}: exit code {done.code}, and other lines than before: {done.stderr[-300:]}")
    elif finished < PAIRS:
        if done.code != 2:
            found.append(
                f"{kind} after {finished} lines: exit code {done.code}, so {PAIRS - finished} lines are lost: {done.stderr[-300:]}"
            )
        left = output.read_bytes() if output.exists() else None
        if left != state:
            found.append(f"{kind}: the job has changed the file of another: {left and left[:80]!r}")
    return found


def _writers(
    rng: random.Random, folder: Path, pairs: Path, right: dict[str, bytes], ground: Ground
) -> list[str]:
    """Several processes write one output, or one folder: one wins, the others are refused, or all agree."""
    output = folder / rng.choice(_FORMATS)
    arguments: list[object] = ["score", pairs, "-o", output, *ground.engine]
    arguments += rng.choice(([], ["--resume"], ["--cache", folder / "cache"]))
    commands = []
    for _ in range(rng.choice((2, 2, 3))):
        commands.append(Command(folder, list(arguments), forked=rng.random() < 0.9, pause_s=_PAUSE_S))
        time.sleep(rng.random() * rng.choice((0.0, 0.3)))
    results = [command.wait() for command in commands]
    found = [each for done in results for each in complaints_about(done, arguments)]
    if not any(done.code == 1 for done in results):
        found.append(f"nobody finished: {results}")
    if not output.exists() or output.read_bytes() != right[output.name]:
        found.append(f"the output differs from that of one run: {results}")
    refused = [done.stderr for done in results if done.code == 2]
    if wrong := [said for said in refused if output.name not in said]:
        found.append(f"refused without the name of the file: {wrong}")
    if late := [said for said in refused if "another program has changed it" in said]:
        found.append(f"refused only after it had written: {late}")
    return found


def _specials(
    rng: random.Random, folder: Path, pairs: Path, right: dict[str, bytes], ground: Ground
) -> list[str]:
    """Inputs and outputs that are no files: pipes with and without an end, devices, folders, files without rights."""
    pipe, nothing = folder / "pipe", folder / "nothing"
    os.mkfifo(pipe)
    nothing.mkdir()
    kind = rng.choice(("input pipe", "output pipe", "full", "null", "folder", "gone reader"))
    engine = list(ground.engine)
    if kind == "input pipe":
        command = Command(folder, ["score", pipe, "-o", folder / "s.jsonl", *engine], forked=True)
        done, codes = command.wait(), (2,)
    elif kind == "output pipe":
        command = Command(folder, ["score", pairs, "-o", pipe, *engine], forked=True)
        if rng.random() < 0.5:
            content = pipe.read_bytes()
            done, codes = command.wait(), (1,)
            if content != right["scores.jsonl"]:
                return [f"a pipe got {len(content)} bytes of {len(right['scores.jsonl'])}"]
        else:
            with pipe.open("rb") as file:
                file.read(100)
            done, codes = command.wait(), (1, 2)
    elif kind in ("full", "null"):
        command = Command(folder, ["score", pairs, "-o", f"/dev/{kind}", *engine], forked=True)
        done, codes = command.wait(), (2,) if kind == "full" else (1,)
    elif kind == "folder":
        command = Command(folder, ["score", pairs, "-o", nothing / "x" / "s.jsonl", *engine], forked=True)
        done, codes = command.wait(), (2,)
    else:
        command = Command(folder, ["explain", pairs, *engine], forked=True)
        done, codes = command.wait(), (1,)
    return complaints_about(done, [kind], codes=codes)


def _full_disks(
    rng: random.Random, folder: Path, pairs: Path, right: dict[str, bytes], ground: Ground
) -> list[str]:
    """A job on a disk that fills up, then has room: whole lines stay, and the rest follows."""
    disk = folder / "disk"
    disk.mkdir()
    name = rng.choice(_FORMATS)
    need = len(right[name]) + (len(right["scores.jsonl"]) if name != "scores.jsonl" else 0)
    size = rng.randrange(4096, need + 20_000)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=True)
    try:
        output = disk / name
        arguments = ["score", pairs, "-o", output, "--resume", *ground.engine]
        done = Command(folder, list(arguments), forked=True).wait()
        found = complaints_about(done, arguments)
        if done.code == 2:
            kept = _lines(output).read_bytes() if _lines(output).exists() else b""
            if "No space left" not in done.stderr or name not in done.stderr:
                found.append(f"the error does not say it: {done.stderr}")
            if not kept.endswith(b"\n"[: len(kept)]) or not right["scores.jsonl"].startswith(kept):
                found.append(f"{len(kept)} bytes are no whole lines of the job")
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            done = Command(folder, list(arguments), forked=True).wait()
            found += complaints_about(done, arguments)
        if not output.exists() or output.read_bytes() != right[name]:
            found.append(f"the output differs from that of an undisturbed run: {done}")
        if left := sorted(path.name for path in disk.iterdir() if path != output):
            found.append(f"{left} left behind")
        return found
    finally:
        subprocess.run(["umount", disk], check=True)


@contextmanager
def _open_disk(ground: Ground) -> Iterator[Attack]:
    if sys.platform != "linux" or os.environ.get("ATTACK_MAY_MOUNT") != "1":
        raise UnavailableError("this system lets nobody mount a disk of their own")
    with _jobs(ground, _full_disks) as attack:
        yield attack


KILLS = Door(
    "kills", 14, "jobs killed at random moments, and continued", lambda ground: _jobs(ground, _kills)
)
DISTURBANCES = Door(
    "disturbances", 5, "outputs and inputs changed under a job", lambda ground: _jobs(ground, _disturbances)
)
WRITERS = Door("writers", 5, "several processes, one output", lambda ground: _jobs(ground, _writers))
SPECIALS = Door(
    "specials", 2, "pipes, devices and folders in place of files", lambda ground: _jobs(ground, _specials)
)
DISK = Door("disk", 5, "a tmpfs that fills up, then has room", _open_disk)
