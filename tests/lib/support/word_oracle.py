"""Section 15 of the definition in plain Python, pair of words by pair of words; drawn pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from vcs_numba import SubstitutionParams, Vocabulary, WordPair, Words

NAME = 3


class Oracle:
    """The formula for one pair, read from the definition; every value is a call."""

    def __init__(self, pair: WordPair, vocabulary: Vocabulary, params: SubstitutionParams) -> None:
        self.gen, self.ref = pair.gen, pair.ref
        self.g, self.r = np.asarray(pair.gen_match), np.asarray(pair.ref_match)
        self.vocabulary, self.p = vocabulary, params
        self.sides = range(len(pair.gen.stem)), range(len(pair.ref.stem))

    def excluded(self, i: int, j: int) -> bool:
        codes = self.gen.exclusion[i], self.ref.exclusion[j]
        return bool(self.gen.stem[i] != self.ref.stem[j] and self.vocabulary.excluding[codes])

    def sim(self, i: int, j: int) -> float:
        if self.excluded(i, j) or self.gen.negated[i] != self.ref.negated[j]:
            return -1.0
        if self.gen.stem[i] == self.ref.stem[j]:
            return 1.0
        total = 0.0
        rows = (
            self.vocabulary.vectors[self.gen.vector[i]],
            self.vocabulary.vectors[self.ref.vector[j]],
        )
        for a, b in zip(*(row.tolist() for row in rows), strict=True):
            total += a * b
        return total

    def near(self, i: int, j: int, reach: float) -> bool:
        c, d = self.gen.chunk[i], self.ref.chunk[j]
        return bool(min(abs(self.g[c] - d), abs(self.r[d] - c)) <= reach)

    def ramp(self, x: float) -> float:
        return min(1.0, max(0.0, (x - self.p.low) / (self.p.high - self.p.low)))

    def found(self, pairs: list[tuple[int, int]]) -> float:
        best = -1.0
        for i, j in pairs:
            listed = self.gen.exclusion[i] or self.ref.exclusion[j]
            if self.near(i, j, self.p.pair_reach if listed else self.p.found_reach):
                best = max(best, self.sim(i, j))
        return best

    def founds(self) -> tuple[list[float], list[float]]:
        gens, refs = self.sides
        return (
            [self.found([(i, j) for j in refs]) for i in gens],
            [self.found([(i, j) for i in gens]) for j in refs],
        )

    def lack(self) -> tuple[list[float], ...]:
        return tuple([1 - self.ramp(found) for found in side] for side in self.founds())

    def beside(self, i: int, j: int, way: int, alike: bool) -> float:
        def inside(chunks: Any, word: int, other: int) -> bool:
            return 0 <= other < len(chunks) and bool(chunks[word] == chunks[other])

        gen, ref = self.gen.chunk, self.ref.chunk
        if not inside(gen, i, i + way) and not inside(ref, j, j + way):
            return 1.0
        steps = [
            (i + way * a, j + way * b) for a, b in ((1, 1), (1, 2), (2, 1))[: 3 if alike else 1]
        ]
        return max(
            (self.sim(a, b) for a, b in steps if inside(gen, i, a) and inside(ref, j, b)),
            default=-1.0,
        )

    def context(self, i: int, j: int, alike: bool) -> float:
        return (
            self.ramp(self.beside(i, j, -1, alike)) + self.ramp(self.beside(i, j, 1, alike))
        ) / 2

    @staticmethod
    def word_class(words: Words, i: int) -> int:
        return NAME if words.name[i] else int(np.argmax(words.log_class[i]))

    def weight(self, i: int, j: int, lack: tuple[list[float], ...]) -> float:
        if not self.near(i, j, self.p.pair_reach):
            return 0.0
        own, other = self.word_class(self.gen, i), self.word_class(self.ref, j)
        alike = own == other or self.excluded(i, j)
        agree = self.context(i, j, alike)
        if not alike and (agree < self.p.context_certainty or NAME in (own, other)):
            return 0.0
        part = self.p.context_weight
        return min(lack[0][i], lack[1][j]) * ((1 - part) + part * agree)

    def pair_class(self, words: Words, i: int, others: Words, j: int) -> int:
        if words.name[i] or others.name[j]:
            return self.word_class(words, i)
        return int(np.argmax(words.log_class[i] + others.log_class[j]))

    def result(self) -> dict[str, Any]:
        gens, refs = self.sides
        lack = self.lack()
        weights = np.array([[self.weight(i, j, lack) for j in refs] for i in gens]).reshape(
            len(gens), len(refs)
        )
        sides = []
        for words, others, table, side in (
            (self.gen, self.ref, weights, 0),
            (self.ref, self.gen, weights.T, 1),
        ):
            rows = []
            for i, row in enumerate(table):
                j = int(np.argmax(row)) if row.size and row.max() > 0 else -1
                if j < 0:
                    rows.append((-1, 0.0, np.nan, self.word_class(words, i)))
                else:
                    sim = self.sim(j, i) if side else self.sim(i, j)
                    rows.append((j, float(row[j]), sim, self.pair_class(words, i, others, j)))
            sides.append(rows)
        shares = []
        for k in range(4):
            rep = [sum(weight for _, weight, _, group in rows if group == k) for rows in sides]
            counts = [sum(group == k for *_, group in rows) for rows in sides]
            shares.append(min(rep) / max(self.p.least_mass, *counts))
        similar = [
            sum(self.p.high <= found < 1 for found in side) / max(self.p.least_mass, len(side))
            for side in self.founds()
        ]
        top = max(self.p.thing_weight * shares[0], *shares[1:]) - self.p.rewording * min(similar)
        top = min(1.0, max(0.0, top))
        return {"substitution": top, "shares": shares, "gen": sides[0], "ref": sides[1]}


def drawn_vocabulary(draw: np.random.Generator, types: int = 30, size: int = 21) -> Vocabulary:
    """Types in groups of near vectors, one without a vector; six codes, the last of numbers."""
    centres = draw.standard_normal((6, size))
    vectors = centres[draw.integers(0, 6, types)] + draw.uniform(
        0.3, 1.2, (types, 1)
    ) * draw.standard_normal((types, size))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors[-1] = 0.0
    excluding = np.triu(draw.random((6, 6)) < 0.5, 1)
    excluding |= excluding.T
    excluding[5, 5] = True
    excluding[0] = excluding[:, 0] = False
    return Vocabulary(vectors.astype(np.float32), excluding)


def drawn_words(draw: np.random.Generator, count: int, chunks: int, types: int = 30) -> Words:
    """Words of which some types share a stem, with log probabilities that often tie."""
    vector = draw.integers(0, types, count, dtype=np.int32)
    stem = vector // 2 + 100
    return Words(
        stem=stem,
        vector=vector,
        chunk=np.sort(draw.integers(0, chunks, count)),
        log_class=np.log(draw.integers(1, 4, (count, 3)) / 8),
        name=draw.random(count) < 0.15,
        negated=draw.random(count) < 0.15,
        exclusion=np.where(stem % 4 == 0, 5, np.where(stem % 2 == 0, 1 + stem // 4 % 4, 0)),
    )


def drawn_pair(
    draw: np.random.Generator,
    words: tuple[int, int] | None = None,
    chunks: tuple[int, int] | None = None,
) -> WordPair:
    """A generated text which often copies words of its reference, with some replaced."""
    n_gen, n_ref = chunks or draw.integers(1, 8, 2)
    counts = words or tuple(draw.integers(0, 40, 2))
    gen, ref = drawn_words(draw, counts[0], n_gen), drawn_words(draw, counts[1], n_ref)
    common = min(counts)
    if common and draw.random() < 0.8:
        keep = draw.random(common) < 0.6
        fields = {
            name: np.array(getattr(gen, name))
            for name in ("stem", "vector", "exclusion", "log_class")
        }
        for name, values in fields.items():
            values[:common][keep] = getattr(ref, name)[:common][keep]
        gen = Words(**fields, chunk=gen.chunk, name=gen.name, negated=gen.negated)
    return WordPair(gen, ref, draw.integers(0, n_ref, n_gen), draw.integers(0, n_gen, n_ref))
