"""Train the table that tells things, actions and qualities apart.

    python export/train/word_classes.py pairs.jsonl -o word-classes.npy

`pairs.jsonl` is a file of pairs as `vcs-runtime score` reads it. Every distinct text in it is used. WordNet,
as NLTK finds it (NLTK_DATA), names the class of the words that are of one class in at least 80 % of its
counted uses. Other words are not trained on. Half of the words hide what they are, so that the neighbours
learn to tell the class of words with several. Every tenth reference, with its generated texts, is held out.
Needs NLTK. The same arguments give the same table on the same machine.

models/word-classes.md has the command, the data and the figures of the table that is shipped.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.pairs import read_pairs
from vcs_runtime.words.classes import CLASSES, FEATURES, OWN_FEATURES, ROWS
from vcs_runtime.words.reading import read_words

EPOCHS, BATCH, RATE, HIDDEN = 4, 256, 0.2, 0.5
SURE = 0.8  # share of a word's uses
# The uses are those of texts of all kinds. In descriptions an inflected form is a verb more often.
INFLECTED, INFLECTED_S = 3, 2
_SENTENCE_END = re.compile(r"[.!?;\n]")
_PARTS = {"n": 0, "v": 1, "a": 2, "r": 2}  # WordNet's parts of speech: an adverb is a quality, too

Features = npt.NDArray[np.uint16]


def texts_of(pairs: Path) -> dict[str, str]:
    """Return the reference that each distinct text of a pairs file belongs to, by text."""
    texts: dict[str, str] = {}
    for pair in read_pairs(pairs):
        references = [pair.reference] if isinstance(pair.reference, str) else pair.reference
        for text in (*references, pair.generated):
            texts.setdefault(text, references[0])
    return texts


@functools.cache
def class_of(form: str) -> int | None:
    """Return the class of a word, or None if WordNet does not say it clearly."""
    from nltk.corpus import wordnet

    uses = [0.0] * len(CLASSES)
    for part, number in _PARTS.items():
        base = wordnet.morphy(form, part)
        if base is not None and (lemmas := wordnet.lemmas(base, part)):
            count = sum(lemma.count() for lemma in lemmas) + 0.5
            if part == "v" and base != form:
                count *= INFLECTED_S if form.endswith("s") else INFLECTED
            uses[number] += count
    return uses.index(max(uses)) if max(uses) > 0 and max(uses) >= SURE * sum(uses) else None


def examples(texts: list[str]) -> tuple[Features, npt.NDArray[np.int64]]:
    """Return the features and the classes of all words whose class is known."""
    features, labels = [], []
    for text in texts:
        words = read_words([part for part in _SENTENCE_END.split(text) if part.strip()])
        classes = [class_of(word.form) for word in words.lexemes]
        known = [row for row, number in enumerate(classes) if number is not None]
        features.append(words.features[known])
        labels += [number for number in classes if number is not None]
    return np.concatenate(features), np.array(labels)


def train(features: Features, labels: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.float32]:
    """Return the table, float32 `(ROWS, 3)`, by AdaGrad on the cross-entropy of small batches."""
    rng = np.random.default_rng(seed)
    table = np.zeros((ROWS, len(CLASSES)), np.float32)
    squares = np.full(table.shape, 1e-8, np.float32)
    for _ in range(EPOCHS):
        order = rng.permutation(len(labels))
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            rows = features[batch].astype(np.int64)
            hidden = rng.random(len(batch)) < HIDDEN
            rows[hidden, :2] = rows[hidden, 5:6]  # neither the word nor its stem
            scores = table[rows].sum(axis=1)
            slope = np.exp(scores - scores.max(axis=1, keepdims=True))
            slope /= slope.sum(axis=1, keepdims=True)
            slope[np.arange(len(batch)), labels[batch]] -= 1
            touched, inverse = np.unique(rows.ravel(), return_inverse=True)
            steps = np.zeros((len(touched), table.shape[1]), np.float32)
            np.add.at(steps, inverse, np.repeat(slope, FEATURES, axis=0))
            squares[touched] += steps * steps
            table[touched] -= RATE * steps / np.sqrt(squares[touched])
    return table


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="File to write.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of random numbers.")
    options = parser.parse_args()
    texts = texts_of(options.pairs)
    groups = set(sorted(set(texts.values()))[::10])
    held = [text for text, group in texts.items() if group in groups]
    features, labels = examples([text for text, group in texts.items() if group not in groups])
    print(f"{len(labels):,} words to train on, of {len(texts) - len(held):,} texts; shares of the classes: "
          f"{', '.join(f'{share:.3f}' for share in np.bincount(labels) / len(labels))}")  # fmt: skip
    table = train(features, labels, options.seed).astype(np.float16)
    features, labels = examples(held)
    exact = table.astype(np.float64)
    with_word = exact[features].sum(axis=1).argmax(axis=1)
    context = exact[features[:, 2:]].sum(axis=1).argmax(axis=1)
    ends = exact[features[:, OWN_FEATURES:]].sum(axis=1).argmax(axis=1)
    print(f"held out, {len(labels):,} words: right {(with_word == labels).mean():.4f}, without the word "
          f"and stem {(context == labels).mean():.4f}, neighbours {(ends == labels).mean():.4f}")  # fmt: skip
    np.save(options.output, table)
    print(f"wrote {options.output}, sha256 {hashlib.sha256(options.output.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
