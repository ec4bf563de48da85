"""Doors see a defect that is planted for them: a check that cannot fail would find nothing either."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import vcs_numba
from attack.cases import Door, Ground, UnavailableError, run_cases
from attack.doors import DOORS
from attack.jobs import python_was_starting
from attack.patience import Patience
from vcs_runtime.errors import InputError
from vcs_runtime.inference import vector_cache
from vcs_runtime.jobs.output import OutputFile

Plant = Callable[[pytest.MonkeyPatch], object]
DOORS_BY_NAME = {door.name: door for door in DOORS}


def replace(target: str, make: Callable[[Any], Any]) -> Plant:
    """Put what `make` makes of a function in its place."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        module, _, name = target.rpartition(".")
        owner: Any = OutputFile if module == "OutputFile" else pytest.importorskip(module)
        monkeypatch.setattr(owner, name, make(getattr(owner, name)))

    return plant


def nothing(_: Any) -> Callable[..., None]:
    return lambda *arguments, **options: None


def raises(error: Exception) -> Callable[[Any], Any]:
    def raising(*arguments: object, **options: object) -> None:
        raise error

    return lambda _: raising


def without_the_last(append: Any) -> Any:
    def lossy(self: OutputFile, records: Iterable[Any]) -> None:
        listed = list(records)
        append(self, listed[: -1 if len(listed) > 1 else None])

    return lossy


def writes_elsewhere(check: Any) -> Any:
    def stray(*arguments: Any, **options: Any) -> Any:
        if Path("in").is_dir():  # in the folder of a case, and not where the tests run
            Path("stray").touch()
        return check(*arguments, **options)

    return stray


def a_little_more(score_batch: Any) -> Any:
    def shifted(*arguments: Any) -> Any:
        scores = score_batch(*arguments)
        scores["vcs"] += 1e-9
        return scores

    return shifted


def copied_unchecked(_: Any) -> Any:
    def copy(source: Any, output: Any, entry: Any, name: str, advance: Any) -> None:
        output.write(source.read(entry.size))

    return copy


def swallows_errors(write: Any) -> Any:
    def quiet(self: OutputFile, content: bytes) -> None:
        with suppress(InputError):
            write(self, content)

    return quiet


class Forgetful(set[Any]):
    def add(self, _: object) -> None:
        pass


def leaves_caches_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_cache._forks, "caches", Forgetful())
    monkeypatch.setattr("attack.processes.Patience", partial(Patience, asleep_s=10))


def draws_texts_as_markup(script: Any) -> Any:
    as_text = "node.append(...children.filter((child) => child !== null));"
    as_markup = (
        "for (const child of children.filter((child) => child !== null)) "
        'if (typeof child === "string") node.insertAdjacentHTML("beforeend", child); else node.append(child);'
    )
    assert as_text in script()
    return lambda: script().replace(as_text, as_markup)


QUICK: dict[str, tuple[str, Plant, str]] = {
    "a line is lost": ("files", replace("OutputFile.append", without_the_last), "lines for"),
    "a traceback": ("arguments", replace("vcs_runtime.cli.compare.compare_files", raises(KeyError("x"))), "exit code 3"),
    "a stray file": ("arguments", replace("vcs_runtime.cli.score.is_text_pair", writes_elsewhere), "which is no output"),
    "a torn line stays": ("results", replace("OutputFile.end_last_line", nothing), "other bytes|JSONDecodeError"),
    "a damaged score is taken": ("results", replace("vcs_runtime.jobs.score_files.check_line", nothing), "defect"),
    "an undocumented error": ("api", replace("vcs_runtime.scoring.scorer.as_pairs", raises(KeyError("x"))), "an exception"),
    "a batch scores otherwise": ("core", lambda m: m.setattr(vcs_numba, "score_batch", a_little_more(vcs_numba.score_batch)), "a batch has"),
    "an unexpected status": ("server", replace("vcs_runtime.serve.app.read_question", raises(KeyError("x"))), "status 500"),
    "other weights are taken": ("bundles", replace("vcs_runtime.bundle.archive.copy_checked", copied_unchecked), "another bundle"),
}  # fmt: skip
SLOW: dict[str, tuple[str, Plant, str]] = {
    "a broken row is taken": ("files", replace("vcs_runtime.jobs.pairs.checked_id", lambda _: lambda name, place, key: name), "another reading fails|an exception"),
    "a killed job loses a line": ("kills", replace("OutputFile.append", without_the_last), "differs from that of an undisturbed run"),
    "a change of the output goes unnoticed": ("disturbances", replace("OutputFile.check", nothing), "lines are lost|changed the file of another"),
    "two jobs may write one file": ("writers", replace("vcs_runtime.jobs.output._lock", nothing), "refused only after"),
    "a cache stays open through a fork": ("fork", leaves_caches_open, "hangs|exit code"),
    "a failed write is taken for a success": ("specials", replace("OutputFile._write", swallows_errors), "wrong exit code"),
    "texts become markup": ("pages", replace("vcs_runtime.report.page._script", draws_texts_as_markup), "elements of a payload|console|request"),
    "an internal error": ("capi", replace("vcs_runtime.capi.memory.matrix_at", raises(KeyError("x"))), "status 7"),
}  # fmt: skip


def found(door: Door, bundle: Path, folder: Path, cases: int, says: str) -> list[str]:
    """Return what a door found, up to the first complaint that says one of these words; five at most."""
    complaints: list[str] = []
    try:
        with closing(run_cases(door, Ground(bundle, folder), 20, cases=cases)) as findings:
            for finding in islice(findings, 5):
                complaints.append(finding.complaint)
                if any(word in finding.complaint for word in says.split("|")):
                    break
    except UnavailableError as reason:
        pytest.skip(str(reason))
    return complaints


@pytest.mark.parametrize("defect", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_a_planted_defect_is_found(
    defect: str, tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, plant, says = (QUICK | SLOW)[defect]
    plant(monkeypatch)
    complaints = found(DOORS_BY_NAME[name], tiny_bundle, tmp_path, 300, says)
    assert complaints, "300 cases found nothing"
    assert any(word in complaint for word in says.split("|") for complaint in complaints), complaints


@pytest.mark.slow
def test_a_write_that_a_full_disk_ends_is_not_taken_for_a_success(tiny_bundle: Path, tmp_path: Path) -> None:
    # In a process of its own, which may mount a disk that nobody else sees.
    unshare = ["unshare", "-rm", "true"]
    if sys.platform != "linux" or subprocess.run(unshare, check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a disk of their own")
    code = f"""
from pathlib import Path
from test_planted_defects import DOORS_BY_NAME, OutputFile, found, swallows_errors
OutputFile._write = swallows_errors(OutputFile._write)
print(found(DOORS_BY_NAME["disk"], Path({str(tiny_bundle)!r}), Path({str(tmp_path)!r}), 20, "differs"))
"""
    path = os.pathsep.join((str(Path(__file__).parent), *filter(None, sys.path)))
    done = subprocess.run(
        [*unshare[:2], sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ATTACK_MAY_MOUNT": "1", "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "differs from that of an undisturbed run" in done.stdout


@pytest.mark.parametrize(("file", "starting"), [("__init__", True), ("__main__", False)])
def test_a_traceback_of_ctrl_c_is_let_pass_only_before_the_command_begins(
    file: str, starting: bool, tmp_path: Path
) -> None:
    package = tmp_path / "package"
    package.mkdir()
    for name in ("__init__", "__main__"):
        (package / f"{name}.py").write_text("def main():\n    raise KeyboardInterrupt\n")
    with (package / f"{file}.py").open("a") as module:
        module.write("main()\n" if file == "__main__" else "raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, "-m", "package"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert python_was_starting(done.stderr) is starting, done.stderr
