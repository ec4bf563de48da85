"""NV-Embed-v2 at full size: what exporting, loading and one text cost, and whether the vectors are right.

    python benchmarks/nv_embed_full.py [--folder DIR] [--layers 32] [--text-tokens 128] [--only linked int8]

No weights are needed: a checkpoint with random ones is written in the published layout (fp16, four files,
304 tensors, 15.7 GB), with a small tokenizer of the same kind; neither speed nor memory depends on the values.
Then, each in a process of its own:

    linked, copied, int8   `vcs-runtime export nv-embed-v2` with these weights: seconds, peak resident memory, new
                           disk. Hashing, which reads every byte, is counted apart from writing
    load                   seconds until the bundle can embed, its files in the page cache and verified before
    one text               seconds for a text of `--text-tokens` tokens, alone, the second time
    difference             the largest of a number of a vector from the same forward pass in NumPy, float64, as
                           published: nothing folded, no graph (`tests/lib/support/numpy_nv_embed.py`)

Needs 40 GB of disk in `--folder` (default: the temporary folder) and 20 GB of memory; takes about 20 minutes on
two cores, most of it the unquantised forward passes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from nv_embed_counts import safetensors_start, settings
from sides import measure, peak_mb

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))

# Precision of the matrices, and how weights enter the bundle.
MODES = {"linked": ("fp16", "link"), "copied": ("fp16", "copy"), "int8": ("int8", "link")}
SHARD_BYTES = 5_000_000_000  # as the published files: none is larger
_BLOCK = (1 << 24) + 1


def write_checkpoint(folder: Path, layers: int) -> None:
    """Random fp16 weights in the published names, shapes, order and files."""
    from support.tiny_tokenizers import mistral_tokenizer
    from vcs_export.checkpoint.decoder import decoder_config, decoder_shapes
    from vcs_export.checkpoint.nv_embed import latent_shapes

    config, latent = settings()
    text = {key: getattr(config, key) for key in config.__dataclass_fields__ if key != "causal"}
    text |= {"model_type": "bidir_mistral", "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": layers}
    (folder / "config.json").write_text(json.dumps({"model_type": "nvembed", "text_config": text}))
    tokenizer = mistral_tokenizer()
    tokenizer.add_tokens([f"<unused{i}>" for i in range(config.vocab_size - tokenizer.get_vocab_size())])
    tokenizer.save(str(folder / "tokenizer.json"))
    shapes = decoder_shapes(decoder_config(folder / "config.json", text, False), "embedding_model.")
    shapes |= latent_shapes(latent)
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    for name, shape in shapes.items():
        if sum(2 * math.prod(s) for s in (*shards[-1].values(), shape)) > SHARD_BYTES:
            shards.append({})
        shards[-1][name] = shape
    rng = np.random.default_rng(0)
    block = rng.standard_normal(_BLOCK).astype(np.float32)
    places = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        places |= dict.fromkeys(shard, file)
        _write_shard(folder / file, shard, block, rng)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def _write_shard(
    path: Path, shapes: dict[str, tuple[int, ...]], block: Any, rng: np.random.Generator
) -> None:
    with path.open("wb") as file:
        file.write(safetensors_start(shapes, "F16"))
        for name, shape in shapes.items():
            is_norm = len(shape) == 1 and name.endswith("weight")
            spread = 1.0 if name.endswith(("latents", "embed_tokens.weight")) else 0.02
            values = (block * np.float32(spread) + np.float32(is_norm)).astype(np.float16)
            # From another place on for each tensor, so that no two are alike.
            values = np.roll(values, int(rng.integers(_BLOCK)))
            left = math.prod(shape)
            while left:
                file.write(values[:left].tobytes())
                left -= min(left, values.size)


def export(checkpoint: Path, bundle: Path, mode: str) -> dict[str, float]:
    """Seconds of writing and of the rest (hashing, loss), peak memory, new disk."""
    from vcs_export.checkpoint.recipe import NV_EMBED, NvEmbedRecipe, load_recipe
    from vcs_export.families.nv_embed import build_from_recipe
    from vcs_export.families.streamed_bundle import Quantization

    started = time.perf_counter()
    written = started

    def progress(step: str, done: int, total: int) -> None:
        nonlocal written
        if step == "writing":
            written = time.perf_counter()

    precision, weights = MODES[mode]
    build_from_recipe(
        load_recipe(NV_EMBED, NvEmbedRecipe),
        checkpoint,
        bundle,
        Quantization(precision),
        weights=weights,
        own_weights=True,
        progress=progress,
    )
    return {
        "writing": written - started,
        "rest": time.perf_counter() - written,
        "peak": peak_mb(),
        "disk": sum(f.stat().st_size for f in bundle.rglob("*") if f.stat().st_nlink == 1) / 1e9,
    }


def run(bundle: Path, tokens: int, work: Path) -> dict[str, float]:
    """Seconds of loading, and of one text the second time; leaves vectors of two texts in `work`."""
    from vcs_runtime.inference.embedder import Embedder

    started = time.perf_counter()
    with Embedder.open(bundle, "cpu") as embedder:
        loaded = time.perf_counter() - started
        np.save(work, embedder.embed(TEXTS, instruction=INSTRUCTION))
        text = "the " * (tokens - 2)  # a word is a token; <s> and </s> come on top
        for _ in range(2):
            started = time.perf_counter()
            embedder.embed([text])
            seconds = time.perf_counter() - started
    return {"load": loaded, "text": seconds, "peak": peak_mb()}


TEXTS = ["A man opens the door.", "the red dog runs near the river while two women smile at the camera"]
INSTRUCTION = "Instruct: Describe \nQuery: "


def forward(checkpoint: Path, work: Path) -> dict[str, float]:
    """The vectors of `TEXTS` by NumPy into `work`."""
    from tokenizers import Tokenizer

    from support.numpy_nv_embed import embed

    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    skip = len(tokenizer.encode(INSTRUCTION, add_special_tokens=False).ids)
    started = time.perf_counter()
    rows = [[1, *tokenizer.encode(INSTRUCTION + t, add_special_tokens=False).ids, 2] for t in TEXTS]
    np.save(work, np.array([embed(checkpoint, ids, skip) for ids in rows]))
    return {"seconds": time.perf_counter() - started, "tokens": sum(map(len, rows))}


def child(path: Path) -> None:
    work = json.loads(path.read_text("utf-8"))
    step, checkpoint, bundle, vectors = (
        work["step"],
        *(Path(work[k]) for k in ("checkpoint", "bundle", "vectors")),
    )
    if step == "export":
        found = export(checkpoint, bundle, work["mode"])
    elif step == "run":
        found = run(bundle, work["tokens"], vectors)
    else:
        found = forward(checkpoint, vectors)
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--text-tokens", type=int, default=128)
    parser.add_argument("--only", nargs="+", choices=MODES, default=list(MODES))
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    with tempfile.TemporaryDirectory(prefix="nv-embed-full-", dir=arguments.folder) as name:
        work = Path(name)
        checkpoint = work / "checkpoint"
        checkpoint.mkdir()
        started = time.perf_counter()
        write_checkpoint(checkpoint, arguments.layers)
        size = sum(file.stat().st_size for file in checkpoint.iterdir())
        print(
            f"checkpoint: {size / 1e9:.1f} GB, written in {time.perf_counter() - started:.0f} s", flush=True
        )

        def step(kind: str, mode: str = "", bundle: Path = work) -> dict[str, Any]:
            return measure(
                __file__, work, step=kind, mode=mode, checkpoint=str(checkpoint), bundle=str(bundle),
                vectors=str(work / f"{kind}-{mode}.npy"), tokens=arguments.text_tokens,
            )  # fmt: skip

        exact = step("forward")
        print(f"NumPy, float64: {exact['tokens']} tokens in {exact['seconds']:.0f} s\n", flush=True)
        wanted = np.load(work / "forward-.npy")
        print(
            f"{'':8}{'writing':>10}{'rest':>9}{'peak':>10}{'new disk':>10}{'load':>9}{'one text':>10}{'peak':>10}  difference"
        )
        for mode in arguments.only:
            bundle = work / f"bundle-{mode}"
            made = step("export", mode, bundle)
            step("run", mode, bundle)  # verifies the files, and brings them into the page cache
            ran = step("run", mode, bundle)
            found = np.load(work / f"run-{mode}.npy")
            print(
                f"{mode:8}{made['writing']:8.1f} s{made['rest']:7.1f} s{made['peak']:7.0f} MB{made['disk']:7.2f} GB"
                f"{ran['load']:7.2f} s{ran['text']:8.2f} s{ran['peak']:7.0f} MB  {np.abs(found - wanted).max():.1e}",
                flush=True,
            )
            shutil.rmtree(bundle)


if __name__ == "__main__":
    main()
