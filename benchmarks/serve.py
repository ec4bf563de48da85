"""`vcs-runtime serve`: its cost compared with `Scorer.score_many`, its memory, and cost of a reward.

    python benchmarks/serve.py pairs.jsonl [--bundle B] [--pairs 64] [--clients 32] [--rounds 3] [--characters 400]
                                           [--requests 10000] [--distinct 500] [--completions 512]

The server is a process of its own on the CPU. The sides take turns, and their scores must be equal
to the bit:
    one by one     clients that send one pair per request, each on a connection that stays open
    eight at once  the same clients with eight pairs per request
    score_many     all pairs in one call, in this process

Every round and side adds its own sentence to both texts, so that the whole texts and one chunk are
new. Then the clients send `--requests` short pairs, drawn from `--distinct` pairs, and the script
prints the server's resident memory ten times. With `--completions`, the script instead prints the
processor time of a training step: eight completions of new sentences for each known reference,
with the default and int8 on two devices (one thread), the fast tier, and a server on this machine.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from records import parser_of, status_mb

from vcs_runtime import Scorer
from vcs_runtime.errors import VcsError

Pairs = list[tuple[str, str]]


def main() -> None:
    parser = parser_of(__doc__, keeps=False)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--pairs", dest="count", type=int, default=64)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--characters", type=int, default=400, help="longer texts are cut after a sentence"
    )
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--distinct", type=int, default=500)
    parser.add_argument("--completions", type=int)
    arguments = parser.parse_args()
    rows = map(json.loads, arguments.pairs.read_text("utf-8").splitlines()[: arguments.count])
    whole = [(_text(row["reference"]), _text(row["generated"])) for row in rows]
    if arguments.completions:
        training(whole, arguments.completions)
        return
    texts = [
        tuple(text[: text.find(". ", arguments.characters) + 1] or text for text in pair)
        for pair in whole
    ]
    with (
        server(arguments.bundle) as (port, process),
        Scorer.open(arguments.bundle, "cpu") as scorer,
    ):
        throughput(port, scorer, texts, arguments.clients, arguments.rounds)
        memory(port, process, texts, arguments.clients, arguments.requests, arguments.distinct)


def throughput(port: int, scorer: Scorer, texts: Pairs, clients: int, rounds: int) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    for turn in range(-1, rounds):  # the first warms up
        scores = {}
        for name in ("one by one", "eight at once", "score_many"):
            mine = [
                (f"{r} This is {turn} of {name}.", f"{g} It was {turn} of {name}.")
                for r, g in texts
            ]
            started = time.perf_counter()
            if name == "score_many":
                scores[name] = [result.vcs for result in scorer.score_many(mine)]
            else:
                scores[name] = ask_for(port, mine, clients, 8 if name == "eight at once" else 1)
            if turn >= 0:
                seconds[name].append(time.perf_counter() - started)
            if name != "score_many" and scores[name] != [
                result.vcs for result in scorer.score_many(mine)
            ]:
                sys.exit(f"{name}: other scores than score_many")
    print(f"{'':15}{'pairs/s':>9}{'of score_many':>15}")
    for name, took in seconds.items():
        ratio = np.median(np.array(seconds["score_many"]) / np.array(took))
        print(f"{name:15}{len(texts) / np.median(took):9.2f}{ratio:15.2f}")
    print(f"{len(texts)} pairs, {clients} clients, {rounds} rounds; all scores equal to the bit")


def training(pairs: Pairs, count: int, words: int = 250) -> None:
    step = [(pairs[i // 8 % len(pairs)][0], _completion(pairs, i, words)) for i in range(count)]
    warm = [
        (reference, "A man walks. A dog runs.")
        for reference in dict.fromkeys(pair[0] for pair in step)
    ]
    for name in ("default cpu", "default openvino", "int8 cpu", "int8 openvino", "fast cpu"):
        try:
            scorer = Scorer.open(*name.split(), threads=1)
        except VcsError as error:
            print(f"{name:17}not measured: {error}")
            continue
        with scorer:
            scorer.score_many(warm)
            started = time.process_time()
            scorer.score_many(step)
            took = time.process_time() - started
        print(f"{name:17}{took:8.2f} s{count / took:8.1f} completions a second")
    with server("default") as (port, process):
        ask_for(port, warm, 1, 64)
        before, started = _cpu_s(process.pid), time.process_time()
        ask_for(port, step, 1, 64)
        ours = time.process_time() - started
        print(
            f"{'server':18}{_cpu_s(process.pid) - before:8.2f} s, and the training side"
            f" {ours:.2f} s"
        )


def _completion(pairs: Pairs, number: int, words: int) -> str:
    """A text of new sentences, cut after some words: those of a pair's, each with a number."""
    sentences = re.split(r"(?<=\.) ", pairs[number % len(pairs)][1]) * words
    numbered = [f"{sentence.rstrip('.')} {number} {i}." for i, sentence in enumerate(sentences)]
    return " ".join(" ".join(numbered).split()[:words])


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(
    port: int,
    process: subprocess.Popen[str],
    texts: Pairs,
    clients: int,
    requests: int,
    distinct: int,
) -> None:
    sentences = [
        s for r, g in texts for text in (r, g) for s in re.split(r"(?<=\.) ", text) if len(s) > 20
    ]
    rng = np.random.default_rng(1)
    pairs = [tuple(" ".join(rng.choice(sentences, 2)) for _ in range(2)) for _ in range(distinct)]
    counts: Counter[int] = Counter()
    resident = [status_mb("VmRSS", process.pid)]
    part = requests // 10
    started = time.perf_counter()
    for i in range(10):
        todo = [pairs[j % distinct] for j in range(i * part, (i + 1) * part)]
        counts.update(status for status, _ in _send(port, todo, clients, 1))
        resident.append(status_mb("VmRSS", process.pid))
    took = time.perf_counter() - started
    print(f"{10 * part} requests in {took:.1f} s, by status: {dict(counts)}")
    print(f"MB, at first and after every {part}:", *(f"{value:.1f}" for value in resident))


def ask_for(port: int, pairs: Pairs, clients: int, size: int) -> list[float]:
    answers = _send(port, pairs, clients, size)
    return [line["vcs"] for _, answer in answers for line in answer["results"]]


def _send(port: int, pairs: Any, clients: int, size: int) -> list[tuple[int, Any]]:
    """Ask for all pairs, `size` a request, with several clients at once; statuses and answers in
    order."""
    blocks = [pairs[i : i + size] for i in range(0, len(pairs), size)]
    answers: list[tuple[int, Any]] = [(0, None)] * len(blocks)
    todo = iter(range(len(blocks)))

    def work(_: int) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=600)) as client:
            for i in todo:
                body = {"pairs": [{"reference": r, "generated": g} for r, g in blocks[i]]}
                client.request("POST", "/score", json.dumps(body))
                response = client.getresponse()
                answers[i] = response.status, json.loads(response.read())

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    return answers


@contextmanager
def server(bundle: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run a server: its port and its process."""
    command = [sys.executable, "-m", "vcs_runtime", "serve", "--port", "0", "--timeout-s", "600"]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*command, "--device", "cpu", "--bundle", bundle], stderr=errors, text=True
        )
        try:
            while True:
                errors.seek(0)
                text = errors.read()
                if "ready: " in text:
                    break
                if process.poll() is not None:
                    sys.exit(text)
                time.sleep(0.1)
            yield int(text.partition("http://127.0.0.1:")[2].partition(" ")[0]), process
        finally:
            process.terminate()
            print(f"exit code of the server after SIGTERM: {process.wait(60)}")


def _text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else text[0]


if __name__ == "__main__":
    main()
