"""Milliseconds of one pair on the CPU: the first score, a later score, and a score without its model.

    python benchmarks/latency.py start [--rounds 9] [--bundle default] [--keep]
    python benchmarks/latency.py pair PAIRS.jsonl [--pairs 40] [--rounds 3] [--bundle default] [--keep]
    python benchmarks/latency.py host PAIRS.jsonl [--rounds 5] [--bundle default] [--rate 2500] [--keep]
    python benchmarks/latency.py proof [--rounds 9] [--bundle default]
    python benchmarks/latency.py tokens PAIRS.jsonl [--pairs 200000] [--bundle default]

`start` prints the median of rounds, each in a process of its own, for commands and for the parts of
a program that scores one pair. Files are in the page cache. Modules (in a temporary folder) and
kernels are compiled.

`pair` scores real pairs in this process, with one `score` each. "New" pairs have their own
reference, and nothing is remembered. For "seen before", the reference was scored before, and the
generated text is new. Figures are stored by revision.

`host` prints processor time, the least of rounds, in one thread with nothing remembered. The texts
are cut to about 450 words and differ in all pairs. The script prints the total, each step, and the
time of `tokenizers` for the same texts and sentences. Word vectors (`--bundle fast`) are computed;
any other model takes no time. With `--rate`, a GPU that scores so many pairs per second is
simulated by sleeping, and the busy share of its time is printed. To compare revisions, run them in
turns with PYTHONPATH.

`proof` prints the processor time, in one thread, of opening the embedder without its proof, for the
first time, and later.

`tokens` generates texts of every script around words of the pairs. It counts the texts whose tokens
and spans equal those of `tokenizers`.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from records import keep, parser_of, revision

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs/examples"
PAIR = [str(EXAMPLES / "reference.txt"), str(EXAMPLES / "generated.txt")]
# This program imports nothing that the measured code could import.
PROGRAM = """
import sys, time
texts = [open(path, encoding="utf-8").read() for path in sys.argv[2:]]
at = [time.perf_counter()]
from vcs_runtime import Scorer
at.append(time.perf_counter())
scorer = Scorer.open(sys.argv[1], "cpu")
at.append(time.perf_counter())
scorer.score(*texts)
at.append(time.perf_counter())
print(*(1e3 * (b - a) for a, b in zip(at, at[1:])))
"""
PARTS = ("import", "Scorer.open", "first score")


def start(bundle: str, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of commands, and of the parts of a program, each the median of rounds."""
    times: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(*arguments: str) -> str:
            command = [sys.executable, *arguments]
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment, check=False
            )
            if done.returncode:
                sys.exit(done.stderr)
            return done.stdout

        score = ["score", *PAIR, "--bundle", bundle]
        commands = {
            "--version": ["--version"],
            "--help": ["--help"],
            "score --help": ["score", "--help"],
            "score": score,
        }
        for number in range(rounds + 1):
            for name, words in commands.items():
                started = time.perf_counter()
                run("-m", "vcs_runtime", *words)
                times[f"vcs-runtime {name}"].append(1e3 * (time.perf_counter() - started))
            parts = list(map(float, run("-c", PROGRAM, bundle, *PAIR).split()))
            for part, milliseconds in zip(PARTS, parts, strict=True):
                times[part].append(milliseconds)
            times["import, open and first score"].append(sum(parts))
            if not number:  # the first round fills the caches
                times.clear()
    for name, values in times.items():
        print(
            f"{name:32} {statistics.median(values):6.0f} ms ({min(values):.0f} to"
            f" {max(values):.0f})"
        )
    return [
        {"workload": name, "sides": {"time": {"ms": statistics.median(values)}}}
        for name, values in times.items()
    ]


def pair(path: Path, bundle: str, count: int, rounds: int) -> list[dict[str, Any]]:
    """p50 and p99 of a warm pair with a new reference, and with one that was scored before."""
    import numpy as np

    from vcs_runtime import Scorer

    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()[:count]]
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        with Scorer.open(bundle, "cpu", cache_mb=0) as new, Scorer.open(bundle, "cpu") as cached:
            signature = new.signature
            for workload, scorer in (("new", new), ("seen before", cached)):
                scorer.score("A man opens a door.", "A woman closes a window.")  # warms up
                for row in rows:
                    if workload == "seen before":
                        scorer.score(row["reference"], row["reference"])
                    started = time.perf_counter()
                    scorer.score(row["reference"], row["generated"])
                    seconds[workload].append(time.perf_counter() - started)
    table = []
    for workload, values in seconds.items():
        figures = {
            f"p{p}_ms": round(1e3 * float(np.quantile(values, p / 100)), 1) for p in (50, 99)
        }
        print(workload, figures)
        table.append(
            {
                "workload": workload,
                "sides": {revision(): figures},
                "pairs": len(rows),
                "rounds": rounds,
                "signatures": {"ours default:cpu" if bundle == "default" else "ours": signature},
            }
        )
    return table


class NoModel:
    """Takes the place of a model: vectors that depend on the ids, after the seconds that a GPU
    takes for each place."""

    def __init__(self, dimension: int, seconds: float = 0.0) -> None:
        import numpy as np

        self.table = np.random.default_rng(0).standard_normal((4096, dimension)).astype(np.float32)
        self.table /= np.linalg.norm(self.table, axis=1, keepdims=True)
        self.seconds, self.places = seconds, 0

    def run(self, inputs: dict[str, Any], shown: Any = ()) -> list[Any]:
        ids = inputs["input_ids"]
        self.places += ids.size
        if self.seconds:  # to sleep for no time takes some, too
            time.sleep(self.seconds * ids.size)
        return [self.table[ids[:, 1:].sum(axis=1) % len(self.table)]]

    def close(self) -> None: ...


def long_pairs(path: Path) -> list[tuple[str, str]]:
    """Pairs of texts, cut after the sentence in which they reach about 450 words, that share
    none."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    texts = []
    for text in dict.fromkeys(row[side] for side in ("reference", "generated") for row in rows):
        words = list(re.finditer(r"\S+", text))[435:480]
        if end := next((word.end() for word in words if word.group().endswith(".")), 0):
            texts.append(text[:end])
    return list(zip(texts[::2], texts[1::2], strict=False))


def watched_steps() -> tuple[dict[str, float], list[list[str]]]:
    """Seconds of the processor by step from now on, and the texts of which tokens are made."""
    from vcs_runtime.inference import embedder, tokenizer
    from vcs_runtime.scoring import block_scores, preparation

    steps: dict[str, float] = defaultdict(float)
    tokenised: list[list[str]] = []

    def watch(owner: Any, name: str, step: str) -> None:
        real = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            if step == "tokens":
                tokenised.append(arguments[1])
            started = time.thread_time()
            result = real(*arguments, **options)
            steps[step] += time.thread_time() - started
            return result

        setattr(owner, name, timed)

    watch(preparation.Preparation, "_prepare", "cleaning and sentences")
    watch(tokenizer.TextTokenizer, "sequences", "tokens")
    watch(embedder.TokenisedTexts, "run", "batches")
    watch(embedder.TokenisedTexts, "vectors", "vectors")
    watch(block_scores, "_compare", "cosines")
    watch(block_scores, "score_batch", "alignment")
    return steps, tokenised


def host(path: Path, bundle: str, rounds: int, rate: float | None) -> list[dict[str, Any]]:
    """Milliseconds of the processor for a pair beside its model, by step."""
    from vcs_runtime import Scorer
    from vcs_runtime.bundle.opening import open_bundle
    from vcs_runtime.inference import device, session, tokenizer, vector_store

    pairs = long_pairs(path)
    scorer = Scorer.open(bundle, "cpu", cache_mb=0, threads=1)
    model: Any = scorer.embedder
    if bundle != "fast":
        model._session = NoModel(model.dimension)
    scorer.score_many(pairs)  # warms up
    if rate:
        model._session.seconds = seconds = len(pairs) / rate / model._session.places
        model.device = device.Device("ort-cuda", "CUDAExecutionProvider", "simulated")
        model._budget = session.Budget(model.device, model.dimension)
        scorer = Scorer(model, scorer.segmenter, vector_store.VectorStore(model, None, 0), 0, 1.0)
        # The added words make new pairs.
        words = "now then here there again still together slowly".split()
        pairs = [
            tuple(text.replace(". ", f" {word}. ") for text in pair)
            for word in words
            for pair in pairs
        ]
    times, shares = [], []
    for number in range(rounds + 1):
        if number == rounds:  # the last one is by step, which takes a little longer
            steps, tokenised = watched_steps()
        wall, started, places = (
            time.perf_counter(),
            time.process_time(),
            getattr(model._session, "places", 0),
        )
        scorer.score_many(pairs)
        times.append(time.process_time() - started)
        if rate:
            shares.append((model._session.places - places) * seconds / (time.perf_counter() - wall))
    own, alone = open_bundle(bundle), []
    oracle = tokenizer.load_tokenizer(own.path(own.manifest.embedder.tokenizer))
    for _ in range(rounds):
        started = time.process_time()
        for texts in tokenised:
            oracle.encode_batch_fast(texts, add_special_tokens=False)
        alone.append(time.process_time() - started)
    steps = {"total": min(times[:-1]), **steps, "`tokenizers` alone": min(alone)}
    figures = {name: round(1e3 * value / len(pairs), 3) for name, value in steps.items()}
    print(f"{bundle}, {len(pairs)} pairs, ms of the processor a pair: {figures}")
    if rate:
        print(f"a GPU of {rate:.0f} pairs/s computes {100 * max(shares):.0f} % of the time")
    return [
        {"workload": bundle, "sides": {revision(): figures}, "pairs": len(pairs), "rounds": rounds}
    ]


def proof(bundle: str, rounds: int) -> None:
    """Print the milliseconds of a processor for a proof, as part of opening the embedder."""
    from vcs_runtime import Embedder
    from vcs_runtime.bundle.opening import open_bundle

    own = open_bundle(bundle)
    seconds = defaultdict(list)
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as home:
            os.environ["VCS_RUNTIME_HOME"] = home
            for name, wanted in (("without", False), ("first", True), ("later", True)):
                started = time.process_time()
                Embedder.open(own, "cpu", 1, proof=wanted).close()
                if number:  # the first round warms up
                    seconds[name].append(1e3 * (time.process_time() - started))
    for name, each in seconds.items():
        print(f"{name:8} {statistics.median(each):7.1f} ms (least {min(each):.1f})")


def tokens(path: Path, bundle: str, count: int) -> None:
    """Compare the tokens and spans of drawn texts with those of `tokenizers`."""
    from vcs_runtime.bundle.opening import open_bundle
    from vcs_runtime.inference.tokenizer import load_tokenizer
    from vcs_runtime.inference.word_pieces import WordPieces

    own = open_bundle(bundle)
    oracle = load_tokenizer(own.path(own.manifest.embedder.tokenizer))
    kernel, rng = WordPieces(oracle), random.Random(0)
    words = [*path.read_text("utf-8").split(), *oracle.get_vocab()]
    blocks = [
        range(first, first + 128)
        for first in range(0, 0x30000, 128)
        if not 0xD800 <= first < 0xE000
    ]

    def word(latin: bool) -> str:
        if rng.random() < 0.7:
            return rng.choice(words)
        block = rng.choice(blocks[:5] if latin else blocks)
        return "".join(chr(rng.choice(block)) for _ in range(rng.randint(1, 9)))

    equal = known = 0
    for _ in range(0, count, 1000):
        texts = [
            "".join(word(i % 2 == 0) + rng.choice(" \u00a0\n-") for _ in range(rng.randint(0, 40)))
            for i in range(1000)
        ]
        expected = oracle.encode_batch(texts, add_special_tokens=False)
        for found, wanted in zip(kernel.encode(texts), expected, strict=True):
            known += found is not None
            equal += found is not None and (
                found[0].tolist(),
                [*map(tuple, found[1].tolist())],
            ) == (
                wanted.ids,
                wanted.offsets,
            )
    print(f"{equal} of {known} texts are equal, {count - known} of {count} are left to tokenizers")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["start", "pair", "host", "proof", "tokens"])
    parser.add_argument("file", type=Path, nargs="?", help="file of pairs")
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--pairs", type=int)
    parser.add_argument("--rate", type=float, help="pairs a second of a simulated GPU")
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    if arguments.what == "start":
        name, rows = "start", start(arguments.bundle, arguments.rounds or 9)
    elif arguments.what == "proof":
        proof(arguments.bundle, arguments.rounds or 9)
        return
    elif arguments.file is None:
        parser.error(f"{arguments.what} needs a file of pairs")
    elif arguments.what == "tokens":
        tokens(arguments.file, arguments.bundle, arguments.pairs or 200_000)
        return
    elif arguments.what == "host":
        name, rows = (
            "host",
            host(arguments.file, arguments.bundle, arguments.rounds or 5, arguments.rate),
        )
    else:
        count, rounds = arguments.pairs or 40, arguments.rounds or 3
        name, rows = "latency", pair(arguments.file, arguments.bundle, count, rounds)
    if arguments.keep:
        print(keep(name, rows))


if __name__ == "__main__":
    main()
