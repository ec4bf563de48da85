"""Ctrl-C while the command line is still importing what it needs: one line and exit code 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.processes import run_python
from support.waiting import HANGS_AFTER_S

# A module that is interrupted while it is imported, as by Ctrl-C.
INTERRUPTED = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to a process")
@pytest.mark.parametrize("module", ["click", "rich", "numpy"])
def test_an_interrupted_import_is_one_line(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(INTERRUPTED)
    done = run(tmp_path)
    assert (done.returncode, done.stderr) == (130, "vcs-runtime: interrupted\n")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to a process")
def test_an_interrupt_while_a_model_library_is_imported_is_one_line(
    tmp_path: Path, tiny_bundle: Path, pairs_file: Path
) -> None:
    # Modules in C make an ImportError of a KeyboardInterrupt that is raised in them.
    (tmp_path / "onnxruntime.py").write_text(
        INTERRUPTED.replace("\n", "\ntry:\n    ", 1).replace("\ntime", "\n    time")
        + "except KeyboardInterrupt as error:\n    raise ImportError('initialization failed') from"
        " error\n"
    )
    done = run(tmp_path, arguments=("score", pairs_file, "--bundle", tiny_bundle))
    assert (done.returncode, done.stderr) == (130, "vcs-runtime: interrupted\n")


def test_a_process_that_ignores_interrupts_goes_on(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text(
        INTERRUPTED.replace("time.sleep(60)", "raise ImportError('it went on')")
    )
    done = run(tmp_path, signal.SIG_IGN)
    assert "it went on" in done.stderr


# A call of compiled code that takes minutes, as an alignment of two huge texts does.
LONG_CALL = """
import hashlib, os, signal, threading
from vcs_runtime.util import process
signal.signal(signal.SIGINT, {handler})
process.end_after_interrupts()
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
hashlib.pbkdf2_hmac("sha256", b"", b"", {count})
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to a process")
def test_an_interrupt_during_a_long_call_of_compiled_code_ends_the_process() -> None:
    code = LONG_CALL.format(handler="signal.default_int_handler", count=2**31 - 1)
    done = run_python("-c", code, timeout=HANGS_AFTER_S)
    assert (done.returncode, done.stderr) == (130, "vcs-runtime: interrupted\n")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to a process")
def test_an_interrupt_that_a_command_handles_ends_no_long_call() -> None:
    code = LONG_CALL.format(handler="lambda *_: None", count=10**6) + "import time\ntime.sleep(5)\n"
    done = run_python("-c", code, timeout=HANGS_AFTER_S)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to a process")
def test_an_interrupt_that_was_reported_is_not_reported_again() -> None:
    code = """
import os, signal, sys, threading, time
from vcs_runtime.util import process
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores interrupts
process.end_after_interrupts()
threading.Thread(target=time.sleep, args=(60,)).start()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit("reported")
"""
    done = run_python("-c", code, timeout=HANGS_AFTER_S)
    assert (done.returncode, done.stderr) == (130, "reported\n")


def run(
    folder: Path,
    on_interrupt: Any = signal.default_int_handler,
    arguments: tuple[object, ...] = ("score", "none.jsonl"),
) -> subprocess.CompletedProcess[str]:
    """Run the command; it ignores interrupts if this process does, like a background job."""
    path = os.pathsep.join((str(folder), *sys.path))
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        return run_python(
            "-m",
            "vcs_runtime",
            *arguments,
            env={**os.environ, "PYTHONPATH": path},
            timeout=HANGS_AFTER_S,
        )
    finally:
        signal.signal(signal.SIGINT, before)
