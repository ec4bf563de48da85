"""Seconds and peak memory of splitting texts with SaT, compared with wtpsplit and wtpsplit-lite.

    python benchmarks/segmenter.py [--layers 3] [--rounds 3] [--hidden 768] [--vocabulary 250002] [--work FOLDER] [--keep]

No SaT weights are needed. The script builds a checkpoint with seeded random weights of
sat-3l-sm's dimensions, and a tokenizer of made-up words of XLM-R's size. Speed does not depend on
the values. The sentence ends do, so quality is not measured. The two workloads are one text of 500
words, and 32 texts of about 400 words. The sides are:

    wtpsplit torch   wtpsplit with PyTorch, fp32
    wtpsplit onnx    wtpsplit with ONNX, fp16: weights and mask, as on the hub (of our graph: theirs does not export)
    lite onnx        wtpsplit-lite with the same file
    ours same file   vcs-runtime with the same file
    ours fp32, int8  vcs-runtime with bundles of `vcs-runtime export sat`
    ours openvino    the fp32 bundle on the device openvino

Each side runs in a process of its own, in turns, and splits the single text five times. The script
prints the median, the ratio to the fastest other program, the peak resident memory of the process,
and the largest difference of a probability from PyTorch's. Run the script in the environment with
the `parity` extra, on an idle machine with 8 GB of memory and 5 GB for temporary files. Every side
uses all cores.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gpu.weights import made_up_words
from records import keep, measure, parser_of, peak_mb, work_folder

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))

THRESHOLD = 0.25
STRIDE = 64
REPEATS = 5  # of a single text in each process; their median counts
WORKLOADS = {"500 words": (1, 500), "32 x 400 words": (32, 400)}
SIDES = (
    "wtpsplit torch",
    "wtpsplit onnx",
    "lite onnx",
    "ours same file",
    "ours fp32",
    "ours int8",
    "ours openvino",
)
SPECIAL = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}


def write_tokenizer(path: Path, size: int) -> list[str]:
    """Write a Unigram tokenizer of XLM-R's kind with `size` tokens; returns words, a third of them
    in two pieces."""
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import Unigram
    from tokenizers.pre_tokenizers import Metaspace, Sequence, WhitespaceSplit

    whole = made_up_words((size - 60) // 2)
    letters = ["\u2581", *"abcdefghijklmnopqrstuvwxyz"]
    pieces = [*(f"\u2581{word}" for word in whole), *whole, *letters]
    pieces += [f"<unused{i}>" for i in range(size - len(SPECIAL) - 1 - len(pieces))]
    vocabulary = (
        [(token, 0.0) for token in SPECIAL]
        + [(piece, -10.0) for piece in pieces]
        + [("<mask>", 0.0)]
    )
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=SPECIAL["<unk>"], byte_fallback=False))
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token in (*SPECIAL, "<mask>")]
    )
    tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Metaspace()])
    tokenizer.save(str(path))
    common = whole[:3000]
    return [
        *common[:2000],
        *(a + b for a, b in zip(common[2000:], reversed(common[2000:]), strict=True)),
    ]


def write_checkpoint(folder: Path, hidden: int, layers: int, vocabulary: int) -> None:
    """Random weights under the names of a SaT checkpoint; the classifier spreads the
    probabilities."""
    from safetensors.numpy import save_file

    from support.checkpoints.bert import encoder_tensors
    from support.checkpoints.files import drawn

    rng = np.random.default_rng(1)

    def normal(*shape: int, scale: float = 0.03) -> Any:
        return rng.standard_normal(shape, np.float32) * np.float32(scale)

    tensors = {
        "embeddings.word_embeddings.weight": normal(vocabulary, hidden),
        "embeddings.position_embeddings.weight": normal(514, hidden),
        "embeddings.token_type_embeddings.weight": normal(1, hidden),
    }
    tensors |= {
        "embeddings.LayerNorm.weight": 1 + normal(hidden),
        "embeddings.LayerNorm.bias": normal(hidden),
    }
    tensors |= encoder_tensors(partial(drawn, rng), hidden, layers, 4 * hidden)
    tensors = {f"roberta.{name}": tensor for name, tensor in tensors.items()}
    tensors |= {
        "classifier.weight": normal(1, hidden, scale=2 * hidden**-0.5),
        "classifier.bias": normal(1),
    }
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    settings = {
        "architectures": ["SubwordXLMForTokenClassification"],
        "model_type": "xlm-token",
        "mixture_name": "xlm-token",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
        "vocab_size": vocabulary,
        "max_position_embeddings": 514,
        "layer_norm_eps": 1e-5,
        "hidden_act": "gelu",
        "position_embedding_type": "absolute",
        "type_vocab_size": 1,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "lookahead": None,
        "lookahead_split_layers": None,
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
    }
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")


def prepare(folder: Path, arguments: argparse.Namespace) -> dict[str, list[str]]:
    """Checkpoint, bundles and the oracles' folder below `folder`; returns the texts of each
    workload."""
    from tokenizers import Tokenizer

    from support.hub_sat import write_hub_model
    from vcs_export.families.build import Build, Quantization
    from vcs_export.families.sat import SatOptions, build_sat_bundle
    from vcs_export.write import BundleInfo

    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    size = arguments.vocabulary
    words = write_tokenizer(checkpoint / "tokenizer.json", size)
    write_checkpoint(checkpoint, arguments.hidden, arguments.layers, size)
    rng = random.Random(2)
    texts = {
        name: [
            " ".join(
                rng.choices(words, k=round(length * rng.uniform(0.8, 1.2)) if count > 1 else length)
            )
            for _ in range(count)
        ]
        for name, (count, length) in WORKLOADS.items()
    }
    info = BundleInfo("random", "CC0-1.0", "a seed")
    options = SatOptions(threshold=THRESHOLD, stride=STRIDE)
    for precision in ("fp32", "fp16", "int8"):
        quantization = Quantization(precision, texts["500 words"] if precision == "int8" else ())
        build_sat_bundle(Build(checkpoint, folder / precision, info, quantization), options)
    write_hub_model(folder / "fp16/segmenter/model.onnx", checkpoint / "model_optimized.onnx")
    build_sat_bundle(
        Build(checkpoint / "model_optimized.onnx", folder / "same file", info), options
    )
    encode = Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode
    for name, rows in texts.items():
        tokens = [len(encode(text, add_special_tokens=False).ids) for text in rows]
        print(
            f"{name}: {len(rows)} texts, {sum(tokens)} tokens, {min(tokens)} to {max(tokens)} each"
        )
    return texts


def open_side(side: str, folder: Path) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What splits and what gives probabilities, each from a list of texts to a list."""
    if side.startswith("ours"):
        from vcs_runtime import Segmenter

        name = side.removeprefix("ours ")
        bundle, device = ("fp32", name) if name == "openvino" else (name, "cpu")
        segmenter = Segmenter.open(folder / bundle, device=device)
        return segmenter.split, segmenter.boundary_probabilities
    at = str(folder / "checkpoint")
    providers = {"ort_providers": ["CPUExecutionProvider"]} if side.endswith("onnx") else {}
    if side.startswith("lite"):
        import wtpsplit_lite

        oracle = wtpsplit_lite.SaT(at, tokenizer_name_or_path=at, **providers)
    else:
        import transformers
        import wtpsplit

        # This is the folder's tokenizer. transformers would build another one from the vocabulary.
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=f"{at}/tokenizer.json",
            bos_token="<s>",
            cls_token="<s>",
            eos_token="</s>",
            sep_token="</s>",
            pad_token="<pad>",
            unk_token="<unk>",
            mask_token="<mask>",
        )
        transformers.AutoTokenizer.from_pretrained = lambda *_, **__: tokenizer
        oracle = wtpsplit.SaT(at, tokenizer_name_or_path=at, **providers)
    return (
        lambda texts: list(oracle.split(texts, threshold=THRESHOLD, stride=STRIDE)),
        lambda texts: list(oracle.predict_proba(texts, stride=STRIDE)),
    )


def child(path: Path) -> None:
    work = json.loads(path.read_text("utf-8"))
    folder = path.parent
    split, probabilities = open_side(work["side"], folder)
    split(["a short text to warm up"])
    seconds = {}
    for name, texts in work["texts"].items():
        # The first call of a size gets memory from the system, and takes up to twice as long as
        # later calls.
        times = []
        for _ in range(1 if len(texts) > 1 else REPEATS):
            started = time.perf_counter()
            split(texts)
            times.append(time.perf_counter() - started)
        seconds[name] = statistics.median(times)
    peak = peak_mb()
    if work["first"]:
        values = probabilities(next(iter(work["texts"].values())))
        np.save(folder / f"{work['side']}.npy", np.concatenate(values))
    print(json.dumps({"seconds": seconds, "peak_mb": peak}))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--hidden", type=int, default=768, help="a multiple of 64")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=250002)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", type=Path, help="folder of prepared models, for several runs")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    chosen = list(SIDES)
    if not importlib.util.find_spec("openvino"):
        print("ours openvino is left out: OpenVINO is not installed")
        chosen.remove("ours openvino")
    with work_folder(arguments.work) as folder:
        path = folder / "texts.json"
        if not path.exists():
            path.write_text(json.dumps(prepare(folder, arguments)), "utf-8")
        texts = json.loads(path.read_text("utf-8"))
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in chosen}
        for number in range(arguments.rounds):
            for side, results in runs.items():
                results.append(measure(__file__, folder, side=side, texts=texts, first=not number))
        values = {side: np.load(folder / f"{side}.npy") for side in chosen}
    oracle = values[SIDES[0]]
    rows: list[dict[str, Any]] = []
    for name in WORKLOADS:
        sides = {}
        for side, results in runs.items():
            seconds = statistics.median(run["seconds"][name] for run in results)
            sides[side] = {
                "seconds": round(seconds, 5),
                "peak_mb": round(max(run["peak_mb"] for run in results)),
                "differs": float(f"{np.abs(values[side] - oracle).max():.1e}"),
            }
        rows.append({"workload": name, "rounds": arguments.rounds, "sides": sides})
    show(rows)
    if arguments.keep:
        print(keep("segmenter", rows))


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        fastest = min(
            own["seconds"] for side, own in row["sides"].items() if not side.startswith("ours")
        )
        for side, own in row["sides"].items():
            print(
                f"{row['workload']:16}{side:16}{1000 * own['seconds']:8.0f}"
                f" ms{fastest / own['seconds']:6.2f} {own['peak_mb']:6} MB, differs by"
                f" {own['differs']:.1e}"
            )


if __name__ == "__main__":
    main()
