"""The process: wrong usage, what is printed, SIGTERM while it scores, kill -9."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.changed_bundles import edit
from support.command_line import vcs
from support.stories import story
from support.waiting import HANGS_AFTER_S, eventually
from vcs_runtime.bundle.manifest import Fitness

TOKEN = "0123456789abcdef0123456789abcdef"


def refused(*arguments: object) -> str:
    done = vcs("serve", *arguments)
    assert done.code == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_machines_need_a_token(host: str, tmp_path: Path) -> None:
    # The bundle that does not exist would end a server that started in spite of it.
    message = refused("--host", host, "--bundle", tmp_path / "none")
    assert message.endswith(f"other machines can reach --host {host}: add --token-file")


@pytest.mark.parametrize(
    ("option", "value", "names"),
    [
        ("--max-body-mb", "0", "--max-body-mb"),
        ("--max-pairs", "0", "--max-pairs"),
        ("--timeout-s", "nan", "--timeout-s"),
        ("--queue", "-1", "--queue"),
        ("--port", "99999", "--port"),
    ],
)
def test_limits_out_of_range(option: str, value: str, names: str) -> None:
    assert names in refused(option, value)


def test_files_that_hold_no_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert str(file) in refused("--token-file", file)
    assert "/dev/zero: must be a regular file" in refused("--token-file", "/dev/zero")
    for content in ("", "short", "two words of a token", "ä" * 20, f"{TOKEN}\n{TOKEN}"):
        file.write_text(content, "utf-8")
        assert f"{file}: a token is one line" in refused("--token-file", file)


def test_an_address_that_is_taken_or_is_none(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused("--port", port)
        assert message == (
            f"vcs-runtime: port {port} of 127.0.0.1 is in use: choose another with --port N"
        )


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    message = refused()
    assert message.startswith("vcs-runtime: vcs-runtime serve needs uvicorn")
    assert message.endswith("install `vcs-runtime[serve]`")


def test_a_bundle_that_is_missing_ends_the_server(tmp_path: Path) -> None:
    done = vcs("serve", "--port", 0, "--bundle", tmp_path / "none")
    assert done.code == 2
    listening, error = done.stderr.splitlines()
    assert "listening on" in listening
    assert str(tmp_path / "none") in error


class Process:
    """A server process."""

    def __init__(self, process: subprocess.Popen[str], tmp_path: Path) -> None:
        self.process = process
        self._errors = tmp_path / "stderr"
        while "ready: " not in self.stderr:
            assert process.poll() is None, self.stderr
            time.sleep(0.05)
        self.port = int(self.stderr.partition("http://127.0.0.1:")[2].partition(" ")[0])

    @property
    def stderr(self) -> str:
        return self._errors.read_text("utf-8")

    def ask(self, body: Any, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_AFTER_S)
        ) as client:
            client.request("POST", "/score", json.dumps(body), headers or {})
            response = client.getresponse()
            return response.status, json.loads(response.read())

    def metrics(self) -> list[str]:
        with closing(
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANGS_AFTER_S)
        ) as client:
            client.request("GET", "/metrics")
            return client.getresponse().read().decode().splitlines()

    def end(self) -> tuple[int, str]:
        """Wait for the end: the exit code, and what stood on standard error."""
        code = self.process.wait(HANGS_AFTER_S)
        assert "Traceback" not in self.stderr
        return code, self.stderr


@contextmanager
def started(bundle: Path, tmp_path: Path, *arguments: object) -> Iterator[Process]:
    command = [sys.executable, "-m", "vcs_runtime", "serve", "--port", "0", "--device", "cpu"]
    empty = tmp_path / "empty"
    empty.mkdir(exist_ok=True)
    paths = os.pathsep.join(map(str, map(Path, filter(None, sys.path))))
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [*command, "--bundle", str(bundle), *map(str, arguments)],
            stderr=errors,
            stdout=subprocess.PIPE,
            text=True,
            cwd=empty,
            env={**os.environ, "TMPDIR": str(empty), "PYTHONPATH": paths},
        )
    try:
        yield Process(process, tmp_path)
    finally:
        process.kill()
        assert process.communicate()[0] == ""


def large(seed: int) -> dict[str, Any]:
    """A request that takes a second or so."""
    return {
        "pairs": [
            {"reference": story(seed, 200), "generated": story(seed + i, 200)} for i in range(8)
        ]
    }


def in_flight(
    server: Process, pool: ThreadPoolExecutor, count: int
) -> list[Future[tuple[int, Any]]]:
    """Send requests, and wait until the server has them."""
    futures = [pool.submit(server.ask, large(1000 * i)) for i in range(count)]
    while f"vcs_queue_length {count}" not in server.metrics():
        assert not all(future.done() for future in futures)
    return futures


# The models are loaded once the server begins to close.
LOADS_WHILE_CLOSING = """
import threading, time
from vcs_runtime.__main__ import main
from vcs_runtime.scoring.scorer import Scorer
load = Scorer.from_config
def late(config):
    while not any(thread.name == "vcs-closing" for thread in threading.enumerate()):
        time.sleep(0.01)
    return load(config)
Scorer.from_config = late
main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_while_models_are_loaded_is_no_error(tiny_bundle: Path, name: str) -> None:
    command = [sys.executable, "-c", LOADS_WHILE_CLOSING, "serve", "--port", "0"]
    paths = os.pathsep.join(map(str, map(Path, filter(None, sys.path))))
    with subprocess.Popen(
        [*command, "--device", "cpu", "--bundle", str(tiny_bundle)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    ) as process:
        try:
            assert process.stderr
            assert "listening on" in process.stderr.readline()
            process.send_signal(getattr(signal, name))
            assert (process.communicate(timeout=HANGS_AFTER_S)[1], process.returncode) == ("", 0)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_finishes_what_was_accepted(tiny_bundle: Path, tmp_path: Path, name: str) -> None:
    with started(tiny_bundle, tmp_path) as server, ThreadPoolExecutor(4) as pool:
        futures = in_flight(server, pool, 4)
        os.kill(server.process.pid, getattr(signal, name))
        answers = [future.result(HANGS_AFTER_S) for future in futures]
        assert [status for status, _ in answers] == [200] * 4
        assert all("vcs" in line for _, answer in answers for line in answer["results"])
        code, errors = server.end()
    assert code == 0
    assert len(errors.splitlines()) == 2


@pytest.mark.slow
def test_a_signal_gives_up_what_takes_longer_than_the_limit(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    with started(tiny_bundle, tmp_path, "--timeout-s", 1) as server, ThreadPoolExecutor(12) as pool:
        futures = in_flight(server, pool, 12)
        os.kill(server.process.pid, signal.SIGTERM)
        assert {future.result(HANGS_AFTER_S)[0] for future in futures} <= {200, 503}
        assert server.end()[0] == 0


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_what_was_accepted(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    with started(tiny_bundle, tmp_path) as server, ThreadPoolExecutor(40) as pool:
        futures = in_flight(server, pool, 40)
        os.kill(server.process.pid, signal.SIGINT)
        eventually(lambda: not listens(server.port))
        os.kill(server.process.pid, signal.SIGINT)
        assert server.end()[0] == 0
        assert not all(_status(future) == 200 for future in futures)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _status(future: Future[tuple[int, Any]]) -> int:
    """Return the status of an answer; 0 if the connection was closed."""
    try:
        return future.result(HANGS_AFTER_S)[0]
    except OSError:
        return 0


@pytest.mark.slow
def test_kill_leaves_nothing(tiny_bundle: Path, tmp_path: Path) -> None:
    with started(tiny_bundle, tmp_path) as server, ThreadPoolExecutor(2) as pool:
        futures = in_flight(server, pool, 2)
        server.process.kill()
        for future in futures:
            assert isinstance(future.exception(HANGS_AFTER_S), OSError | http.client.HTTPException)
        assert server.end()[0] == -signal.SIGKILL
        port = server.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    # The port is free at once, and nothing lies about that a next server would stumble over.
    with started(tiny_bundle, tmp_path, "--port", port) as server:
        assert server.ask({"reference": story(1), "generated": story(2)})[0] == 200
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.slow
def test_a_token_of_a_file_on_every_interface(tiny_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n", "utf-8")
    file.chmod(0o644)
    with started(tiny_bundle, tmp_path, "--token-file", file) as server:
        assert f"chmod 600 {file}" in server.stderr
        pair = {"reference": story(1), "generated": story(2)}
        assert server.ask(pair)[0] == 401
        assert server.ask(pair, {"Authorization": f"Bearer {TOKEN}"})[0] == 200
        server.process.send_signal(signal.SIGTERM)
        assert server.end()[0] == 0


def test_a_server_of_an_unfit_model_says_it_as_other_commands_do(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "unfit"
    shutil.copytree(tiny_bundle, bundle)
    zeros = dict.fromkeys(Fitness.__struct_fields__, 0.0)
    edit(bundle, lambda data: data["embedder"].update(fitness=zeros), keep_proofs=True)
    with started(bundle, tmp_path) as server:
        lines = server.stderr.splitlines()
        assert lines[1].startswith(f"vcs-runtime: bundle {bundle}: the same stories"), lines
        server.process.terminate()
        assert server.end()[0] == 0
