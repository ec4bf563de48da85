"""Train the table that tells things, actions and qualities apart.

    python export/train/word_classes.py pairs.jsonl -o word-classes.npy

`pairs.jsonl` is a file of pairs as `vcs-runtime score` reads it. Every distinct text in it is used. WordNet,
as NLTK finds it (NLTK_DATA), names the class of the words that are of one class in at least 80 % of its
counted uses. Other words are not trained on. A word is seen in three ways: with all its features; without
itself and its stem, so that the neighbours learn to tell the class of words with several; and, for WordNet's
own words, without neighbours, so that endings learn from words that no text has. The table is the only
minimum of a convex loss: no random number and no order of the texts has a part in it. Every tenth
reference, with its generated texts, is not trained on. Needs NLTK and SciPy.

models/word-classes.md has the command, the data and the figures of the table that is shipped.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vcs_runtime.jobs.pairs import read_pairs
from vcs_runtime.words.reading import CLASSES, ROWS, lexeme, read_words

# Parts of the loss: words as they stand, words without themselves and their stem, words without neighbours.
SEEN, HIDDEN, LISTED = 0.4, 0.4, 0.2
PENALTY = 3e-6  # of the squares of all numbers in the table
SURE = 0.8  # share of a word's uses
# The uses are those of texts of all kinds. In descriptions an inflected form is a verb more often.
INFLECTED, INFLECTED_S = 3, 2
_SENTENCE_END = re.compile(r"[.!?;\n]")
_PARTS = {"n": 0, "v": 1, "a": 2, "r": 2}  # WordNet's parts of speech: an adverb is a quality, too

Features = npt.NDArray[np.uint16]
Labels = npt.NDArray[np.int64]
Table = npt.NDArray[np.float64]


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


def examples(texts: list[str]) -> tuple[Features, Labels]:
    """Return the features and the classes of all words of texts whose class is known."""
    features, labels = [], []
    for text in texts:
        words = read_words([part for part in _SENTENCE_END.split(text) if part.strip()])
        classes = [class_of(word.form) for word in words.lexemes]
        known = [row for row, number in enumerate(classes) if number is not None]
        features.append(words.features[known])
        labels += [number for number in classes if number is not None]
    return np.concatenate(features), np.array(labels)


def listed() -> tuple[Features, Labels]:
    """Return the OWN_FEATURES and the classes of the words that WordNet has counted uses of."""
    from nltk.corpus import wordnet

    forms = {
        form
        for part in _PARTS
        for base in wordnet.all_lemma_names(part)
        if re.fullmatch("[a-z]+", base) and any(lemma.count() for lemma in wordnet.lemmas(base, part))
        for form in _inflected(base, part)
    }
    known = [(lexeme(form), class_of(form)) for form in sorted(forms)]
    rows = [(word.features, number) for word, number in known if number is not None and word.is_content]
    return np.array([row for row, _ in rows], np.uint16), np.array([number for _, number in rows])


def _inflected(base: str, part: str) -> Iterator[str]:
    yield base
    plural = base + ("es" if base.endswith(("s", "x", "ch", "sh")) else "s")
    if part == "n":
        yield base[:-1] + "ies" if base.endswith("y") else plural
    if part == "v":
        open_base = base.removesuffix("e")
        yield from (plural, open_base + "ing", open_base + "ed")


def train(features: Features, labels: Labels) -> Table:
    """Return the table, float64 `(ROWS, 3)`: it has the least cross-entropy of all views and penalty."""
    from scipy import optimize, sparse

    words, classes = listed()
    views = [(SEEN, features, labels), (HIDDEN, features[:, 2:], labels), (LISTED, words, classes)]
    inputs = sparse.vstack([_one_hot(rows) for _, rows, _ in views]).tocsr()
    back = inputs.T.tocsr()
    truth = np.eye(len(CLASSES))[np.concatenate([numbers for _, _, numbers in views])]
    shares = np.concatenate([np.full(len(rows), part / len(rows)) for part, rows, _ in views])[:, None]

    def loss(flat: Table) -> tuple[float, Table]:
        table = flat.reshape(ROWS, len(CLASSES))
        scores = inputs @ table
        scores -= scores.max(axis=1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        slope = back @ ((np.exp(scores) - truth) * shares) + PENALTY * table
        return PENALTY / 2 * (flat @ flat) - (shares * truth * scores).sum(), slope.ravel()

    start = np.zeros(ROWS * len(CLASSES))
    # The last bits do not matter: the table is rounded to half precision.
    limits = {"maxiter": 2000, "maxfun": 4000, "ftol": 1e-10, "gtol": 1e-8}
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=limits)
    print(f"loss {found.fun:.6f} after {found.nit} steps: {found.message}")
    table: Table = found.x.reshape(ROWS, len(CLASSES))
    return table


def _one_hot(rows: Features) -> Any:
    from scipy import sparse

    count, width = rows.shape
    columns, starts = rows.astype(np.int64).ravel(), np.arange(0, count * width + 1, width)
    return sparse.csr_array((np.ones(columns.size), columns, starts), shape=(count, ROWS))


def main() -> None:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="File to write.")
    options = parser.parse_args()
    texts = texts_of(options.pairs)
    groups = set(sorted(set(texts.values()))[::10])
    trained = [text for text, group in texts.items() if group not in groups]
    features, labels = examples(trained)
    print(f"{len(labels):,} words to train on, of {len(trained):,} texts")
    table = train(features, labels).astype(np.float16)
    np.save(options.output, table)
    print(f"wrote {options.output}, sha256 {hashlib.sha256(options.output.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
