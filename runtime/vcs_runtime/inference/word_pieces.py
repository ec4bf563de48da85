"""Kernel for BERT's tokenizers, with the tokens of `tokenizers` for texts of known characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

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

# Characters that the kernel may know: Latin, accents, punctuation, currencies, letter-like symbols,
# arrows.
_CHARACTERS = (*range(0x370), *range(0x1E00, 0x1F00), *range(0x2000, 0x2200))
# A letter beyond them, without capitals and marks, that separates characters while they are looked
# at.
_SEPARATOR = "\u2d30"
_LONGEST = 10_000  # characters of a word, however it is read
_PROBE = 'A na\u00efve "Caf\u00e9" isn\u2019t [1] undeniable\u2026 \tqzxqzx ' + "x" * 300


class WordPieces:
    """The kernel's tables of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Make the tables; raises ValueError for a tokenizer that is not BERT's."""
        model, added = tokenizer.model, tokenizer.get_added_tokens_decoder().values()
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        if (
            not isinstance(model, WordPiece)
            or not isinstance(tokenizer.normalizer, BertNormalizer)
            or not isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
            or model.unk_token not in vocabulary
            or model.max_input_chars_per_word > _LONGEST
            or len(set(vocabulary.values())) < len(vocabulary)
            or any(token.normalized for token in added)
        ):
            raise ValueError("another kind of tokenizer")
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
        expected = tokenizer.encode(_PROBE, add_special_tokens=False)
        [own] = self.encode([_PROBE])
        if not own or [part.tolist() for part in own] != [
            expected.ids,
            [*map(list, expected.offsets)],
        ]:
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
        starts = accumulate([0, *stops.tolist()], max)
        found: Encodings = [
            None if stop < 0 else (ids[start:stop], places[start:stop] if spans else places)
            for start, stop in zip(starts, stops.tolist(), strict=False)
        ]
        joined = "".join(texts)
        for token in (token for token in self._added if token[:1] in joined and token in joined):
            found = [None if token in text else own for text, own in zip(texts, found, strict=True)]
        return found


def _characters(texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], IntArray]:
    """Return the characters of texts one after the other, and where each text ends."""
    data = "".join(texts).encode("utf-32-le", "surrogatepass")
    return np.frombuffer(data, np.int32), np.cumsum([len(text) for text in texts], dtype=np.int64)


def _table(tokenizer: Tokenizer) -> IntArray:
    """Return what each character becomes by the tokenizer itself, whose rules see no neighbours."""
    normalizer, splitter = tokenizer.normalizer, tokenizer.pre_tokenizer
    become = normalizer.normalize_str(_SEPARATOR.join(map(chr, _CHARACTERS))).split(_SEPARATOR)
    pieces = [piece for piece, _ in splitter.pre_tokenize_str(_SEPARATOR.join(become))]
    alone = {piece for piece in pieces if len(piece) == 1 and piece != _SEPARATOR}
    seen = set().union(*pieces)
    table = np.full(max(_CHARACTERS) + 1, UNKNOWN, np.int64)
    for code, character in zip(_CHARACTERS, become, strict=True):
        if not character:
            table[code] = DROPPED
        elif len(character) == 1 and character != "\0":
            table[code] = 2 * ord(character) + (character in alone) if character in seen else SPACE
    return table
