"""Memory over many different texts: caches keep to their bytes, and a server does not grow."""

from __future__ import annotations

import http.client
import json
import random
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints.bert import WORDS
from vcs_runtime import Options, Scorer
from vcs_runtime.scoring import substitution
from vcs_runtime.scoring.preparation import Preparation
from vcs_runtime.words.reading import read_words

#: MB by which the second half of a run may end above its first half: the allocator's and Python's
#: own, far below the 100,000 different texts of that half.
SLACK_MB = 24
QUARTERS = 4
STATUSES = {200, 400, 404, 405, 413}


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    profile = request.config.getoption("--hypothesis-profile", None)
    return 100_000 if profile == "attack" else 2_000


def held(work: Callable[[int], object], times: int) -> int:
    """Bytes that lines of the package hold after `work` was called with 1, 2, 3..."""
    work(0)
    tracemalloc.start()
    for i in range(1, times):
        work(i)
    ours = tracemalloc.Filter(inclusive=True, filename_pattern="*vcs_runtime*")
    traces = tracemalloc.take_snapshot().filter_traces([ours])
    tracemalloc.stop()
    return sum(trace.size for trace in traces.statistics("filename"))


def test_the_words_of_texts_keep_to_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(substitution, "_MEMORY_BYTES", limit := 1 << 18)
    words = substitution.WordComparison()

    def read(i: int) -> None:
        """Read long words, because short ones are shared by texts."""
        words._read([" ".join(f"{'x' * 120}{i * 20 + n}" for n in range(20))])

    assert held(read, 100) < 2 * limit


def test_words_of_any_length_are_not_remembered() -> None:
    def read(i: int) -> None:
        """Read a content word, and a negated verb before another word."""
        read_words(["x" * 100_000 + f"{i}", "y" * 100_000 + f"{i}n't walk"])

    assert held(read, 20) < 500_000


@pytest.mark.parametrize("also", [(), ("hm-cf",)])
def test_splits_keep_to_their_bytes(scorer: Scorer, also: tuple[str, ...]) -> None:
    prepared = Preparation(scorer._preparation._segmenter, limit := 1 << 18)

    def split(i: int) -> None:
        text = " ".join(f"{i}x{n}!" for n in range(100))
        list(prepared.blocks([(text, text)], lambda pair: pair, Options(also=also)))

    assert held(split, 100) < 3 * limit


def resident_mb(process: int | str = "self") -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    [size] = [line.split()[1] for line in lines if line.startswith("VmRSS:")]
    return int(size) / 1024


def text(rng: random.Random, sentences: int) -> str:
    """Sentences over the tiny tokenizer's words, and words that no text had before."""
    parts = []
    for _ in range(sentences):
        words = [*rng.choices(WORDS, k=rng.randint(1, 4)), f"{rng.getrandbits(40):x}ing"]
        parts.append(" ".join(words).capitalize() + rng.choice((".", "!", "?", "")))
    return " ".join(parts)


def timed(rng: random.Random, sentences: int) -> str:
    return " ".join(f"[0:{i:02}-0:{i + 1:02}] {text(rng, 1)}" for i in range(sentences))


def a_pair(rng: random.Random) -> dict[str, Any]:
    write = rng.choice((text, text, timed))
    sentences = 100 if rng.random() < 0.001 else rng.randint(1, 2)
    return {"reference": write(rng, sentences), "generated": write(rng, rng.randint(1, 2))}


def a_request(rng: random.Random) -> tuple[str, str, bytes]:
    """A method, a path and a body: a pair, several, an explanation, or what is refused."""
    body: Any = a_pair(rng)
    path = rng.choice(("/score",) * 20 + ("/explain",))
    kind = rng.randrange(12)
    if kind == 0 and rng.random() < 0.5:
        body = {"pairs": [a_pair(rng) for _ in range(rng.randint(1, 5))]}
    elif kind == 1:
        short = rng.random() < 0.5
        body["options"] = {"lct": rng.random() * 9, "short": short, "aggregate": "mean"}
    elif kind == 2:
        body["options"] = {"chunk_size": rng.randint(1, 9), "lct": rng.random()}
    elif kind == 3:
        body["reference"] = [text(rng, 2) for _ in range(rng.randint(1, 5))]
    elif kind == 4:
        body[text(rng, 1)] = rng.choice((None, 1, "x"))
    elif kind == 5:
        body["generated"] = rng.choice(("", " ", 1, None, "\ud800", [text(rng, 1)]))
    elif kind == 6:
        return rng.choice(("GET", "PUT", "DELETE")), f"{path}/{rng.getrandbits(60):x}", b""
    elif kind == 7:
        return "POST", path, json.dumps(body).encode()[: rng.randint(0, 300)]
    elif kind == 8 and rng.random() < 0.02:
        body["reference"] = text(rng, 1) * 10_000
    elif kind == 9:
        return "GET", rng.choice(("/livez", "/readyz", "/metrics", "/openapi.json", "/docs")), b""
    return "POST", path, json.dumps(body).encode()


def send(port: int, seed: int, number: int) -> None:
    """Send requests, one of a hundred on a connection of its own, half of those given up."""
    rng = random.Random(seed)
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    for i in range(number):
        method, path, body = a_request(rng)
        client.request(method, path, body)
        if i % 200 == 199:
            client.close()
            continue
        answer = client.getresponse()
        answer.read()
        assert answer.status in STATUSES, answer.status
        if i % 200 == 99:
            client.close()
    client.close()


@pytest.fixture
def server(request: pytest.FixtureRequest, tiny_bundle: Path) -> Iterator[tuple[int, int]]:
    """The process and the port of a server."""
    command = [sys.executable, "-m", "vcs_runtime", "serve", "--port", "0", "--device", "cpu"]
    command += ["--bundle", str(tiny_bundle), "--also", "substitution", "--also", "hm-cf"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        said = []
        for line in process.stderr:
            said.append(line)
            if "ready:" in line:
                break
        address = next(word for line in said for word in line.split() if "127.0.0.1:" in word)
        yield process.pid, int(address.rstrip("/,.;").rpartition(":")[2])
        process.send_signal(signal.SIGTERM)
        process.communicate()


def check(resident: list[float]) -> None:
    """Compare the ends of the halves, after the first quarter has warmed everything up."""
    print("resident MB at each quarter:", *(f"{size:.0f}" for size in resident))
    grown = resident[3] - resident[1]
    assert grown < SLACK_MB, f"grew by {grown:.0f} MB"


@pytest.mark.slow
def test_a_server_does_not_grow_with_the_number_of_its_requests(
    server: tuple[int, int], count: int
) -> None:
    process, port = server
    clients, resident = 4, []
    with ThreadPoolExecutor(clients) as pool:
        for quarter in range(QUARTERS):
            seeds = [quarter * clients + number for number in range(clients)]
            each = [count // QUARTERS // clients] * clients
            list(pool.map(send, [port] * clients, seeds, each))
            resident.append(resident_mb(process))
    check(resident)
