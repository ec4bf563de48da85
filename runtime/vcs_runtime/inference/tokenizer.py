"""Tokenizers of bundles, and the token sequences of texts for an embedder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
from tokenizers import Tokenizer

from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.errors import BundleError, TextError
from vcs_runtime.inference.word_pieces import Encodings, IntArray, SpecialTokens, WordPieces

T = TypeVar("T")
Tokens = TypeVar("Tokens", list[int], IntArray)
Text = TypeVar("Text", str, list[str])
NO_SPAN = (-1, -1)
"""The span of a token that is not in the text."""

# A letter, and characters that hardly any vocabulary has: cuneiform, a rare Han character, an
# emoji. A tokenizer without a token for unknown characters fails only on such a text.
_PROBE = "a \U00012000 \U0002a6d6 \U0001fae8"
_MAX_BYTES = 256 << 20  # about seven times the largest tokenizers
_TABLES_PAY = 100_000  # number of characters from which the kernel's tables save time


@dataclass(frozen=True)
class Sequences:
    """Texts as token ids: one sequence per text, or one per window of a long text."""

    ids: list[IntArray]  # special tokens included
    owners: list[int]  # the number of each sequence's text
    skip: int  # number of first tokens of every sequence that are not pooled
    special_count: int  # number of special tokens of every sequence
    # (tokens, 2): places of the tokens in their text, if they were requested.
    spans: list[IntArray] | None = None


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a `tokenizer.json` with truncation and padding switched off; raises BundleError."""
    if path.stat().st_size > _MAX_BYTES:
        raise BundleError(f"{path} is larger than {_MAX_BYTES >> 20} MB, so it is not a tokenizer")
    try:
        tokenizer = Tokenizer.from_file(os.fspath(path))
        # The file may switch on truncation (all-MiniLM-L6-v2: 128 tokens), which would cut texts
        # silently, and padding, which may ask for more memory than there is.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode(_PROBE)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # tokenizers raises plain Exception, or panics: a BaseException
        reason = " ".join(str(error).split())
        raise BundleError(f"{path}: tokenizers cannot load it: {reason}") from None
    if getattr(tokenizer.model, "dropout", None):
        raise BundleError(f"{path}: it has a dropout, so the tokens of a text would vary")
    return tokenizer


def encoded(encode: Callable[..., T], text: Text) -> T:
    """Return the tokens of a text, without special tokens.

    Raises TextError if the tokenizer fails or panics.
    """
    try:
        return encode(text, add_special_tokens=False)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())
        raise TextError(f"texts: the tokenizer fails: {reason[:200]}") from None


def own_special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the special tokens that the tokenizer itself puts before and after a text."""
    plain = tokenizer.encode("a", add_special_tokens=False).ids
    complete = tokenizer.encode("a", add_special_tokens=True).ids
    for start in range(len(complete) - len(plain) + 1):
        stop = start + len(plain)
        if complete[start:stop] == plain:
            return tuple(complete[:start]), tuple(complete[stop:])
    raise BundleError("the tokenizer changes texts when special tokens are added")


class TokenEncoder:
    """Encoder of texts to token ids, with the same ids as `tokenizers`.

    A faster kernel handles BERT's tokenizers and Latin texts.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._characters = 0
        self._kernel: WordPieces | None = None

    def encode(
        self, texts: Sequence[str], special: SpecialTokens = ((), ()), *, spans: bool = False
    ) -> list[tuple[IntArray, IntArray]]:
        """Return each text's ids between special tokens, and its spans (tokens, 2).

        Raises TextError if the tokenizer fails.
        """
        before = self._characters
        self._characters += sum(map(len, texts))
        if before < _TABLES_PAY <= self._characters:
            with suppress(ValueError):  # the kernel does not support this tokenizer
                self._kernel = WordPieces(self.tokenizer)
        encodings: Encodings = [None] * len(texts)
        if self._kernel:
            encodings = self._kernel.encode(texts, special, spans)
        # The kernel leaves out texts with characters that it does not know.
        rows = [row for row, encoding in enumerate(encodings) if encoding is None]
        if rows:
            others = self._encode_slowly([texts[row] for row in rows], special, spans)
            for row, encoding in zip(rows, others, strict=True):
                encodings[row] = encoding
        return [encoding for encoding in encodings if encoding]

    def _encode_slowly(
        self, texts: list[str], special: SpecialTokens, spans: bool
    ) -> list[tuple[IntArray, IntArray]]:
        """Return ids and spans as `encode`, without the kernel."""
        before, after = special
        if not spans:
            no_spans = np.empty((0, len(NO_SPAN)), np.int64)
            plain = encoded(self.tokenizer.encode_batch_fast, texts)
            return [(np.array([*before, *one.ids, *after], np.int64), no_spans) for one in plain]
        encodings: list[tuple[IntArray, IntArray]] = []
        for one in encoded(self.tokenizer.encode_batch, texts):
            ids = np.array([*before, *one.ids, *after], np.int64)
            places = [NO_SPAN] * len(before) + one.offsets + [NO_SPAN] * len(after)
            encodings.append((ids, np.array(places, np.int64).reshape(-1, len(NO_SPAN))))
        return encodings


class TextTokenizer:
    """Tokenizer with the rules of an embedder: instruction, special tokens, windows, pooling."""

    def __init__(self, tokenizer: Tokenizer, spec: EmbedderSpec) -> None:
        self._encoder = TokenEncoder(tokenizer)
        self._spec = spec
        self.special_tokens = spec.special_tokens or own_special_tokens(tokenizer)
        self._before, self._after = map(len, self.special_tokens)
        self.special_count = self._before + self._after
        if self.special_count >= spec.max_tokens:
            raise BundleError(
                f"{spec.name}: {self.special_count:,} special tokens leave no room for a text in an"
                f" input of {spec.max_tokens:,}"
            )

    def sequences(
        self, texts: list[str], instruction: str, max_tokens: int, *, spans: bool = False
    ) -> Sequences:
        """Return the token sequences of texts.

        Raises TextError if a text is too long, or if it has no token to pool.
        """
        if self._spec.long_text == "truncate_text" and instruction:
            self._check_instruction(instruction, max_tokens)
        skip = 0
        if self._spec.mask_instruction:
            skip = self._instruction_tokens(instruction)
        instructed = texts
        if instruction:
            instructed = [instruction + text for text in texts]
        encodings = self._encoder.encode(instructed, self.special_tokens, spans=spans)
        ids: list[IntArray] = []
        owners: list[int] = []
        places: list[IntArray] = []
        for i, (text_ids, text_spans) in enumerate(encodings):
            for window in self._cut(text_ids, max_tokens, texts[i]):
                if len(window) <= skip:
                    raise TextError(
                        f"texts: the instruction has {skip} tokens, so nothing is left to embed of"
                        f" the {len(window)} tokens of {texts[i][:60]!r}"
                    )
                ids.append(window)
                owners.append(i)
            if spans:
                places += self._cut(_shifted(text_spans, len(instruction)), max_tokens, texts[i])
        return Sequences(ids, owners, skip, self.special_count, places if spans else None)

    def _check_instruction(self, instruction: str, max_tokens: int) -> None:
        """Raise TextError if an instruction alone fills the model's input."""
        room = max_tokens - self.special_count
        count = self._instruction_tokens(instruction)
        if count >= room:
            raise TextError(
                f"texts: the instruction has {count} tokens, but the model reads only {room}, so"
                " no text can be embedded"
            )

    def _cut(self, row: IntArray, max_tokens: int, text: str) -> list[IntArray]:
        """Cut the ids or spans of a text into windows.

        The input and the windows include special tokens.
        """
        if len(row) <= max_tokens:
            return [row]
        limit = max_tokens - self.special_count
        end = len(row) - self._after
        before, ids, after = row[: self._before], row[self._before : end], row[end:]
        if self._spec.long_text == "error":
            raise TextError(
                f"texts: a text has {len(ids)} tokens, but {self._spec.name} accepts at most"
                f" {limit}: {text[:60]!r}"
            )
        if self._spec.long_text == "truncate":
            # The closing special tokens are lost: they are cut off with the end of the text.
            return [row[:max_tokens]]
        if self._spec.long_text == "truncate_text":
            return [np.concatenate([before, ids[:limit], after])]
        windows = cut_windows(ids, limit)
        return [np.concatenate([before, window, after]) for window in windows]

    def _instruction_tokens(self, instruction: str) -> int:
        """Count the tokens of the instruction alone.

        In a text, the last token of the instruction may join the first word.
        """
        if not instruction:
            return 0
        [(ids, _)] = self._encoder.encode([instruction])
        return len(ids)


def _shifted(spans: IntArray, instruction: int) -> IntArray:
    """Return the spans of tokens relative to a text that follows an instruction.

    `instruction` is the length of the instruction in characters.
    """
    if not instruction:
        return spans
    return np.where(spans[:, 1:] <= instruction, NO_SPAN, np.maximum(spans - instruction, 0))


def cut_windows(ids: Tokens, limit: int) -> list[Tokens]:
    """Cut token ids into the fewest windows of at most `limit` tokens, of nearly equal length."""
    count = max(1, -(-len(ids) // limit))
    edges = [len(ids) * i // count for i in range(count + 1)]
    return [ids[start:stop] for start, stop in pairwise(edges)]
