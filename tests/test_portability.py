"""Windows and macOS: a process without what only POSIX has scores and resumes all the same."""

from __future__ import annotations

import json
from pathlib import Path

from support.processes import run_python
from support.stories import read_lines, story, write_pairs
from support.waiting import HANGS_AFTER_S

MODULES = "crypt fcntl grp nis ossaudiodev pty pwd resource spwd syslog termios tty".split()
# What the documentation of `os` and `signal` gives an availability for that leaves Windows out;
# names that start with O_ stay, since Python's own modules need them.
NAMES = {
    "os": (
        (
            "EX_OK chown chroot confstr copy_file_range eventfd fchdir fchown fdatasync fork"
            " forkpty fpathconf fstatvfs getegid geteuid getgid getgrouplist getgroups getloadavg"
            " getpgid getpgrp getpriority getresuid getsid getuid getxattr killpg lchown listxattr"
            " lockf memfd_create mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise"
            " posix_fallocate posix_spawn posix_spawnp pread preadv pwrite pwritev readv"
            " register_at_fork sched_getaffinity sched_setaffinity sched_yield sendfile setgid"
            " setpgid setpriority setsid setuid setxattr splice statvfs sync sysconf ttyname uname"
            " wait wait3 wait4 waitid waitstatus_to_exitcode writev"
        ).split()
    ),
    "signal": (
        (
            "ITIMER_REAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP"
            " SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH alarm getitimer pause pthread_kill pthread_sigmask"
            " setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo"
        ).split()
    ),
}

# Libraries are imported before anything is taken away: only our own code is to do without it.
BARE_MACHINE = """
import json, os, signal, sys, types
import click, msgspec, numba, numba.core.caching, numpy, onnxruntime, platformdirs, \
rich.progress, rich.table, tokenizers
from numba.core import config
import asyncio, concurrent.futures, multiprocessing, subprocess, tempfile, uuid
modules, names, *arguments = json.loads(sys.argv[1])
for name in modules:
    sys.modules[name] = None
for module in (os, signal):
    for name in names[module.__name__]:
        if hasattr(module, name):
            delattr(module, name)

held = {}  # of Windows' C library: one owner of each byte of a file, until its file is closed

def locking(file, mode, count):
    assert (mode, count) == (msvcrt.LK_NBLCK, 1)
    place = (os.fstat(file).st_ino, os.lseek(file, 0, os.SEEK_CUR))
    assert place[1] == 2**31 - 2  # nobody could read the lines otherwise
    if place in held:
        raise PermissionError(13, "Permission denied")
    held[place] = file

def close(file, close=os.close):
    for place in [place for place, owner in held.items() if owner == file]:
        del held[place]
    close(file)

os.close = close
sys.modules["msvcrt"] = msvcrt = types.SimpleNamespace(LK_NBLCK=2, locking=locking)

import vcs_runtime.training
from pathlib import Path
from vcs_runtime.cli import cli
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.output import OutputFile

cli(arguments[0], standalone_mode=False)
output = Path(arguments[1])
with OutputFile(output, resume=True):
    assert held
    try:
        OutputFile(output, resume=True)
    except InputError as error:
        print(error)
assert not held
lines = output.read_bytes().splitlines(keepends=True)
output.write_bytes(b"".join(lines[:2]))
cli([*arguments[0], "--resume"], standalone_mode=False)
assert output.read_bytes() == b"".join(lines)
"""


def test_a_machine_without_posix_scores_and_resumes(tiny_bundle: Path, tmp_path: Path) -> None:
    from support.engines import run

    pairs, output, usual = (tmp_path / name for name in ("pairs.jsonl", "out.jsonl", "usual.jsonl"))
    rows = [{"id": i, "reference": story(i), "generated": story(i + 9)} for i in range(5)]
    write_pairs(pairs, rows)

    def score(to: Path) -> list[str]:
        return ["score", str(pairs), "-o", str(to), "--bundle", str(tiny_bundle), "--device", "cpu"]

    arguments = json.dumps([MODULES, NAMES, score(output), str(output)])
    done = run_python("-c", BARE_MACHINE, arguments, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stderr
    assert f"{output}: another process is writing it" in done.stdout
    assert run(*score(usual)).exit_code == 0
    assert read_lines(output) == read_lines(usual)
