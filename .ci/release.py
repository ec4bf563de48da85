"""Build what is published, check it, and tag it: `make release`, docs/development/releasing.md.

Both archives are built from the committed files alone, in a new folder, and end up in `dist`.
Nothing is uploaded: pushing the tag does that (`.github/workflows/publish.yml`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: Where committed files lie in the wheel.
PLACES: Final = {
    "vcs_numba/": "vcs_numba/",
    "runtime/vcs_runtime/": "vcs_runtime/",
    "export/vcs_export/": "vcs_export/",
    "models/": "vcs_export/models/",
    "runtime/include/": "vcs_runtime/capi/include/",
    "runtime/examples/": "vcs_runtime/capi/examples/",
}
#: Most bytes of an archive; PyPI takes 100 MB.
LIMITS: Final = {".whl": 4_000_000, ".gz": 10_000_000}
#: What nobody meant to publish: keys, tokens, and folders of the machine that built.
UNWANTED: Final = {
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a token": rb"\b(?:pypi-AgE|ghp_|github_pat_|hf_|AKIA)[A-Za-z0-9_]{16,}",
    "a folder of a user": rb"(?<![\w.])(?:/(?:home|Users)/\w+|/root|[A-Z]:\\Users\\\w+)[/\\]\w",
}


class Refused(Exception):
    """What is wrong, in a sentence a line."""


def facts(root: Path, *, tagging: bool = False, today: str | None = None) -> tuple[str, list[str]]:
    """Compare what the files of the project say about the release.

    Parameters
    ----------
    root
        The project.
    tagging
        Whether the release is about to be published: then the address of the repository must be
        known, and no change may be waiting for a later release.
    today
        The date that the release must have, as in "2026-01-31". None: any.

    Returns
    -------
    version
        The version of the package.
    problems
        One sentence for each thing that does not agree.
    """
    version = _one(r'__version__ = "(.+)"', root / "runtime/vcs_runtime/_version.py")
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## \[(.+?)\](?: - (\S+))?$", changelog, re.M) or [("", "")]
    pending = ""
    if headings[0][0] == "Unreleased":
        pending = re.split(r"^## .*$", changelog, flags=re.M)[1].strip()
        headings = headings[1:] or [("", "")]
    newest, date = headings[0]
    problems = []
    if newest != version:
        problems.append(
            f"CHANGELOG.md: the newest release is {newest or 'missing'}, the package is {version}"
        )
    citation = root / "CITATION.cff"
    if (cited := _one(r"^version: (\S+)$", citation)) != version:
        problems.append(f"CITATION.cff: version is {cited}, not {version}")
    if (released := _one(r'^date-released: "(.+)"$', citation)) != date:
        problems.append(
            f"CITATION.cff: date-released is {released}, CHANGELOG.md says {date or 'nothing'}"
        )
    if today and date != today:
        problems.append(f"CHANGELOG.md: {version} is dated {date or 'nothing'}, today is {today}")
    repository = address(root)
    if tagging and pending:
        problems.append("CHANGELOG.md: move what is unreleased below the heading of the release")
    if tagging and not repository:
        problems.append('pyproject.toml: [project.urls] has no Repository = "https://..."')
    if repository and f"repository-code: {repository}\n" not in citation.read_text("utf-8"):
        problems.append(f"CITATION.cff: add the line `repository-code: {repository}`")
    return version, problems


def address(root: Path) -> str | None:
    """Return the repository's address in `pyproject.toml`, or None if no owner has entered one."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    repository: str | None = project.get("urls", {}).get("Repository")
    return repository


def _one(pattern: str, path: Path) -> str:
    found = re.search(pattern, path.read_text("utf-8"), re.M)
    return found[1] if found else "missing"


def wheel_names(tracked: Iterable[str], version: str) -> set[str]:
    """Return the names that a wheel must have: exactly the committed files that belong there."""
    names = {
        place + path.removeprefix(folder)
        for path in tracked
        for folder, place in PLACES.items()
        if path.startswith(folder)
    }
    about = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    return names | {f"vcs_runtime-{version}.dist-info/{name}" for name in about}


def check_wheel(wheel: Path, tracked: Iterable[str], version: str) -> None:
    """Check names and contents of a wheel; raises Refused."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    _check(wheel, contents, wheel_names(tracked, version))
    about = contents[f"vcs_runtime-{version}.dist-info/METADATA"].decode()
    if links := relative_links(about):
        raise Refused(
            f"{wheel.name}: a package index cannot follow {', '.join(links)} in the README"
        )


def relative_links(text: str) -> list[str]:
    """Return where links and images of Markdown lead that are not absolute; code is left out."""
    prose = re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.M | re.S)
    found = re.findall(
        r"\]\(\s*([^)\s]*)|^\[[^\]]+\]:\s*(\S+)|\b(?:href|src)\s*=\s*[\"']?([^\s\"'>]+)",
        prose,
        re.M,
    )
    return [link for link in map("".join, found) if not re.match(r"https?://|mailto:", link)]


def check_source(archive: Path, tracked: Iterable[str], version: str) -> None:
    """Check that a source archive holds all committed files, tests among them; raises Refused."""
    top = f"vcs_runtime-{version}/"
    contents = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            contents[member.name.removeprefix(top)] = file.read() if file else b""
    _check(archive, contents, {*tracked, "PKG-INFO"})


def _check(path: Path, contents: dict[str, bytes], expected: set[str]) -> None:
    problems = [f"{name} should not be in it" for name in sorted(contents.keys() - expected)]
    problems += [f"{name} is missing" for name in sorted(expected - contents.keys())]
    for name, content in sorted(contents.items()):
        for what, pattern in UNWANTED.items():
            if found := re.search(pattern, content):
                problems.append(f"{name} holds {what}: {found[0][:40]!r}")
    if (size := path.stat().st_size) > (limit := LIMITS[path.suffix]):
        problems.append(f"it has {size:,} bytes, more than {limit:,}")
    if problems:
        raise Refused("\n".join(f"{path.name}: {problem}" for problem in problems))


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command and return what it printed; raises Refused."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path, tracked: Sequence[str], version: str) -> list[Path]:
    """Build both archives from the committed files, check them, and return their paths."""
    source, dist, again = folder / "source", folder / "dist", folder / "again"
    source.mkdir()
    archive = folder / "source.tar"
    run("git", "archive", "--output", archive, "HEAD", cwd=ROOT)
    with tarfile.open(archive) as tar:
        tar.extractall(source, filter="data")
    # Without options `build` makes the wheel out of the source archive.
    run(sys.executable, "-m", "build", "--outdir", dist, source)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", again, source)
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    print(run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist).strip())
    check_wheel(wheel, tracked, version)
    check_source(sdist, tracked, version)
    if wheel.read_bytes() != (again / wheel.name).read_bytes():
        raise Refused("the wheels from the source archive and from the committed files differ")
    print(
        f"checked: names, contents and sizes; {len(wheel_names(tracked, version))} files in the"
        f" wheel, {len(tracked) + 1} in the source archive, which builds the same wheel"
    )
    return [wheel, sdist]


def try_wheel(wheel: Path, folder: Path, version: str) -> None:
    """Install a wheel as a user does, and score a pair if the default bundle is on this machine."""
    venv.create(folder / "try", with_pip=True)
    programs = folder / "try" / ("Scripts" if os.name == "nt" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", f"{wheel}[cpu,default]")
    printed = run(programs / "vcs-runtime", "--version", cwd=folder).strip()
    if not printed.endswith(f" {version}"):
        raise Refused(f"the wheel says {printed!r}, not {version}")
    print(f"installed: {printed}")
    home = (
        "from vcs_runtime.bundle.paths import default_bundle_path as path; print(path().is_dir())"
    )
    if run(programs / "python", "-c", home, cwd=folder).strip() != "True":
        print("not scored: `vcs-runtime fetch default` has not been run on this machine")
        return
    (folder / "pair.jsonl").write_text(
        '{"reference": "A man opens the door.", "generated": "He opens it."}'
    )
    table = run(programs / "vcs-runtime", "score", "pair.jsonl", "--json", cwd=folder)
    print(f"scored: {json.loads(table)['scored']} pair with the default bundle")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make a release; end with exit code 1 and the reasons if something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--tag", action="store_true", help="tag the commit; the release must be of today"
    )
    parser.add_argument(
        "--for-tag", metavar="NAME", help="refuse any version but the one of this tag"
    )
    given = parser.parse_args(arguments)
    try:
        release(tag=given.tag, for_tag=given.for_tag)
    except Refused as refused:
        sys.exit(f"refused:\n{refused}")


def release(*, tag: bool, for_tag: str | None) -> None:
    """Check, build, try, and tag; raises Refused."""
    today = datetime.now(UTC).date().isoformat() if tag else None
    version, problems = facts(ROOT, tagging=tag or for_tag is not None, today=today)
    name = f"v{version}"
    if for_tag not in (None, name):
        problems.append(f"the tag is {for_tag}, the package is {version}")
    if changed := run("git", "status", "--porcelain", cwd=ROOT):
        problems.append(f"commit or remove what is not committed:\n{changed.rstrip()}")
    if tag and run("git", "tag", "--list", name, cwd=ROOT):
        problems.append(f"the tag {name} exists already")
    if problems:
        raise Refused("\n".join(problems))
    print(f"version: {version}, as in CHANGELOG.md and CITATION.cff; all is committed")
    cffconvert = Path(sys.executable).with_name("cffconvert")
    print(run(cffconvert, "--validate", "-i", ROOT / "CITATION.cff").strip())
    tracked = run("git", "ls-files", cwd=ROOT).splitlines()
    with tempfile.TemporaryDirectory(prefix="vcs-release-") as temporary:
        archives = build(Path(temporary), tracked, version)
        try_wheel(archives[0], Path(temporary), version)
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        (ROOT / "dist").mkdir()
        for archive in archives:
            shutil.copy2(archive, ROOT / "dist")
            digest = hashlib.sha256(archive.read_bytes()).hexdigest()
            print(f"{digest}  dist/{archive.name} ({archive.stat().st_size:,} bytes)")
    if tag:
        run("git", "tag", "--annotate", name, "--message", f"vcs-runtime {version}", cwd=ROOT)
        print(f"tagged: {name}; `git push origin {name}` publishes it")
    elif not address(ROOT):
        print(
            'not ready to publish: pyproject.toml, [project.urls] has no Repository = "https://..."'
        )


if __name__ == "__main__":
    main()
