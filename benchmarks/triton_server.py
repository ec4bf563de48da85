"""Pairs per second and milliseconds per pair through Triton, compared with as many threads in one process.

    .nox/triton/bin/python benchmarks/triton_server.py pairs.jsonl [--pairs 64] [--clients 1 8 32] [--rounds 3]

The embedded default scores real pairs on the CPU. A request holds one pair, and every client sends the next request as
soon as it has an answer. The sides run in turns on each workload:

    grpc, http     a real server each (the session `triton` of `make nox` installs one), with one client per thread
    in process     `TrainingScorer.submit(...).result()` in as many threads, which share a session and its batches
    one by one     `Scorer.score` in as many threads

Every round and workload adds its own sentence to both texts. So the whole texts and one chunk are new to each side,
while the vectors of the other chunks are known. The scores must be equal to the bit on all sides.

The file is not called `triton.py`, because PyTorch, which other scripts here import, would take it for the compiler.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vcs_runtime import Scorer, ScorerConfig
from vcs_runtime.training import TrainingScorer
from vcs_runtime.triton.repository import Deployment, write_repository

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))

from support.triton_server import Server, serve, why_not

Ask = Callable[[str, str], float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--pairs", dest="count", type=int, default=64)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--characters",
        type=int,
        default=400,
        help="characters of a text; longer texts are cut after a sentence",
    )
    arguments = parser.parse_args()
    if why := why_not():
        sys.exit(why)
    lines = arguments.pairs.read_text("utf-8").splitlines()[: arguments.count]
    rows = [json.loads(line) for line in lines]
    texts = [
        (_short(row["reference"], arguments.characters), _short(row["generated"], arguments.characters))
        for row in rows
    ]
    seconds: dict[tuple[int, str], list[float]] = defaultdict(list)
    waited: dict[tuple[int, str], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_repository(folder / "models", Deployment(config=ScorerConfig(device="cpu")))
        # Each protocol has its own server, because a server remembers the texts of earlier requests.
        servers = {}
        for protocol in ("grpc", "http"):
            (folder / protocol).mkdir()
            servers[protocol] = stack.enter_context(serve(folder / "models", folder / protocol))
            servers[protocol].wait("vcs")
        scorer = stack.enter_context(Scorer.open("default", "cpu"))
        background = TrainingScorer(ScorerConfig(device="cpu"))
        stack.callback(background.close)
        sides: dict[str, Callable[[], Any]] = {
            "grpc": lambda: _client(servers["grpc"], "grpc"),
            "http": lambda: _client(servers["http"], "http"),
            "in process": lambda: _same(lambda r, g: background.submit(r, g).result().vcs),
            "one by one": lambda: _same(lambda r, g: scorer.score(r, g).vcs),
        }
        for name in sides:  # warm
            _drive(sides[name], texts[:2], 1)
        for turn in range(arguments.rounds):
            for clients in arguments.clients:
                scores = {}
                fresh = [
                    (f"{r} This is number {turn}.", f"{g} It was number {turn} of {clients}.")
                    for r, g in texts
                ]
                for name, side in sides.items():
                    scores[name], times, took = _drive(side, fresh, clients)
                    seconds[clients, name].append(took)
                    waited[clients, name] += times
                if len({tuple(each) for each in scores.values()}) > 1:
                    sys.exit(f"the sides score differently: {scores}")
    print(f"{'clients':>8}  {'side':12}{'pairs/s':>9}{'of one by one':>15}{'p50 ms':>9}{'p99 ms':>9}")
    for (clients, name), took in seconds.items():
        ratio = np.median(np.array(seconds[clients, "one by one"]) / np.array(took))
        p50, p99 = np.quantile(waited[clients, name], [0.5, 0.99]) * 1e3
        print(f"{clients:8}  {name:12}{len(texts) / np.median(took):9.2f}{ratio:15.2f}{p50:9.0f}{p99:9.0f}")
    print(f"{len(texts)} pairs, {arguments.rounds} rounds; all scores equal to the bit")


def _drive(
    side: Callable[[], Any], texts: list[tuple[str, str]], clients: int
) -> tuple[list[float], list[float], float]:
    """Ask for all texts with several clients at once: scores in order, seconds of each, seconds of all."""
    scores, times = [0.0] * len(texts), [0.0] * len(texts)
    todo = iter(range(len(texts)))

    def work(_: int) -> None:
        with side() as ask:
            for i in todo:
                started = time.perf_counter()
                scores[i] = ask(*texts[i])
                times[i] = time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    return scores, times, time.perf_counter() - started


@contextmanager
def _same(ask: Ask) -> Iterator[Ask]:
    yield ask


@contextmanager
def _client(server: Server, protocol: str) -> Iterator[Ask]:
    import tritonclient.grpc
    import tritonclient.http

    package = getattr(tritonclient, protocol)

    def ask(reference: str, generated: str) -> float:
        inputs = []
        for name, text in (("reference", reference), ("generated", generated)):
            tensor = package.InferInput(name, [1, 1], "BYTES")
            tensor.set_data_from_numpy(np.array([[text.encode()]], np.object_))
            inputs.append(tensor)
        answer = client.infer("vcs", inputs, outputs=[package.InferRequestedOutput("vcs")])
        return float(answer.as_numpy("vcs")[0, 0])

    with package.InferenceServerClient(f"127.0.0.1:{getattr(server, protocol)}") as client:
        yield ask


def _short(text: Any, characters: int) -> str:
    """The first sentences of a text, or of the first text of a list."""
    whole: str = text if isinstance(text, str) else text[0]
    return whole[: whole.find(". ", characters) + 1] or whole


if __name__ == "__main__":
    main()
