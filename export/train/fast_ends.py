"""Train the fast tier's learned segmenter, and measure learned segmenters.

    python export/train/fast_ends.py train clip-cc.jsonl --scenes FOLDER -o models/fast.safetensors
    python export/train/fast_ends.py measure BUNDLE ... --scenes FOLDER [--captions vatex-eval.jsonl]

`clip-cc.jsonl` is what `benchmarks/pairs.py clip-cc` writes, and `--scenes` a folder in the format of the authors' comparison set.
`train` reads the default and fast bundles of this machine: the fast one for its table of word vectors, the default for its learned
segmenter, the teacher. The trained tensors take their place beside map, bias and weights of `-o`. The threshold is the
one with the best mean F1, cased and lower-cased, on the held-out references of CLIP-CC. F1 on every second scene, by number from the first, is printed: by
it the form of the network and the time of training were chosen. `measure` prints F1 on the other half, which nothing was
chosen on, and the processor time of a description; the bundles take turns. `--captions` are JSONL with `refs`, several captions
of a video: joined, they make a text, without capitals. PyTorch 2.13.0 (CPU), one thread; the same arguments give
the same tensors on the same machine.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from corpus import Window, hold_out, read_documents, sentences_of, stripped, variations, windows
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.device import choose_device
from vcs_runtime.segmentation.boundary_model import BoundaryModel, word_features
from vcs_runtime.segmentation.segmenter import Rules

CONVOLUTIONS, WIDTH = (1, 2, 1, 3, 1, 2), 96  # places that a token sees before and after; numbers a token
TAUGHT, PLAIN = 2, 5  # rounds of variations with the teacher's answers, and with labels alone
WINDOW, BATCH, STEPS, RATE = 158, 24, 1500, 2e-3
TEACHER = 0.7  # share of the teacher's answer in a label
DROPPED, HIDDEN, AVERAGE = 0.15, 0.12, 0.995  # of numbers and tokens in training; of the weights' moving average
CLS, SEP, MASK = 101, 102, 103
THRESHOLDS = [round(0.025 * i, 3) for i in range(4, 37)]


class Block(nn.Module):
    """A convolution over three places, beside which the input passes."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.norm, self.near, self.out = nn.LayerNorm(WIDTH), nn.Linear(3 * WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        nn.init.normal_(self.out.weight, std=0.25 / math.sqrt(WIDTH))

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        padded = F.pad(self.norm(x) * visible, (0, 0, self.step, self.step))
        near = torch.cat([padded[:, i * self.step :][:, : x.shape[1]] for i in range(3)], -1)
        return x + F.dropout(self.out(F.gelu(self.near(near))), DROPPED, self.training)


class Network(nn.Module):
    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table, persistent=False)
        self.rows, self.words = nn.LayerNorm(table.shape[1]), nn.Linear(table.shape[1], WIDTH)
        self.capitals = nn.Embedding(4, WIDTH)
        nn.init.normal_(self.capitals.weight, std=0.3)
        self.blocks = nn.ModuleList(map(Block, CONVOLUTIONS))
        self.norm, self.classifier = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 1)
        nn.init.constant_(self.classifier.bias, -2.5)

    def forward(self, ids: Tensor, mask: Tensor, capitals: Tensor) -> Tensor:
        x = F.dropout(self.words(self.rows(self.table[ids])) + self.capitals(capitals), DROPPED, self.training)
        for block in self.blocks:
            x = block(x, mask[..., None].float())
        return self.classifier(self.norm(x))[..., 0]


def collate(group: Sequence[tuple[Window, np.ndarray]]) -> tuple[Tensor, ...]:
    """Ids, mask, capitals, labels and which count, `(rows, tokens)`."""
    shape = (len(group), max(len(window.ids) for window, _ in group) + 2)
    ids, mask, capitals = np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape, np.int64)
    labels, counts = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for row, (window, target) in enumerate(group):
        inner = slice(1, len(window.ids) + 1)
        ids[row, 0], ids[row, inner.stop], mask[row, : inner.stop + 1] = CLS, SEP, True
        ids[row, inner], capitals[row, inner] = window.ids, window.capitals
        labels[row, inner], counts[row, inner] = target, window.counts
    return tuple(map(torch.from_numpy, (ids, mask, capitals, labels, counts)))


def taught(pieces: Sequence[Window], teacher: ort.InferenceSession) -> Iterator[tuple[Window, np.ndarray]]:
    order = sorted(range(len(pieces)), key=lambda i: len(pieces[i].ids))
    for start in range(0, len(order), 8):
        group = [pieces[i] for i in order[start : start + 8]]
        ids, mask, capitals, *_ = collate([(window, window.labels) for window in group])
        inputs = {"input_ids": ids, "attention_mask": mask.long(), "capitals": capitals}
        [logits] = teacher.run(None, {name: value.numpy() for name, value in inputs.items()})
        for window, row in zip(group, logits[..., 0], strict=True):
            answer = 1 / (1 + np.exp(-row[1 : 1 + len(window.ids)]))
            yield window, ((1 - TEACHER) * window.labels + TEACHER * answer).astype(np.float32)


def train(network: Network, pieces: list[tuple[Window, np.ndarray]], rng: random.Random) -> Network:
    """Train by AdamW and return the moving average. Only ends of words count in the loss."""
    average = copy.deepcopy(network)
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1, (step + 1) / 100) * max(0.02, 1 - step / STEPS)
    )
    network.train()
    step = 0
    while step < STEPS:
        rng.shuffle(pieces)
        rows = sorted(pieces[: 120 * BATCH], key=lambda piece: len(piece[0].ids) + 8 * rng.random())
        groups = [rows[i : i + BATCH] for i in range(0, len(rows), BATCH)]
        rng.shuffle(groups)
        for group in groups[: STEPS - step]:
            step += 1
            ids, mask, capitals, labels, counts = collate(group)
            hidden = (torch.rand(ids.shape) < HIDDEN) & (ids > SEP)
            logits = network(ids.masked_fill(hidden, MASK), mask, capitals)
            loss = F.binary_cross_entropy_with_logits(logits, labels, counts, reduction="sum") / counts.sum()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            with torch.no_grad():
                for mean, value in zip(average.parameters(), network.parameters(), strict=True):
                    mean.lerp_(value, 1 - min(AVERAGE, (step + 1) / (step + 10)))
        print(f"step {step}: loss {loss.item():.4f}", flush=True)
    return average.eval()


def f1(found: np.ndarray, true: np.ndarray) -> float:
    return float(2 * (found & true).sum() / max(1, found.sum() + true.sum()))


def curve(network: Network, documents: Sequence[list[str]], tokenizer: Tokenizer, lower: bool) -> list[float]:
    """F1 at each threshold; the end of a text, which is known, does not count."""
    found, true = [], []
    for text, ends in map(stripped, documents):
        encoding = tokenizer.encode(text.lower() if lower else text, add_special_tokens=False)
        capitals, places = word_features(text.lower() if lower else text, encoding.offsets)
        final = places[1:] != places[:-1]
        ids = torch.tensor([[CLS, *encoding.ids, SEP]])
        kinds = torch.from_numpy(np.pad(capitals, 1)[None])
        with torch.no_grad():
            logits = network(ids, torch.ones_like(ids, dtype=torch.bool), kinds)[0, 1:-2]
        found.append(torch.sigmoid(logits).numpy()[final])
        true.append(np.isin(places[:-1], ends)[final])
    return [f1(np.concatenate(found) > threshold, np.concatenate(true)) for threshold in THRESHOLDS]


def scenes(folder: Path, half: int) -> list[list[str]]:
    """The references of every second scene, by number, as lists of sentences."""
    files = sorted(folder.glob("*.json"), key=lambda path: int(path.stem))[half::2]
    rules = Rules(RulesSpec("sentencex", "en"))
    return [sentences_of(json.loads(path.read_text("utf-8"))["ground_truth"], rules) for path in files]


def training(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = random.Random(0)
    default, fast = open_bundle("default"), open_bundle("fast")
    tokenizer = Tokenizer.from_file(str(default.path(default.manifest.segmenter.model.tokenizer)))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    width = fast.manifest.embedder.dimension
    numbers = np.fromfile(fast.path(fast.manifest.embedder.weights[0]), np.float16)
    table = torch.from_numpy(numbers.reshape(-1, width).astype(np.float32))
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    teacher = ort.InferenceSession(str(default.path(default.manifest.segmenter.model.model)), settings)
    documents, held = hold_out(read_documents(arguments.pairs))
    pool = [document for document in documents for _ in range(4 if document.is_reference else 1)]
    rounds = [
        [piece for text in variations(pool, rng) for piece in windows(text, tokenizer, WINDOW, rng)]
        for _ in range(TAUGHT + PLAIN)
    ]
    pieces = [piece for part in rounds[:TAUGHT] for piece in taught(part, teacher)]
    pieces += [(window, window.labels.astype(np.float32)) for part in rounds[TAUGHT:] for window in part]
    print(f"{len(documents)} texts to train on, {len(pieces)} windows", flush=True)
    network = train(Network(table), pieces, rng)
    references = [document.sentences for document in held if document.is_reference]
    curves = {name: [curve(network, texts, tokenizer, lower) for lower in (False, True)]
              for name, texts in {"held out": references, "first half": scenes(arguments.scenes, 0)}.items()}  # fmt: skip
    best = int(np.argmax(np.mean(curves["held out"], axis=0)))
    for name, (cased, lower) in curves.items():
        print(f"{name}: F1 {cased[best]:.3f} cased, {lower[best]:.3f} lower-cased")
    old = {name: tensor for name, tensor in load_file(arguments.output).items() if not name.startswith("ends.")}
    new = {f"ends.{name.removeprefix('blocks.')}": tensor.half() for name, tensor in network.state_dict().items()}
    with safe_open(arguments.output, framework="pt") as file:
        base = json.loads(file.metadata()["vcs"])["base"]
    facts = {"base": base, "steps": CONVOLUTIONS, "threshold": THRESHOLDS[best]}
    save_file(old | new, arguments.output, {"vcs": json.dumps(facts, sort_keys=True)})
    print(f"threshold {THRESHOLDS[best]}; {arguments.output.stat().st_size:,} bytes")


def measuring(arguments: argparse.Namespace) -> None:
    models = {}
    for path in arguments.bundles:
        bundle = open_bundle(path)
        models[path] = BoundaryModel(bundle, bundle.manifest.segmenter.model, choose_device("cpu"), threads=1)
    sets = {"second half": scenes(arguments.scenes, 1)}
    if arguments.captions:
        sets["joined captions"] = [json.loads(line)["refs"][0] for line in arguments.captions.open(encoding="utf-8")]
    for name, documents in sets.items():
        pairs = [stripped(sentences) for sentences in documents]
        true = np.concatenate([np.isin(np.arange(len(text) - 1), ends) for text, ends in pairs])
        for lower in (False, True) if name == "second half" else (True,):
            found, seconds = {path: [] for path in models}, {path: [] for path in models}
            for text in [pairs[0][0], *(text for text, _ in pairs)]:
                for path, model in models.items():
                    started = time.process_time()
                    [values] = model.probabilities([text.lower() if lower else text])
                    seconds[path].append(time.process_time() - started)
                    found[path].append(values[:-1] > model.spec.threshold)
            for path, cuts in found.items():
                cut = np.concatenate(cuts[1:])
                print(
                    f"{name}, {len(pairs)} texts, {'lower' if lower else 'as written'}: {path}: F1 {f1(cut, true):.3f}, "
                    f"precision {(cut & true).sum() / cut.sum():.3f}, recall {(cut & true).sum() / true.sum():.3f}, "
                    f"{1e3 * statistics.median(seconds[path][1:]):.1f} ms"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("train")
    command.add_argument("pairs", type=Path)
    command.add_argument("-o", "--output", type=Path, required=True)
    command.set_defaults(run=training)
    measure = commands.add_parser("measure")
    measure.add_argument("bundles", nargs="+")
    measure.add_argument("--captions", type=Path)
    measure.set_defaults(run=measuring)
    for one in (command, measure):
        one.add_argument("--scenes", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
