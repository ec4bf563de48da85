"""`make attack`: every door for its share of the time, in a process of its own, with a table at the end.

A case that hangs or takes its process down is a finding like any other.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from attack.cases import Door, Finding, Ground, UnavailableError, run_cases
from attack.doors import DOORS
from attack.patience import Patience, said_last
from attack.processes import compile_kernels

# Longer than any honest case takes; a part of it is waited for at a time.
_HANGS_AFTER_S, _LOOK_S = 240, 2.0
# The cases that every run begins with.
_FIXED_SEED = 0
_FIXED_CASES = 20


@dataclass
class Outcome:
    """What came of a door."""

    door: Door
    cases: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    unavailable: str = ""


def main() -> int:
    """Attack, and print what was found. Returns 1 with findings, and for a door without a case."""
    parser = argparse.ArgumentParser(prog="make attack", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=float(os.environ.get("ATTACK_MINUTES", 9)), help="wall clock [9]"
    )
    parser.add_argument("--seed", type=int, default=os.environ.get("ATTACK_SEED"), help="[a fresh one]")
    parser.add_argument(
        "--door",
        action="append",
        choices=[door.name for door in DOORS],
        help="only this one; may be repeated",
    )
    parser.add_argument("--case", type=int, help="only this case of the door; its folder is kept")
    parser.add_argument("--processes", type=int, default=2, help="doors at a time [2]")
    parser.add_argument("--child", nargs=3, metavar=("BUNDLE", "FOLDER", "SECONDS"), help=argparse.SUPPRESS)
    parser.add_argument("--to", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    doors = [door for door in DOORS if not given.door or door.name in given.door]
    seed = secrets.randbelow(10**9) if given.seed is None else int(given.seed)
    if given.child:
        return _child(doors[0], seed, *given.child, case=given.case, to=given.to)
    from support.tiny_bert import build_tiny_bundle

    folder = Path(tempfile.mkdtemp(prefix="vcs-attack-"))
    print(
        f"seed {seed}; {len(doors)} doors; {given.processes} at a time; at most {given.minutes:g} minutes",
        flush=True,
    )
    bundle = build_tiny_bundle(folder)
    compile_kernels()
    shares = sum(door.share for door in doors)
    budget = 60 * given.minutes * given.processes

    def attack(door: Door) -> Outcome:
        outcome = _attack(door, seed, bundle, folder, budget * door.share / shares, given.case)
        print(
            f"  {door.name}: {outcome.unavailable or f'{outcome.cases:,} cases, {len(outcome.findings)} findings'}",
            flush=True,
        )
        return outcome

    with ThreadPoolExecutor(given.processes) as pool:
        # The longest first, so that none is left alone at the end.
        outcomes = list(pool.map(attack, sorted(doors, key=lambda door: -door.share)))
    outcomes.sort(key=lambda outcome: DOORS.index(outcome.door))
    _show(outcomes, seed)
    if given.case is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"the folder of the case is below {folder}")
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def _show(outcomes: list[Outcome], seed: int) -> None:
    for outcome in outcomes:
        for number, finding in enumerate(outcome.findings):
            if number == 10:
                print(f"... and {len(outcome.findings) - 10} more findings of {outcome.door.name}")
                break
            print(f"\n{finding.door} case {finding.case}: {finding.complaint}\n  again: {finding.repeat}")
    print(f"\n{'attack':<14}{'cases':>8}{'findings':>10}{'seconds':>9}  what")
    for outcome in outcomes:
        about = f"not here: {outcome.unavailable}" if outcome.unavailable else outcome.door.about
        print(
            f"{outcome.door.name:<14}{outcome.cases:>8,}{len(outcome.findings):>10}{outcome.seconds:>9.0f}  {about}"
        )
    cases, findings = sum(o.cases for o in outcomes), sum(len(o.findings) for o in outcomes)
    print(f"{'all':<14}{cases:>8,}{findings:>10}{sum(o.seconds for o in outcomes):>9.0f}  seed {seed}")


def _attack(door: Door, seed: int, bundle: Path, folder: Path, seconds: float, case: int | None) -> Outcome:
    """Attack a door in processes of its own: first the cases of the fixed seed, then fresh ones."""
    outcome = Outcome(door)
    begun = time.monotonic()
    end = begun + seconds
    fixed = case is None and seed != _FIXED_SEED
    if fixed:
        # They leave time for fresh ones.
        _process(outcome, _FIXED_SEED, bundle, folder, begun + seconds / 2, 0, _FIXED_CASES)
    first, tried = case or 0, False
    while not outcome.unavailable and (time.monotonic() < end or not tried):
        # After a crash the next case begins in a new process.
        first = _process(outcome, seed, bundle, folder, end, first, None if case is None else 1)
        tried = True
        if case is not None or first < 0 or len(outcome.findings) > 200:
            break
    if not outcome.cases and not outcome.unavailable and not outcome.findings:
        outcome.findings.append(Finding(door.name, seed, first, "no case was performed"))
    outcome.seconds = time.monotonic() - begun
    return outcome


def _process(
    outcome: Outcome, seed: int, bundle: Path, folder: Path, end: float, first: int, cases: int | None
) -> int:
    """Run cases in a process; returns the case to go on with after a crash, or -1."""
    door = outcome.door
    own = folder / f"{door.name}-{time.monotonic_ns()}"
    own.mkdir()
    read, write = os.pipe()
    command = _command(
        door, seed, first, cases, [str(bundle), str(own), str(max(0.0, end - time.monotonic()))]
    )
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "ATTACK_REPORTS": str(write), "ATTACK_MAY_MOUNT": str(int(command[0] == "unshare")),
        "ORT_DISABLE_TELEMETRY": "1", "VCS_RUNTIME_HOME": str(own / "home"),
    }  # fmt: skip
    environment.pop("COLUMNS", None)
    case, done = first, False
    with (own / "said").open("wb") as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, pass_fds=(write,)
        )
    os.close(write)
    rest, patience = b"", Patience(process.pid, _HANGS_AFTER_S)
    with os.fdopen(read, "rb", buffering=0) as reports:
        while True:
            # Making ready counts as a case: it may have to compile.
            if not select.select([reports], [], [], _LOOK_S)[0]:
                if not patience.is_over(_LOOK_S):
                    continue
                process.send_signal(signal.SIGABRT)  # it says where it is
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                process.kill()
                complaint = (
                    f"it hangs: nothing was reported, and it {patience.why}: {said_last(own / 'said')}"
                )
                outcome.findings.append(Finding(door.name, seed, case, complaint))
                break
            patience.begin()
            if not (part := reports.read(1 << 16)):
                break
            *lines, rest = (rest + part).split(b"\n")
            for line in lines:
                report = json.loads(line)
                if "begun" in report:
                    outcome.cases += report["begun"] > case
                    case = report["begun"]
                elif "unavailable" in report:
                    outcome.unavailable, done = report["unavailable"], True
                elif "done" in report:
                    done = True
                else:
                    outcome.findings.append(Finding(**report))
    code = process.wait()
    if done:
        if cases != 1:  # a single case leaves its folder
            shutil.rmtree(own, ignore_errors=True)
        return -1
    if not patience.why:
        complaint = f"it took its process down (exit code {code}): {said_last(own / 'said')}"
        outcome.findings.append(Finding(door.name, seed, case, complaint))
    return case + 1


def _command(door: Door, seed: int, first: int, cases: int | None, child: list[str]) -> list[str]:
    """Return the command of a process that performs cases; where it may, with mounts of its own."""
    command = [sys.executable, "-m", "attack", "--door", door.name, "--seed", str(seed), "--case", str(first)]
    command += ["--child", *child, *(["--to", str(first + cases)] if cases else [])]
    may_mount = (
        door.name == "disk"
        and sys.platform == "linux"
        and not subprocess.run(["unshare", "-rm", "true"], check=False).returncode
    )
    return ["unshare", "-rm", *command] if may_mount else command


def _child(
    door: Door, seed: int, bundle: str, folder: str, seconds: str, *, case: int, to: int | None
) -> int:
    """Perform the cases of a door, and report each through a pipe."""
    if door.name != "pages":  # Chromium reserves far more than it uses
        _bound_memory()
    faulthandler.enable()  # a crash shows where
    pipe = int(os.environ["ATTACK_REPORTS"])
    os.set_inheritable(pipe, False)
    reports = os.fdopen(pipe, "w", buffering=1)

    def say(**report: object) -> None:
        print(json.dumps(report), file=reports)

    count = None if to is None else to - case
    try:
        ground = Ground(Path(bundle), Path(folder))
        limit = None if count == 1 else float(seconds)
        for finding in run_cases(
            door,
            ground,
            seed,
            first=case,
            cases=count,
            seconds=limit,
            begun=lambda number: say(begun=number),
            keep=count == 1,
        ):
            say(**asdict(finding))
        say(done=True)
    except UnavailableError as error:
        say(unavailable=str(error))
    return 0


def _bound_memory() -> None:
    """Let an attack on memory end in an error of this process, not in that of another."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))


if __name__ == "__main__":
    sys.exit(main())
