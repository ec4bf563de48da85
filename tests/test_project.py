"""Versions, dates, addresses and Pythons of the project agree; what an archive may hold."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import tarfile
import tomllib
import types
import warnings
import zipfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support import locks
from vcs_runtime import __version__
from vcs_runtime.cli.citation import LINKS

ROOT = Path(__file__).parents[1]
SAYING = ("pyproject.toml", "CHANGELOG.md", "CITATION.cff", "runtime/vcs_runtime/_version.py")


def _load(name: str, path: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = _load("release", ".ci/release.py")


@pytest.fixture
def for_an_index(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str | None, str], str]:
    """What makes the README of a package.

    Hatchling, which calls it, is only where packages are built.
    """
    interface = types.ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = object  # type: ignore[attr-defined]
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    made: Callable[[str, str | None, str], str] = _load(
        "hatch_build", "hatch_build.py"
    ).for_an_index
    return made


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def project() -> Any:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[str, str, str], Path]:
    """Change a file of a copy of what says something about the release."""
    for name in SAYING:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)

    def change(name: str, old: str, new: str) -> Path:
        text = (tmp_path / name).read_text("utf-8")
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new, 1), "utf-8")
        return tmp_path

    return change


def test_version_changelog_and_citation_agree() -> None:
    assert release.facts(ROOT) == (__version__, [])


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        (
            "CITATION.cff",
            f"\nversion: {__version__}\n",
            "\nversion: 9.9\n",
            "CITATION.cff: version is 9.9",
        ),
        ("CITATION.cff", "date-released: ", "released: ", "CITATION.cff: date-released is missing"),
        ("CHANGELOG.md", f"## [{__version__}]", "## [9.9]", "the newest release is 9.9"),
        (
            "CHANGELOG.md",
            f"## [{__version__}] - ",
            f"## [{__version__}] ",
            "the newest release is missing",
        ),
        ("runtime/vcs_runtime/_version.py", __version__, "9.9", "not 9.9"),
        (
            "pyproject.toml",
            "[project.urls]\n",
            '[project.urls]\nRepository = "https://example.org/r"\n',
            "add the line `repository-code: https://example.org/r`",
        ),
    ],
)
def test_what_disagrees_is_named(
    copy: Callable[[str, str, str], Path], name: str, old: str, new: str, problem: str
) -> None:
    _, problems = release.facts(copy(name, old, new))
    assert any(problem in said for said in problems), problems


def test_nothing_is_tagged_without_an_address_on_another_day_or_with_changes_left(
    copy: Callable[[str, str, str], Path],
) -> None:
    root = copy("CHANGELOG.md", "## [Unreleased]\n", "## [Unreleased]\n- One more change.\n")
    _, problems = release.facts(root, tagging=True, today="1999-12-31")
    assert [problem.partition(":")[0] for problem in problems] == [
        "CHANGELOG.md",
        "CHANGELOG.md",
        "pyproject.toml",
    ]
    assert "today is 1999-12-31" in problems[0]
    assert "move what is unreleased" in problems[1]
    assert "Repository" in problems[2]


def test_a_release_with_an_address_can_be_tagged(copy: Callable[[str, str, str], Path]) -> None:
    copy("CITATION.cff", "license: ", "repository-code: https://example.org/r\nlicense: ")
    copy("CHANGELOG.md", "## [Unreleased]\n", "")
    root = copy(
        "pyproject.toml",
        "[project.urls]\n",
        '[project.urls]\nRepository = "https://example.org/r"\n',
    )
    date = load(root / "CITATION.cff")["date-released"]
    assert release.facts(root, tagging=True, today=date) == (__version__, [])


TRACKED = ("vcs_numba/core.py", "runtime/include/a.h", "tests/test_a.py", "README.md")
ABOUT = [
    f"vcs_runtime-1.0.dist-info/{name}"
    for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
]
GOOD = ("vcs_numba/core.py", "vcs_runtime/capi/include/a.h", *ABOUT)
KEY = b"-----BEGIN " + b"PRIVATE KEY-----"  # in two parts, for the check of the source archive


@pytest.mark.parametrize(
    ("names", "content", "problem"),
    [
        (GOOD, b"", None),
        ((*GOOD, "tests/test_a.py"), b"", "tests/test_a.py should not be in it"),
        (GOOD[1:], b"", "vcs_numba/core.py is missing"),
        (GOOD, b"x = 1\n" + KEY, "a private key"),
        (GOOD, b"token = '" + b"gh" + b"p_" + b"a1" * 18 + b"'", "a token"),
        (GOOD, b"path = '/" + b"home/somebody/data'", "a folder of a user"),
        (GOOD, bytes(4_000_001), "4,0"),
    ],
)
def test_a_wheel_holds_what_it_should_and_nothing_else(
    tmp_path: Path, names: tuple[str, ...], content: bytes, problem: str | None
) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, content if name == "vcs_numba/core.py" else b"")
    if problem is None:
        release.check_wheel(wheel, TRACKED, "1.0")
    else:
        with pytest.raises(release.Refused, match=re.escape(problem)):
            release.check_wheel(wheel, TRACKED, "1.0")


def test_a_wheel_whose_readme_has_a_relative_link_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in GOOD:
            archive.writestr(
                name, "![a](b.png) [c](https://d)" if name.endswith("METADATA") else ""
            )
    with pytest.raises(release.Refused, match=r"cannot follow b\.png in the README$"):
        release.check_wheel(wheel, TRACKED, "1.0")


@pytest.mark.parametrize("repository", [None, "https://example.org/r"])
def test_the_readme_of_a_package_has_no_relative_link(
    repository: str | None, for_an_index: Callable[[str, str | None, str], str]
) -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(release.relative_links(readme)) > 30
    made = for_an_index(readme, repository, "1.0")
    assert release.relative_links(made) == []
    assert made.count("```") == readme.count("```")
    if repository is None:
        assert "[which number to report]" not in made
        assert len(re.findall(r"\]\(https:", made)) == len(re.findall(r"\]\(https:", readme))
    else:
        assert "](https://example.org/r/raw/v1.0/docs/images/report-pair.png)" in made
        assert "[manual](https://example.org/r/blob/v1.0/docs/README.md)" in made
        heading = "README.md#which-number-do-i-report"
        assert f"[which number to report](https://example.org/r/blob/v1.0/{heading})" in made


def test_code_keeps_what_looks_like_a_link(
    for_an_index: Callable[[str, str | None, str], str],
) -> None:
    code = "```python\na[0](b)\n```"
    assert for_an_index(f"[x](y)\n\n{code}\n\n[x](y)", None, "1.0") == f"x\n\n{code}\n\nx"


def test_a_source_archive_without_its_tests_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in ("README.md", "PKG-INFO", "vcs_numba/core.py", "runtime/include/a.h"):
            tar.addfile(tarfile.TarInfo(f"vcs_runtime-1.0/{name}"))
    with pytest.raises(release.Refused, match=r"^a.tar.gz: tests/test_a.py is missing$"):
        release.check_source(path, TRACKED, "1.0")


def test_workflows_test_every_python_that_is_promised() -> None:
    promised = [
        name.rpartition(" ")[2]
        for name in project()["classifiers"]
        if re.search(r"Python :: 3\.\d", name)
    ]
    lowest = project()["requires-python"].removeprefix(">=")
    jobs = load(ROOT / ".github/workflows/test.yml")["jobs"]
    assert promised[0] == lowest
    assert promised == [
        f"3.{minor}" for _, minor in zip(promised, count(int(lowest[2:])), strict=False)
    ]
    oldest = jobs.pop("lowest")  # of the dependencies, for which the oldest Python has wheels
    assert [
        step["with"]["python-version"]
        for step in oldest["steps"]
        if "setup-python" in step.get("uses", "")
    ] == [lowest]
    # A Python is promised after it has been run, so that the workflow may be ahead.
    for job in jobs.values():
        assert job["strategy"]["matrix"]["python"][: len(promised)] == promised
    systems = {
        system
        for job in jobs.values()
        for system in job["strategy"]["matrix"].get("os", [job["runs-on"]])
    }
    assert systems == {"ubuntu-latest", "macos-latest", "windows-latest"}


def test_addresses_are_those_of_the_citation() -> None:
    urls = dict(project()["urls"])
    urls.pop("Repository", None)
    assert set(urls.values()) == set(LINKS.values())
    assert {source["url"] for source in load(ROOT / "CITATION.cff")["references"]} == set(
        LINKS.values()
    )


def test_the_locks_hold_a_version_within_bounds_of_everything_that_is_asked_for() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    asked = {"base": wanted["project"]["dependencies"], **wanted["dependency-groups"]}
    asked |= wanted["project"]["optional-dependencies"]
    for name in asked.keys() - {"gpu", "tensorrt"}:  # which no environment of `make` installs
        own = ROOT / f"tests/locks/{name}.txt"
        versions = locks.locked(own if own.exists() else ROOT / "tests/locks/main.txt")
        for requirement in map(Requirement, asked[name]):
            # The Makefile names the version of PyTorch.
            if requirement.name != "torch" and (
                requirement.marker is None or requirement.marker.evaluate()
            ):
                assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)])


def test_a_failed_run_with_other_versions_can_name_them(tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(
        "# made\na==1.0\nB.c==2.0 ; python_version < '3'\nb-c==3.0 ; python_version > '3'\n"
    )
    assert locks.differing(lock, {"a": "1.0", "b-c": "3.0"}) == []
    assert locks.differing(lock, {"a": "1.1", "b-c": "2.0", "d": "4"}) == [
        "a 1.1 (the lock has 1.0)",
        "b-c 2.0 (the lock has 3.0)",
        "d 4 (the lock has none)",
    ]


OURS = (
    "vcs_numba.matching vcs_runtime vcs_experiments.cli vcs_visil.cli vcs_export.graph"
    " tests.core.test_golden support.locks attack.drawn benchmarks.core __main__"
).split()


@pytest.mark.parametrize("category", [DeprecationWarning, PendingDeprecationWarning, FutureWarning])
@pytest.mark.parametrize("module", OURS)
def test_what_our_own_modules_do_against_advice_is_an_error(
    module: str, category: type[Warning]
) -> None:
    with pytest.raises(category):
        warnings.warn_explicit("old", category, "a.py", 1, module=module)


@pytest.mark.parametrize("category", [DeprecationWarning, PendingDeprecationWarning, FutureWarning])
@pytest.mark.parametrize("module", ["numba.core", "vcs", "testsuite", "supported.by"])
def test_what_a_library_deprecates_in_a_library_is_no_error(
    module: str, category: type[Warning]
) -> None:
    warnings.warn_explicit("old", category, "a.py", 1, module=module)
    with pytest.raises(RuntimeWarning):
        warnings.warn_explicit("wrong", RuntimeWarning, "a.py", 1, module=module)


def test_a_warning_of_a_test_belongs_to_our_modules() -> None:
    assert __name__ == "tests.test_project"
    with pytest.raises(DeprecationWarning):
        warnings.warn("old", DeprecationWarning, stacklevel=1)
