"""Windows and macOS: what only POSIX or Linux has is used behind a branch, and the other branch is tested.

Windows itself is not here. A process from which its lacks are taken stands in for it.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.stories import read_lines, story, write_pairs

ROOT = Path(__file__).parents[1]
SOURCES = [
    path
    for folder in ("vcs_numba", "runtime/vcs_runtime", "export/vcs_export")
    for path in sorted((ROOT / folder).rglob("*.py"))
]
MODULES = set(
    "crypt fcntl grp msvcrt nt nis ossaudiodev posix pty pwd resource spwd syslog termios tty winreg".split()
)
# What the documentation of `os`, `signal` and `time` gives an availability for that leaves Windows out.
NAMES = {
    "os": set(
        "EX_OK O_ASYNC O_CLOEXEC O_DIRECT O_DIRECTORY O_DSYNC O_NOATIME O_NOCTTY O_NOFOLLOW O_NONBLOCK O_PATH "
        "O_SYNC O_TMPFILE P_PIDFD WCONTINUED WEXITED WNOHANG WNOWAIT WUNTRACED chown chroot confstr "
        "copy_file_range ctermid eventfd fchdir fchown fdatasync fork forkpty fpathconf fstatvfs getegid "
        "geteuid getgid getgrouplist getgroups getloadavg getpgid getpgrp getpriority getresgid getresuid "
        "getsid getuid getxattr initgroups killpg lchown listxattr lockf major makedev memfd_create minor "
        "mkfifo mknod nice openpty pathconf pidfd_open pipe2 posix_fadvise posix_fallocate posix_openpt "
        "posix_spawn posix_spawnp pread preadv pwrite pwritev readv register_at_fork removexattr "
        "sched_getaffinity sched_getparam sched_setaffinity sched_yield sendfile setegid seteuid setgid "
        "setgroups setns setpgid setpriority setregid setresgid setresuid setreuid setsid setuid setxattr "
        "splice statvfs sync sysconf tcgetpgrp tcsetpgrp ttyname uname unshare wait wait3 wait4 waitid "
        "waitstatus_to_exitcode writev".split()
    ),
    "signal": set(
        "ITIMER_REAL SIGALRM SIGBUS SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGPROF SIGQUIT SIGSTOP "
        "SIGTSTP SIGTTIN SIGTTOU SIGUSR1 SIGUSR2 SIGWINCH alarm getitimer pause pthread_kill pthread_sigmask "
        "setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo".split()
    ),
    "socket": {"AF_UNIX", "AF_NETLINK", "SCM_RIGHTS", "socketpair"},
    "time": {"clock_getres", "clock_gettime", "clock_settime", "pthread_getcpuclockid", "tzset"},
}
ARGUMENTS = {"preexec_fn", "pass_fds", "process_group"}
PLACES = ("/proc", "/sys/", "/dev/", "/tmp", "/etc/", "/var/")
#: Each use, and the test that goes the other way: a new use needs a branch, a line here and its test.
BARE = "tests/test_portability.py::test_a_machine_without_posix_scores_and_resumes"
USES = {
    "runtime/vcs_runtime/jobs/output.py": {"fcntl": BARE, "msvcrt": BARE},
    "runtime/vcs_runtime/training/service.py": {"os.register_at_fork": BARE},
    "runtime/vcs_runtime/util/process.py": {"os.sched_getaffinity": BARE},
    "runtime/vcs_runtime/inference/openvino.py": {"/proc": "tests/cli/test_doctor.py::"},
    "vcs_numba/jit/cache.py": {"os.getuid": BARE},
    "runtime/vcs_runtime/inference/vector_cache.py": {"os.register_at_fork": BARE},
    "runtime/vcs_runtime/util/forks.py": {"os.register_at_fork": BARE},
    "vcs_numba/jit/kernel.py": {"os.register_at_fork": BARE},
    "vcs_numba/jit/threads.py": {"os.register_at_fork": BARE},
    "export/vcs_export/checks/tensorrt_engines.py": {
        "/proc": "tests/export/test_tensorrt_engines.py::",
        "/sys/": "tests/export/test_tensorrt_engines.py::",
    },
}


def uses_of(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What only some systems have, with the node that uses it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module in MODULES:
                yield node.module, node
            lacking = NAMES.get(node.module, set())
            yield from ((f"{node.module}.{a.name}", node) for a in node.names if a.name in lacking)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in NAMES.get(node.value.id, ()):
                yield f"{node.value.id}.{node.attr}", node
        elif isinstance(node, ast.keyword) and node.arg in ARGUMENTS:
            yield node.arg, node
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("get_context"):
            yield from (("fork", node) for a in node.args if ast.unparse(a) == "'fork'")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from ((place, node) for place in PLACES if node.value.startswith(place))


def is_guarded(tree: ast.Module, name: str, used: ast.AST) -> bool:
    """Whether a condition or a handler in the function of the use, or around it, asks for it first."""
    around = [node for node in ast.walk(tree) if any(child is used for child in ast.walk(node))]
    functions = [node for node in around if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    if any(isinstance(node, ast.Try) and _catches(node) for node in around):
        return True
    conditions = [node.test for node in around if isinstance(node, ast.If | ast.IfExp)]
    # `if not hasattr(...): return` stands before the use.
    for function in functions:
        conditions += [
            node.test for node in ast.walk(function) if isinstance(node, ast.If) and _leaves(node.body[-1])
        ]
    attribute = name.rpartition(".")[2]
    return any(
        f"'{attribute}'" in text or "os.name" in text or "sys.platform" in text
        for text in map(ast.unparse, conditions)
    )


def _catches(node: ast.Try) -> bool:
    caught = {name for handler in node.handlers if handler.type for name in ast.unparse(handler.type).split()}
    return bool({"ImportError", "AttributeError", "OSError"} & {name.strip("(),") for name in caught})


def _leaves(node: ast.stmt) -> bool:
    return isinstance(node, ast.Return | ast.Raise | ast.Continue)


def test_what_some_systems_lack_is_used_where_this_table_says_so() -> None:
    seen: dict[str, set[str]] = {}
    for path in SOURCES:
        for name, _ in uses_of(ast.parse(path.read_text("utf-8"))):
            seen.setdefault(path.relative_to(ROOT).as_posix(), set()).add(name)
    assert seen == {path: set(uses) for path, uses in USES.items()}


@pytest.mark.parametrize("path", sorted(USES))
def test_what_some_systems_lack_has_a_branch(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    bare = {name for name, node in uses_of(tree) if not is_guarded(tree, name, node)}
    # `msvcrt` is imported where `fcntl` is missing, and a file of Linux is read by a function that takes none.
    assert bare <= {"msvcrt", "/proc", "/sys/"}


def test_the_walk_sees_a_use_without_a_branch() -> None:
    bad = ast.parse("import os, fcntl\ndef f():\n    return os.fork()\n")
    assert {name for name, node in uses_of(bad) if not is_guarded(bad, name, node)} == {"fcntl", "os.fork"}
    good = ast.parse(
        "import os\ndef f():\n    if not hasattr(os, 'fork'):\n        return 0\n    return os.fork()\n"
    )
    assert [is_guarded(good, name, node) for name, node in uses_of(good)] == [True]


# Libraries are imported before anything is taken away: only our own code is to do without it.
BARE_MACHINE = """
import json, os, signal, sys, types
import click, msgspec, numba, numba.core.caching, numpy, onnxruntime, platformdirs, rich.progress, rich.table, tokenizers
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
    pairs, output, usual = (tmp_path / name for name in ("pairs.jsonl", "out.jsonl", "usual.jsonl"))
    write_pairs(pairs, [{"id": i, "reference": story(i), "generated": story(i + 9)} for i in range(5)])

    def score(to: Path) -> list[str]:
        return ["score", str(pairs), "-o", str(to), "--bundle", str(tiny_bundle), "--device", "cpu"]

    lacking = [
        sorted(MODULES - {"nt", "posix", "msvcrt"}),
        {
            name: [
                item for item in sorted(NAMES[name]) if not item.startswith("O_")
            ]  # Python's own need them
            for name in ("os", "signal")
        },
    ]
    done = subprocess.run(
        [sys.executable, "-c", BARE_MACHINE, json.dumps([*lacking, score(output), str(output)])],
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{output}: another process is writing it" in done.stdout
    from support.engines import run

    assert run(*score(usual)).exit_code == 0
    assert read_lines(output) == read_lines(usual)
