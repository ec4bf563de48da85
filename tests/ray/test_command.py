"""`vcs-runtime score --runner ray`, and the cluster that it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.processes import captured, run_python
from support.ray_processes import PATIENT, run_patiently
from support.waiting import PROGRESS
from vcs_runtime.cli import cli

ALONE = """
    import glob, json, os
    from vcs_runtime.ray import connected

    def listening():
        inodes = set()
        for link in glob.glob("/proc/[0-9]*/fd/*"):
            try:
                process, target = int(link.split("/")[2]), os.readlink(link)
                session = os.getpgid(process) == os.getpgid(0)
            except OSError:
                continue
            if session and target.startswith("socket:["):
                inodes.add(target[8:-1])
        found = []
        for kind in ("tcp", "tcp6"):
            with open(f"/proc/net/{kind}") as table:
                for row in map(str.split, list(table)[1:]):
                    if row[3] == "0A" and row[9] in inodes:
                        found.append(row[1].split(":")[0])
        return found

    with connected():
        import ray
        from ray._common.usage.usage_lib import usage_stats_enabled
        print(json.dumps([listening(), usage_stats_enabled(), os.environ["RAY_AUTH_MODE"], \
ray.nodes()[0]["NodeName"]]))
    print(ray.is_initialized())
"""
# 127.0.0.1 as /proc/net shows it: in IPv4, and mapped to IPv6.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def vcs(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vcs_runtime", "score", *map(str, arguments)]
    done = captured(command)
    # Said every 30 s, so by a slow machine only.
    done.stderr = PROGRESS.sub("", done.stderr)
    return done


@pytest.mark.ray
def test_a_cluster_of_its_own_listens_to_nobody_else_and_reports_nothing() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = run_patiently(
        [sys.executable, "-c", textwrap.dedent(ALONE)],
        env=environment | PATIENT,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    line, after = done.stdout.splitlines()
    addresses, reports, mode, name = json.loads(line)
    assert len(addresses) >= 3  # of the head's servers at least
    assert set(addresses) <= LOOPBACK
    assert (reports, mode, name, after) == (False, "token", "127.0.0.1", "False")


def test_the_command_says_what_it_says_without_ray(
    cluster: str, tiny_bundle: Path, source: Path, plain: bytes, tmp_path: Path
) -> None:
    engine = ("--bundle", os.path.relpath(tiny_bundle), "--json")
    alone = vcs(source, "-o", tmp_path / "a.jsonl", *engine)
    on_ray = vcs(
        source, "-o", tmp_path / "b.jsonl", *engine, "--runner", "ray", "--address", cluster
    )
    assert (alone.returncode, on_ray.returncode) == (1, 1), on_ray.stderr
    assert on_ray.stderr == alone.stderr
    assert len(on_ray.stderr.splitlines()) == 4  # a line for each pair that failed
    summaries = [json.loads(done.stdout) | {"seconds": 0} for done in (alone, on_ray)]
    assert summaries[0] == summaries[1]
    assert (tmp_path / "b.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes() == plain
    again = vcs(
        source, "-o", tmp_path / "b.jsonl", *engine, "--runner", "ray", "--address", cluster
    )
    assert again.returncode == 2
    assert again.stderr.endswith(
        "exists already: continue it with --resume, or replace it with --overwrite\n"
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--actors", 9), "actors: 9 do not fit: with 1 CPUs for each"),
        (("--device", "cuda:0"), "offers a GPU"),
        (("--device", "cuda:1"), "Ray chooses the GPU of an actor"),
        (("--device", "cuda:all"), "each Ray actor has its own GPU: use 'cuda:0'"),
        (("--bundle", "/none"), "/none"),
        (("--address", "127.0.0.1:9"), "no Ray cluster at '127.0.0.1:9'"),
        (("--address", "ray://here:10001"), "a Ray client is not part of the cluster"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(
    cluster: str,
    tiny_bundle: Path,
    source: Path,
    tmp_path: Path,
    options: tuple[object, ...],
    says: str,
) -> None:
    done = vcs(
        *f"{source} -o {tmp_path}/o.jsonl --bundle {tiny_bundle} --device cpu".split(),
        *f"--runner ray --address {cluster}".split(),
        *options,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert says in done.stderr.strip().splitlines()[-1]
    assert not (tmp_path / "o.jsonl").exists()


def test_ray_that_does_not_start_in_time_is_named_with_what_to_do(
    tiny_bundle: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In the place of Ray, which raises this after half a minute on a machine that is busy.
    timed_out = (
        "The current node timed out during startup. This could happen because some of the raylet"
        " failed."
    )
    (tmp_path / "ray.py").write_text(f"def init(**settings): raise Exception({timed_out!r})")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    engine = ("--bundle", tiny_bundle, "--device", "cpu", "--runner", "ray")
    done = vcs(source, "-o", tmp_path / "o.jsonl", *engine)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert done.stderr.startswith(
        f"vcs-runtime: Ray did not start on this machine: {timed_out[:-1]}: try again"
    )
    assert "`ray start --head`" in done.stderr
    assert not (tmp_path / "o.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("p.jsonl", "--actors", 2), "--actors and --address need --runner ray"),
        (("p.jsonl", "--address", "auto"), "--actors and --address need --runner ray"),
        (("r", "g", "--runner", "ray"), "--runner ray needs PAIRS, a file of pairs"),
        (("p.jsonl", "--runner", "ray", "--actors", 0), "--actors"),
    ],
)
def test_options_that_do_not_go_together(arguments: tuple[object, ...], says: str) -> None:
    done = CliRunner().invoke(cli, ["score", *map(str, arguments)])
    assert done.exit_code == 2
    assert says in done.output


@pytest.mark.ray
def test_ray_that_was_imported_before_a_new_cluster_is_refused() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    program = "import ray, vcs_runtime.ray\nwith vcs_runtime.ray.connected(): pass"
    done = run_python("-c", program, env=environment)
    assert done.stderr.endswith("`connected()` could choose its settings: import Ray later\n")
