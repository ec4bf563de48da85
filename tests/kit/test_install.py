"""Installing a kit: where it works, and the sentence that says why it does not."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import Finished
from support.processes import captured
from support.tiny_wheels import write_wheel

Make = Callable[..., Finished]
PROGRAMS = "Scripts" if os.name == "nt" else "bin"


def install(kit: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", str(kit / "install.py"), *map(str, arguments)]
    return captured(command, env={**os.environ, **environment})


def refusal(kit: Path, target: Path, **environment: str) -> str:
    """Return the one sentence with which an installation was refused, which left nothing behind."""
    done = install(kit, target, **environment)
    assert done.returncode == 2, done.stdout + done.stderr
    assert not target.is_dir()
    [line] = done.stderr.splitlines()
    return line.removeprefix("install: ")


@pytest.fixture
def copy(kit: Path, tmp_path: Path) -> Path:
    """A copy of the kit, to be changed."""
    return Path(shutil.copytree(kit, tmp_path / "copy"))


def reseal(kit: Path, **changes: object) -> None:
    """Change what kit.json says, and write checksums that fit the files as they are."""
    about = json.loads((kit / "kit.json").read_text())
    (kit / "kit.json").write_text(json.dumps({**about, **changes}))
    names = [line.split("  ")[1] for line in (kit / "SHA256SUMS").read_text().splitlines()]
    there = [name for name in names if (kit / name).is_file()]
    lines = [f"{hashlib.sha256((kit / name).read_bytes()).hexdigest()}  {name}\n" for name in there]
    (kit / "SHA256SUMS").write_text("".join(lines))


@pytest.mark.slow
def test_an_installation_ends_with_doctor_and_a_score(kit: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    # Neither a package index nor another installation of this user is looked at.
    done = install(
        kit,
        target,
        PIP_INDEX_URL="http://127.0.0.1:9/",
        PIP_TARGET=str(tmp_path / "wrong"),
        VCS_RUNTIME_HOME="x",
    )
    assert (done.returncode, done.stderr) == (0, "")
    bundle = target / "share/vcs-runtime/bundles/tiny-bert"
    story = f"{kit / 'story/reference.txt'} {kit / 'story/generated.txt'}"
    assert [line for line in done.stdout.splitlines() if line.startswith(("ran ", "$ "))] == [
        f"$ vcs-runtime doctor --bundle {bundle}",
        f"ran doctor --bundle {bundle} in {target}",
        f"$ vcs-runtime score {story} --bundle {bundle}",
        f"ran score {story} --bundle {bundle} in {target}",
    ]
    assert hashlib.sha256((kit / "SHA256SUMS").read_bytes()).hexdigest() in done.stdout
    assert (bundle / "bundle.json").read_bytes() == (kit / "bundle/bundle.json").read_bytes()
    listed = subprocess.run(
        [target / PROGRAMS / "python", "-m", "pip", "list", "--format", "json"],
        capture_output=True,
        check=True,
    )
    names = {item["name"].lower() for item in json.loads(listed.stdout)}
    assert names == {"onnxruntime", "pip", "tiny-base", "tiny-rules", "tiny-words", "vcs-runtime"}
    assert not (tmp_path / "wrong").exists()
    assert (
        refusal(kit, target / "bin/python")
        == f"{target / 'bin/python'} exists already: name a folder to create"
    )


def test_a_check_installs_nothing(kit: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    done = install(kit, "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("nothing was installed\n")
    assert sorted(tmp_path.rglob("*")) == before
    assert install(kit).returncode == install(kit, "--check", tmp_path / "new").returncode == 2
    assert "folder to create (is a variable not set?)" in install(kit, "").stderr


def test_another_python_is_refused_by_name(copy: Path, tmp_path: Path) -> None:
    reseal(copy, python="3.99")
    assert re.fullmatch(
        r"this kit is for CPython 3\.99, but .* is cpython"
        rf" {sys.version_info[0]}\.{sys.version_info[1]}: "
        r"name the right one with PYTHON=/path/to/python3\.99",
        refusal(copy, tmp_path / "new"),
    )


@pytest.mark.slow
def test_another_platform_is_refused_by_name(make_kit: Make, tmp_path: Path) -> None:
    other = "win_amd64" if sys.platform == "linux" else "manylinux_2_28_x86_64"
    assert make_kit(tmp_path / "kit", "--platform", other).code == 0
    message = refusal(tmp_path / "kit", tmp_path / "new")
    assert re.match(
        rf"this kit is for {other}, but this machine is \w+: onnxruntime-1\.0-.*\.whl does not"
        r" fit; ",
        message,
    )


@pytest.mark.parametrize(
    "name", ["wheels/tiny_base-1.0-py3-none-any.whl", "bundle/bundle.json", "install.sh"]
)
def test_a_damaged_file_is_named(copy: Path, tmp_path: Path, name: str) -> None:
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    assert (
        refusal(copy, tmp_path / "new")
        == f"{name} is damaged, as its sha256 is not the one in SHA256SUMS: copy the kit again"
    )


def test_a_missing_file_is_named(copy: Path, tmp_path: Path) -> None:
    (copy / "requirements.txt").unlink()
    message = refusal(copy, tmp_path / "new")
    assert (
        message
        == f"{copy / 'requirements.txt'} cannot be read (No such file or directory): copy the kit"
        " again"
    )
    (copy / "SHA256SUMS").write_bytes(b"\xff\n")
    assert refusal(copy, tmp_path / "new") == "SHA256SUMS is damaged: copy the kit again"
    (copy / "kit.json").write_text("{")
    assert re.fullmatch(
        r"kit\.json cannot be read \(.*\): copy the kit again", refusal(copy, tmp_path / "new")
    )


@pytest.mark.parametrize("name", ["argparse.py", "wheels/sub/new.whl", "link"])
@pytest.mark.parametrize("isolated", [["-I"], []])
def test_a_file_without_a_checksum_is_refused_and_never_run(
    copy: Path, name: str, isolated: list[str]
) -> None:
    """Without -I Python looks for modules in the kit's folder first."""
    (copy / name).parent.mkdir(exist_ok=True)
    if name == "link":
        (copy / name).symlink_to(copy / "story", target_is_directory=True)
    else:
        (copy / name).write_text("print('it runs')\nraise SystemExit(0)\n")
    command = [sys.executable, *isolated, "install.py", "--check"]
    done = captured(command, cwd=copy)
    expected = f"install: {name} is not listed in SHA256SUMS: delete it, or copy the kit again\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


def test_a_folder_in_the_kit_is_refused(kit: Path) -> None:
    assert refusal(kit, kit / "new") == f"{kit / 'new'} is in the kit: name a folder outside it"
    mixed = subprocess.getoutput(f"{sys.executable} -I {kit / 'install.py'} {kit / 'new'}")
    assert mixed.splitlines()[-1].startswith("install: ")  # after what it had said before


def test_a_folder_that_cannot_be_created_is_named(kit: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = refusal(kit, tmp_path / "file" / "new")
    assert (
        message
        == f"{tmp_path / 'file/new'} cannot be created (Not a directory): name another folder"
    )


def test_a_disk_that_is_too_small_is_refused(copy: Path, tmp_path: Path) -> None:
    reseal(copy, bytes=10**18)
    assert "1,000,000,000,000 MB are needed, " in refusal(copy, tmp_path / "new")


@pytest.mark.slow
def test_a_package_that_is_missing_leaves_nothing_behind(copy: Path, tmp_path: Path) -> None:
    (copy / "wheels/tiny_words-1.0-py3-none-any.whl").unlink()
    reseal(copy)
    message = refusal(copy, tmp_path / "new")
    assert "nothing is installed" in message
    assert "No matching distribution found for tiny-words==1.0" in message


@pytest.mark.slow
def test_a_wheel_that_was_exchanged_is_not_installed(copy: Path, tmp_path: Path) -> None:
    """The checksums may have been rewritten; the hashes of the requirements still hold."""
    write_wheel(copy / "wheels", "tiny-words", licence="another")
    reseal(copy)
    assert "nothing is installed" in refusal(copy, tmp_path / "new")


@pytest.mark.slow
def test_what_doctor_finds_ends_with_code_1_and_stays_installed(kit: Path, tmp_path: Path) -> None:
    done = install(kit, tmp_path / "new", STAND_IN_EXIT="1")
    assert done.returncode == 1
    assert done.stderr == f"install: it is installed in {tmp_path / 'new'}, but doctor failed (1)\n"
    assert (tmp_path / "new" / PROGRAMS).is_dir()


def test_old_pythons_can_read_the_program_that_refuses_them(kit: Path) -> None:
    ast.parse((kit / "install.py").read_text(), feature_version=(3, 6))


@pytest.mark.skipif(os.name == "nt", reason="a script of a POSIX shell")
class TestScript:
    def run(
        self, kit: Path, *arguments: object, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", str(kit / "install.sh"), *map(str, arguments)]
        return captured(command, env=environment)

    def test_it_takes_the_python_that_is_named(self, kit: Path) -> None:
        done = self.run(kit, "--check", PATH="/usr/bin:/bin", PYTHON=sys.executable)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("nothing was installed\n")

    def test_a_name_behind_which_there_is_no_python_is_passed_over(
        self, kit: Path, tmp_path: Path
    ) -> None:
        """pyenv has a command for each version it knows, which fails unless it is chosen."""
        version = json.loads((kit / "kit.json").read_text())["python"]
        (tmp_path / f"python{version}").write_text("#!/bin/sh\nexit 127\n")
        (tmp_path / f"python{version}").chmod(0o755)
        (tmp_path / "python3").symlink_to(sys.executable)
        done = self.run(kit, "--check", PATH=f"{tmp_path}:/usr/bin:/bin")
        assert done.stdout.endswith("nothing was installed\n"), done.stderr

    def test_without_a_python_it_says_which_one_is_needed(self, kit: Path, tmp_path: Path) -> None:
        for tool in ("dirname", "sed"):
            (tmp_path / tool).symlink_to(shutil.which(tool) or "")
        done = self.run(kit, "--check", PATH=str(tmp_path))
        version = json.loads((kit / "kit.json").read_text())["python"]
        assert (done.returncode, done.stderr) == (
            2,
            (
                f"install.sh: there is no python{version} here: "
                f"install it, or name it with PYTHON=/path/to/python{version}\n"
            ),
        )
