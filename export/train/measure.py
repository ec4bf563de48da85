"""Boundary F1 of a segmenter on the references of a pairs file, against their own punctuation.

    python export/train/measure.py pairs.jsonl [--bundle default] [--threshold T]

The punctuation is deleted, the model splits the rest, and its boundaries are compared with the ends of the
sentences that the rules find: once with the text's capitals, once in lower case. The end of a text, which is
known, does not count.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from corpus import sentences_of, stripped

from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.bundle.opening import open_bundle
from vcs_runtime.inference.device import choose_device
from vcs_runtime.jobs.pairs import read_pairs
from vcs_runtime.segmentation.boundary_model import BoundaryModel
from vcs_runtime.segmentation.rules import Rules

THRESHOLDS = [round(0.05 * i, 2) for i in range(2, 19)]


def open_model(bundle: str | Path) -> BoundaryModel:
    """Open the learned segmenter of a bundle on the CPU."""
    opened = open_bundle(bundle)
    assert opened.manifest.segmenter, f"{bundle} holds no segmenter"
    assert opened.manifest.segmenter.model, f"{bundle} holds no learned segmenter"
    return BoundaryModel(opened, opened.manifest.segmenter.model, choose_device("cpu"))


def counts(
    model: BoundaryModel, documents: Sequence[Sequence[str]], lower: bool
) -> list[tuple[float, float]]:
    """Return precision and recall at each of THRESHOLDS over all documents, each a list of sentences."""
    pairs = [stripped(sentences) for sentences in documents]
    texts = [text.lower() if lower else text for text, _ in pairs]
    probabilities = np.concatenate([values[:-1] for values in model.probabilities(texts)])
    true = np.concatenate([np.isin(np.arange(len(text) - 1), ends) for text, ends in pairs])
    result = []
    for threshold in THRESHOLDS:
        cut = probabilities > threshold
        hits = float((cut & true).sum())
        result.append((hits / max(1, cut.sum()), hits / max(1, true.sum())))
    return result


def f1(precision: float, recall: float) -> float:
    """Return the harmonic mean, or 0 if both numbers are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def best_threshold(model: BoundaryModel, documents: Sequence[Sequence[str]]) -> tuple[float, float, float]:
    """Return the threshold with the best mean F1 of both spellings, and F1 with capitals and without."""
    both = [[f1(*pair) for pair in counts(model, documents, lower)] for lower in (False, True)]
    best = int(np.argmax(np.mean(both, axis=0)))
    return THRESHOLDS[best], both[0][best], both[1][best]


def references(pairs: Path) -> Iterable[str]:
    """Return the distinct references of a pairs file."""
    texts: dict[str, None] = {}
    for pair in read_pairs(pairs):
        texts.update(dict.fromkeys([pair.reference] if isinstance(pair.reference, str) else pair.reference))
    return texts


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--bundle", default="default")
    arguments = parser.parse_args()
    model = open_model(arguments.bundle)
    rules = Rules(RulesSpec("sentencex", "en"))
    documents = [sentences_of(text, rules) for text in references(arguments.pairs)]
    print(f"{model.spec.name}, threshold {model.spec.threshold}, {len(documents)} texts")
    nearest = int(np.argmin(np.abs(np.array(THRESHOLDS) - model.spec.threshold)))
    for lower in (False, True):
        table = counts(model, documents, lower)
        precision, recall = table[nearest]
        best = max(f1(*pair) for pair in table)
        print(
            f"{'lower-cased' if lower else 'as written '}  precision {precision:.3f}  recall {recall:.3f}  "
            f"F1 {f1(precision, recall):.3f}  (best over thresholds {best:.3f})"
        )


if __name__ == "__main__":
    main()
