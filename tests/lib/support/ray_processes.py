"""Ray's processes on this machine: patient ones for a busy machine, and one to kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess, run
from typing import Any, TypeVar

from support.waiting import HANGS_AFTER_S

T = TypeVar("T")
_SECONDS, _MILLISECONDS = str(HANGS_AFTER_S), str(1000 * HANGS_AFTER_S)

#: Settings that Ray reads when it is imported: nothing is late, and neither memory nor a disk is
#: too full. A server that does not answer in two minutes has died at its start, which is then tried
#: again.
PATIENT = {
    "RAY_NUM_REDIS_GET_RETRIES": _SECONDS,
    "RAY_agent_register_timeout_ms": _MILLISECONDS,
    "RAY_gcs_rpc_server_connect_timeout_s": "120",
    "RAY_gcs_rpc_server_reconnect_timeout_s": _SECONDS,
    "RAY_gcs_server_port_wait_time_s": _SECONDS,
    "RAY_gcs_server_request_timeout_seconds": _SECONDS,
    "RAY_health_check_timeout_ms": _MILLISECONDS,
    "RAY_local_fs_capacity_threshold": "1",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_py_gcs_connect_timeout_s": "120",
    # The wait between two attempts is a second: a longer one delays every start that is too early.
    "RAY_raylet_client_num_connect_attempts": _SECONDS,
    "RAY_raylet_start_wait_time_s": _SECONDS,
    "RAY_worker_register_timeout_seconds": _SECONDS,
}
#: How often a cluster is started before it counts as one that does not start. Half a minute for a
#: node to start is written into Ray; the second time, its files are in memory.
_STARTS = 10
#: What our commands and programs say then.
NOT_STARTED = "Ray did not start on this machine"


def started(start: Callable[[], T], too_slow: str = "") -> T:
    """Call what starts a cluster, again where that raises an error with the words `too_slow`."""
    for _ in range(_STARTS - 1):
        try:
            return start()
        except Exception as error:
            if too_slow not in str(error):
                raise
            print(f"Ray did not start: {error}")
    return start()


def run_patiently(command: Sequence[str], **options: Any) -> CompletedProcess[str]:
    """Run a command that starts a cluster of its own, again where Ray did not start in time."""

    def run_once() -> CompletedProcess[str]:
        done = run(command, capture_output=True, text=True, check=False, **options)
        assert NOT_STARTED not in done.stderr, done.stderr
        return done

    return started(run_once, NOT_STARTED)


def kill_one(name: str) -> None:
    """Kill a worker of this process called `ray::NAME...`, as the kernel does without memory."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_bytes()
        except OSError:
            continue
        if title.startswith(f"ray::{name}".encode()) and _is_ours(int(path.parent.name)):
            os.kill(int(path.parent.name), signal.SIGKILL)
            return
    raise AssertionError(f"no process ray::{name}")


def _is_ours(process: int) -> bool:
    """Whether this process has started another, or has started what did."""
    while process > 1 and process != os.getpid():
        stat = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
        process = int(stat.rpartition(")")[2].split()[1])
    return process == os.getpid()
