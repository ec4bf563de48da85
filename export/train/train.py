"""Train the default learned segmenter on your own texts.

    python export/train/train.py pairs.jsonl --model WHEEL_OR_FOLDER -o boundary-en.safetensors

`pairs.jsonl` is a file of pairs as `vcs-runtime score` reads it. Every distinct text in it is used, with its
punctuation as the label. `--model` is all-MiniLM-L6-v2, as `vcs-runtime fetch default --from` takes it. Every
eighth reference, with its generated texts, is held out. The threshold is the one with the best mean boundary
F1, with and without capitals, on the held-out references. Training runs on the CPU, with PyTorch, which only
this script needs. The same arguments give the same model on the same machine.

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
from corpus import Document, Window, hold_out, read_documents, stripped, variations, windows
from network import BoundaryNetwork
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from vcs_export.checkpoint.encoders import open_encoder
from vcs_export.checkpoint.recipe import DEFAULT, EncoderRecipe, SegmenterRecipe, load_recipe
from vcs_export.checkpoint.safetensors_reader import WEIGHTS
from vcs_export.checkpoint.sources import stage
from vcs_export.checkpoint.transformer import TOKENIZER
from vcs_export.families.learned_segmenter import build_learned_segmenter_bundle
from vcs_runtime.bundle.integrity import sha256_of
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.device import choose_device
from vcs_runtime.segmentation.boundary_model import BoundaryModel

LAYERS, RANK = 6, 16  # of the encoder, from the bottom; of the updates
WINDOW, BATCH = 160, 20  # tokens of a window, with special tokens; windows a step
RATE = 1e-3  # the highest learning rate
THRESHOLDS = [round(0.05 * i, 2) for i in range(2, 19)]  # among which the best is chosen
CLS, SEP, MASK = 101, 102, 103  # ids in MiniLM's vocabulary
HIDDEN_TOKENS = 0.04  # a small share of the tokens is masked, so that no single word decides
REFERENCE_WEIGHT = 4  # references, which people wrote, appear this many times as often
DOCUMENTS_AT_A_TIME = 400  # a batch holds windows of about one length from this many documents
WARM_UP_STEPS = 50


def batches(
    documents: Sequence[Document], tokenizer: Tokenizer, rng: random.Random
) -> Iterator[tuple[Tensor, ...]]:
    """Yield endless batches of variations: ids, mask, capitals, labels, counts, each `(rows, tokens)`."""
    pool = [
        document for document in documents for _ in range(REFERENCE_WEIGHT if document.is_reference else 1)
    ]
    while True:
        rng.shuffle(pool)
        for start in range(0, len(pool), DOCUMENTS_AT_A_TIME):
            part = pool[start : start + DOCUMENTS_AT_A_TIME]
            texts = variations(part, rng)
            pieces = [window for text in texts for window in windows(text, tokenizer, WINDOW - 2, rng)]
            pieces.sort(key=lambda window: len(window.ids) + 8 * rng.random())
            groups = [pieces[i : i + BATCH] for i in range(0, len(pieces), BATCH)]
            rng.shuffle(groups)
            yield from map(collate, groups)


def collate(group: Sequence[Window]) -> tuple[Tensor, ...]:
    """Return windows as padded tensors, between [CLS] and [SEP]."""
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


def train(network: BoundaryNetwork, feed: Iterator[tuple[Tensor, ...]], steps: int) -> None:
    """Train by AdamW, with a short warm-up and a linear descent. Only ends of words count in the loss."""
    parameters = list(network.parameters())
    optimiser = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
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


def best_threshold(bundle: Path, documents: Sequence[Sequence[str]]) -> tuple[float, float, float]:
    """Return the threshold with the best mean boundary F1 with and without capitals, and these two F1.

    Documents are lists of sentences, whose punctuation is deleted. The end of a text, which is known, does
    not count.
    """
    opened = open_bundle(bundle)
    assert opened.manifest.segmenter
    assert opened.manifest.segmenter.model
    model = BoundaryModel(opened, opened.manifest.segmenter.model, choose_device("cpu"))
    pairs = [stripped(sentences) for sentences in documents]
    true = np.concatenate([np.isin(np.arange(len(text) - 1), ends) for text, ends in pairs])
    both = []
    for lower in (False, True):
        texts = [text.lower() if lower else text for text, _ in pairs]
        found = np.concatenate([values[:-1] for values in model.probabilities(texts)])
        cuts = [found > threshold for threshold in THRESHOLDS]
        both.append([2 * (cut & true).sum() / max(1, cut.sum() + true.sum()) for cut in cuts])
    best = int(np.argmax(np.mean(both, axis=0)))
    return THRESHOLDS[best], both[0][best], both[1][best]


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="Wheel or folder with all-MiniLM-L6-v2.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="File to write.")
    parser.add_argument("--steps", type=int, default=700, help="Number of steps.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of random numbers.")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums, and so the model, would depend on the number of threads
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)

    documents, held = hold_out(read_documents(arguments.pairs))
    print(f"{len(documents)} texts to train on, {len(held)} held out")
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = stage(
            arguments.model, load_recipe(DEFAULT, EncoderRecipe), Path(folder, "checkpoint")
        ).folder
        tokenizer = Tokenizer.from_file(str(checkpoint / TOKENIZER))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        network = BoundaryNetwork(open_encoder(checkpoint), LAYERS, RANK)
        train(network, batches(documents, tokenizer, rng), arguments.steps)
        facts = {
            "base": sha256_of(checkpoint / WEIGHTS), "layers": LAYERS, "pairs": sha256_of(arguments.pairs),
            "rank": RANK, "seed": arguments.seed, "steps": arguments.steps, "window": WINDOW,
        }  # fmt: skip
        save_file(dict(network.updates()), arguments.output, {"vcs": json.dumps(facts, sort_keys=True)})
        # The threshold is chosen with the model as the runtime runs it.
        stride = 3 * (WINDOW - 2) // 4
        recipe = SegmenterRecipe("trained", arguments.output, WINDOW, stride, threshold=0.5)
        bundle = build_learned_segmenter_bundle(checkpoint, recipe, Path(folder, "bundle"))
        references = [document.sentences for document in held if document.is_reference]
        threshold, with_capitals, without = best_threshold(bundle, references)
    print(f"wrote {arguments.output} ({arguments.output.stat().st_size:,} bytes)")
    print(f"stride {stride}, threshold {threshold:.2f}")
    print(f"boundary F1 on held-out references: {with_capitals:.3f}, lower-cased {without:.3f}")


if __name__ == "__main__":
    main()
