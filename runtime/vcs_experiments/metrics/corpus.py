"""The references over which idf is computed, for CIDEr and BERTScore."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain

_DIGITS = 4


@dataclass(frozen=True)
class Corpus:
    """The references of each item, which together are one document."""

    documents: tuple[tuple[str, ...], ...]  # without repetition
    given: bool = False  # whether the user named the corpus

    @classmethod
    def of(cls, items: Iterable[Sequence[str]], given: bool = False) -> Corpus:
        """Make a corpus of the references of items."""
        return cls(tuple(dict.fromkeys(tuple(references) for references in items)), given)

    def first(self, count: int | None) -> Corpus:
        """Keep the first `count` references of each item.

        The corpus is unchanged if `count` is None or the user gave the corpus separately.
        """
        if count is None or self.given:
            return self
        return Corpus.of(references[:count] for references in self.documents)

    @property
    def texts(self) -> list[str]:
        """All references."""
        return list(chain.from_iterable(self.documents))

    @property
    def identity(self) -> str:
        """Number of documents and the first digits of a hash of them, for the signature."""
        joined = ("\0".join(references) for references in self.documents)
        digests = sorted(sha256(text.encode("utf-8", "surrogatepass")).digest() for text in joined)
        return f"{len(digests)}@{sha256(b''.join(digests)).hexdigest()[:_DIGITS]}"
