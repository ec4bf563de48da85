"""Tokenizers of bundles, and the token sequences of texts for an embedder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.errors import BundleError, TextError

SpecialTokens = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of the special tokens before and after a text."""


@dataclass(frozen=True)
class Sequences:
    """Texts as token ids: one sequence per text, or one per window of a long text.

    Attributes
    ----------
    ids
        Token ids of each sequence, special tokens included.
    owners
        For each sequence, the number of its text.
    skip
        Number of first tokens of every sequence that are not pooled.
    """

    ids: list[list[int]]
    owners: list[int]
    skip: int


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a `tokenizer.json` with truncation and padding switched off; raises BundleError."""
    try:
        tokenizer = Tokenizer.from_file(os.fspath(path))
        tokenizer.encode("a")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # tokenizers raises plain Exception, or panics: a BaseException
        reason = " ".join(str(error).split())
        raise BundleError(f"{path}: tokenizers cannot load it: {reason}") from None
    # Both may be switched on inside the file (all-MiniLM-L6-v2: 128 tokens), and would cut texts silently.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


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

    def sequences(self, texts: list[str], instruction: str, max_tokens: int) -> Sequences:
        """Return the token sequences of texts.

        Parameters
        ----------
        texts
            The texts.
        instruction
            Put before each text.
        max_tokens
            Largest length of a sequence, special tokens included.

        Returns
        -------
        Sequences
            Token ids, and the text of each sequence.

        Raises
        ------
        TextError
            A text is too long for an embedder that refuses long texts, or nothing of it is left to pool.
        """
        if self._spec.long_text == "truncate_text" and instruction:
            room = max_tokens - self.special_count
            if (count := self._instruction_tokens(instruction)) >= room:
                raise TextError(
                    f"texts: the instruction has {count} tokens and the model's input {room}, so that "
                    "nothing of a text is left to embed"
                )
        encodings = self._tokenizer.encode_batch_fast(
            [instruction + text for text in texts], add_special_tokens=False
        )
        skip = self._instruction_tokens(instruction) if self._spec.mask_instruction else 0
        ids: list[list[int]] = []
        owners: list[int] = []
        for i, encoding in enumerate(encodings):
            for window in self._cut(encoding.ids, max_tokens, texts[i]):
                if len(window) <= skip:
                    raise TextError(
                        f"texts: of {len(window)} tokens the first {skip} are the instruction's, so that "
                        f"nothing is left to embed: {texts[i][:60]!r}"
                    )
                ids.append(window)
                owners.append(i)
        return Sequences(ids, owners, skip)

    def _cut(self, ids: list[int], max_tokens: int, text: str) -> list[list[int]]:
        limit = max_tokens - self.special_count
        if len(ids) > limit:
            if self._spec.long_text == "error":
                raise TextError(
                    f"texts: a text of {len(ids)} tokens is longer than the model's {limit}, "
                    f"and {self._spec.name} refuses those: {text[:60]!r}"
                )
            if self._spec.long_text == "truncate":
                # The closing special tokens are lost first, as if the text had been cut with them.
                return [[*self._before, *ids, *self._after][:max_tokens]]
            if self._spec.long_text == "truncate_text":
                return [[*self._before, *ids[:limit], *self._after]]
        return [[*self._before, *window, *self._after] for window in cut_windows(ids, limit)]

    def _instruction_tokens(self, instruction: str) -> int:
        """Count the tokens of the instruction alone; in a text its last one may join the first word."""
        return len(self._tokenizer.encode(instruction, add_special_tokens=False).ids) if instruction else 0


def cut_windows(ids: list[int], limit: int) -> list[list[int]]:
    """Cut token ids into the fewest windows of at most `limit` tokens, of nearly equal length."""
    count = max(1, -(-len(ids) // limit))
    edges = [len(ids) * i // count for i in range(count + 1)]
    return [ids[start:stop] for start, stop in pairwise(edges)]
