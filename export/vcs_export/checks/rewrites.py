"""Pairs of texts on which the change of scores by quantisation is measured, made of any list of texts.

A quantised model is judged by what it does to scores, and a score needs two texts. Neighbours in a list are
mostly strangers, whose VCS is 0 with any model; a text and itself have cosines of 1 with any model. Real
pairs lie in between: most chunks have a match, and no match is exact. So each text is compared with versions
of itself that leave out every fifth word, whose chunks therefore end elsewhere. Two of these have also lost
or gained chunks. One pair in four is of neighbours. Nothing is drawn at random. Versions in another order are
left out, because their VCS is 0 with any model. Such pairs order the formats as
real ones do (docs/development/decisions.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

# Words of a chunk, about a sentence. Where exactly a text is cut does not matter here.
_CHUNK_WORDS = 15
# Shorter texts are joined: the order of one or two chunks says nothing.
_LEAST_CHUNKS = 3
_LEFT_OUT = 5
_TOUCHED = 3


@dataclass(frozen=True)
class ChunkedPair:
    """A reference and a generated text, as their chunks."""

    reference: tuple[str, ...]
    generated: tuple[str, ...]


def rewritten_pairs(texts: Sequence[str]) -> list[ChunkedPair]:
    """Make four pairs of each text, or three of a single one: with its versions, and with the next text.

    Neighbours that have fewer than three chunks are joined.
    """
    words = list(_joined(texts))
    pairs = []
    for i, own in enumerate(words):
        reference, reworded = _chunks(own), _chunks(_reworded(own))
        other = words[(i + 1) % len(words)]
        versions = [reworded, _shortened(reworded), _lengthened(reworded, _chunks(other))]
        if other is not own:
            versions.append(_chunks(other))
        pairs += [ChunkedPair(reference, version) for version in versions]
    return pairs


def _joined(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the words of texts, and of neighbouring short ones together."""
    least = (_LEAST_CHUNKS - 1) * _CHUNK_WORDS + 1
    waiting: list[str] = []
    last: list[str] = []
    for text in texts:
        waiting += text.split() or [text]
        if len(waiting) >= least:
            if last:
                yield last
            last, waiting = waiting, []
    yield last + waiting


def _chunks(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(" ".join(words[i : i + _CHUNK_WORDS]) for i in range(0, len(words), _CHUNK_WORDS))


def _reworded(words: Sequence[str]) -> list[str]:
    return [word for i, word in enumerate(words, 1) if i % _LEFT_OUT] or list(words)


def _shortened(chunks: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(chunk for i, chunk in enumerate(chunks, 1) if i % _TOUCHED) or chunks


def _lengthened(chunks: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    longer: list[str] = []
    for i, chunk in enumerate(chunks):
        longer.append(chunk)
        if i % _TOUCHED == 0:
            longer.append(others[(i // _TOUCHED) % len(others)])
    return tuple(longer)
