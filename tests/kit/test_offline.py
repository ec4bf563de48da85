"""The real packages, installed in a namespace without a network, and packed again from there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import vcs
from support.processes import captured

pytestmark = pytest.mark.slow
ALONE = ["unshare", "--map-root-user", "--net"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip without a package index, or without namespaces."""
    if not shutil.which("unshare") or subprocess.run([*ALONE, "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here")
    folder = tmp_path_factory.mktemp("index")
    probe = [
        sys.executable,
        *f"-m pip download --quiet --no-deps --dest {folder} platformdirs".split(),
    ]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("no package index can be reached")


def offline(home: Path, *command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command without a network, with nothing of this environment but a system path."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", **variables}
    words = [*ALONE, *map(str, command)]
    return captured(words, env=environment, cwd=home)


def test_a_kit_installs_and_scores_without_a_network(
    index: None, tiny_bundle: Path, tmp_path: Path
) -> None:
    kit, new, again = tmp_path / "kit", tmp_path / "new", tmp_path / "again"
    # rouge-score, which `experiments` needs, exists as source only.
    extras = ["--extra", "experiments", "--extra", "kit"]
    done = vcs("kit", "-o", kit, "--bundle", tiny_bundle, *extras)
    assert done.code == 0, done.stderr
    assert "building rouge-score from source" in done.stderr
    interfaces = offline(
        tmp_path, sys.executable, "-c", "import socket; print(socket.if_nameindex())"
    )
    assert interfaces.stdout == "[(1, 'lo')]\n"

    installed = offline(tmp_path, "sh", kit / "install.sh", new, PYTHON=sys.executable)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert "this machine has everything that scoring needs" in installed.stdout
    assert re.search(r"^vcs +\d\.\d{4} ", installed.stdout, re.M)
    assert list((kit / "wheels").glob("torch-*")) == []

    # From there the next kit can be made, with the folder of wheels as the index.
    wheels = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(kit / "wheels"),
        "PIP_CONFIG_FILE": os.devnull,
    }
    bundle = new / "share/vcs-runtime/bundles/tiny-bert"
    command = [new / "bin/vcs-runtime", "kit", "-o", again, "--bundle", bundle, *extras]
    packed = offline(tmp_path, *command, **wheels)
    assert packed.returncode == 0, packed.stderr
    assert "from the package index" in packed.stderr
    assert (again / "requirements.txt").read_text() == (kit / "requirements.txt").read_text()

    shutil.rmtree(again)
    [module] = new.rglob("vcs_numba/params.py")
    record = next(new.rglob("vcs_runtime-*.dist-info/RECORD"))
    record.write_text(re.sub(rf"(?<={module.name},sha256=)\w", "_", record.read_text()))
    packed = offline(tmp_path, *command, **wheels)
    assert packed.returncode == 2
    assert (
        "from the package index is not the installed vcs-runtime, because vcs_numba/params.py differs"
        in packed.stderr
    )
