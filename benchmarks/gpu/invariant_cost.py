"""What batches of fixed shapes cost: tokens that are computed for each token of the texts, calculated without a GPU.

    python benchmarks/gpu/invariant_cost.py REFERENCES.json PREDICTIONS.json ... [--pairs 400]

REFERENCES is CLIP-CC's list of objects with `id` and `summary`; PREDICTIONS are objects of texts by id. Texts and
their sentences, cut by rules, are counted in tokens of the default bundle's tokenizer. A job embeds each distinct
text once; a lone pair has its runs for itself.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from vcs_runtime import Segmenter
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.batching import fixed_shapes
from vcs_runtime.inference.invariant import fixed_groups
from vcs_runtime.inference.tokenizer import load_tokenizer

_WIDEST = 32768


def computed(lengths: Sequence[int], layout: str) -> int:
    """Return the tokens of all runs, fillers and padding included."""
    shape_of = fixed_shapes(layout, _WIDEST, lambda width: _WIDEST)
    return sum(shape.tokens or shape.rows * shape.width for _, shape in fixed_groups(lengths, shape_of))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("references", type=Path)
    parser.add_argument("predictions", nargs="+", type=Path)
    parser.add_argument("--pairs", type=int, default=400)
    arguments = parser.parse_args()
    references = {item["id"]: item["summary"] for item in json.loads(arguments.references.read_text())}
    texts = [json.loads(path.read_text()) for path in sorted(arguments.predictions)]
    pairs = [(references[key], text) for some in texts for key, text in some.items() if key in references]
    pairs = random.Random(0).sample(pairs, min(arguments.pairs, len(pairs)))
    bundle = open_bundle("default")
    tokenizer = load_tokenizer(bundle.path(bundle.manifest.embedder.tokenizer))  # type: ignore[union-attr]
    segmenter = Segmenter.open(bundle, "cpu", use="rules")

    @cache
    def lengths(text: str) -> list[int]:
        pieces = [text, *(piece for piece in segmenter.split([text])[0] if piece.strip())]
        return [len(tokenizer.encode(piece).ids) for piece in pieces]

    job = [length for text in {text for pair in pairs for text in pair} for length in lengths(text)]
    lone = [[*lengths(reference), *lengths(generated)] for reference, generated in pairs]
    print(f"{len(pairs)} pairs, {len(job):,} texts and sentences, {sum(job):,} tokens")
    for layout in ("varlen", "padded"):
        alone = sum(computed(pair, layout) for pair in lone) / sum(map(sum, lone))
        print(f"{layout}: {computed(job, layout) / sum(job):.2f} in a job, {alone:.2f} in a lone pair")


if __name__ == "__main__":
    main()
