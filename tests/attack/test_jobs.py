"""Jobs that are killed, disturbed, or meet each other or a full disk lose and double no line."""

from __future__ import annotations

import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attack.checks import case_folder, check_end, does_nothing
from attack.drawn import cases
from attack.processes import Command, as_itself
from support.command_line import Finished
from support.stories import story, write_pairs
from vcs_runtime.jobs.output import OutputFile
from vcs_runtime.scoring import preparation

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    pytest.mark.filterwarnings(
        "ignore:.*fork.*:DeprecationWarning"
    ),  # beside threads, such as pytest-xdist's
]

# Jobs write small blocks here, so that a disturbance finds them between two of many.
PAIRS, BLOCK_PAIRS, PAUSE_S = 700, 60, 0.02
FORMATS = ("scores.jsonl", "scores.jsonl", "scores.jsonl", "scores.csv", "scores.parquet")
PRECIOUS = b"what must not be lost\n"
#: Moments are drawn from these, so that a seed repeats the case as far as moments can be repeated.
MOMENTS = st.randoms(use_true_random=True)


class Job(NamedTuple):
    """A file of pairs, what scores it, and the bytes of an undisturbed run in each format."""

    pairs: Path
    engine: tuple[str, ...]
    right: dict[str, bytes]

    def run(
        self, folder: Path, output: Path, *more: object, pairs: Path | None = None, **how: Any
    ) -> Command:
        return Command(
            folder, "score", pairs or self.pairs, "-o", output, *self.engine, *more, **how
        )

    def check(self, output: Path, done: object) -> None:
        assert output.exists(), f"no output: {done}"
        same = output.read_bytes() == self.right[output.name]
        assert same, f"the output differs from that of an undisturbed run: {done}"


@pytest.fixture(scope="module")
def job(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("jobs")
    # Once here, and not in each fork. No session is opened, which a fork could not use.
    for name in (
        "onnxruntime",
        "tokenizers",
        "sentencex",
        "pyarrow.parquet",
        "vcs_runtime.cli.score",
        "vcs_runtime.cli.explain",
    ):
        importlib.import_module(name)
    rows = [
        {
            "id": f"v{i}",
            "reference": story(i % 40, 1),
            "generated": story(100 + i % 60, 1) * (i % 9 > 0),
        }
        for i in range(PAIRS)
    ]
    write_pairs(folder / "pairs.jsonl", rows)
    made = Job(folder / "pairs.jsonl", ("--bundle", str(tiny_bundle), "--device", "cpu"), {})
    for name in dict.fromkeys(FORMATS):
        done = made.run(folder, folder / name, work=as_itself).wait()
        assert done.code == 1, done
        made.right[name] = (folder / name).read_bytes()
    # A real process keeps its large blocks, and must write the same bytes.
    with patch.object(preparation, "BLOCK_PAIRS", BLOCK_PAIRS):
        yield made


def content_of(path: Path) -> bytes | None:
    with suppress(OSError):
        return path.read_bytes()
    return None


def wait_for_lines(command: Command, path: Path, count: int) -> None:
    """Wait until the output has some lines, or the command has ended."""
    command.rest(lambda: (content_of(path) or b"").count(b"\n") >= count)


def lines_of(output: Path) -> Path:
    """Where a job keeps its lines until a table is made of them."""
    return output if output.suffix == ".jsonl" else output.with_name(f"{output.name}.jsonl")


def python_was_starting(stderr: str) -> bool:
    """Return whether Ctrl-C came before the first line of the command's `main`."""
    return stderr.endswith("KeyboardInterrupt\n") and ", in main\n" not in stderr


def check_killed(done: Finished, signum: int, *, real: bool) -> None:
    assert done.code in (
        -signum,
        130,
        0,
        1,
    ), f"signal {signum}: exit code {done.code}: {done.stderr[-400:]}"
    if not (real and python_was_starting(done.stderr)):
        assert "Traceback" not in done.stderr, f"signal {signum}: {done.stderr[-800:]}"


def kill(job: Job, rng: random.Random) -> None:
    """Kill a job at random moments, continue it each time, until it ends by itself."""
    with case_folder() as folder:
        output = folder / rng.choice(FORMATS)
        lines, kept, done = lines_of(output), b"", None
        for _ in range(rng.randint(1, 4)):
            real = rng.random() < 0.1
            command = job.run(
                folder, output, "--resume", pause_s=PAUSE_S, **({"work": as_itself} if real else {})
            )
            if rng.random() < 0.6:
                wait_for_lines(command, lines, rng.randint(1, PAIRS))
                time.sleep(rng.random() * 0.02)
            else:
                time.sleep(rng.random() * (1.5 if real else 0.3))
            signum = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT))
            command.send(signum)
            done = command.wait()
            if output.exists() and output != lines:
                break  # the table is there: the job was over
            check_killed(done, signum, real=real)
            now = content_of(lines) or b""
            whole = now[: now.rfind(b"\n") + 1]
            assert whole.startswith(kept), f"signal {signum} took back lines that were finished"
            kept = whole
        if output.suffix == ".jsonl" or not output.exists():
            done = job.run(folder, output, "--resume").wait()
            check_end(done)
        job.check(output, done)
        # One that is killed while it writes the table leaves that: a run of a day later removes it.
        partial = f".{output.name}.partial-" if output.suffix != ".jsonl" else "/"
        left = [
            path.name
            for path in folder.iterdir()
            if path != output and not path.name.startswith(partial)
        ]
        assert not left, f"{left} left behind"


def write(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


CHANGES: dict[str, Callable[[Path], object]] = {
    "remove": Path.unlink,
    "replace": lambda path: (
        write(path.with_name("other"), PRECIOUS),
        path.with_name("other").replace(path),
    ),
    "rename": lambda path: path.rename(path.with_name("elsewhere")),
    "truncate": lambda path: os.truncate(path, path.stat().st_size // 2),
    "append": lambda path: write(path, PRECIOUS),
    "shrink input": lambda path: os.truncate(path, path.stat().st_size // 3),
    "grow input": lambda path: write(
        path, b'{"id": "new", "reference": "A dog.", "generated": "A man."}\n'
    ),
}


def disturb(job: Job, rng: random.Random, kind: str) -> None:
    """Change a file of a job that stands still, and let it go on: it must notice."""
    with case_folder() as folder:
        pairs, output = folder / "own.jsonl", folder / "scores.jsonl"
        shutil.copy(job.pairs, pairs)
        command = job.run(folder, output, pairs=pairs, pause_s=PAUSE_S)
        wait_for_lines(command, output, rng.randint(1, PAIRS - 300))
        if not command.stop():
            check_end(command.wait())
            return
        finished = (content_of(output) or b"").count(b"\n")
        CHANGES[kind](pairs if kind.endswith("input") else output)
        state = content_of(output)
        os.kill(command.pid, signal.SIGCONT)
        done = command.wait()
        check_end(done)
        if kind.endswith("input"):
            # Pairs that were read cannot change; a finished job has a line for each.
            if done.code != 2:
                job.check(output, done)
        elif finished < PAIRS:
            assert done.code == 2, (
                f"{kind} after {finished} lines: exit code {done.code}, so lines are lost:"
                f" {done.stderr}"
            )
            assert content_of(output) == state, f"{kind}: the job has changed the file of another"


def write_together(job: Job, rng: random.Random) -> None:
    """Let several processes write one output or folder: one wins, or all agree."""
    with case_folder() as folder:
        output = folder / rng.choice(FORMATS)
        more: Iterable[object] = rng.choice(((), ("--resume",), ("--cache", folder / "cache")))
        commands = []
        for _ in range(rng.choice((2, 2, 3))):
            how = {"work": as_itself} if rng.random() < 0.1 else {}
            commands.append(job.run(folder, output, *more, pause_s=PAUSE_S, **how))
            time.sleep(rng.random() * rng.choice((0.0, 0.3)))
        results = [command.wait() for command in commands]
        for done in results:
            check_end(done)
            if done.code == 2:
                assert output.name in done.stderr, f"refused without the name of the file: {done}"
                assert "another program has changed it" not in done.stderr, (
                    f"refused only after it had written: {done}"
                )
        assert any(done.code == 1 for done in results), f"nobody finished: {results}"
        job.check(output, results)


def use_special(job: Job, kind: str, *codes: int) -> None:
    """Use what is no file as input or output: pipes with and without an end, devices, folders."""
    with case_folder() as folder:
        pipe = folder / "pipe"
        os.mkfifo(pipe)
        if kind == "explain":
            done = Command(folder, "explain", job.pairs, *job.engine).wait()
        elif kind == "input pipe":
            done = job.run(folder, folder / "s.jsonl", pairs=pipe).wait()
        elif kind.endswith("reader"):
            command = job.run(folder, pipe)
            with pipe.open("rb") as file:
                content = file.read(100 if kind == "leaving reader" else -1)
            done = command.wait()
            assert job.right["scores.jsonl"].startswith(content)
            assert kind == "leaving reader" or len(content) == len(job.right["scores.jsonl"])
        else:
            done = job.run(folder, folder / kind).wait()
        check_end(done, codes)


PROGRAM = "import sys; from vcs_runtime.__main__ import main; sys.exit(main())"
# $0 is the size of the disk, the rest is the command; both outputs are kept.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size="$0" none disk || exit 70
"$@"; code=$?
cp -r disk first
if [ $code = 2 ]; then mount -o remount,size=64m disk && "$@"; fi
cp -r disk second
exit $code
"""


def fill_disk(job: Job, name: str, size: int, program: str = PROGRAM) -> None:
    """Run a job on a disk that fills up, then has room: whole lines stay, and the rest follows."""
    with case_folder() as folder:
        (folder / "disk").mkdir()
        score = [
            sys.executable,
            "-c",
            program,
            "score",
            job.pairs,
            "-o",
            f"disk/{name}",
            "--resume",
            *job.engine,
        ]
        command = ["unshare", "-rm", "sh", "-c", ON_A_SMALL_DISK, str(size), *map(str, score)]
        ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        first, second = folder / "first" / name, folder / "second" / name
        failures = [line for line in ended.stderr.splitlines() if "No space left" in line]
        if ended.returncode == 2:
            kept = content_of(lines_of(first)) or b""
            assert len(failures) == 1, ended.stderr
            assert name in failures[0]
            assert kept.endswith(b"\n"[: len(kept)]), "no whole lines"
            assert job.right["scores.jsonl"].startswith(kept), "no lines of the job"
        check_end(Finished(1 if failures else ended.returncode, ended.stdout, ended.stderr))
        job.check(second, ended)
        assert [path.name for path in second.parent.iterdir()] == [name], "something is left behind"


@cases(3, repeatable=False)
@given(rng=MOMENTS)
def test_a_killed_job_is_continued_to_the_same_bytes(job: Job, rng: random.Random) -> None:
    kill(job, rng)


@cases(4, repeatable=False)
@given(rng=MOMENTS, kind=st.sampled_from(list(CHANGES)))
def test_a_disturbed_job_notices_and_loses_nothing(job: Job, rng: random.Random, kind: str) -> None:
    disturb(job, rng, kind)


@cases(2, repeatable=False)
@given(rng=MOMENTS)
def test_several_jobs_leave_one_whole_output(job: Job, rng: random.Random) -> None:
    write_together(job, rng)


SPECIALS = [
    ("input pipe", 2),
    ("reader", 1),
    ("leaving reader", 1, 2),
    ("explain", 1),
    ("nothing/s.jsonl", 2),
    ("/dev/full", 2),
    ("/dev/null", 1),
]


@pytest.mark.parametrize("special", SPECIALS, ids=str)
def test_what_is_no_file_is_used_or_refused(job: Job, special: tuple[Any, ...]) -> None:
    use_special(job, *special)


@pytest.fixture
def may_mount() -> None:
    unshare = ["unshare", "-rm", "true"]
    if (
        sys.platform != "linux"
        or subprocess.run(unshare, check=False, capture_output=True).returncode
    ):
        pytest.skip("this system lets nobody mount a disk of their own")


@cases(1, repeatable=False)
@given(name=st.sampled_from(FORMATS), size=st.integers(4096, 350_000))
def test_a_full_disk_loses_nothing(may_mount: None, job: Job, name: str, size: int) -> None:
    fill_disk(job, name, size)


def without_the_last(append: Any) -> Any:
    def lossy(self: OutputFile, records: Iterable[Any]) -> None:
        listed = list(records)
        append(self, listed[: -1 if len(listed) > 1 else None])

    return lossy


@pytest.mark.parametrize(
    ("target", "make", "attack", "says"),
    [
        ("OutputFile.append", without_the_last, kill, "differs from|exit code 2"),
        (
            "OutputFile.check",
            does_nothing,
            partial(disturb, kind="append"),
            "lines are lost|file of another",
        ),
        ("_lock", does_nothing, write_together, "refused only after|differs from"),
        (
            "OutputFile._write",
            does_nothing,
            lambda job, rng: use_special(job, "/dev/full", 2),
            "wrong exit code",
        ),
    ],
)
def test_a_defect_is_seen(
    job: Job, plant: Any, target: str, make: Any, attack: Any, says: str
) -> None:
    def attack_often() -> None:
        for number in range(50):
            attack(job, random.Random(number))

    plant(f"vcs_runtime.jobs.output.{target}", make)
    with pytest.raises(AssertionError, match=says):
        attack_often()


def test_a_write_that_a_full_disk_ends_is_not_taken_for_a_success(
    may_mount: None, job: Job
) -> None:
    planted = (
        "from vcs_runtime.jobs.output import OutputFile; OutputFile._write = lambda *arguments:"
        " None; "
    )
    with pytest.raises(AssertionError, match="no output|differs from that of an undisturbed run"):
        fill_disk(job, "scores.jsonl", 8192, planted + PROGRAM)
