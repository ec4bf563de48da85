"""Forks, threads, caches, cold starts: scores in real processes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import vcs_numba
from support.core_cases import drawn_case, matrix
from support.waiting import HANGS_AFTER_S
from vcs_numba.jit.cache import KernelCache
from vcs_numba.jit.kernel import KERNELS, numba_config
from vcs_numba.jit.owners import is_own

pytestmark = pytest.mark.skipif(bool(numba_config.DISABLE_JIT), reason="about compiled code")

#: Runs argv[1] in an interpreter that permission bits bind, even as root (prctl).
UNPRIVILEGED = """
import ctypes, os, sys
if os.geteuid() == 0:
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-P", "-c", sys.argv[1]])
"""


def run_python(script: str, *, privileged: bool = True, **environment: str) -> str:
    """Output of a fresh interpreter that does not look for modules in the current folder."""
    finished = subprocess.run(
        [sys.executable, "-P", "-c", *([script] if privileged else [UNPRIVILEGED, script])],
        env={k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")} | environment,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout.strip()


def test_a_forked_child_scores_after_its_parent_has() -> None:
    script = """
import os, signal, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: just what is tested
import numpy as np, vcs_numba
from vcs_numba.jit.kernel import numba_config
numba_config.NUMBA_NUM_THREADS = 3
large = np.random.default_rng(0).random((900, 800))
small = [large[:20, k : k + 20] for k in range(600)]
def everything():
    one = vcs_numba.score_similarity(large, 0.5)
    return one, vcs_numba.score_batch(small, np.full(600, 0.5)).tobytes()
expected = everything()
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        signal.alarm(600)
        raise SystemExit(0 if everything() == expected else 3)
    children.append(child)
print([os.waitpid(child, 0)[1] for child in children], everything() == expected)
"""
    assert run_python(script) == "[0, 0, 0, 0] True"


@pytest.mark.slow
def test_a_fork_while_another_thread_compiles_leaves_a_child_that_can_compile(
    tmp_path: Path,
) -> None:
    script = """
import os, signal, sys, threading, warnings
warnings.simplefilter("ignore")  # of forking beside threads, which is tested, and of a kernel \
without a file
from vcs_numba.jit.kernel import Kernel, types
def once(x): return x
def twice(x): return 2 * x
first, second = Kernel(once, types.float64), Kernel(twice, types.float64)
thread = threading.Thread(target=first.load)
thread.start()
names = []
while "compile" not in names:
    frame, names = sys._current_frames().get(thread.ident), []
    while frame:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
child = os.fork()
if child == 0:
    signal.alarm(600)
    os._exit(0 if second.call(1.0) == 2.0 else 3)
print(os.waitpid(child, 0)[1])
thread.join()
"""
    assert run_python(script, NUMBA_CACHE_DIR=str(tmp_path)) == "0"


def test_many_threads_may_score_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_config, "NUMBA_NUM_THREADS", 4)
    large = matrix(drawn_case(12)._replace(n_ref=700, n_gen=500))
    small = [matrix(drawn_case(seed)) for seed in range(300)]
    gas = np.full(len(small), 0.5)

    def work(number: int) -> bytes:
        if number % 2:
            return np.array(vcs_numba.score_similarity(large, 0.5)).tobytes()
        return vcs_numba.score_batch(small, gas).tobytes()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(64)))
    assert len(set(results[::2])) == 1
    assert set(results[1::2]) == {np.array(vcs_numba.score_similarity(large, 0.5)).tobytes()}


def test_an_error_in_one_share_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_config, "NUMBA_NUM_THREADS", 4)

    def work(number: int) -> None:
        if number == 5:
            raise KeyError(number)

    for _ in range(20):
        with pytest.raises(KeyError):
            vcs_numba.jit.threads.for_each(9, work)


def test_a_score_still_works_while_the_interpreter_shuts_down() -> None:
    script = """
import atexit, numpy as np, vcs_numba
from vcs_numba.jit.kernel import numba_config
numba_config.NUMBA_NUM_THREADS = 3
large = np.random.default_rng(0).random((900, 800))
expected = vcs_numba.score_similarity(large, 0.5)
atexit.register(lambda: print(vcs_numba.score_similarity(large, 0.5) == expected))
"""
    assert run_python(script) == "True"


def copy_of_the_package() -> Iterator[Path]:
    """A folder that everyone may read, with a copy of the package without compiled files."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    source = Path(vcs_numba.__file__).parent
    shutil.copytree(source, folder / "vcs_numba", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


copied_package = pytest.fixture(copy_of_the_package, name="copied_package")
shared_copy = pytest.fixture(copy_of_the_package, name="shared_copy", scope="module")


def place_of(package: Path) -> dict[str, str]:
    """The environment in which a copy is imported, with its cache beside it."""
    return {"PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(package / "cache")}


@pytest.fixture
def place(copied_package: Path) -> dict[str, str]:
    return place_of(copied_package)


@pytest.fixture(scope="module")
def shared_and_filled(shared_copy: Path) -> Path:
    """A copy for several tests, for which `LOAD` has compiled its kernel once."""
    assert run_python(LOAD, **place_of(shared_copy)).startswith("0 read 1 compiled")
    return shared_copy


@pytest.fixture
def filled(shared_and_filled: Path) -> Iterator[Path]:
    """The shared copy, whose files, permissions and owners no test may change."""
    paths = [shared_and_filled, *shared_and_filled.rglob("*")]
    before = {path: (path.stat(), path.read_bytes() if path.is_file() else b"") for path in paths}
    yield shared_and_filled
    for path, (old, content) in before.items():
        if path.is_file() and path.read_bytes() != content:
            path.write_bytes(content)
        if (path.stat().st_uid, path.stat().st_gid) != (old.st_uid, old.st_gid):
            os.chown(path, old.st_uid, old.st_gid)
        path.chmod(stat.S_IMODE(old.st_mode))
    # What a folder holds goes before it.
    for path in sorted(shared_and_filled.rglob("*"), reverse=True):
        if path not in before:
            path.rmdir() if path.is_dir() else path.unlink()


#: Loads the small kernel of `recombine` and says where it came from.
LOAD = """
from vcs_numba import Scores, recombine
from vcs_numba.jit.kernel import KERNELS
recombine(Scores(*[0.5] * 16))
[kernel] = [kernel.call for kernel in KERNELS if hasattr(kernel.call, "stats")]
print(sum(kernel.stats.cache_hits.values()), "read", sum(kernel.stats.cache_misses.values()), \
"compiled",
      kernel.stats.cache_path)
"""


def test_a_kernel_is_loaded_once() -> None:
    vcs_numba.recombine(vcs_numba.Scores(*[0.5] * 16))
    loaded = [kernel for kernel in KERNELS if hasattr(kernel.call, "stats")]
    assert loaded
    for kernel in loaded:
        compiled = kernel.call
        assert kernel.load() is compiled


def make_unwritable(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        path.chmod(stat.S_IREAD | stat.S_IRGRP | stat.S_IROTH | (0o111 if path.is_dir() else 0))


def skip_if_writable(folder: Path) -> None:
    check = f"import os; print(os.access({str(folder)!r}, os.W_OK))"
    if run_python(check, privileged=False) != "False":
        pytest.skip("nothing is unwritable for this user")


@pytest.mark.slow
def test_a_filled_cache_folder_is_read_when_it_cannot_be_written(filled: Path) -> None:
    make_unwritable(filled)
    skip_if_writable(filled / "cache")
    place = place_of(filled) | {"HOME": "/nonexistent"}
    assert run_python(LOAD, privileged=False, **place).startswith("1 read 0 compiled")


@pytest.mark.slow
def test_no_writable_folder_at_all_costs_time_but_no_score(copied_package: Path) -> None:
    (copied_package / "cache").mkdir()
    make_unwritable(copied_package)
    place = {
        "PYTHONPATH": str(copied_package),
        "NUMBA_CACHE_DIR": str(copied_package / "cache"),
        "HOME": "/nonexistent",
        "XDG_CACHE_HOME": "/nonexistent",
    }
    skip_if_writable(copied_package / "cache")
    assert run_python(LOAD, privileged=False, **place).startswith("0 read 1 compiled")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "mode", "owner"),
    [
        ("folder", 0o757, None),
        ("folder", 0o775, (-1, 54321)),
        ("folder", 0o755, (54321, -1)),
        ("file", 0o666, None),
        ("file", 0o644, (54321, -1)),
        ("folder above", 0o777, None),
        ("folder above", 0o755, (54321, -1)),
    ],
)
def test_a_cache_that_others_can_write_to_or_exchange_is_passed_over(
    filled: Path, what: str, mode: int, owner: tuple[int, int] | None
) -> None:
    for file in (filled / "cache").rglob("*.nbi"):
        changed = {"file": file, "folder": file.parent, "folder above": file.parent.parent}[what]
        changed.chmod(mode)
        if owner:
            try:
                os.chown(changed, *owner)
            except PermissionError:
                pytest.skip("only root can give a folder away")
    # Beside the sources there is no file yet: the kernel is compiled again, and saved there.
    assert run_python(LOAD, **place_of(filled)).startswith("0 read 1 compiled")
    assert list((filled / "vcs_numba").rglob("*.nbi"))


def test_a_link_to_a_cache_is_followed_once_and_never_after_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "link").symlink_to("own")
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path / "link"))
    assert Path(KernelCache(matrix, print).cache_path).is_relative_to(tmp_path.resolve() / "own")
    assert not is_own(tmp_path / "link", parents=True)


@pytest.mark.slow
def test_cached_files_belong_to_their_owner_alone_whatever_the_umask(place: dict[str, str]) -> None:
    assert run_python("import os; os.umask(0)\n" + LOAD, **place).startswith("0 read 1 compiled")
    assert run_python("import os; os.umask(0)\n" + LOAD, **place).startswith("1 read 0 compiled")


@pytest.mark.slow
def test_a_folder_that_is_made_for_the_cache_is_read_again_whatever_the_umask(
    place: dict[str, str],
) -> None:
    # The group may write by this umask, and is not the user's if the test may choose.
    shared = (
        "import contextlib, os\nos.umask(0o002)\nwith contextlib.suppress(OSError):"
        " os.setgid(54321)\n"
    )
    assert run_python(shared + LOAD, **place).startswith("0 read 1 compiled")
    assert run_python(shared + LOAD, **place).startswith("1 read 0 compiled")


@pytest.mark.slow
def test_a_cache_folder_that_is_no_folder_is_passed_over(copied_package: Path) -> None:
    blocked = copied_package / "file"
    blocked.write_text("")
    place = {"PYTHONPATH": str(copied_package), "NUMBA_CACHE_DIR": str(blocked / "cache")}
    assert run_python(LOAD, **place).startswith("0 read 1 compiled")
    assert run_python(LOAD, **place).startswith("1 read 0 compiled")  # from beside the sources


@pytest.mark.slow
def test_machine_code_is_read_without_what_only_compiling_needs(place: dict[str, str]) -> None:
    """Numba's declarations of all that it compiles take longer than the rest of a first score."""
    script = LOAD + "\nimport sys; print('numba.np.linalg' in sys.modules)"
    assert run_python(script, **place).endswith("True")
    assert run_python(script, **place).startswith("1 read 0 compiled")
    assert run_python(script, **place).endswith("False")


#: Loads the same kernel ahead, waits for the thread, and says what has happened.
LOAD_AHEAD = """
import sys, threading
from vcs_numba.jit.kernel import load_in_background
from vcs_numba.recombine import _RECOMBINE
print("numba" in sys.modules)
load_in_background([_RECOMBINE])
[thread.join() for thread in threading.enumerate() if thread is not threading.current_thread()]
print("numba" in sys.modules, _RECOMBINE.is_loaded)
"""


def test_what_is_loaded_ahead_is_read_from_the_cache_and_never_compiled(
    place: dict[str, str],
) -> None:
    """A process that opens a scorer, and then scores nothing, must not wait for a compiler."""
    ahead = run_python(LOAD_AHEAD + LOAD, **place).split("\n")
    assert ahead[:2] == ["False", "True False"]
    assert ahead[2].startswith("0 read 1 compiled")
    ahead = run_python(LOAD_AHEAD + LOAD, **place).split("\n")
    assert ahead[:2] == ["False", "True True"]
    assert ahead[2].startswith("1 read 0 compiled")


def test_a_run_that_compiles_says_so_once_and_the_next_one_nothing(place: dict[str, str]) -> None:
    """By Python's logging, so that it never comes among what a program prints."""
    script = f"""
import contextlib, io
from vcs_numba.jit.kernel import KERNELS, is_compiling
with contextlib.redirect_stderr(io.StringIO()) as said:
    from vcs_numba.jit import cache
    old, states = cache.KernelCache.save_overload, []
    cache.KernelCache.save_overload = lambda *a: (states.append(is_compiling()), old(*a))
{textwrap.indent(LOAD_AHEAD + LOAD, "    ")}
print(states, is_compiling(), repr(said.getvalue()))
"""
    notice = "vcs-runtime: first run: compiling takes about half a minute\\n"
    assert run_python(script, **place).splitlines()[-1] == f"[True] False '{notice}'"
    assert run_python(script, **place).splitlines()[-1] == "[] False ''"


@pytest.mark.slow
def test_a_change_in_any_source_file_invalidates_the_cache(filled: Path) -> None:
    helper = filled / "vcs_numba/kernels/line.py"  # not the file the kernel stands in
    helper.write_text(helper.read_text() + "\n# changed\n")
    assert run_python(LOAD, **place_of(filled)).startswith("0 read 1 compiled")


@pytest.mark.slow
def test_a_damaged_cache_file_is_replaced(filled: Path) -> None:
    for data in (filled / "cache").rglob("*.nbc"):
        data.write_bytes(data.read_bytes()[:100])
    assert run_python(LOAD, **place_of(filled)).startswith("0 read 1 compiled")
    assert run_python(LOAD, **place_of(filled)).startswith("1 read 0 compiled")


@pytest.mark.slow
def test_a_warm_cache_leaves_little_to_do_until_the_first_score() -> None:
    """Compiling takes half a minute of processor time; reading the cache half a second."""
    script = """
import time
import numpy, vcs_numba
vcs_numba.score_similarity(numpy.full((20, 20), 0.5), 0.5)
print(time.process_time())
"""
    run_python(script)
    assert min(float(run_python(script)) for _ in range(4)) < 2.0
