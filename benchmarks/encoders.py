"""Encoders at full size: cost of exporting and embedding, compared with transformers.

    python benchmarks/encoders.py [MODEL ...] [--folder DIR] [--tokens 20 128 600] [--rounds 3]

MODEL is one of `MODELS`; the default is all of them. No weights are needed. The script writes a
checkpoint with random weights in the published shapes, types and names, with a small tokenizer of
the same kind. Speed and memory do not depend on the values. Each step runs in a process of its own:

    export      `vcs-runtime export encoder`: seconds, peak resident memory, size of the bundle
    one text    one text of `--tokens` tokens, embedded in turns by the bundle and by transformers (float32, SDPA): CPU
                seconds on one thread, the least of `--rounds` processes, after a first run of the text. Also peak
                resident memory, and the largest difference of a number of the unit vectors

The script needs PyTorch and transformers (`make parity` makes such an environment), and up to 5 GB
of disk in `--folder` (default: the temporary folder).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from records import measure, parser_of, peak_mb

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/lib"))

MODERN_SPECIAL = {"bos": "[CLS]", "cls": "[CLS]", "eos": "[SEP]", "sep": "[SEP]", "pad": "[PAD]"}
XLM_R_SPECIAL = {"bos": "<s>", "eos": "</s>", "pad": "<pad>"}


@dataclass(frozen=True)
class Published:
    """A published model: `config.json`, how its tensors are stored, and its longest input."""

    config: Mapping[str, Any]
    stored: str = "float32"
    window: int = 512


def _sizes(kind: str, hidden: int, layers: int, inner: int, words: int) -> dict[str, Any]:
    config = {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "vocab_size": words,
    }
    return config | {"num_attention_heads": max(12, hidden // 64), "intermediate_size": inner}


_ROBERTA = {"type_vocab_size": 1, "layer_norm_eps": 1e-5}
_MODERN = {
    "norm_eps": 1e-5,
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}
MODELS = {
    "multilingual-e5-small": Published(
        _sizes("bert", 384, 12, 1536, 250037) | {"max_position_embeddings": 512}
    ),
    "gte-modernbert-base": Published(
        _sizes("modernbert", 768, 22, 1152, 50368) | _MODERN | {"max_position_embeddings": 8192},
        "float16",
        8192,
    ),
    "multilingual-e5-base": Published(
        _sizes("xlm-roberta", 768, 12, 3072, 250002) | _ROBERTA | {"max_position_embeddings": 514}
    ),
    "bge-m3": Published(
        _sizes("xlm-roberta", 1024, 24, 4096, 250002)
        | _ROBERTA
        | {"max_position_embeddings": 8194},
        window=8192,
    ),
}


def write(checkpoint: Path, name: str) -> dict[str, float]:
    """Write random weights as the publisher stores them, pooled by the first token; their GB."""
    import torch
    import transformers

    from support.checkpoints.bert import write_modules
    from support.checkpoints.files import write_json
    from support.tiny_tokenizers import modernbert_tokenizer, xlm_roberta_tokenizer

    settings = dict(MODELS[name].config)
    modern = settings["model_type"] == "modernbert"  # all others here have the words of XLM-R
    tokenizer = modernbert_tokenizer() if modern else xlm_roberta_tokenizer()
    special = MODERN_SPECIAL if modern else XLM_R_SPECIAL
    ids = {f"{role}_token_id": tokenizer.token_to_id(token) for role, token in special.items()}
    config = transformers.CONFIG_MAPPING[settings.pop("model_type")](**settings, **ids)
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config, dtype=torch.float32)
    model.to(getattr(torch, MODELS[name].stored)).save_pretrained(checkpoint)
    words = config.vocab_size - tokenizer.get_vocab_size()
    tokenizer.add_tokens([f"<unused{i}>" for i in range(words)])
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    write_modules(checkpoint, ["Transformer", "Pooling", "Normalize"])
    pooling = {"word_embedding_dimension": config.hidden_size, "pooling_mode_cls_token": True}
    write_json(checkpoint / "1_Pooling/config.json", pooling)
    lengths = {"max_seq_length": MODELS[name].window, "do_lower_case": False}
    write_json(checkpoint / "sentence_bert_config.json", lengths)
    return {"disk": (checkpoint / "model.safetensors").stat().st_size / 1e9}


def export(checkpoint: Path, bundle: Path) -> dict[str, float]:
    """Seconds, peak memory in MB, and GB of disk."""
    from vcs_export.families.build import Build
    from vcs_export.families.sentence_encoder import build_sentence_bundle
    from vcs_export.write import BundleInfo

    started = time.perf_counter()
    build_sentence_bundle(Build(checkpoint, bundle, BundleInfo("random", "NOASSERTION", "random")))
    return {
        "seconds": time.perf_counter() - started,
        "peak": peak_mb(),
        "disk": sum(f.stat().st_size for f in bundle.rglob("*") if f.is_file()) / 1e9,
    }


def text_of(tokens: int) -> str:
    """A text of so many tokens with the special ones: a word with the space before it is a
    token."""
    from support.checkpoints.tokenizers import WORDS

    return "".join(
        f" {word}" for word in np.random.default_rng(tokens).choice(WORDS[:60], tokens - 2)
    )


def ours(bundle: Path, tokens: int, vectors: Path) -> dict[str, float]:
    """CPU seconds of a text by the bundle, the second time."""
    from vcs_runtime.inference.embedder import Embedder

    with Embedder.open(bundle, "cpu", threads=1) as embedder:
        sequences = embedder._tokenizer.sequences([text_of(tokens)], "", embedder.spec.max_tokens)
        assert [len(ids) for ids in sequences.ids] == [tokens]
        for _ in range(2):
            started = time.process_time()
            vector = embedder.embed([text_of(tokens)])
            seconds = time.process_time() - started
    np.save(vectors, vector)
    return {"seconds": seconds, "peak": peak_mb()}


def theirs(checkpoint: Path, tokens: int, vectors: Path) -> dict[str, float]:
    """CPU seconds of a text by transformers, the second time."""
    import torch
    import transformers
    from tokenizers import Tokenizer

    ids = Tokenizer.from_file(str(checkpoint / "tokenizer.json")).encode(text_of(tokens)).ids
    model = transformers.AutoModel.from_pretrained(checkpoint, dtype=torch.float32).eval()
    torch.set_num_threads(1)
    row = torch.tensor([ids])
    with torch.inference_mode():
        for _ in range(2):
            started = time.process_time()
            vector = model(input_ids=row, attention_mask=torch.ones_like(row)).last_hidden_state[
                :, 0
            ]
            seconds = time.process_time() - started
    np.save(vectors, torch.nn.functional.normalize(vector).numpy())
    return {"seconds": seconds, "peak": peak_mb()}


def child(work: dict[str, Any]) -> dict[str, float]:
    """One side, in this process."""
    source, target = Path(work["source"]), Path(work["target"])
    if work["side"] == "write":
        return write(source, work["target"])
    if work["side"] == "export":
        return export(source, target)
    return {"ours": ours, "theirs": theirs}[work["side"]](source, work["tokens"], target)


def compare(name: str, folder: Path, lengths: list[int], rounds: int) -> None:
    """Print the figures of one model."""
    checkpoint, bundle = folder / "checkpoint", folder / "bundle"
    size = measure(__file__, folder, side="write", source=str(checkpoint), target=name)["disk"]
    made = measure(__file__, folder, side="export", source=str(checkpoint), target=str(bundle))
    print(
        f"{name}, {size:.2f} GB of {MODELS[name].stored}: exported in {made['seconds']:.1f} s with "
        f"{made['peak']:.0f} MB, {made['disk']:.2f} GB of disk"
    )
    print(f"{'tokens':>8}{'bundle':>22}{'transformers':>22}{'ratio':>8}{'difference':>12}")
    for tokens in (n for n in lengths if n <= MODELS[name].window):
        found: dict[str, dict[str, float]] = {}
        for _ in range(rounds):
            for side, source in (("ours", bundle), ("theirs", checkpoint)):
                done = measure(
                    __file__,
                    folder,
                    side=side,
                    source=str(source),
                    tokens=tokens,
                    target=str(folder / f"{side}.npy"),
                )
                if side not in found or done["seconds"] < found[side]["seconds"]:
                    found[side] = done
        vectors = [
            np.load(folder / f"{side}.npy").astype(np.float64) for side in ("ours", "theirs")
        ]
        columns = "".join(
            f"{found[side]['seconds']:>11.3f} s{found[side]['peak']:>6.0f} MB"
            for side in ("ours", "theirs")
        )
        ratio = found["theirs"]["seconds"] / found["ours"]["seconds"]
        print(
            f"{tokens:>8}{columns}{ratio:>8.2f}{np.abs(vectors[0] - vectors[1]).max():>12.1e}",
            flush=True,
        )
    shutil.rmtree(checkpoint)
    shutil.rmtree(bundle)


def main() -> None:
    """Measure the models that are named, or all."""
    parser = parser_of(__doc__, keeps=False)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[20, 128, 600])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", type=Path)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(json.loads(options.child.read_text("utf-8")))))
        return
    with tempfile.TemporaryDirectory(prefix="vcs-runtime-", dir=options.folder) as folder:
        for name in options.models or MODELS:
            compare(name, Path(folder), options.tokens, options.rounds)


if __name__ == "__main__":
    main()
