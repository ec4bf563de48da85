"""Ray Data: `ScoreBatch`, `score_dataset`, `score_shards`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.ray_processes import kill_one
from support.stories import read_lines, story
from vcs_runtime import DeviceError, Options, Scorer, ScorerConfig, Scores
from vcs_runtime.errors import InputError
from vcs_runtime.jobs.resumable import hash_texts
from vcs_runtime.ray import Needs, ScoreBatch, connected, score_dataset, score_shards
from vcs_runtime.scoring.columns import TEXTS, names_of

# Ray Data warns of its own settings when it makes them.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")

BLOCKS = 6


@pytest.fixture(scope="session")
def pairs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that a data set can hold: a column has one type, and nothing but Unicode."""
    good = [
        row for row in rows if isinstance(row["reference"], str) and row.get("id") != "surrogate"
    ]
    return [{"id": row.get("id", "no id"), **row} for row in good]


@pytest.fixture
def dataset(cluster: str, pairs: list[dict[str, Any]]) -> Any:
    import ray

    return ray.data.from_items(pairs, override_num_blocks=BLOCKS)


@pytest.fixture
def pool(tiny_bundle: Path) -> dict[str, Any]:
    return {"config": ScorerConfig(tiny_bundle, "cpu"), "actors": 2}


def test_a_data_set_keeps_its_order_and_gets_the_scores_of_one_process(
    dataset: Any, pairs: list[dict[str, Any]], scorer: Scorer, pool: dict[str, Any]
) -> None:
    found = score_dataset(dataset, batch_size=3, **pool).take_all()
    assert [row["id"] for row in found] == [pair["id"] for pair in pairs]
    results = scorer.score_many((pair["reference"], pair["generated"]) for pair in pairs)
    for row, result in zip(found, results, strict=True):
        assert {"id", "reference", "generated", *names_of(Options())} == row.keys()
        assert row["signature"] == scorer.signature
        assert row["error"] == (result.error or "")
        if result.scores:
            assert Scores(*(row[name] for name in Scores._fields)) == result.scores
            assert (row["n_ref"], row["n_gen"]) == (result.n_ref, result.n_gen)
            assert row["flags"] == ",".join(result.flags)
        else:
            assert np.isnan(row["vcs"])
    assert sum(row["error"] != "" for row in found) == 2


def test_several_references_a_row(cluster: str, scorer: Scorer, pool: dict[str, Any]) -> None:
    import ray

    references = [[story(1), story(2)], [story(3)], [story(4), story(5), story(6)]]
    data = ray.data.from_items(
        [{"reference": texts, "generated": story(7)} for texts in references]
    )
    found = score_dataset(data, options=Options(aggregate="mean"), **pool).take_all()
    expected = scorer.score_many([(texts, story(7)) for texts in references], aggregate="mean")
    assert [(row["vcs"], row["n_references"], row["reference_index"]) for row in found] == [
        (result.vcs, result.n_references, result.reference_index) for result in expected
    ]


def test_a_killed_actor_of_a_data_set_costs_nothing(
    dataset: Any, pairs: list[dict[str, Any]], scorer: Scorer, pool: dict[str, Any]
) -> None:
    scored = score_dataset(dataset, batch_size=1, **pool)
    found: list[float] = []
    for number, batch in enumerate(scored.iter_batches(batch_size=1)):
        if number == 1:
            kill_one("MapWorker")
        found += batch["vcs"].tolist()
    results = scorer.score_many((pair["reference"], pair["generated"]) for pair in pairs)
    assert np.array_equal(found, [result.vcs for result in results], equal_nan=True)


def test_the_actor_takes_and_gives_arrays(tiny_bundle: Path, scorer: Scorer) -> None:
    several = np.empty(3, object)
    several[:] = [np.array([story(1), story(2)], object), story(1), None]
    batch = {"ref": several, "text": np.array([story(3), "", story(3)], object), "id": np.arange(3)}
    config = ScorerConfig(tiny_bundle, "cpu")
    actor = ScoreBatch(config, Options(chunk_size=2), reference="ref", generated="text")
    scored = actor(batch)
    assert list(scored) == ["ref", "text", "id", *names_of(Options())]
    assert scored["vcs"][0] == scorer.score([story(1), story(2)], story(3), chunk_size=2).vcs
    assert [bool(error) for error in scored["error"]] == [False, True, True]
    assert scored["error"][2] == "reference: the text is null"
    assert all("chunk:2" in signature for signature in scored["signature"])
    empty = actor({name: column[:0] for name, column in batch.items()})
    for name in names_of(Options()):
        assert (len(empty[name]), empty[name].dtype) == (0, scored[name].dtype)
        assert (scored[name].dtype == object) == (name in TEXTS)
    with pytest.raises(InputError, match=r"no column 'ref' \(it has 'reference'\)"):
        actor({"reference": np.array(["a"])})


def lines(folder: Path) -> dict[str, dict[str, Any]]:
    found = [line for path in folder.glob("*.jsonl") for line in read_lines(path)]
    assert len(found) == len({line["id"] for line in found})
    return {line["id"]: line for line in found}


def test_shards_hold_every_digit_and_a_second_run_goes_on(
    dataset: Any, pairs: list[dict[str, Any]], scorer: Scorer, pool: dict[str, Any], tmp_path: Path
) -> None:
    folder = tmp_path / "scores"
    first = score_shards(dataset.limit(15), folder, batch_size=4, **pool)
    assert (first.scored + first.failed, first.resumed) == (15, 0)
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.jsonl")}
    second = score_shards(dataset, folder, batch_size=4, **pool)
    assert (second.scored, second.failed, second.resumed) == (len(pairs) - 2, 2, 15)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert not list(folder.glob(".*"))
    results = scorer.score_many((pair["reference"], pair["generated"]) for pair in pairs)
    expected = {
        pair["id"]: {"id": pair["id"], **r.to_dict()}
        for pair, r in zip(pairs, results, strict=True)
    }
    for pair in pairs:
        expected[pair["id"]]["texts"] = hash_texts(pair["reference"], pair["generated"])
    assert lines(folder) == expected
    third = score_shards(dataset, folder, **pool)
    assert third.resumed == len(pairs)
    assert third.to_dict()["scores"].keys() == second.to_dict()["scores"].keys()
    assert third.signature == scorer.signature
    with pytest.raises(Exception, match="its signature has chunk:1, but this run's has chunk:2"):
        score_shards(dataset, folder, options=Options(chunk_size=2), **pool)
    changed = dataset.map(
        lambda row: {**row, "generated": row["generated"] and f"{row['generated']} More."}
    )
    with pytest.raises(
        Exception, match=r"the texts of id 'pair 0' have changed since this line was written"
    ):
        score_shards(changed, folder, **pool)
    (folder / "other.jsonl").write_text(json.dumps({"id": 1}) + "\n")
    with pytest.raises(InputError, match=r"other\.jsonl line 1: not a line of a score file"):
        score_shards(dataset, folder, **pool)


@pytest.mark.parametrize(
    ("actors", "needs", "says"),
    [
        (5, {}, r"actors: 5 do not fit: with 1 CPUs for each, and one CPU for reading"),
        (2, {"threads": 3}, r"\(3 CPUs; 2 CPUs\) has room for 1"),
        (None, {"threads": 4}, "has room for 0"),
        (
            None,
            {"device": "cuda:0"},
            r"no machine of the Ray cluster \(3 CPUs; 2 CPUs\) offers a GPU",
        ),
        (1, {"device": "tensorrt:0"}, "offers a GPU"),
    ],
)
def test_what_ray_would_wait_for_for_ever_is_refused(
    dataset: Any,
    actors: int | None,
    needs: dict[str, Any],
    says: str,
    tiny_bundle: Path,
    tmp_path: Path,
) -> None:
    config = ScorerConfig(tiny_bundle, **{"device": "cpu", **needs})
    with pytest.raises(DeviceError, match=says) as refusal:
        score_dataset(dataset, config, actors=actors)
    assert "\n" not in str(refusal.value)


def test_as_many_actors_as_fit_by_default(cluster: str) -> None:
    assert Needs.of("cpu") == Needs.of("auto") == Needs(4, 1, 0)
    assert Needs.of("cpu", threads=2) == Needs(2, 2, 0)
    assert Needs.of("cpu", 1, 3) == Needs(1, 3, 0)
    with pytest.raises(ValueError, match="Ray chooses the GPU of an actor: 'cuda:0', not 'cuda:3'"):
        Needs.of("cuda:3")


def test_a_gpu_for_each_actor(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 16.0, "GPU": 2.0}, {"CPU": 64.0}]
    nodes = [{"Alive": True, "Resources": machine} for machine in machines]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    assert Needs.of("cuda:0") == Needs.of("cuda") == Needs.of("auto") == Needs(4, 1, 1)
    assert Needs.of("cuda:0", threads=16) == Needs(2, 16, 1)
    assert Needs.of("cpu", threads=16) == Needs(5, 16, 0)
    with pytest.raises(
        DeviceError, match=r"1 CPUs and a GPU for each.*\(64 CPUs; 16 CPUs, 2 GPUs; .*room for 4"
    ):
        Needs.of("tensorrt:0", 5)


def test_a_ray_client_is_refused() -> None:
    with (
        pytest.raises(DeviceError, match="a Ray client is not part of the cluster"),
        connected("ray://h:10001"),
    ):
        pass
