"""Pairs per second and peak memory, from text to score: this runtime against what a user would put together.

    python benchmarks/end_to_end.py pairs.jsonl --model WHEEL_OR_FOLDER [--rounds 3]

The other side is the reference package 1.0.0 with all-MiniLM-L6-v2 in PyTorch fp32, in batches of 32 sorted by
length; it gets the same segments, ready-made, so only embedding and scoring are timed there. Ours includes
cleaning and segmenting. Two forms of it:
    whole texts  texts over 256 tokens in windows, as ours: the same work, the same scores
    cut texts    texts cut at 256 tokens, as sentence-transformers does without a word: less work, another GAS

Three workloads, each from the same file of real pairs:
    one by one   every pair has a reference of its own; `score` is called pair by pair
    many         the same pairs in one `score_many`
    shared       several generated texts per reference, in one `score_many`

Each side runs in a process of its own, in turns; the table shows the median of the rounds and the peak
resident memory of the process. Run it in the environment with the `parity` extra, on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from sides import measure, peak_mb

Pair = tuple[str, str]


def workloads(path: Path, distinct: int, sharing: int) -> dict[str, list[Pair]]:
    by_reference: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        by_reference.setdefault(row["reference"], []).append(row["generated"])
    # One generated text per reference, from different sources; and `sharing` texts for some of the references.
    own = [(ref, texts[i % len(texts)]) for i, (ref, texts) in enumerate(by_reference.items())][:distinct]
    shared = [(ref, text) for ref, texts in by_reference.items() for text in texts[:sharing]]
    return {"one by one": own, "many": own, "shared": shared[: 2 * distinct]}


def segments(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """The segments of every text that the default segmenter can cut; both sides score only those pairs."""
    from vcs_runtime import Segmenter, TextError
    from vcs_runtime.text.cleaning import clean_segments
    from vcs_runtime.text.contractions import expand_contractions

    segmenter = Segmenter.open("default", use="rules")
    result = {}
    for text in {text for pair in pairs for text in pair}:
        try:
            result[text] = clean_segments(segmenter.sentences(expand_contractions(text), "text"))
        except TextError:
            continue
    return result


def run_ours(work: dict[str, Any]) -> Callable[[], list[float]]:
    from vcs_runtime import Scorer

    scorer = Scorer.open("default", device="cpu", memory_mb=work["memory_mb"])
    pairs = [tuple(pair) for pair in work["pairs"]]
    # Both sides are measured warm; not with a pair of the workload, whose vectors would stay in memory.
    scorer.score("A man opens a door.", "A woman closes a window.")
    if work["name"] == "one by one":
        return lambda: [scorer.score(*pair).vcs for pair in pairs]
    return lambda: [result.vcs for result in scorer.score_many(pairs)]


def run_baseline(work: dict[str, Any]) -> Callable[[], list[float]]:
    import torch
    from transformers import AutoTokenizer, BertModel
    from vcs import compute_vcs_score

    from vcs_runtime.inference.tokenizer import cut_windows

    model = BertModel.from_pretrained(work["model"], add_pooling_layer=False).eval()
    tokenizer = AutoTokenizer.from_pretrained(work["model"])
    limit = 254  # and two special tokens

    def embed(texts: list[str]) -> torch.Tensor:
        ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
        whole = work["side"] == "whole texts"
        windows = [
            (i, part)
            for i, row in enumerate(ids)
            for part in (cut_windows(row, limit) if whole else [row[:limit]])
        ]
        windows.sort(key=lambda window: -len(window[1]))
        sums = torch.zeros(len(texts), model.config.hidden_size)
        with torch.inference_mode():
            for start in range(0, len(windows), 32):
                part = windows[start : start + 32]
                batch = tokenizer.pad(
                    [
                        {"input_ids": [tokenizer.cls_token_id, *row, tokenizer.sep_token_id]}
                        for _, row in part
                    ],
                    return_tensors="pt",
                )
                hidden = model(**batch).last_hidden_state
                mask = batch["attention_mask"].unsqueeze(-1).float()
                pooled = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1)
                for (i, row), vector in zip(part, pooled, strict=True):
                    sums[i] += len(row) * vector
        return torch.nn.functional.normalize(sums, dim=1)

    cut = work["segments"]

    def score() -> list[float]:
        return [
            compute_vcs_score(ref, gen, cut.__getitem__, embed, embed)["VCS"] for ref, gen in work["pairs"]
        ]

    compute_vcs_score(*work["pairs"][0], cut.__getitem__, embed, embed)
    return score


def child(path: Path) -> None:
    work = json.loads(path.read_text("utf-8"))
    score = (run_ours if work["side"] == "ours" else run_baseline)(work)
    started = time.perf_counter()
    values = score()
    seconds = time.perf_counter() - started
    peak = peak_mb()
    print(json.dumps({"seconds": seconds, "peak_mb": peak, "values": values}))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument("--model", type=Path, help="wheel or folder with all-MiniLM-L6-v2")
    parser.add_argument("--distinct", type=int, default=60, help="pairs with a reference of their own")
    parser.add_argument("--sharing", type=int, default=17, help="generated texts per shared reference")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    from rich.console import Console
    from rich.table import Table

    from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, load_recipe
    from vcs_export.checkpoint.sources import stage

    table = Table(
        "workload",
        "pairs",
        "side",
        "pairs/s",
        "ours is faster by",
        "peak MB",
        "VCS differs by at most",
        box=None,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "checkpoint").mkdir()
        model = stage(arguments.model, load_recipe(DEFAULT, EncoderRecipe), folder / "checkpoint").folder
        for name, pairs in workloads(arguments.pairs, arguments.distinct, arguments.sharing).items():
            cut = segments(pairs)
            pairs = [pair for pair in pairs if pair[0] in cut and pair[1] in cut]
            common = {"name": name, "pairs": pairs, "segments": cut, "model": str(model)}
            common["memory_mb"] = 0 if name == "one by one" else 256
            runs: dict[str, list[dict[str, Any]]] = {"whole texts": [], "cut texts": [], "ours": []}
            for _ in range(arguments.rounds):
                for side, results in runs.items():
                    results.append(measure(__file__, folder, side=side, **common))
            ours = statistics.median(run["seconds"] for run in runs["ours"])
            for side, results in runs.items():
                seconds = statistics.median(run["seconds"] for run in results)
                scores = zip(results[0]["values"], runs["ours"][0]["values"], strict=True)
                table.add_row(
                    name, str(len(pairs)), side, f"{len(pairs) / seconds:.2f}", f"{seconds / ours:.2f}",
                    f"{max(run['peak_mb'] for run in results):.0f}", f"{max(abs(a - b) for a, b in scores):.1e}",
                )  # fmt: skip
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
