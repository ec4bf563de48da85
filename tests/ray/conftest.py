"""A Ray cluster of two machines on this one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ray_processes import PATIENT, started
from support.stories import story, write_pairs
from support.waiting import HANGS_AFTER_S
from vcs_runtime import Options, Scorer
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.run import score_file


@pytest.fixture(scope="package")
def cluster() -> Iterator[str]:
    """The address of a cluster with 3 + 2 CPUs, to which this process is connected."""
    with pytest.MonkeyPatch.context() as patch:
        # Ray reads them when it is imported; see `vcs_runtime.ray.cluster`.
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        for name, value in PATIENT.items():
            patch.setenv(name, value)
        from ray.cluster_utils import Cluster

        from vcs_runtime.ray import connected

        def start() -> Cluster:
            machines = Cluster()
            try:
                machines.add_node(wait=False, num_cpus=3, include_dashboard=False)
                machines.wait_for_nodes(HANGS_AFTER_S)
                machines.add_node(wait=False, num_cpus=2)
                machines.wait_for_nodes(HANGS_AFTER_S)
            except BaseException:
                machines.shutdown()
                raise
            return machines

        machines = started(start)
        with connected(machines.address):
            yield machines.address
        machines.shutdown()


@pytest.fixture(scope="session")
def rows() -> list[dict[str, object]]:
    """Forty pairs: short and long ones, several references, and four that cannot be scored."""
    rows: list[dict[str, object]] = [
        {"id": f"pair {i}", "reference": story(i // 3, 2 + i % 5), "generated": story(100 + i, 3)}
        for i in range(36)
    ]
    # So that the first shard is not the first to be finished.
    rows[0]["reference"] = story(900, 400)
    rows[7]["reference"] = [story(1), story(2), story(3)]
    rows.insert(5, {"reference": story(1), "generated": ""})
    rows.insert(11, {"id": 12, "reference": 5, "generated": story(2)})
    rows.insert(17, {"id": "surrogate", "reference": "a\ud800.", "generated": story(2)})
    rows.append({"id": "null", "reference": story(1), "generated": None})
    return rows


@pytest.fixture(scope="session")
def source(rows: list[dict[str, object]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    write_pairs(path, rows)
    return path


@pytest.fixture(scope="session")
def plain(scorer: Scorer, source: Path) -> bytes:
    """The output of one process."""
    output = source.with_name("plain.jsonl")
    score_file(scorer, source, JobFiles(output, progress=False), Options())
    return output.read_bytes()
