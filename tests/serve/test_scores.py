"""What the server answers: the scores of `Scorer`, explanations, health, metrics, its schema."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.gate import Gate
from support.score_server import Running, Serve
from support.stories import story, stripped
from support.waiting import HANGS_AFTER_S, eventually
from vcs_numba import Params
from vcs_runtime import Scorer
from vcs_runtime.scoring.options import PRESETS, Options, ScorerConfig
from vcs_runtime.segmentation import segmenter
from vcs_runtime.serve.guard import Metrics
from vcs_runtime.serve.limits import Limits


def test_a_server_is_ready_when_its_learned_segmenter_is_open(
    tiny_bundle: Path, mixed_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    model = segmenter.BoundaryModel
    monkeypatch.setattr(
        segmenter,
        "BoundaryModel",
        lambda *arguments: (opened.append(arguments), model(*arguments))[1],
    )
    config = ScorerConfig(tiny_bundle, "cpu", segmenter=mixed_bundle)
    server = Running(config, Limits(), Options(), None)
    try:
        assert server.ready.wait(HANGS_AFTER_S)
        assert len(opened) == 1
    finally:
        server.stop()


def test_thirty_two_clients_at_once_get_the_scores_of_a_scorer(
    server: Running, scorer: Scorer
) -> None:
    # Some requests share texts, some hold several pairs, so that batches mix them.
    requests = [
        [(story(i // 4 + j), story(50 + i + j)) for j in range(1 + i % 3)] for i in range(96)
    ]

    def ask(pairs: list[tuple[str, str]]) -> Any:
        body = {"pairs": [{"reference": r, "generated": g, "id": g[:9]} for r, g in pairs]}
        answer = server.ask("/score", body)
        assert answer.status == 200
        return answer.json["results"]

    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(ask, requests))
    for pairs, lines in zip(requests, answers, strict=True):
        expected = [{"id": g[:9], **scorer.score(r, g).to_dict()} for r, g in pairs]
        assert lines == json.loads(json.dumps(expected))


def test_requests_that_arrive_meanwhile_are_scored_together(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    gate = Gate(monkeypatch)
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(server.score, story(1), story(2))
        assert gate.reached.wait(HANGS_AFTER_S)
        others = [pool.submit(server.score, story(1), story(3 + i)) for i in range(7)]
        eventually(lambda: server.metric("vcs_queue_length") == 8)
        gate.open.set()
        assert {future.result(HANGS_AFTER_S).status for future in (first, *others)} == {200}
    assert [len(batch) for batch in gate.batches] == [1, 7]


def test_one_pair_has_one_answer_with_its_id(server: Running, scorer: Scorer) -> None:
    answer = server.score([story(1), story(2)], story(3), id=17)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {"id": 17, **scorer.score([story(1), story(2)], story(3)).to_dict()}
    assert "id" not in server.score(story(1), story(3)).json


@pytest.mark.parametrize("preset", PRESETS)
def test_options_of_a_request(server: Running, scorer: Scorer, preset: str) -> None:
    size, lct = PRESETS[preset]
    answer = server.score(story(1), story(2), options={"preset": preset}).json
    assert (
        answer
        == scorer.score(story(1), story(2), chunk_size=size, params=Params(lct=lct)).to_dict()
    )
    answer = server.score(
        story(1), story(2), options={"preset": preset, "chunk_size": 2, "lct": 0.5}
    ).json
    assert (
        answer == scorer.score(story(1), story(2), chunk_size=2, params=Params(lct=0.5)).to_dict()
    )
    answer = server.score([story(1), story(2)], story(3), options={"aggregate": "mean"}).json
    assert answer == scorer.score([story(1), story(2)], story(3), aggregate="mean").to_dict()
    answer = server.score(
        stripped(1, 2), stripped(2, 2), options={"preset": preset, "short": True}
    ).json
    expected = scorer.score_short(stripped(1, 2), stripped(2, 2), params=Params(lct=lct))
    assert answer == expected.to_dict()


def test_the_largest_options_are_scored(server: Running, scorer: Scorer) -> None:
    answer = server.score(
        story(1), story(2), id=10**400, options={"chunk_size": 1_000_000, "lct": 1e9}
    )
    expected = scorer.score(story(1), story(2), chunk_size=1_000_000, params=Params(lct=1e9))
    assert answer.json == {"id": 10**400, **expected.to_dict()}


def test_options_of_the_server_hold_where_a_request_says_nothing(
    serve: Serve, scorer: Scorer
) -> None:
    options = Options(3, Params(lct=0.1, small_text="reference"), "mean", clean=["list-numbers"])
    server = serve(options=options)
    pair = ([story(1), story(2)], f"1. {story(3)}")
    [expected] = scorer.iter_scores([pair], options)
    assert server.score(*pair).json == expected.to_dict()
    [expected] = scorer.iter_scores([pair], replace(options, chunk_size=1))
    assert server.score(*pair, options={"chunk_size": 1}).json == expected.to_dict()
    assert server.ask("/health").json["signature"] == scorer.signature_for(options)


def test_a_pair_that_cannot_be_scored_has_an_error_in_its_place(
    server: Running, scorer: Scorer
) -> None:
    bad = ["", "...", "a \ud800 b"]
    pairs = [{"reference": story(1), "generated": text} for text in (story(2), *bad)]
    pairs += [{"reference": [], "generated": story(2)}, {"id": "\ud800", **pairs[0]}]
    before = server.metric("vcs_pair_errors_total")
    answer = server.ask("/score", {"pairs": pairs})
    assert answer.status == 200
    results = answer.json["results"]
    assert results[0] == scorer.score(story(1), story(2)).to_dict()
    assert results[-1] == {"id": "\ud800", **results[0]}
    assert [set(line) for line in results[1:-1]] == [{"error", "signature"}] * 4
    assert "lone surrogate" in results[3]["error"]
    assert server.metric("vcs_pair_errors_total") == before + 4


def test_explanations(server: Running, scorer: Scorer) -> None:
    body = {"reference": story(1), "generated": story(2), "id": "a", "options": {"lct": 1}}
    expected = scorer.explain(story(1), story(2), params=Params(lct=1)).to_dict()
    assert server.ask("/explain", body).json == json.loads(json.dumps({"id": "a", **expected}))
    pairs = [{"reference": story(1), "generated": text} for text in ("...", story(2))]
    error, explained = server.ask("/explain", {"pairs": pairs}).json["results"]
    assert set(error) == {"error", "signature"}
    assert explained == json.loads(json.dumps(scorer.explain(story(1), story(2)).to_dict()))


def test_health_while_loading_and_when_ready(
    serve: Serve, scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)  # holds the pair that is scored before the server calls itself ready
    server = serve(wait=False)
    for path in ("/readyz", "/health"):
        loading = server.ask(path)
        assert (loading.status, loading.json["status"]) == (503, "loading")
    with monkeypatch.context() as patched:
        patched.setattr("vcs_numba.jit.kernel._COMPILING.is_set", lambda: True)
        assert server.ask("/readyz").json["status"] == "compiling"
    # A process that loads must not be restarted: it is alive, and not ready.
    assert (server.ask("/livez").status, server.ask("/livez").json["status"]) == (200, "alive")
    gate.open.set()
    assert server.ready.wait(HANGS_AFTER_S)
    ready = server.ask("/health")
    assert (ready.json, 200) == (server.ask("/readyz").json, server.ask("/livez").status)
    assert ready.status == 200
    assert ready.json["status"] == "ready"
    assert ready.json["signature"] == scorer.signature
    assert ready.json["device"].startswith("ort-cpu")


def test_metrics_count_requests_pairs_and_seconds(serve: Serve) -> None:
    server = serve()
    server.score(story(1), story(2))
    pairs = [{"reference": story(1), "generated": text} for text in (story(3), "...")]
    server.ask("/score", {"pairs": pairs})
    server.ask("/score", b"{")
    server.ask("/nothing-of-this-name")
    answer = server.ask("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.body.decode().splitlines()
    assert 'vcs_requests_total{path="/score",status="200"} 2' in lines
    assert 'vcs_requests_total{path="/score",status="400"} 1' in lines
    assert 'vcs_requests_total{path="other",status="404"} 1' in lines
    assert "vcs_pairs_total 3" in lines
    assert "vcs_pair_errors_total 1" in lines
    assert "vcs_queue_length 0" in lines
    assert 'vcs_request_seconds_bucket{le="+Inf"} 2' in lines
    assert "vcs_request_seconds_count 2" in lines
    counts = [int(line.split()[-1]) for line in lines if "_bucket" in line]
    assert counts == sorted(counts)
    for name in {line.partition("{")[0].split()[0] for line in lines if not line.startswith("#")}:
        family = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
        assert any(line.startswith(f"# TYPE {family} ") for line in lines)


def test_seconds_are_counted_up_to_each_bound() -> None:
    metrics = Metrics(lambda: 0)
    for seconds in (0.03, 0.05, 70.0):
        metrics.answered("/score", 200, seconds, scoring=True)
    lines = [line.split() for line in metrics.text().splitlines() if "_bucket" in line]
    counts = {name.split('"')[1]: int(count) for name, count in lines}
    assert [counts[bound] for bound in ("0.025", "0.05", "60.0", "+Inf")] == [0, 2, 2, 3]


def test_the_description_names_every_endpoint_and_loads_nothing(server: Running) -> None:
    described = server.ask("/openapi.json").json
    assert described["openapi"].startswith("3.")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            body = (
                operation["requestBody"]["content"]["application/json"]
                if method == "post"
                else None
            )
            assert server.ask(path, body and body["example"], method.upper()).status == 200
            assert body is None or server.ask(path, body["example"]).json.get("error") is None
    text = json.dumps(described)
    names = set(described["components"]["schemas"])
    assert {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]} <= names
    page = server.ask("/docs")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert b"://" not in page.body
    assert page.body == server.ask("/").body
    for path in described["paths"]:
        assert path.encode() in page.body
