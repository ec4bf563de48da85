"""An embedder behind a server's `/v1/embeddings`: batches, retries, and answers that are wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.command_line import assert_refused, vcs
from vcs_runtime import Embedder, Scorer
from vcs_runtime.errors import ModelError, TextError
from vcs_runtime.inference import served
from vcs_runtime.inference.served import ServedEmbedder

TEXTS = [f"The dog number {i} runs into the garden." for i in range(70)]
PAIR = ("The dog runs. A man opens the door.", "A man opens a door. The dog runs out.")
Answer = Callable[[list[str]], tuple[int, Any]]


def entries(vectors: Any) -> dict[str, Any]:
    return {
        "data": [{"index": i, "embedding": list(map(float, row))} for i, row in enumerate(vectors)]
    }


@contextmanager
def server(answer: Answer) -> Iterator[tuple[str, list[list[str]]]]:
    """A server on loopback that answers with a status and JSON: its URL, and the batches it got."""
    asked: list[list[str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/embeddings"
            assert body["model"] == "m"
            assert body["encoding_format"] == "float"
            asked.append(body["input"])
            status, content = answer(body["input"])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(content).encode())

        def log_message(self, *_: object) -> None:
            pass

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}/v1", asked
    finally:
        serving.shutdown()
        serving.server_close()


@pytest.fixture
def tiny(tiny_bundle: Path) -> Iterator[Answer]:
    """The tiny model behind a server, which answers in another order than it was asked."""
    with Embedder.open(tiny_bundle, "cpu") as embedder:

        def answer(texts: list[str]) -> tuple[int, Any]:
            return 200, {"data": entries(embedder.embed(texts))["data"][::-1]}

        yield answer


def test_scores_are_those_of_the_model_behind_the_server(tiny: Answer, tiny_bundle: Path) -> None:
    with server(tiny) as (url, asked), Scorer.open(tiny_bundle, "cpu") as ours:
        theirs = Scorer.open(tiny_bundle, "cpu", embedder=ServedEmbedder(url, "m"))
        results = theirs.score(*PAIR), ours.score(*PAIR)
        assert results[0].scores == pytest.approx(results[1].scores, abs=1e-6)
        assert "|emb:served:m|" in results[0].signature
        asked.clear()
        vectors = theirs.embedder.prepare(TEXTS).vectors()
        assert sorted(map(len, asked)) == [6, 32, 32]
        assert vectors == pytest.approx(Embedder.open(tiny_bundle, "cpu").embed(TEXTS), abs=1e-6)


def test_a_text_that_the_server_refuses_is_found_and_the_others_go_on(tiny: Answer) -> None:
    def picky(texts: list[str]) -> tuple[int, Any]:
        return (413, {"error": "too long"}) if TEXTS[5] in texts or len(texts) > 16 else tiny(texts)

    with server(picky) as (url, _):
        assert len(ServedEmbedder(url, "m").embed(TEXTS[6:])) == 64
        with pytest.raises(TextError, match="413 Request Entity Too Large: .*too long"):
            ServedEmbedder(url, "m").embed(TEXTS)


def test_a_server_that_is_busy_is_asked_again(
    tiny: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_PAUSES", (0.0, 0.0))
    statuses = [503, 429]

    def busy(texts: list[str]) -> tuple[int, Any]:
        return (statuses.pop(), {}) if statuses else tiny(texts)

    with server(busy) as (url, asked):
        assert len(ServedEmbedder(url, "m").embed(TEXTS[:1])) == 1
        statuses += [500] * 3
        with pytest.raises(ModelError, match="HTTP 500"):
            ServedEmbedder(url, "m").embed(TEXTS[:1])
    assert len(asked) == 6
    with pytest.raises(ModelError, match="Connection refused"):
        ServedEmbedder(url, "m").embed(TEXTS[:1])


TWO = entries([[1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "the server's answer has no data"),
        ({"data": [{"index": 0, "embedding": "AAAA"}]}, "has 'AAAA' at embedding"),
        ({"data": TWO["data"][:1]}, "no vector for text 1"),
        ({"data": TWO["data"][:1] * 2}, "the index 0 for 2 texts"),
        (entries([[1, 0], [0, 1], [1, 1]]), "the index 2 for 2 texts"),
        (entries([[1, 0], [float("nan"), 1]]), "NaN or infinity for the text 'b'"),
        (entries([[1, 0], [0]]), "not an array of numbers"),
    ],
)
def test_an_answer_that_is_not_two_vectors_ends_the_job(
    answer: Any, why: str, tiny_bundle: Path
) -> None:
    with server(lambda texts: (200, answer)) as (url, _):
        served = ServedEmbedder(url, "m")
        scorer = Scorer.open(tiny_bundle, "cpu", embedder=served, proof=False)
        with pytest.raises(ModelError, match=why):
            scorer.embedder.prepare(["a", "b"])


def test_the_command_asks_the_named_server_alone_and_keeps_no_vectors_unasked(
    tiny: Answer, tiny_bundle: Path, tmp_path: Path
) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"id": "a", "reference": PAIR[0], "generated": PAIR[1]}) + "\n")
    with server(tiny) as (url, asked):
        command = (
            f"score {pairs} --bundle {tiny_bundle} --embedder-model m --embedder {url}".split()
        )
        store = str(tmp_path / "store")
        for number in range(2):
            output = tmp_path / f"{number}.jsonl"
            done = vcs(*command, "--no-proof", "-o", output, VCS_RUNTIME_CACHE=store)
            assert done.code == 0, done.stderr
            assert json.loads(output.read_text())["signature"].count("|emb:served:m|") == 1
        assert len(asked) == 2
        assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--embedder", "http://h:1/v1"], "give both --embedder URL and --embedder-model NAME"),
        (["--embedder-model", "m"], "give both --embedder URL and --embedder-model NAME"),
        (["--embedder", "h:1", "--embedder-model", "m"], "url must be like http://HOST:PORT"),
        (
            ["--embedder", "http://h:1", "--embedder-model", "a|b"],
            "embedder-model must be a name without",
        ),
    ],
)
def test_half_an_embedder_is_refused(options: list[str], why: str, tmp_path: Path) -> None:
    done = vcs("score", tmp_path / "none.jsonl", *options)
    assert_refused(done, why)
