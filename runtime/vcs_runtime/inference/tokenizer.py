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
"""The span of a token that is not of the text."""

# Besides a letter, what hardly a vocabulary has: cuneiform, a rare Han character, an emoji. A
# tokenizer whose token for the unknown is missing fails on such a text only.
_PROBE = "a \U00012000 \U0002a6d6 \U0001fae8"
_TABLES_PAY = 100_000  # characters after which the kernel's tables have paid


@dataclass(frozen=True)
class Sequences:
    """Texts as token ids: one sequence per text, or one per window of a long text."""

    ids: list[IntArray]  # special tokens included
    owners: list[int]  # the number of each sequence's text
    skip: int  # first tokens of every sequence that are not pooled
    # (tokens, 2): where each token stands in its text, if asked for.
    spans: list[IntArray] | None = None


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a `tokenizer.json` with truncation and padding switched off; raises BundleError."""
    try:
        tokenizer = Tokenizer.from_file(os.fspath(path))
        tokenizer.encode(_PROBE)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # tokenizers raises plain Exception, or panics: a BaseException
        reason = " ".join(str(error).split())
        raise BundleError(f"{path}: tokenizers cannot load it: {reason}") from None
    # Both may be switched on inside the file (all-MiniLM-L6-v2: 128 tokens), and would cut texts
    # silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
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
    text, framed = (
        tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True)
    )
    for start in range(len(framed) - len(text) + 1):
        if framed[start : start + len(text)] == text:
            return tuple(framed[:start]), tuple(framed[start + len(text) :])
    raise BundleError("the tokenizer changes a text when it adds special tokens")


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
            with suppress(ValueError):
                self._kernel = WordPieces(self.tokenizer)
        found: Encodings = [None] * len(texts)
        if self._kernel:
            found = self._kernel.encode(texts, special, spans)
        if left := [row for row, own in enumerate(found) if own is None]:
            encode = self.tokenizer.encode_batch if spans else self.tokenizer.encode_batch_fast
            outside = [[NO_SPAN] * len(part) if spans else [] for part in special]
            for row, own in zip(left, encoded(encode, [texts[row] for row in left]), strict=True):
                ids = np.array([*special[0], *own.ids, *special[1]], np.int64)
                places = [*outside[0], *(own.offsets if spans else ()), *outside[1]]
                found[row] = ids, np.array(places, np.int64).reshape(-1, len(NO_SPAN))
        return [own for own in found if own]


class TextTokenizer:
    """Tokenizer with the rules of an embedder: instruction, special tokens, windows, pooling."""

    def __init__(self, tokenizer: Tokenizer, spec: EmbedderSpec) -> None:
        self._encoder = TokenEncoder(tokenizer)
        self._spec = spec
        self.special_tokens = spec.special_tokens or own_special_tokens(tokenizer)
        self._before, self._after = map(len, self.special_tokens)
        self.special_count = self._before + self._after

    def sequences(
        self, texts: list[str], instruction: str, max_tokens: int, *, spans: bool = False
    ) -> Sequences:
        """Return the token sequences of texts.

        Raises TextError if a text is too long, or if no token is left to pool.
        """
        if self._spec.long_text == "truncate_text" and instruction:
            room = max_tokens - self.special_count
            if (count := self._instruction_tokens(instruction)) >= room:
                raise TextError(
                    f"texts: the instruction has {count} tokens and the model's input {room}, so"
                    " that nothing of a text is left to embed"
                )
        instructed = [instruction + text for text in texts] if instruction else texts
        skip = self._instruction_tokens(instruction) if self._spec.mask_instruction else 0
        ids: list[IntArray] = []
        owners: list[int] = []
        places: list[IntArray] = []
        for i, (own, at) in enumerate(
            self._encoder.encode(instructed, self.special_tokens, spans=spans)
        ):
            for window in (
                (own,) if len(own) <= max_tokens else self._cut(own, max_tokens, texts[i])
            ):
                if len(window) <= skip:
                    raise TextError(
                        f"texts: of {len(window)} tokens the first {skip} are the instruction's, so"
                        f" that nothing is left to embed: {texts[i][:60]!r}"
                    )
                ids.append(window)
                owners.append(i)
            if spans:
                places += self._cut(_shifted(at, len(instruction)), max_tokens, texts[i])
        return Sequences(ids, owners, skip, places if spans else None)

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
                f"texts: a text of {len(ids)} tokens is longer than the model's {limit}, "
                f"and {self._spec.name} refuses those: {text[:60]!r}"
            )
        if self._spec.long_text == "truncate":
            # The closing special tokens are lost first, as if the text had been cut with them.
            return [row[:max_tokens]]
        windows = (
            [ids[:limit]] if self._spec.long_text == "truncate_text" else cut_windows(ids, limit)
        )
        return [np.concatenate([before, window, after]) for window in windows]

    def _instruction_tokens(self, instruction: str) -> int:
        """Count the tokens of the instruction alone.

        In a text, the last token of the instruction may join the first word.
        """
        return len(self._encoder.encode([instruction])[0][0]) if instruction else 0


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
