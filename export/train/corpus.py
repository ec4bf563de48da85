"""Training text: documents of sentences from a pairs file, and windows of tokens with their labels."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from augment import augment, recase
from tokenizers import Tokenizer

from vcs_runtime.bundle.manifest import RulesSpec
from vcs_runtime.jobs.pairs import read_pairs
from vcs_runtime.segmentation.boundary_model import word_features
from vcs_runtime.segmentation.segmenter import TERMINATORS, Rules
from vcs_runtime.text.cleaning import expand_contractions, strip_punctuation

# Writers forget the blank after a full stop ("him.The"). Without punctuation the two words would become one.
_FORGOTTEN_BLANK = re.compile(r"""(?<=[a-z)"])([.!?]["']?)(?=[A-Z])""")
_MAX_WORDS = 80  # a longer "sentence" has lost its punctuation
_MAX_REPEATS = 2  # of a sentence in the whole corpus: some models write the same line a hundred times


@dataclass(frozen=True)
class Document:
    """The sentences of a text, with punctuation. Documents of one `group` go to one side of a split."""

    group: str
    is_reference: bool
    sentences: list[str]


@dataclass(frozen=True)
class Window:
    """Tokens with labels, all int64 `(tokens,)`."""

    ids: npt.NDArray[np.int64]
    capitals: npt.NDArray[np.int64]  # how the word of each token is written
    labels: npt.NDArray[np.int64]  # 1 if a sentence ends after the token
    counts: npt.NDArray[np.int64]  # 1 if the token is the last of its word, but not of the text


def read_documents(pairs: Path) -> list[Document]:
    """Read every distinct text of a pairs file, split into sentences by its punctuation.

    The group of a text is the pair's reference. Sentences without a final mark, very long sentences and
    frequent repeats are left out.
    """
    texts: dict[str, tuple[str, bool]] = {}
    for pair in read_pairs(pairs):
        references = [pair.reference] if isinstance(pair.reference, str) else pair.reference
        for text in references:
            texts.setdefault(text, (references[0], True))
        texts.setdefault(pair.generated, (references[0], False))
    rules = Rules(RulesSpec("sentencex", "en"))
    seen: Counter[str] = Counter()
    documents = []
    for text, (group, is_reference) in texts.items():
        usable = []
        for sentence in sentences_of(text, rules):
            seen[sentence.lower()] += 1
            ended = sentence.rstrip("\"')”’")[-1:] in TERMINATORS
            if ended and len(sentence.split()) <= _MAX_WORDS and seen[sentence.lower()] <= _MAX_REPEATS:
                usable.append(sentence)
        if len(usable) > 1:
            documents.append(Document(group, is_reference, usable))
    return documents


def sentences_of(text: str, rules: Rules) -> list[str]:
    """Split a punctuated text by the rules, with contractions expanded. No sentence is empty."""
    prepared = _FORGOTTEN_BLANK.sub(r"\1 ", expand_contractions(text))
    sentences = (sentence.strip() for sentence in rules.split(prepared))
    return [sentence for sentence in sentences if strip_punctuation(sentence).strip()]


def hold_out(documents: Sequence[Document], every: int = 8) -> tuple[list[Document], list[Document]]:
    """Return the documents to train on, and those of every `every`-th group, which training never sees."""
    groups = sorted({document.group for document in documents})
    held = set(groups[::every])
    return (
        [document for document in documents if document.group not in held],
        [document for document in documents if document.group in held],
    )


def stripped(sentences: Sequence[str]) -> tuple[str, list[int]]:
    """Join sentences without punctuation to one text. Also return the index of each one's last character."""
    words = [" ".join(strip_punctuation(sentence).split()) for sentence in sentences]
    words = [sentence for sentence in words if sentence]
    ends = np.cumsum([len(sentence) + 1 for sentence in words]) - 2
    return " ".join(words), ends.tolist()


def variations(documents: Sequence[Document], rng: random.Random) -> Iterator[list[str]]:
    """Yield a new variation of each document. A third are mixed with another document, sentence by sentence.

    Without the mixing a model learns which sentence a writer would write next, and not where one ends.
    """
    for document in documents:
        sentences = augment(document.sentences, rng)
        if rng.random() < 0.35:
            other = augment(rng.choice(documents).sentences, rng)
            sentences = rng.sample([*sentences, *other], len(sentences))
        yield sentences


def windows(
    sentences: Sequence[str], tokenizer: Tokenizer, size: int, rng: random.Random
) -> Iterator[Window]:
    """Yield windows of at most `size` tokens of a text, which start anywhere, as the model sees them."""
    text, ends = stripped(sentences)
    words = text.split(" ")
    last = np.cumsum([len(word) + 1 for word in words]) - 2
    closing = np.isin(last, ends).astype(np.int64)
    text = " ".join(recase(words, closing.tolist(), rng))
    encoding = tokenizer.encode(text, add_special_tokens=False)
    capitals, places = word_features(text, encoding.offsets)
    final = np.append(places[1:] != places[:-1], True)  # the last token of its word
    labels = (final & np.isin(places, ends)).astype(np.int64)
    counts = final.astype(np.int64)
    counts[-1] = 0  # the end of the text is known
    ids = np.array(encoding.ids, np.int64)
    stop = rng.randrange(size // 2, size + 1) if len(ids) > size else size
    start = 0
    while start < len(ids):
        part = slice(start, stop)
        yield Window(ids[part], capitals[part], labels[part], counts[part])
        start, stop = stop, stop + size
