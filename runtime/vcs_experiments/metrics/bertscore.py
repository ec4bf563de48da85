"""BERTScore by the encoder of a bundle: each token in context is matched with the most similar one.

Zhang et al. 2020 (https://arxiv.org/abs/1904.09675), section 3: greedy matching by cosine, of the
states of one layer, with idf weights and rescaling on request. As in the authors' package, special
tokens can be matched, but have no weight. A text that is longer than the model's window is read as
its bundle says.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tokenizers.processors import RobertaProcessing

from vcs_experiments.metrics.corpus import Corpus
from vcs_runtime.bundle.opening import Bundle
from vcs_runtime.errors import DeviceError, InputError
from vcs_runtime.inference.device import Device, cuda_of
from vcs_runtime.inference.embedder import Embedder, embedder_spec
from vcs_runtime.inference.token_vectors import TokenLayer, TokenVectors
from vcs_runtime.inference.tokenizer import TextTokenizer, load_tokenizer
from vcs_runtime.util.lru import LRUCache
from vcs_runtime.util.reading import read_whole

_MEMORY_BYTES = 64 << 20


class States(NamedTuple):
    """The tokens of a text."""

    vectors: npt.NDArray[np.float32]  # (tokens, width), of unit length
    counted: npt.NDArray[np.bool_]  # (tokens,), false for special tokens
    ids: npt.NDArray[np.int64]  # (tokens,), numbers in the vocabulary


class TokenStates:
    """Token states in a layer of a bundle's encoder (None: the last), with a cache of recent texts.

    An open `embedder` of the bundle is used where it can show the states. Raises BundleError if
    none can.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: Device,
        threads: int | None = None,
        layer: int | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        spec = embedder_spec(bundle)
        tokenizer = load_tokenizer(bundle.path(spec.tokenizer))
        # bert-score reads the first word of a text as any other where a word begins with its space.
        self._before = " " if isinstance(tokenizer.post_processor, RobertaProcessing) else ""
        self._tokenizer = TextTokenizer(tokenizer, spec)
        self._special = list(chain.from_iterable(self._tokenizer.special_tokens))
        self._limit = spec.max_tokens
        self._embedder, self._layer = _shown(bundle, device, threads, layer, embedder)
        self.layer = self._layer.number
        self.chosen = layer is not None
        """Whether the caller chose the layer."""
        self._recent: LRUCache[States] = LRUCache(
            _MEMORY_BYTES, lambda states: states.vectors.nbytes
        )
        precision = device.precision_of(spec.precision) if device.precision else spec.precision
        self.identity = f"{bundle.identity(spec)}/{spec.long_text}-{spec.max_tokens}/{precision}"
        """The model, its handling of long texts, and its precision, for the signature."""

    def get(self, texts: Iterable[str]) -> dict[str, States]:
        """Return the states of each text. Raises TextError for a text that the bundle refuses."""
        known: dict[str, States] = {}
        missing: dict[str, str] = {}
        for text in texts:
            recent = self._recent.get(text)
            if recent is None:
                missing[text] = self._read(text)
            else:
                known[text] = recent
        tokens = self._embedder.token_vectors(list(dict.fromkeys(missing.values())), self._layer)
        for text, read in missing.items():
            known[text] = self._states(tokens[read])
            self._recent.put(text, known[text])
        return known

    def token_ids(self, text: str) -> list[int]:
        """Return a text's tokens, of all its windows.

        Raises TextError for a text that the bundle refuses.
        """
        windows = self._tokenizer.sequences([self._read(text)], "", self._limit).ids
        return list(chain.from_iterable(windows))

    def _read(self, text: str) -> str:
        """Return a text as it is read."""
        return self._before + text.strip()

    def _states(self, tokens: TokenVectors) -> States:
        vectors = tokens.vectors / np.linalg.norm(tokens.vectors, axis=1, keepdims=True)
        return States(vectors, ~np.isin(tokens.ids, self._special), tokens.ids.astype(np.int64))


def _shown(
    bundle: Bundle,
    device: Device,
    threads: int | None,
    layer: int | None,
    embedder: Embedder | None,
) -> tuple[Embedder, TokenLayer]:
    """Return an embedder that shows the states of a layer: the open one, or another."""
    if embedder is not None:
        try:
            return embedder, embedder.show_tokens(layer)
        except DeviceError:  # not on its device, or not beside the same vectors of texts
            pass
    another = Embedder(bundle, cuda_of(device) if device.engine else device, threads)
    return another, another.show_tokens(layer, keep_vectors=False)


COLUMNS = ("BERTScore-P", "BERTScore-R", "BERTScore-F1")
_HEADER = ["LAYER", "P", "R", "F"]
_DIGITS = 4


class TokenIdf:
    """Inverse document frequencies of tokens: log((texts + 1) / (texts with the token + 1))."""

    def __init__(self, texts: Iterable[Iterable[int]]) -> None:
        number = 0
        counts: Counter[int] = Counter()
        for tokens in texts:
            number += 1
            counts.update(set(tokens))
        self._weights = {
            token: math.log((number + 1) / (count + 1)) for token, count in counts.items()
        }
        self._unknown = math.log(number + 1)

    def weights(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return the weight of each token."""
        return np.array([self._weights.get(token, self._unknown) for token in ids.tolist()])


@dataclass(frozen=True)
class Baseline:
    """BERTScore of unrelated texts, which becomes 0 by rescaling; 1 stays 1."""

    values: tuple[float, float, float]  # precision, recall and F1
    identity: str  # first digits of their hash, for the signature

    def rescaled(self, scores: dict[str, float]) -> dict[str, float]:
        """Rescale scores by column."""
        rescaled = {}
        for (name, score), base in zip(scores.items(), self.values, strict=True):
            rescaled[name] = (score - base) / (1 - base)
        return rescaled


def read_baseline(path: Path, layer: int) -> Baseline:
    """Read a baseline in bert-score's format: a table LAYER, P, R, F with commas or tabs."""
    try:
        lines = read_whole(path).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8: {error}") from None
    rows = list(csv.reader(lines, delimiter="\t" if lines and "\t" in lines[0] else ","))
    if not rows or [cell.strip() for cell in rows[0]] != _HEADER:
        raise InputError(
            f"{path}: not a baseline of bert-score: its first line must be {','.join(_HEADER)}"
        )
    for number, row in enumerate(rows[1:], 2):
        if not row or row[0].strip() != str(layer):
            continue
        try:
            precision, recall, f1 = values = [float(cell) for cell in row[1:]]
        except ValueError:
            raise InputError(f"{path} line {number}: must be a layer and three numbers") from None
        if not all(-1 <= value < 1 for value in values):
            raise InputError(
                f"{path} line {number}: a baseline must be at least -1 and less than 1"
            )
        digest = sha256(repr(values).encode()).hexdigest()
        return Baseline((precision, recall, f1), digest[:_DIGITS])
    raise InputError(f"{path}: the file has no baseline for layer {layer}")


class BERTScore:
    """BERTScore with its settings; `named` puts the encoder into the signature."""

    def __init__(
        self,
        states: TokenStates,
        corpus: Corpus | None = None,
        baseline: Baseline | None = None,
        *,
        named: bool = False,
    ) -> None:
        self._states = states
        self._corpus = corpus
        self._baseline = baseline
        self._idf: dict[int | None, TokenIdf] = {}
        fields = [f"layer-{states.layer}" if states.chosen else "last-layer"]
        if corpus:
            fields.append(f"idf-{corpus.identity}")
        if baseline:
            fields.append(f"baseline@{baseline.identity}")
        if named:
            fields.append(states.identity)
        self.signature = f"bertscore:{'/'.join(fields)}"

    def scores(
        self, references: Sequence[str], generated: str, first: int | None
    ) -> list[dict[str, float]]:
        """Score a text against each reference.

        `first` limits how many references of each item count for the idf; None counts all.
        """
        idf = self._weights(first)
        states = self._states.get([*references, generated])
        scores = [bertscore(states[reference], states[generated], idf) for reference in references]
        if self._baseline is None:
            return scores
        return [self._baseline.rescaled(score) for score in scores]

    def _weights(self, first: int | None) -> TokenIdf | None:
        if self._corpus is None:
            return None
        if first not in self._idf:
            texts = self._corpus.first(first).texts
            self._idf[first] = TokenIdf(self._states.token_ids(text) for text in texts)
        return self._idf[first]


def bertscore(
    reference: States, generated: States, idf: TokenIdf | None = None
) -> dict[str, float]:
    """Compute precision, recall and F1; 0 if no token of a text has a weight."""
    similarity = generated.vectors @ reference.vectors.T
    of_generated, of_reference = _weights(generated, idf), _weights(reference, idf)
    if not of_generated.any() or not of_reference.any():
        return dict.fromkeys(COLUMNS, 0.0)
    precision = float(np.average(similarity.max(axis=1), weights=of_generated))
    recall = float(np.average(similarity.max(axis=0), weights=of_reference))
    both = precision + recall
    f1 = 2 * precision * recall / both if both else 0.0
    return dict(zip(COLUMNS, (precision, recall, f1), strict=True))


def _weights(states: States, idf: TokenIdf | None) -> npt.NDArray[np.floating[Any]]:
    """Return the weights of a text's tokens; 0 for special tokens."""
    return states.counted * (idf.weights(states.ids) if idf else 1.0)
