"""A real Triton server, out of nvidia-pytriton's wheel, on a model repository; on free ports of the
loopback.

The wheel has the server and the Python backend, but lays them out for its own launcher: here the
backend gets a folder of its own with the stub for this Python. Stub and server need the wheel's
libraries, and the stub the libpython of this interpreter, before the system's.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from support.processes import captured
from support.waiting import HANGS_AFTER_S

START_S = 300  # a cold start compiles the alignment core


def why_not() -> str:
    """Why the server cannot run here; "" if it can."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "the wheel of nvidia-pytriton is for Linux on x86_64"
    try:
        root = _wheel()
    except PackageNotFoundError:
        return "nvidia-pytriton is not installed: make nox ARGS='-s triton' installs it"
    if not _stub(root).is_file():
        return f"nvidia-pytriton has no stub for Python {sysconfig.get_python_version()}"
    done = captured([root / "bin/tritonserver", "--help"], env=_environment(root))
    return (
        ""
        if "--model-repository" in done.stdout + done.stderr
        else f"it does not start: {done.stderr}"
    )


@dataclass
class Server:
    """A server that runs. http, grpc, metrics: its ports on 127.0.0.1."""

    process: subprocess.Popen[bytes]
    log: Path
    http: int
    grpc: int
    metrics: int

    @property
    def ports(self) -> tuple[int, int, int]:
        return self.http, self.grpc, self.metrics

    def ready(self, model: str) -> bool:
        """Whether a model is: the server alone is sooner."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http}/v2/models/{model}/ready"
            ) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def wait(self, model: str) -> None:
        """Until `model` is ready."""
        for _ in range(START_S * 10):
            if self.process.poll() is not None or self.ready(model):
                break
            time.sleep(0.1)
        assert self.process.poll() is None, self.log.read_text(errors="replace")
        assert self.ready(model), self.log.read_text(errors="replace")

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(HANGS_AFTER_S)


@contextmanager
def serve(repository: Path, work: Path, *options: str) -> Iterator[Server]:
    """Start the server as a repository's README says, but for the ports; stop it at the end."""
    root = _wheel()
    backend = work / "backends/python"
    shutil.copytree(root / "backends/python", backend)
    shutil.copy(_stub(root), backend)
    http, grpc, metrics = _free_ports(3)
    log = work / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                root / "bin/tritonserver",
                f"--model-repository={repository}",
                f"--backend-directory={backend.parent}",
                *(f"--{protocol}-address=127.0.0.1" for protocol in ("http", "grpc", "metrics")),
                f"--http-port={http}",
                f"--grpc-port={grpc}",
                f"--metrics-port={metrics}",
                *options,
            ],
            env=_environment(root),
            stdout=output,
            stderr=output,
        )
    server = Server(process, log, http, grpc, metrics)
    try:
        yield server
    finally:
        if process.poll() is None:
            try:
                server.stop()
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wheel() -> Path:
    return Path(str(distribution("nvidia-pytriton").locate_file("pytriton/tritonserver")))


def _stub(root: Path) -> Path:
    return (
        root
        / "python_backend_stubs"
        / sysconfig.get_python_version()
        / "triton_python_backend_stub"
    )


def _environment(root: Path) -> dict[str, str]:
    """As the README says: libpython of this interpreter, and this environment's Python on PATH."""
    libraries = [sysconfig.get_config_var("LIBDIR"), str(root.parents[1] / "nvidia_pytriton.libs")]
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "PATH": os.pathsep.join(folders),
    }


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
