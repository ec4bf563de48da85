"""Tokenizers of bundles, and the token sequences of texts for an embedder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from tokenizers import Tokenizer

from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.errors import BundleError, TextError

T = TypeVar("T")
Text = TypeVar("Text", str, list[str])
SpecialTokens = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of the special tokens before and after a text."""

Span = tuple[int, int]
NO_SPAN: Span = (-1, -1)
"""The span of a token that is not of the text."""

# Besides a letter, what hardly a vocabulary has: cuneiform, a rare Han character, an emoji. A tokenizer whose
# token for the unknown is missing fails on such a text only.
_PROBE = "a \U00012000 \U0002a6d6 \U0001fae8"


@dataclass(frozen=True)
class Sequences:
    """Texts as token ids: one sequence per text, or one per window of a long text."""

    ids: list[list[int]]  # special tokens included
    owners: list[int]  # the number of each sequence's text
    skip: int  # first tokens of every sequence that are not pooled
    spans: list[list[Span]] | None = None  # where each token stands in its text, if asked for


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
    # Both may be switched on inside the file (all-MiniLM-L6-v2: 128 tokens), and would cut texts silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def encoded(encode: Callable[..., T], text: Text) -> T:
    """Return tokens without special ones; TextError if the tokenizer fails, or panics, at a text."""
    try:
        return encode(text, add_special_tokens=False)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:
        reason = " ".join(str(error).split())
        raise TextError(f"texts: the tokenizer fails: {reason[:200]}") from None


def own_special_tokens(tokenizer: Tokenizer) -> SpecialTokens:
    """Return the special tokens that the tokenizer itself puts before and after a text."""
    text, framed = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    for start in range(len(framed) - len(text) + 1):
        if framed[start : start + len(text)] == text:
            return tuple(framed[:start]), tuple(framed[start + len(text) :])
    raise BundleError("the tokenizer changes a text when it adds special tokens")


class TextTokenizer:
    """Texts to token sequences by the rules of an embedder: instruction, special tokens, windows, pooling."""

    def __init__(self, tokenizer: Tokenizer, spec: EmbedderSpec) -> None:
        self._tokenizer = tokenizer
        self._spec = spec
        self.special_tokens = spec.special_tokens or own_special_tokens(tokenizer)
        self._before, self._after = self.special_tokens
        self.special_count = len(self._before) + len(self._after)

    def sequences(
        self, texts: list[str], instruction: str, max_tokens: int, *, spans: bool = False
    ) -> Sequences:
        """Return the token sequences of texts; TextError if one is too long, or nothing is left to pool."""
        if self._spec.long_text == "truncate_text" and instruction:
            room = max_tokens - self.special_count
            if (count := self._instruction_tokens(instruction)) >= room:
                raise TextError(
                    f"texts: the instruction has {count} tokens and the model's input {room}, so that "
                    "nothing of a text is left to embed"
                )
        encode = self._tokenizer.encode_batch if spans else self._tokenizer.encode_batch_fast
        encodings = encoded(encode, [instruction + text for text in texts])
        skip = self._instruction_tokens(instruction) if self._spec.mask_instruction else 0
        ids: list[list[int]] = []
        owners: list[int] = []
        for i, encoding in enumerate(encodings):
            for window in self._cut(encoding.ids, max_tokens, texts[i], *self.special_tokens):
                if len(window) <= skip:
                    raise TextError(
                        f"texts: of {len(window)} tokens the first {skip} are the instruction's, so that "
                        f"nothing is left to embed: {texts[i][:60]!r}"
                    )
                ids.append(window)
                owners.append(i)
        if not spans:
            return Sequences(ids, owners, skip)
        frame = [NO_SPAN] * len(self._before), [NO_SPAN] * len(self._after)
        places = [
            window
            for encoding, text in zip(encodings, texts, strict=True)
            for window in self._cut(_shifted(encoding.offsets, len(instruction)), max_tokens, text, *frame)
        ]
        return Sequences(ids, owners, skip, places)

    def _cut(
        self, ids: list[T], max_tokens: int, text: str, before: Sequence[T], after: Sequence[T]
    ) -> list[list[T]]:
        limit = max_tokens - self.special_count
        if len(ids) > limit:
            if self._spec.long_text == "error":
                raise TextError(
                    f"texts: a text of {len(ids)} tokens is longer than the model's {limit}, "
                    f"and {self._spec.name} refuses those: {text[:60]!r}"
                )
            if self._spec.long_text == "truncate":
                # The closing special tokens are lost first, as if the text had been cut with them.
                return [[*before, *ids, *after][:max_tokens]]
            if self._spec.long_text == "truncate_text":
                return [[*before, *ids[:limit], *after]]
        return [[*before, *window, *after] for window in cut_windows(ids, limit)]

    def _instruction_tokens(self, instruction: str) -> int:
        """Count the tokens of the instruction alone; in a text its last one may join the first word."""
        return len(encoded(self._tokenizer.encode, instruction).ids) if instruction else 0


def _shifted(offsets: list[Span], instruction: int) -> list[Span]:
    """Return the spans of tokens in a text that stands after an instruction of so many characters."""
    if not instruction:
        return offsets
    return [
        NO_SPAN if stop <= instruction else (max(0, start - instruction), stop - instruction)
        for start, stop in offsets
    ]


def cut_windows(ids: list[T], limit: int) -> list[list[T]]:
    """Cut token ids into the fewest windows of at most `limit` tokens, of nearly equal length."""
    count = max(1, -(-len(ids) // limit))
    edges = [len(ids) * i // count for i in range(count + 1)]
    return [ids[start:stop] for start, stop in pairwise(edges)]
