"""Decoders at full size: cost of exporting, loading and one text, and errors of the vectors.

    python benchmarks/decoders.py [MODEL ...] [--folder DIR] [--modes linked fp32 int8] [--text-tokens 128]
                                  [--layers N] [--vocabulary N] [--stored F32] [--no-numpy]
                                  [--devices cpu openvino] [--threads N]

No weights are needed. The script writes a checkpoint with random weights in the published shapes,
types and names, with a small tokenizer of the same kind. Speed and memory do not depend on the
values. Each step runs in a process of its own:

    export      seconds, peak resident memory and new disk space for each of `--modes`: the precision of matrices, or
                `linked` and `copied` for the checkpoint's own precision. Time for hashing, which reads every byte, is
                separate. For int8, the rest includes measuring the quantisation error on two texts
    load        seconds until the bundle can embed. Its files are already verified and in the page cache
    one text    seconds for one text of `--text-tokens` tokens, the second time. With `--threads 1`, these are seconds
                of the processor, which other work on the machine hardly changes
    8 texts     seconds for eight such texts in one call; "other bits" if a vector differs from the text's own vector
    memory      peak resident memory, and the part of it at the end that is not mapped from files
    difference  largest difference of a number of a unit vector from the published forward pass in NumPy, in float64
                (`tests/lib/support/numpy_decoder.py`)

ONNX Runtime has no kernels for bf16 on a CPU, so such a bundle needs `--devices openvino`.

`--layers` and `--vocabulary` make a model smaller. `--layers 2 --vocabulary 1000 --stored F32
--modes fp32` compares layers of full width (for Gemma, one of each kind). At full size, 8 billion
weights need 40 GB of disk in `--folder` (default: the temporary folder) and 20 GB of memory. This
takes about 20 minutes on two cores, mostly for forward passes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from gpu.weights import safetensors_start, settings
from records import measure, parser_of, peak_mb, status_mb

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))

SHARD_BYTES = 5_000_000_000  # as the published files: none is larger
_BLOCK = (1 << 24) + 1
_PRECISIONS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
TEXTS = [
    "A man opens the door.",
    "the red dog runs near the river while two women smile at the camera",
]
NV_EMBED = "nv-embed-v2"
_WORDS = ("a", "the", "man", "dog", "red", "two", "river", "camera")
INSTRUCTION = "Instruct: Describe \nQuery: "  # of NV-Embed, which does not pool it


@dataclass(frozen=True)
class Published:
    """A published model: its family, its settings other than the tiny one's, its type, its Dense
    layers."""

    family: str
    config: Mapping[str, Any]
    stored: str = "BF16"
    dense: tuple[int, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def _sizes(
    hidden: int, layers: int, heads: int, groups: int, size: int, inner: int, words: int
) -> dict[str, int]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": size,
        "intermediate_size": inner,
        "vocab_size": words,
    }


_QWEN = {"max_position_embeddings": 40960, "rope_theta": 1e6}
_GTE = {"max_position_embeddings": 131072, "rope_theta": 1e6, "sliding_window": 131072}
_GEMMA = {
    "_sliding_window_pattern": 6,
    "query_pre_attn_scalar": 256,
    "rope_local_base_freq": 1e4,
    "rope_theta": 1e6,
}
_LLAMA3 = {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "rope_type": "llama3"}
_NEMOTRON = {
    "max_position_embeddings": 131072,
    "rope_theta": 5e5,
    "rope_scaling": _LLAMA3 | {"original_max_position_embeddings": 8192},
}
_KALM = _GEMMA | {"max_position_embeddings": 131072, "sliding_window": 1024}
MODELS = {
    "qwen3-embedding-0.6b": Published("qwen3", _sizes(1024, 28, 16, 8, 128, 3072, 151669) | _QWEN),
    "qwen3-embedding-4b": Published("qwen3", _sizes(2560, 36, 32, 8, 128, 9728, 151665) | _QWEN),
    "qwen3-embedding-8b": Published("qwen3", _sizes(4096, 36, 32, 8, 128, 12288, 151665) | _QWEN),
    "gte-qwen2-1.5b-instruct": Published(
        "gte-qwen2",
        _sizes(1536, 28, 12, 2, 128, 8960, 151646) | _GTE,
        "F32",
        options={"causal": True},
    ),
    "gte-qwen2-7b-instruct": Published(
        "gte-qwen2",
        _sizes(3584, 28, 28, 4, 128, 18944, 151646) | _GTE,
        "F32",
        options={"causal": False},
    ),
    "llama-embed-nemotron-8b": Published(
        "nemotron", _sizes(4096, 32, 32, 8, 128, 14336, 128256) | _NEMOTRON
    ),
    "kalm-embedding-gemma3-12b-2511": Published(
        "kalm-gemma3", _sizes(3840, 48, 16, 8, 256, 15360, 262208) | _KALM
    ),
    "embeddinggemma-300m": Published(
        "embedding-gemma",
        _sizes(768, 24, 3, 1, 256, 1152, 262144)
        | _GEMMA
        | {
            "max_position_embeddings": 2048,
            "sliding_window": 512,
        },
        "F32",
        dense=(3072, 768),
    ),
    NV_EMBED: Published("nv-embed", {}, "F16"),
}


def write_checkpoint(folder: Path, published: Published, work: Mapping[str, Any]) -> None:
    """Random weights in the published names, shapes and files."""
    from support.checkpoints.decoder import (
        FAMILIES,
        decoder_shapes,
        write_decoder_files,
        write_dense,
    )

    rng = np.random.default_rng(0)
    if published.family == "nv-embed":
        _write_tensors(folder, _nv_embed_files(folder, work["layers"]), published.stored, rng)
        return
    kind = FAMILIES[published.family]
    config = {**kind.config, **published.config}
    if work["vocabulary"]:
        config["vocab_size"] = work["vocabulary"]
    if published.family.endswith(("gemma", "gemma3")):
        every = config["_sliding_window_pattern"]
        count = config["num_hidden_layers"]
        config["layer_types"] = [
            f"{'sliding' if i % every else 'full'}_attention" for i in range(1, count + 1)
        ]
    if work["layers"]:  # the last ones, of which one is global in Gemma
        config["num_hidden_layers"] = work["layers"]
        if "layer_types" in config:
            config["layer_types"] = config["layer_types"][-work["layers"] :]
    write_decoder_files(
        folder, published.family, config, _padded(kind.tokenizer(), config["vocab_size"])
    )
    write_dense(folder, config["hidden_size"], published.dense, published.stored)
    prefix = "model." if kind.whole else ""
    shapes = {f"{prefix}{name}": shape for name, shape in decoder_shapes(config).items()}
    _write_tensors(folder, shapes, work["stored"] or published.stored, rng)


def _nv_embed_files(folder: Path, layers: int | None) -> dict[str, tuple[int, ...]]:
    from support.checkpoints.tokenizers import mistral_tokenizer
    from vcs_export.checkpoint.decoder import decoder_shapes
    from vcs_export.checkpoint.nv_embed import latent_shapes

    config, latent = settings()
    text = {
        name: getattr(config, name)
        for name in (
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "intermediate_size",
            "vocab_size",
            "max_position_embeddings",
            "rms_norm_eps",
            "rope_theta",
        )
    }
    text |= {"model_type": "bidir_mistral", "bos_token_id": 1, "eos_token_id": 2}
    text |= {"num_hidden_layers": layers or config.num_hidden_layers}
    (folder / "config.json").write_text(json.dumps({"model_type": "nvembed", "text_config": text}))
    _padded(mistral_tokenizer(), config.vocab_size).save(str(folder / "tokenizer.json"))
    kept = replace(config, num_hidden_layers=text["num_hidden_layers"])
    shapes = decoder_shapes(kept, "embedding_model.")
    return shapes | latent_shapes(latent)


def _padded(tokenizer: Any, size: int) -> Any:
    """The tokenizer with as many pieces as the model has words; those that it did not have are in
    no text."""
    from tokenizers import Tokenizer

    data = json.loads(tokenizer.to_str())
    pieces = data["model"]["vocab"]
    pieces |= {token["content"]: token["id"] for token in data["added_tokens"]}
    pieces |= {f"<unused{i}>": i for i in range(len(pieces), size)}
    return Tokenizer.from_str(json.dumps(data))


def _write_tensors(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], stored: str, rng: np.random.Generator
) -> None:
    width = 4 if stored == "F32" else 2
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    for name, shape in shapes.items():
        if sum(width * math.prod(s) for s in (*shards[-1].values(), shape)) > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = shape
    block = rng.standard_normal(_BLOCK).astype(np.float32)
    blocks: dict[tuple[float, bool], Any] = {}
    places = {}
    for i, shard in enumerate(shards, 1):
        file = (
            "model.safetensors"
            if len(shards) == 1
            else f"model-{i:05}-of-{len(shards):05}.safetensors"
        )
        places |= dict.fromkeys(shard, file)
        with (folder / file).open("wb") as out:
            out.write(safetensors_start(shard, stored))
            for name, shape in shard.items():
                is_norm = len(shape) == 1 and name.endswith("weight")
                spread = 1.0 if name.endswith(("latents", "embed_tokens.weight")) else 0.02
                if (spread, is_norm) not in blocks:
                    drawn = block * np.float32(spread) + np.float32(is_norm)
                    blocks[spread, is_norm] = _as_stored(drawn, stored)
                values = blocks[spread, is_norm]
                # No two tensors are equal.
                left, start = math.prod(shape), int(rng.integers(_BLOCK))
                while left:
                    part = values[start : start + left]
                    out.write(part.data)
                    left, start = left - part.size, 0
    if len(shards) > 1:
        index = json.dumps({"metadata": {}, "weight_map": places})
        (folder / "model.safetensors.index.json").write_text(index)


def _as_stored(values: Any, stored: str) -> Any:
    if stored == "BF16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype(np.float16 if stored == "F16" else np.float32)


def export(work: Mapping[str, Any], checkpoint: Path, bundle: Path) -> dict[str, float]:
    """Seconds of writing and of the rest (hashing, error), peak memory, new disk."""
    from vcs_export.checkpoint.recipe import NV_EMBED as RECIPE
    from vcs_export.checkpoint.recipe import NvEmbedRecipe, load_recipe
    from vcs_export.families.build import Build, Quantization
    from vcs_export.families.decoder import (
        DecoderOptions,
        build_decoder_bundle,
        build_nv_embed_bundle,
    )
    from vcs_export.write import BundleInfo, named_after

    started = time.perf_counter()
    written = started

    def progress(step: str, done: int, total: int) -> None:
        nonlocal written
        if step == "writing":
            written = time.perf_counter()

    published = MODELS[work["model"]]
    stored = work["stored"] or published.stored
    # Two texts measure the quantisation error. The texts of the demo would take two minutes.
    texts = TEXTS if work["mode"] == "int8" else ()
    precision = _PRECISIONS[stored] if work["mode"] in ("linked", "copied") else work["mode"]
    weights = "copy" if work["mode"] == "copied" else "link"
    quantization = Quantization(precision, texts=texts, most_change=1)
    of_nv_embed = published.family == "nv-embed"
    info = (
        named_after(checkpoint)
        if of_nv_embed
        else BundleInfo(work["model"], "CC0-1.0", "random numbers")
    )
    build = Build(
        checkpoint,
        bundle,
        info,
        quantization,
        weights=weights,
        own_weights=of_nv_embed,
        progress=progress,
    )
    if of_nv_embed:
        build_nv_embed_bundle(build, recipe=load_recipe(RECIPE, NvEmbedRecipe))
    else:
        build_decoder_bundle(build, DecoderOptions(**published.options))
    return {
        "writing": written - started,
        "rest": time.perf_counter() - written,
        "peak": peak_mb(),
        "disk": sum(f.stat().st_size for f in bundle.rglob("*") if f.stat().st_nlink == 1) / 1e9,
    }


def run(work: Mapping[str, Any], bundle: Path, vectors: Path) -> dict[str, Any]:
    """Seconds of loading, of one text and of eight, the second time; leaves vectors of two texts in
    `vectors`."""
    from vcs_runtime.inference.embedder import Embedder

    clock = time.process_time if work["threads"] == 1 else time.perf_counter
    started = time.perf_counter()
    with Embedder.open(bundle, work["device"], work["threads"]) as embedder:
        loaded = time.perf_counter() - started
        instruction = INSTRUCTION if work["model"] == NV_EMBED else ""
        np.save(vectors, embedder.embed(TEXTS, instruction=instruction))
        # Each word is a token. Special tokens are added.
        texts = [f"{word} " + "the " * (work["tokens"] - 3) for word in _WORDS]
        seconds = []
        for several in (texts[:1], texts):
            for _ in range(2):
                started = clock()
                found = embedder.embed(several)
                last = clock() - started
            seconds.append(last)
        same = np.array_equal(found[0], embedder.embed(texts[:1])[0])
        own = status_mb("RssAnon")
    return {
        "load": loaded,
        "text": seconds[0],
        "texts": seconds[1],
        "same": bool(same),
        "peak": peak_mb(),
        "own": own,
    }


def forward(work: Mapping[str, Any], checkpoint: Path, vectors: Path) -> dict[str, float]:
    """The vectors of `TEXTS` by NumPy into `vectors`."""
    from support import numpy_decoder, numpy_nv_embed

    started = time.perf_counter()
    if work["model"] == NV_EMBED:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        skip = len(tokenizer.encode(INSTRUCTION, add_special_tokens=False).ids)
        rows = [
            [1, *tokenizer.encode(INSTRUCTION + t, add_special_tokens=False).ids, 2] for t in TEXTS
        ]
        found = [numpy_nv_embed.embed(checkpoint, ids, skip) for ids in rows]
    else:
        rows = [numpy_decoder.token_ids(checkpoint, text) for text in TEXTS]
        changed = MODELS[work["model"]].options
        found = [numpy_decoder.embed(checkpoint, ids, **changed) for ids in rows]
    np.save(vectors, np.array(found))
    return {"seconds": time.perf_counter() - started, "tokens": sum(map(len, rows))}


def child(path: Path) -> None:
    work = json.loads(path.read_text("utf-8"))
    checkpoint, bundle, vectors = (Path(work[key]) for key in ("checkpoint", "bundle", "vectors"))
    if work["step"] == "export":
        found = export(work, checkpoint, bundle)
    elif work["step"] == "run":
        found = run(work, bundle, vectors)
    else:
        found = forward(work, checkpoint, vectors)
    print(json.dumps(found))


def compare(name: str, arguments: argparse.Namespace, work: Path) -> None:
    """All steps for one model."""
    checkpoint = work / "checkpoint"
    checkpoint.mkdir()
    made = {
        "layers": arguments.layers,
        "vocabulary": arguments.vocabulary,
        "stored": arguments.stored,
    }
    started = time.perf_counter()
    write_checkpoint(checkpoint, MODELS[name], made)
    size = sum(file.stat().st_size for file in checkpoint.iterdir())
    print(
        f"\n{name}: {size / 1e9:.1f} GB, written in {time.perf_counter() - started:.0f} s",
        flush=True,
    )

    def step(kind: str, mode: str = "", bundle: Path = work, device: str = "cpu") -> dict[str, Any]:
        return measure(
            __file__,
            work,
            step=kind,
            mode=mode,
            checkpoint=str(checkpoint),
            bundle=str(bundle),
            model=name,
            vectors=str(work / f"{kind}-{mode}.npy"),
            tokens=arguments.text_tokens,
            device=device,
            threads=arguments.threads,
            **made,
        )

    wanted = {}
    if not arguments.no_numpy:
        exact = step("forward")
        print(f"NumPy, float64: {exact['tokens']} tokens in {exact['seconds']:.0f} s", flush=True)
        wanted["NumPy"] = np.load(work / "forward-.npy")
    print(f"{'':10}{'writing':>10}{'rest':>9}{'peak':>10}{'new disk':>10}")
    bundles = {mode: work / f"bundle-{mode}" for mode in arguments.modes}
    for mode, bundle in bundles.items():
        built = step("export", mode, bundle)
        print(
            f"{mode:10}{built['writing']:8.1f} s{built['rest']:7.1f} s{built['peak']:7.0f}"
            f" MB{built['disk']:7.2f} GB",
            flush=True,
        )
    print(
        f"{'':10}{'device':15}{'load':>9}{'one text':>10}{'8 texts':>10}{'peak':>10}{'own':>10}"
        f"  difference from {', '.join(wanted)}"
    )
    for mode, bundle in bundles.items():
        for device in arguments.devices:
            # This verifies the files and loads them into the page cache.
            step("run", mode, bundle, device)
            ran = step("run", mode, bundle, device)
            found = np.load(work / f"run-{mode}.npy")
            apart = ", ".join(f"{np.abs(found - vectors).max():.1e}" for vectors in wanted.values())
            print(
                f"{mode:10}{device:15}{ran['load']:7.2f} s{ran['text']:8.2f} s{ran['texts']:8.2f}"
                f" s{ran['peak']:7.0f} MB{ran['own']:7.0f} MB "
                f" {apart}{'' if ran['same'] else ' other bits'}",
                flush=True,
            )
        shutil.rmtree(bundle)


def main() -> None:
    parser = parser_of(__doc__, keeps=False)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--modes", nargs="+", default=["linked", "fp32", "int8"])
    parser.add_argument("--layers", type=int)
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--stored", choices=_PRECISIONS)
    parser.add_argument("--text-tokens", type=int, default=128)
    parser.add_argument("--no-numpy", action="store_true")
    parser.add_argument("--devices", nargs="+", default=["cpu"])
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    for name in arguments.models or ["embeddinggemma-300m", "qwen3-embedding-0.6b"]:
        with tempfile.TemporaryDirectory(prefix="decoders-", dir=arguments.folder) as work:
            compare(name, arguments, Path(work))


if __name__ == "__main__":
    main()
