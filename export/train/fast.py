"""Train the map from token vectors to the word vectors of the bundle `fast`.

    python export/train/fast.py -o fast.safetensors [--texts 30000] [--device cpu] [--seed 0]

The default bundle is the teacher. It embeds texts that a grammar makes (`sentences.py`), and no other text
is used. A weight for each token, and one affine map for all token vectors, are trained so that weighted
means have the directions and the cosines of the teacher's vectors. Training runs on the CPU, with PyTorch,
which only this script needs.

models/fast.md has the command and the figures of the file that is shipped.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from sentences import Grammar
from torch import Tensor
from torch.nn.functional import normalize

from vcs_export.checkpoint.token_vectors import open_token_encoder
from vcs_export.families.static import DIMENSION
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.embedder import Embedder
from vcs_runtime.inference.tokenizer import load_tokenizer

BATCH, EPOCHS, HELD_OUT = 256, 4, 3000
# The weight of a token at the beginning: a / (a + p), p as Zipf's law has it for its place in the
# vocabulary, which is ordered by frequency from the first whole word on.
SIF, FIRST_TOKEN, FIRST_WORD = 3e-5, 999, 1996
RATES = (3e-3, 1e-2)  # of the map, and of the tokens' weights
PAIRS = 5.0  # weight of the squared differences of cosines within a batch, beside those of directions


class Static(torch.nn.Module):
    """A weighted mean of token vectors, mapped and scaled to unit length."""

    def __init__(self, vectors: np.ndarray, weights: np.ndarray) -> None:
        super().__init__()
        self.vectors = torch.tensor(vectors)
        self.log_weight = torch.nn.Parameter(torch.log(torch.tensor(weights)))
        width = vectors.shape[1]
        self.map = torch.nn.Parameter(torch.eye(width))
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, sequences: list[Tensor]) -> Tensor:
        """Return the unit vectors of sequences of token ids."""
        ids = torch.cat(sequences)
        owners = torch.repeat_interleave(
            torch.arange(len(sequences)), torch.tensor([len(s) for s in sequences])
        )
        weights = torch.exp(self.log_weight[ids])
        sums = torch.zeros(len(sequences), self.vectors.shape[1])
        sums = sums.index_add(0, owners, self.vectors[ids] * weights[:, None])
        totals = torch.zeros(len(sequences)).index_add(0, owners, weights)
        return normalize(sums / totals[:, None] @ self.map + self.bias, dim=1)


def zipf_weights(count: int) -> np.ndarray:
    """Return the weights that training begins with."""
    ranks = np.maximum(np.arange(count) - FIRST_WORD, 0)
    share = 1 / (ranks + 2)
    return (SIF / (SIF + share / share.sum())).astype(np.float32)


def train(model: Static, sequences: list[Tensor], taught: Tensor, seed: int) -> None:
    """Train on all sequences but the last HELD_OUT."""
    optimizer = torch.optim.Adam(
        [{"params": [model.map, model.bias], "lr": RATES[0]}, {"params": [model.log_weight], "lr": RATES[1]}]
    )
    count = len(sequences) - HELD_OUT
    steps = EPOCHS * (count // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    rng = np.random.default_rng(seed)
    for epoch in range(EPOCHS):
        started = time.perf_counter()
        order = rng.permutation(count)
        for start in range(0, count - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            vectors, targets = model([sequences[row] for row in rows]), taught[rows]
            loss = (1 - (vectors * targets).sum(1)).mean()
            loss = loss + PAIRS * ((vectors @ vectors.T - targets @ targets.T) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        cosine, agreement = held_out(model, sequences[count:], taught[count:])
        print(f"epoch {epoch + 1}: held out: cosine {cosine:.4f}, correlation of cosines {agreement:.4f}, "
              f"{time.perf_counter() - started:.0f} s", flush=True)  # fmt: skip


@torch.no_grad()
def held_out(model: Static, sequences: list[Tensor], taught: Tensor) -> tuple[float, float]:
    """Return the mean cosine with the teacher's vectors, and how the cosines of random pairs correlate."""
    vectors = model(sequences)
    left, right = np.random.default_rng(0).integers(0, len(sequences), (2, 20000))
    pairs = [((side[left] * side[right]).sum(1)).numpy() for side in (vectors, taught)]
    return float((vectors * taught).sum(1).mean()), float(np.corrcoef(*pairs)[0, 1])


def save(model: Static, scale: float, centre: np.ndarray, output: Path, facts: dict[str, object]) -> None:
    """Fold centre and scale into the map, keep its principal directions, and write the file."""
    mapping, bias = model.map.detach().double().numpy(), model.bias.detach().double().numpy()
    weights = torch.exp(model.log_weight).detach().double().numpy()
    mapping /= scale
    bias -= centre @ mapping
    vectors = (model.vectors.double().numpy() * scale + centre) @ mapping + bias
    share = weights / (np.maximum(np.arange(len(weights)) - FIRST_WORD, 0) + 2)
    share[:FIRST_WORD] = 0
    weighed = vectors * share[:, None]
    _, directions = np.linalg.eigh(weighed.T @ vectors)
    directions = directions[:, ::-1][:, :DIMENSION]
    tensors = {
        "map": (mapping @ directions).astype(np.float16),
        "bias": (bias @ directions).astype(np.float16),
        "weights": (weights / weights.max()).astype(np.float16),
    }
    save_file(tensors, output, metadata={"vcs": json.dumps(facts)})


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=30000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    bundle = open_bundle("default")
    encoder = open_token_encoder(bundle)
    assert bundle.manifest.embedder is not None
    tokenizer = load_tokenizer(bundle.path(bundle.manifest.embedder.tokenizer))
    vocabulary = [token for token, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    words = [
        token for token in vocabulary[FIRST_WORD:] if token.isascii() and token.isalpha() and len(token) > 2
    ]
    texts = Grammar(words, options.seed + 1).texts(options.texts)
    with Embedder.open(bundle, options.device) as teacher:
        taught = torch.tensor(teacher.embed(texts))
    print(f"taught {len(texts)} texts", flush=True)
    encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    sequences = [torch.tensor(encoding.ids) for encoding in encodings]
    vectors = encoder.vectors(np.arange(len(vocabulary)))
    print("computed token vectors", flush=True)
    known = vectors[FIRST_TOKEN:]
    centre = known.mean(axis=0)
    scale = float(np.sqrt(((vectors - centre) ** 2).sum(axis=1).mean()))
    model = Static(((vectors - centre) / scale).astype(np.float32), zipf_weights(len(vocabulary)))
    train(model, sequences, taught, options.seed)
    facts = {"base": encoder.digest, "texts": options.texts, "seed": options.seed, "torch": torch.__version__}
    save(model, scale, centre, options.output, facts)


if __name__ == "__main__":
    main()
