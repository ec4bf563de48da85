"""Kernel for BERT's tokenizers, with the tokens of `tokenizers` for texts of known characters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from vcs_numba.kernels.wordpiece import BITS, DROPPED, ENCODE, GROW, SPACE, UNKNOWN

IntArray = npt.NDArray[np.int64]
SpecialTokens = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of the special tokens before and after a text."""
Encodings = list[tuple[IntArray, IntArray] | None]

# Characters that the kernel may know: Latin letters, accents, punctuation, currencies, letter-like
# symbols and arrows.
_CHARACTERS = (*range(0x370), *range(0x1E00, 0x1F00), *range(0x2000, 0x2200))
# A letter that is not among them, and has no capital and no accents: it separates characters.
_SEPARATOR = "\u2d30"
_LONGEST = 10_000  # largest number of characters of a word
_PROBE = 'A na\u00efve "Caf\u00e9" isn\u2019t [1] undeniable\u2026 \tqzxqzx ' + "x" * 300


class WordPieces:
    """The kernel's tables of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Make the tables; raises ValueError for a tokenizer that is not BERT's."""
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        if not _is_bert(tokenizer, vocabulary):
            raise ValueError("another kind of tokenizer")
        model = tokenizer.model
        added = tokenizer.get_added_tokens_decoder().values()
        self._added = [token.content for token in added]
        self._unknown = vocabulary[model.unk_token]
        self._longest = model.max_input_chars_per_word
        self._table = _table(tokenizer)
        tokens = sorted(vocabulary, key=len)
        ids = np.array([*map(vocabulary.__getitem__, tokens), -1], np.int64)
        characters, ends = _characters([*tokens, model.continuing_subword_prefix])
        self._size = int(ids.max()) + 1
        if len(characters) + self._size >= 1 << BITS:
            raise ValueError("a tokenizer with a vocabulary that is too large")
        self._edges = np.zeros(1 << len(characters).bit_length() + 1, np.int64)
        self._inside = GROW.call(characters, ends, ids, self._edges)
        self._check(tokenizer)

    def _check(self, tokenizer: Tokenizer) -> None:
        """Raise ValueError if the kernel and the tokenizer encode a text differently."""
        expected = tokenizer.encode(_PROBE, add_special_tokens=False)
        [encoding] = self.encode([_PROBE])
        if encoding:
            ids, spans = encoding
            if ids.tolist() == expected.ids and spans.tolist() == list(map(list, expected.offsets)):
                return
        raise ValueError("a tokenizer with further rules")

    def encode(
        self, texts: Sequence[str], special: SpecialTokens = ((), ()), spans: bool = True
    ) -> Encodings:
        """Return ids and spans of each text between special tokens.

        The result is None for a text with unknown characters.
        """
        characters, ends = _characters(texts)
        before, after = (np.array(part, np.int64) for part in special)
        size = len(characters) + (len(before) + len(after)) * len(texts)
        ids, stops = np.empty(size, np.int64), np.empty(len(texts), np.int64)
        places = np.empty((size if spans else 0, 2), np.int64)
        ENCODE.call(
            characters,
            ends,
            self._table,
            (self._edges, self._inside, self._size, self._unknown),
            self._longest,
            (before, after),
            (ids, places, stops),
        )
        encodings: Encodings = []
        start = 0
        for stop in stops.tolist():
            if stop < 0:
                encodings.append(None)
                continue
            encodings.append((ids[start:stop], places[start:stop] if spans else places))
            start = stop
        # The kernel does not know tokens that were added to the vocabulary.
        joined = "".join(texts)
        for token in self._added:
            if token in joined:
                for row, text in enumerate(texts):
                    if token in text:
                        encodings[row] = None
        return encodings


def _is_bert(tokenizer: Tokenizer, vocabulary: dict[str, int]) -> bool:
    """Whether a tokenizer has the parts of BERT's, and a vocabulary that the kernel can read."""
    model = tokenizer.model
    added = tokenizer.get_added_tokens_decoder().values()
    return (
        isinstance(model, WordPiece)
        and isinstance(tokenizer.normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and model.unk_token in vocabulary
        and model.max_input_chars_per_word <= _LONGEST
        and len(set(vocabulary.values())) == len(vocabulary)
        and not any(token.normalized for token in added)
    )


def _characters(texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], IntArray]:
    """Return the concatenated characters of texts, and where each text ends."""
    data = "".join(texts).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(data, np.int32), np.cumsum([len(text) for text in texts], dtype=np.int64)


def _table(tokenizer: Tokenizer) -> IntArray:
    """Return the kernel's code of each character.

    The tokenizer itself reads every character: its rules do not depend on neighbours.
    """
    separated = _SEPARATOR.join(map(chr, _CHARACTERS))
    normalized = tokenizer.normalizer.normalize_str(separated)
    pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalized)]
    alone = {piece for piece in pieces if len(piece) == 1 and piece != _SEPARATOR}
    seen = set().union(*pieces)  # all characters but white space
    table = np.full(max(_CHARACTERS) + 1, UNKNOWN, np.int64)
    for code, character in zip(_CHARACTERS, normalized.split(_SEPARATOR), strict=True):
        if not character:
            table[code] = DROPPED
        elif len(character) == 1 and character != "\0":
            if character not in seen:
                table[code] = SPACE
            else:
                splits_words = int(character in alone)
                table[code] = 2 * ord(character) + splits_words
    return table
