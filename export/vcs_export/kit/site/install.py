"""Install this kit without a network: `python -I install.py FOLDER`; `--check` only checks the kit.

The kit carries this program. It needs nothing but Python. In old Pythons, from 3.6 on, it runs far
enough to say which version it needs.
"""

import os  # Python has imported both itself, so that no file of the kit takes their place
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Nothing may be imported from this folder before its files are checked: without -I it comes first.
sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]

# ruff: noqa: E402
import argparse
import hashlib
import json
import shutil
import subprocess
from typing import Any, Dict, List, NoReturn, Optional  # noqa: UP035

SUMS = "SHA256SUMS"
Kit = Dict[str, Any]  # noqa: UP006
# Variables that would lead out of the installation.
_IGNORED = ("PYTHONPATH", "PYTHONHOME", "VCS_RUNTIME_HOME")


class Refused(Exception):
    """A problem, in one sentence."""


def main(arguments: Optional[List[str]] = None) -> int:  # noqa: UP006, UP045
    """Check the kit and this machine, install, and score a pair."""
    parser = argparse.ArgumentParser(
        prog="install", description="Install vcs-runtime from this kit."
    )
    parser.add_argument("folder", nargs="?", help="folder to create for the installation")
    parser.add_argument(
        "--check", action="store_true", help="check kit and machine, and install nothing"
    )
    options = parser.parse_args(arguments)
    if bool(options.folder) == options.check:
        parser.error("name the folder to create (is a variable not set?), or --check")
    try:
        kit = read_kit()
        check_python(kit)
        check_files()
        check_platform(kit)
        if options.check:
            print("nothing was installed")
            return 0
        return install(kit, os.path.abspath(options.folder))
    except Refused as refused:
        print(f"install: {refused}", file=sys.stderr)
        return 2


def read_kit() -> Kit:
    """Return the settings in `kit.json`."""
    try:
        with open(os.path.join(HERE, "kit.json"), encoding="utf-8") as file:
            kit: Kit = json.load(file)
    except (OSError, ValueError) as error:
        copy_again(f"kit.json cannot be read ({error})")
    return kit


def check_python(kit: Kit) -> None:
    """Refuse a Python for which the packages are not."""
    running = "{}.{}".format(*sys.version_info)
    name = sys.implementation.name
    wanted = kit["python"]
    if running != wanted or name != "cpython":
        raise Refused(
            f"this kit is for CPython {wanted}, but {sys.executable} is {name} {running}: name the"
            f" right one with PYTHON=/path/to/python{wanted}"
        )


def check_files() -> None:
    """Compare every file with its checksum, and refuse files without a checksum."""
    try:
        with open(os.path.join(HERE, SUMS), "rb") as file:
            content = file.read()
        lines = [line.split("  ", 1) for line in content.decode().splitlines()]
        listed = {name for _, name in lines}
        for name in files_here():
            if name not in listed and name != SUMS:
                raise Refused(f"{name} is not listed in {SUMS}: delete it, or copy the kit again")
        for digest, name in lines:
            if digest != sha256(os.path.join(HERE, *name.split("/"))):
                copy_again(f"{name} is damaged, as its sha256 is not the one in {SUMS}")
    except OSError as error:
        copy_again(f"{error.filename} cannot be read ({error.strerror})")
    except ValueError:
        copy_again(f"{SUMS} is damaged")
    print(f"{len(lines)} files are complete; the sha256 of {SUMS} is")
    print(f"  {hashlib.sha256(content).hexdigest()}")
    print("  Compare it with the sha256 that the maker of the kit gave you.", flush=True)


def files_here() -> "List[str]":  # noqa: UP006
    """Return the files and links below this folder, with slashes."""
    paths = []
    for folder, folders, files in os.walk(HERE):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        paths += [os.path.join(folder, name) for name in files + links]
    return sorted(os.path.relpath(path, HERE).replace(os.sep, "/") for path in paths)


def sha256(path: str) -> str:
    """Return the sha256 of a file, in hex."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def copy_again(reason: str) -> NoReturn:
    """Refuse an incomplete or damaged kit."""
    raise Refused(f"{reason}: copy the kit again")


def check_platform(kit: Kit) -> None:
    """Refuse a machine on which a package of the kit cannot be installed."""
    sys.path.insert(0, os.path.join(HERE, *kit["pip"].split("/")))
    from pip._vendor.packaging import tags, utils

    here = frozenset(tags.sys_tags())
    newest = next(name for name in tags.platform_tags() if not name.startswith("linux_"))
    for name in sorted(os.listdir(os.path.join(HERE, "wheels"))):
        if not utils.parse_wheel_filename(name)[3] & here:
            raise Refused(
                f"this kit is for {kit['platform']}, but this machine is {newest}: {name} does not"
                f" fit; make a kit with --platform {newest}"
            )
    print(f"this machine can install them: CPython {kit['python']}, {newest}", flush=True)


def install(kit: Kit, folder: str) -> int:
    """Install into a new folder, and then try the installation out.

    The folder is removed if installing fails.
    """
    if os.path.lexists(folder):
        raise Refused(f"{folder} exists already: name a folder to create")
    if os.path.join(folder, "").startswith(os.path.join(HERE, "")):
        raise Refused(f"{folder} is in the kit: name a folder outside it")
    try:
        os.makedirs(folder)
    except OSError as error:
        raise Refused(
            f"{folder} cannot be created ({error.strerror}): name another folder"
        ) from None
    try:
        free = shutil.disk_usage(folder).free
        if free < kit["bytes"]:
            raise Refused(
                f"{kit['bytes'] / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free: {folder}"
            )
        bundle = fill(kit, folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, (OSError, shutil.Error)):
            raise Refused(f"nothing is installed: a file cannot be copied: {error}") from None
        raise
    return try_out(kit, folder, bundle)


def fill(kit: Kit, folder: str) -> str:
    """Create an environment, install the packages and copy the bundle; return the bundle folder."""
    wheels = os.path.join(HERE, "wheels")
    print(f"installing {len(os.listdir(wheels))} packages into {folder}", flush=True)
    # pip comes with the kit, because the Python of many Linux distributions cannot put one into a
    # new environment.
    run([sys.executable, "-I", "-m", "venv", "--without-pip", folder])
    pip = [program(folder, "python"), os.path.join(HERE, *kit["pip"].split("/"), "pip")]
    quiet = ["--quiet", "--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    offline = ["--isolated", "--no-index", "--find-links", wheels, "--require-hashes"]
    requirements = ["--requirement", os.path.join(HERE, "requirements.txt")]
    run([*pip, "install", *offline, *quiet, *requirements])
    bundle = os.path.join(folder, "share", "vcs-runtime", "bundles", kit["bundle"])
    print(f"copying the bundle to {bundle}", flush=True)
    shutil.copytree(os.path.join(HERE, "bundle"), bundle)
    run([program(folder, "vcs-runtime"), "bundle", "verify", bundle])
    return bundle


def try_out(kit: Kit, folder: str, bundle: str) -> int:
    """Run `doctor` and score a pair of texts in the new installation."""
    command = program(folder, "vcs-runtime")
    named = [] if kit["bundle"] == "default" else ["--bundle", bundle]
    reference = os.path.join(HERE, "story", "reference.txt")
    generated = os.path.join(HERE, "story", "generated.txt")
    subprocess.call([command, "warm-up"], stdout=subprocess.DEVNULL, env=environment())
    for words in (["doctor"], ["score", reference, generated]):
        print(f"\n$ vcs-runtime {' '.join([*words, *named])}", flush=True)
        code = subprocess.call([command, *words, *named], env=environment())
        if code:
            print(
                (f"install: it is installed in {folder}, but {words[0]} failed ({code})"),
                file=sys.stderr,
            )
            return 1
    print(f"\nto score a file: {' '.join([command, 'score', 'pairs.jsonl', *named])}")
    return 0


def program(folder: str, name: str) -> str:
    """Return the path of a program in an environment."""
    if os.name == "nt":
        return os.path.join(folder, "Scripts", name + ".exe")
    return os.path.join(folder, "bin", name)


def run(command: "List[str]") -> None:  # noqa: UP006
    """Run a command, and raise Refused with the last line that it printed if it fails."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), check=False
    )
    if done.returncode:
        lines = done.stdout.decode("utf-8", "replace").strip().split("\n")
        reason = lines[-1].strip() or "no reason was given"
        raise Refused(
            f"nothing is installed, because this failed: {' '.join(command[:4])} ... ({reason})"
        )


def environment() -> "Dict[str, str]":  # noqa: UP006
    """Return this process's environment without variables that point outside the installation."""
    return {name: value for name, value in os.environ.items() if name not in _IGNORED}


if __name__ == "__main__":
    sys.exit(main())
