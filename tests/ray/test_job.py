"""A file of pairs on Ray: the output of one process, whatever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.killed import kill_when_it_writes
from support.processes import captured
from support.stories import read_lines, story, write_pairs
from vcs_runtime import BundleError, DeviceError, Options, Scorer, ScorerConfig
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.run import score_file as score_here
from vcs_runtime.jobs.summary import Summary
from vcs_runtime.ray import JobFiles, job, score_file
from vcs_runtime.ray.dataset import through_actors

# Ray Data warns of its own settings when it makes them.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")


@pytest.fixture(autouse=True)
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "BLOCK_PAIRS", 3)


@pytest.fixture
def run(cluster: str, tiny_bundle: Path, source: Path) -> Any:
    """Score a file on the cluster, by one actor unless a test needs more."""

    def run(
        output: Path | None,
        source: Path = source,
        bundle: Path = tiny_bundle,
        threads: int | None = None,
        actors: int = 1,
        options: Options | None = None,
        **files: Any,
    ) -> Summary:
        config = ScorerConfig(bundle, "cpu", threads=threads)
        job = JobFiles(output, progress=False, **files)
        return score_file(source, job, config, options or Options(), actors=actors)

    return run


class Logged(job.ShardScorer):
    """Logs into a folder, and scores only when every machine has its share of actors."""

    folder: Path
    together = 1

    def score(self, pairs: Any) -> Any:
        import ray

        (self.folder / f"scores-{os.getpid()}").touch()
        while len(list(self.folder.glob("scores-*"))) < self.together:
            time.sleep(0.05)
        line = [ray.get_runtime_context().get_node_id(), [str(generated) for _, generated in pairs]]
        with (self.folder / f"scored-{os.getpid()}").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return super().score(pairs)


class OnOtherMachine(Logged):
    """Has another signature on every machine but the first."""

    def score(self, pairs: Any) -> Any:
        import ray

        results = super().score(pairs)
        if ray.get_runtime_context().get_node_id() == min(node["NodeID"] for node in ray.nodes()):
            return results
        return [
            replace(result, signature=result.signature.replace("ort-cpu", "ort-cuda"))
            for result in results
        ]


class DiesOnce(Logged):
    """Is killed at its second shard, as by a kernel without memory; two actors in all."""

    shards = 0

    def score(self, pairs: Any) -> Any:
        self.shards += 1
        if self.shards == 2 and len(list(self.folder.glob("died-*"))) < 2:
            (self.folder / f"died-{os.getpid()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(pairs)


class DiesOfAText(Logged):
    """Is killed by a text."""

    def score(self, pairs: Any) -> Any:
        if any("die of this" in str(pair) for pair in pairs):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().score(pairs)


Log = Callable[[], list[tuple[str, list[str]]]]


@pytest.fixture
def actor_class(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Replace the actor's class; return its folder, and the shards that it has scored."""
    import ray

    def put(actor: type[Logged], together: int = 1) -> tuple[Path, Log]:
        ray.cloudpickle.register_pickle_by_value(sys.modules[actor.__module__])
        folder = tmp_path_factory.mktemp("actors")
        monkeypatch.setattr(actor, "folder", folder, raising=False)
        monkeypatch.setattr(actor, "together", together)
        monkeypatch.setattr(job, "through_actors", lambda _, *rest: through_actors(actor, *rest))
        return folder, lambda: [
            tuple(line) for path in sorted(folder.glob("scored-*")) for line in read_lines(path)
        ]

    return put


def test_two_machines_give_the_output_of_one_process(
    run: Any, plain: bytes, scorer: Scorer, source: Path, tmp_path: Path, actor_class: Any
) -> None:
    _, log = actor_class(Logged, together=4)
    messages: list[str] = []
    summary = run(tmp_path / "o.jsonl", actors=4, report=messages.append)
    assert (tmp_path / "o.jsonl").read_bytes() == plain
    assert len({machine for machine, _ in log()}) == 2
    expected: list[str] = []
    alone = score_here(scorer, source, JobFiles(report=expected.append, progress=False), Options())
    assert messages == expected
    assert (summary.scored, summary.failed, summary.resumed) == (36, 4, 0)
    assert {**summary.to_dict(), "seconds": 0} == {**alone.to_dict(), "seconds": 0}


def test_options_and_threads_do_not_change_that(
    run: Any, scorer: Scorer, source: Path, tmp_path: Path
) -> None:
    options = Options(chunk_size=2, aggregate="mean")
    run(tmp_path / "o.jsonl", options=options, actors=2, threads=2)
    score_here(scorer, source, JobFiles(tmp_path / "plain.jsonl", progress=False), options)
    assert (tmp_path / "o.jsonl").read_bytes() == (tmp_path / "plain.jsonl").read_bytes()


def test_killed_actors_cost_nothing(
    run: Any, plain: bytes, tmp_path: Path, actor_class: Any
) -> None:
    folder, _ = actor_class(DiesOnce, together=2)
    run(tmp_path / "o.jsonl", actors=2)
    assert (tmp_path / "o.jsonl").read_bytes() == plain
    assert len(list(folder.glob("died-*"))) == 2


def test_pairs_that_kill_three_actors_end_the_job_and_are_named(
    run: Any, actor_class: Any, tmp_path: Path
) -> None:
    actor_class(DiesOfAText)
    pairs = [{"id": i, "reference": story(i), "generated": story(50 + i)} for i in range(12)]
    pairs[7]["generated"] = "A man may die of this."
    write_pairs(tmp_path / "p.jsonl", pairs)
    with pytest.raises(DeviceError, match="3 actors died while scoring line 7 to line 9"):
        run(tmp_path / "o.jsonl", tmp_path / "p.jsonl")
    assert [line["id"] for line in read_lines(tmp_path / "o.jsonl")] == list(range(6))


def test_machines_that_would_score_otherwise_are_refused(
    run: Any, actor_class: Any, tmp_path: Path
) -> None:
    actor_class(OnOtherMachine, together=4)
    with pytest.raises(
        DeviceError, match=r"\S+ would score as vcs.*, but another machine as vcs.*a --device"
    ):
        run(tmp_path / "o.jsonl", actors=4)


@pytest.mark.parametrize("cut", [0, 4, 40])
def test_either_engine_goes_on_where_the_other_stopped(
    run: Any, scorer: Scorer, plain: bytes, source: Path, tmp_path: Path, cut: int
) -> None:
    part = b"".join(plain.splitlines(keepends=True)[:cut]) + b'{"id": "torn'
    for output, go_on in (
        (tmp_path / "a.jsonl", lambda path: run(path, resume=True)),
        (
            tmp_path / "b.jsonl",
            lambda path: score_here(
                scorer, source, JobFiles(path, resume=True, progress=False), Options()
            ),
        ),
    ):
        output.write_bytes(part)
        assert go_on(output).resumed == cut
        assert output.read_bytes() == plain


def test_what_is_wrong_with_the_bundle_or_the_input_is_said_as_ever(
    run: Any, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="no bundle"):
        run(None, bundle=tmp_path)
    (tmp_path / "p.jsonl").write_text('{"reference": "a.",\n')
    with pytest.raises(InputError, match=r"p\.jsonl line 1: not JSON"):
        run(None, tmp_path / "p.jsonl")


def vcs(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "vcs_runtime", "score", *map(str, arguments)]


def test_a_killed_driver_then_resume_equals_an_undisturbed_run(
    cluster: str, tiny_bundle: Path, scorer: Scorer, tmp_path: Path
) -> None:
    source, output, whole = (tmp_path / name for name in ("p.jsonl", "o.jsonl", "whole.jsonl"))
    texts = [(story(i % 50, 40), story(1000 + i, 40)) for i in range(300)]
    rows = [{"id": i, "reference": r, "generated": g} for i, (r, g) in enumerate(texts)]
    write_pairs(source, rows)
    score_here(scorer, source, JobFiles(whole, progress=False), Options())
    command = vcs(source, "-o", output, "--bundle", tiny_bundle, "--device", "cpu", "--json")
    command += ["--runner", "ray", "--address", cluster, "--actors", "2"]
    finished = kill_when_it_writes(command, output, 300)
    assert 0 < finished < 300
    done = captured([*command, "--resume"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["resumed"] == finished
    assert output.read_bytes() == whole.read_bytes()
