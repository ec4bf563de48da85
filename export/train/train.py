"""Train the default boundary model on texts that you name.

    python export/train/train.py pairs.jsonl --model WHEEL_OR_FOLDER -o boundary-en.safetensors

`pairs.jsonl` is a file of pairs as `vcs-runtime score` reads it; every distinct text in it is used, with its
punctuation as the label. `--model` is all-MiniLM-L6-v2, as `vcs-runtime fetch default --from` takes it. Every
eighth reference, with its generated texts, is held out; on the held-out references the threshold is chosen:
the one with the best mean of boundary F1 with and without capitals. Runs on the CPU, with PyTorch (which
nothing but this script needs); the same arguments give the same model on the same machine.

models/boundary-en.md has the command, the data and the figures of the model that is shipped.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from corpus import Document, Window, hold_out, read_documents, variations, windows
from measure import best_threshold, open_model
from network import BoundaryNetwork
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from vcs_export.checkpoint.bert import open_bert
from vcs_export.checkpoint.recipe import BoundaryRecipe, load_recipe
from vcs_export.checkpoint.sources import stage
from vcs_export.checkpoint.transformer import TOKENIZER, WEIGHTS
from vcs_export.families.learned_segmenter import build_boundary_bundle
from vcs_runtime.bundle.integrity import sha256_of

CLS, SEP, MASK = 101, 102, 103  # of MiniLM's vocabulary
HIDDEN_TOKENS = 0.04  # a small share of the tokens is masked, so that no single word decides
REFERENCE_WEIGHT = 4  # people wrote the references: they come this many times as often
DOCUMENTS_AT_A_TIME = 400  # batches are made of windows of about one length from so many
WARM_UP_STEPS = 50


def batches(
    documents: Sequence[Document], tokenizer: Tokenizer, size: int, rows: int, rng: random.Random
) -> Iterator[tuple[Tensor, ...]]:
    """Endless batches of variations: ids, mask, capitals, labels, counts, each `(rows, tokens)`."""
    pool = [
        document for document in documents for _ in range(REFERENCE_WEIGHT if document.is_reference else 1)
    ]
    while True:
        rng.shuffle(pool)
        for start in range(0, len(pool), DOCUMENTS_AT_A_TIME):
            part = pool[start : start + DOCUMENTS_AT_A_TIME]
            texts = variations(part, rng)
            found = [window for text in texts for window in windows(text, tokenizer, size - 2, rng)]
            found.sort(key=lambda window: len(window.ids) + 8 * rng.random())
            groups = [found[i : i + rows] for i in range(0, len(found), rows)]
            rng.shuffle(groups)
            yield from map(collate, groups)


def collate(group: Sequence[Window]) -> tuple[Tensor, ...]:
    """Windows as padded tensors, framed by [CLS] and [SEP]."""
    shape = (len(group), max(len(window.ids) for window in group) + 2)
    ids, capitals, labels, counts = (np.zeros(shape, np.int64) for _ in range(4))
    mask = np.zeros(shape, bool)
    for row, window in enumerate(group):
        inner = slice(1, len(window.ids) + 1)
        ids[row, 0], ids[row, inner.stop] = CLS, SEP
        ids[row, inner], capitals[row, inner] = window.ids, window.capitals
        labels[row, inner], counts[row, inner] = window.labels, window.counts
        mask[row, : inner.stop + 1] = True
    return tuple(map(torch.from_numpy, (ids, mask, capitals, labels, counts)))


def train(network: BoundaryNetwork, feed: Iterator[tuple[Tensor, ...]], steps: int, rate: float) -> None:
    """AdamW with a short warm-up and a linear descent to nothing; the loss counts ends of words alone."""
    parameters = list(network.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / WARM_UP_STEPS) * max(0.02, 1 - step / steps)
    )
    network.train()
    started, mean = time.monotonic(), 0.0
    for step in range(1, steps + 1):
        ids, mask, capitals, labels, counts = next(feed)
        hidden = (torch.rand(ids.shape) < HIDDEN_TOKENS) & (ids != CLS) & (ids != SEP)
        logits = network(ids.masked_fill(hidden, MASK), mask, capitals)
        weight = counts.float()
        loss = (
            binary_cross_entropy_with_logits(logits, labels.float(), weight, reduction="sum") / weight.sum()
        )
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        mean += (loss.item() - mean) * max(0.02, 1 / step)
        if step % 50 == 0:
            print(f"step {step} of {steps}: loss {mean:.4f}, {time.monotonic() - started:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="wheel or folder with all-MiniLM-L6-v2")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=6, help="of the encoder, from the bottom")
    parser.add_argument("--rank", type=int, default=16, help="of the updates")
    parser.add_argument("--window", type=int, default=160, help="tokens, frame included")
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=20, help="windows a step")
    parser.add_argument("--rate", type=float, default=1e-3, help="highest learning rate")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums, and so the model, would depend on how many there are
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)

    documents, held = hold_out(read_documents(arguments.pairs))
    print(f"{len(documents)} texts to train on, {len(held)} held out")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = stage(arguments.model, load_recipe(), Path(folder, "checkpoint")).folder
        tokenizer = Tokenizer.from_file(str(checkpoint / TOKENIZER))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        with open_bert(checkpoint) as opened:
            network = BoundaryNetwork(opened, arguments.layers, arguments.rank)
        feed = batches(documents, tokenizer, arguments.window, arguments.batch, rng)
        train(network, feed, arguments.steps, arguments.rate)
        facts = {
            "base": sha256_of(checkpoint / WEIGHTS),
            "layers": arguments.layers,
            "pairs": sha256_of(arguments.pairs),
            "rank": arguments.rank,
            "seed": arguments.seed,
            "steps": arguments.steps,
            "window": arguments.window,
        }
        save_file(dict(network.learnt()), arguments.output, {"vcs": json.dumps(facts, sort_keys=True)})
        # The threshold is chosen with the model as the runtime runs it.
        stride = 3 * (arguments.window - 2) // 4
        recipe = BoundaryRecipe("trained", arguments.output, arguments.window, stride, threshold=0.5)
        model = open_model(build_boundary_bundle(checkpoint, recipe, Path(folder, "bundle")))
        threshold, with_capitals, without = best_threshold(
            model, [document.sentences for document in held if document.is_reference]
        )
    print(f"wrote {arguments.output} ({arguments.output.stat().st_size:,} bytes)")
    print(f"stride {stride}, threshold {threshold:.2f}")
    print(f"boundary F1 on held-out references: {with_capitals:.3f}, lower-cased {without:.3f}")


if __name__ == "__main__":
    main()
