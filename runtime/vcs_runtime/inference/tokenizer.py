"""Tokenizers: loading a bundle's, and turning texts into the token sequences that an embedder is run on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tokenizers import Tokenizer

from vcs_runtime.bundle.manifest import EmbedderSpec
from vcs_runtime.errors import BundleError, TextError

Frame = tuple[tuple[int, ...], tuple[int, ...]]
"""The token ids that are put before and after a text."""


@dataclass(frozen=True)
class Sequences:
    """Texts as token ids. A text has one sequence, or, where it is cut into windows, several.

    ids     the sequences, frames included
    owners  for each sequence its text
    skip    how many first tokens of every sequence are left out of the pooling
    """

    ids: list[list[int]]
    owners: list[int]
    skip: int


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a `tokenizer.json`, without its truncation and padding; raises BundleError."""
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


def own_frame(tokenizer: Tokenizer) -> Frame:
    """What the tokenizer itself puts before and after a text, learnt from how it encodes one."""
    text, framed = (tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True))
    for start in range(len(framed) - len(text) + 1):
        if framed[start : start + len(text)] == text:
            return tuple(framed[:start]), tuple(framed[start + len(text) :])
    raise BundleError("the tokenizer changes a text when it adds special tokens")


class TextTokenizer:
    """Texts to token sequences by the rules of an embedder: instruction, frame, windows, what is pooled."""

    def __init__(self, tokenizer: Tokenizer, spec: EmbedderSpec) -> None:
        self._tokenizer = tokenizer
        self._spec = spec
        self.frame = spec.special_tokens or own_frame(tokenizer)
        self._before, self._after = self.frame
        self.frame_tokens = len(self._before) + len(self._after)

    def sequences(self, texts: list[str], instruction: str, max_tokens: int) -> Sequences:
        """The token sequences of `texts`, each with `instruction` before it and of at most `max_tokens`.

        Raises TextError for a text that is too long for a spec that says "error", and for one of which
        nothing is left to pool.
        """
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
        limit = max_tokens - self.frame_tokens
        if len(ids) > limit:
            if self._spec.long_text == "error":
                raise TextError(
                    f"texts: a text of {len(ids)} tokens is longer than the model's {limit}, "
                    f"and {self._spec.name} refuses those: {text[:60]!r}"
                )
            if self._spec.long_text == "truncate":
                # The frame's end goes first, as where a text is framed before it is cut.
                return [[*self._before, *ids, *self._after][:max_tokens]]
        return [[*self._before, *window, *self._after] for window in cut_windows(ids, limit)]

    def _instruction_tokens(self, instruction: str) -> int:
        """The instruction's tokens by itself: its last one may have become part of the text's first word."""
        return len(self._tokenizer.encode(instruction, add_special_tokens=False).ids) if instruction else 0


def cut_windows(ids: list[int], limit: int) -> list[list[int]]:
    """Cut token ids into the fewest windows of at most `limit` tokens; lengths differ by one at most."""
    count = max(1, -(-len(ids) // limit))
    edges = [len(ids) * i // count for i in range(count + 1)]
    return [ids[start:stop] for start, stop in pairwise(edges)]
