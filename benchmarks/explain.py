"""How often `explain` is right: thresholds chosen on one set of texts, then checked on another.

    vcs-runtime experiment make-corruptions --references clip-cc/references.json -o corrupted
    python benchmarks/explain.py calibrate corrupted/comparison [--captions vatex.jsonl]
    python benchmarks/explain.py validate vcs-eval/comparison [--keep]

Both take folders of the experiments' layout (docs/guide/experiments.md). What is true of a chunk is found in the words
of the two texts alone: it is there if at least 80 % of its runs of three words are in the other text, not there
if at most 20 % are; what lies between (half a sentence was cut off) counts for nothing and is counted apart. In a
case that keeps the order nothing has moved; in one that changes it, a chunk has moved if it stands at least one
mean chunk's length from where its words stood, and has not below half of that. In the rewrites with other words of the
same content everything is there and nothing has moved, so every verdict of that kind is wrong.

`--captions` (JSONL with `refs`, several captions of each video) shows how alike two people's sentences about
one scene are, which corrupted copies cannot.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from records import ANY, keep, parser_of

from vcs_experiments.datasets.texts import Problems, read_cases
from vcs_experiments.vatex import read_vatex
from vcs_numba import Params
from vcs_runtime import Embedder, Scorer
from vcs_runtime.scoring.explanation import Explanation, explain
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.verdicts import MISSING, MOVED, REPEATED, UNSUPPORTED, Thresholds

KINDS = {
    "Synonym Substitution": "synonyms", "Active <-> Passive Transformation": "voice",
    "Addition (~50%)": "addition", "Addition (~80%)": "addition",
    "Deletion (~50%)": "deletion", "Deletion (~80%)": "deletion",
    "Reverse Segments Order": "reversal", "Jumble Segments Order": "jumble", "Rotate Half Paragraph": "rotation",
    "Local Permutation": "local",
}  # fmt: skip
PARAPHRASES = ("synonyms", "voice")
KEEPS_ORDER = ("addition", "deletion", *PARAPHRASES)
GRID = [round(0.3 + 0.05 * step, 2) for step in range(9)]


class Truth(NamedTuple):
    """`there`, `moved`: True, False, or None where the words do not decide."""

    there: bool | None
    moved: bool | None


def runs(words: list[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]


def truths(chunks: list[str], others: list[str], kind: str) -> list[Truth]:
    """What is true of each chunk, from the words of both texts."""
    if kind in PARAPHRASES:
        return [Truth(True, False)] * len(chunks)
    mine, theirs = ([chunk.lower().split() for chunk in side] for side in (chunks, others))
    text = list(itertools.chain.from_iterable(theirs))
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for size in (1, 2, 3):
        for place, run in enumerate(runs(text, size)):
            places[run].append(place)
    total = sum(map(len, mine))
    found, start = [], 0
    for words in mine:
        pieces = runs(words, min(3, len(words)))
        known = [(i, places[piece]) for i, piece in enumerate(pieces) if piece in places]
        share = len(known) / len(pieces)
        there = True if share >= 0.8 else False if share <= 0.2 else None
        moved: bool | None = False
        if kind not in KEEPS_ORDER:
            moved = None
            if there:
                # A run that occurs once says where the chunk stood; one that occurs often does not.
                origins = [at[0] - i for i, at in known if len(at) == 1]
                if origins:
                    offset = abs(float(np.median(origins)) / len(text) - start / total)
                    chunks_off = offset * max(len(chunks), len(others))
                    moved = True if chunks_off >= 1 else False if chunks_off < 0.5 else None
        found.append(Truth(there, moved))
        start += len(words)
    return found


def runs_of(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))}


def said_before(chunks: list[str]) -> list[bool | None]:
    """Whether an earlier chunk has these words: at least 80 % of the runs of three, at most 20 %, or unclear."""
    found: list[bool | None] = []
    for i, chunk in enumerate(chunks):
        own = runs_of(chunk)
        share = max((len(own & runs_of(earlier)) / len(own) for earlier in chunks[:i]), default=0.0)
        found.append(True if share >= 0.8 else False if share <= 0.2 else None)
    return found


class Seen(NamedTuple):
    """An explanation of a corrupted text, and what is true of its chunks."""

    kind: str
    explanation: Explanation
    generated: list[Truth]
    reference: list[Truth]
    signature: str


def see(folder: Path, cache: Path | None) -> list[Seen]:
    """Explain every case that adds, deletes or reorders segments."""
    problems = Problems(lambda message: print("left out:", message))
    found = [case for case in read_cases(folder, problems) if case.name in KINDS]
    seen = []
    with Scorer.open(cache=cache) as scorer:
        print(scorer.signature)
        pairs = [(case.reference, case.generated) for case in found]
        for case, (result, evidence) in zip(found, scorer.iter_evidence(pairs), strict=True):
            if evidence is None:
                print(f"left out: {case.id}: {result.error}")
                continue
            kind = KINDS[case.name]
            reference, generated = evidence.chunks
            seen.append(
                Seen(
                    kind,
                    explain(result, evidence, Params()),
                    truths(generated, reference, kind),
                    truths(reference, generated, kind),
                    scorer.signature,
                )
            )
    return seen


class Counts:
    """A verdict against the truth."""

    def __init__(self) -> None:
        self.right = self.wrong = self.overlooked = self.unclear = self.false = 0

    def add(self, said: bool, true: bool | None) -> None:
        if true is None:
            self.unclear += 1
        elif true:
            self.right += said
            self.overlooked += not said
        else:
            self.wrong += said
            self.false += 1

    def rates(self) -> tuple[str, str]:
        """Precision and recall."""
        precision, recall = (
            f"{self.right / whole:.3f}" if (whole := self.right + rest) else "    -"
            for rest in (self.wrong, self.overlooked)
        )
        return precision, recall

    def row(self) -> str:
        precision, recall = self.rates()
        return f"{self.right + self.overlooked:6} {precision} {recall}   {self.wrong:5} of {self.false:5} {self.unclear:7}"


def tables(seen: list[Seen]) -> dict[str, dict[str, Counts]]:
    """Counts by verdict, then by kind of case and for all of them."""
    found: dict[str, dict[str, Counts]] = {
        name: defaultdict(Counts) for name in (MISSING, UNSUPPORTED, MOVED)
    }
    for kind, e, generated, reference, _ in seen:
        for group in (kind, "all"):
            if group == "all" and kind in PARAPHRASES:
                continue
            for chunk, truth in zip(e.reference, reference, strict=True):
                found[MISSING][group].add(
                    chunk.verdict == MISSING, None if truth.there is None else not truth.there
                )
            before = said_before([chunk.text for chunk in e.generated])
            for chunk, truth, repeated in zip(e.generated, generated, before, strict=True):
                if repeated and chunk.verdict == REPEATED:
                    continue  # a verdict of its own
                found[UNSUPPORTED][group].add(
                    chunk.verdict == UNSUPPORTED, None if truth.there is None else not truth.there
                )
                found[MOVED][group].add(chunk.verdict == MOVED, truth.moved)
    return found


def validate(folder: Path, cache: Path | None, kept: bool) -> None:
    seen = see(folder, cache)
    found = tables(seen)
    for name, groups in found.items():
        print(f"\n{name:18} {'true':>6} prec. recall   {'wrong':>5} of false unclear")
        for group, counts in groups.items():
            print(f"  {group:16} {counts.row()}")

    if kept:
        signatures = {"ours default:cpu": seen[0].signature}
        rows = []
        for name, groups in found.items():
            every = groups["all"]
            precision, recall = every.rates()
            cells = {
                "true": f"{every.right + every.overlooked:,}", "precision": precision, "recall": recall,
                "wrong": f"{every.wrong:,} of {every.false:,}",
                "wrong in rewrites": f"{sum(groups[kind].wrong for kind in PARAPHRASES):,} of "
                f"{sum(groups[kind].false for kind in PARAPHRASES):,}",
            }  # fmt: skip
            rows.append({"head": "verdict", "workload": name, "cells": cells, "signatures": signatures})
        print(keep("explain", rows, place=ANY))


def calibrate(folder: Path, captions: Path | None, cache: Path | None) -> None:
    """What each threshold would cost, on texts that `validate` is not shown."""
    paraphrases, strangers = caption_similarities(captions) if captions else ([], [])
    seen = see(folder, cache)
    sides = [(e.generated, g, "foreign") for kind, e, g, _, _ in seen if kind == "addition"]
    sides += [(e.reference, r, "deleted") for kind, e, _, r, _ in seen if kind == "deletion"]
    similar: dict[str, list[float]] = defaultdict(list)
    for chunks, true, name in sides:
        similar[name] += [c.similarity for c, t in zip(chunks, true, strict=True) if t.there is False]
        similar["kept"] += [c.similarity for c, t in zip(chunks, true, strict=True) if t.there]
    columns = {
        "foreign sentence taken for supported": (similar["foreign"], False),
        "deleted sentence taken for covered": (similar["deleted"], False),
        "copied sentence taken for unsupported": (similar["kept"], True),
        "foreign captions (best of 20) taken for supported": (strangers, False),
        "caption of the same video taken for unsupported": (paraphrases, True),
    }
    for name, (values, _) in columns.items():
        if values:
            print(f"{name}: {len(values)}, median similarity {np.median(values):.3f}")
    print("\nsupport  " + "  ".join(name.split(" taken")[0] for name in columns))
    for threshold in GRID:
        parts = [
            f"{np.mean([(value < threshold) == below for value in values]):.3f}" if values else "-"
            for values, below in columns.values()
        ]
        print(f"{threshold:.2f}     " + "  ".join(parts))
    for name, verdict, values in (
        ("rival", MISSING, (0.1, 0.2, 0.3, 0.4, 0.5, 2.0)),
        ("order", MOVED, (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)),
    ):
        print(f"\n{name:6} {verdict}: true, precision, recall, wrong, unclear")
        for value in values:
            thresholds = Thresholds(**{name: value})
            counts = tables([s._replace(explanation=again(s.explanation, thresholds)) for s in seen])
            print(f"{value:4.2f}  {counts[verdict]['all'].row()}")


def again(e: Explanation, thresholds: Thresholds) -> Explanation:
    """The same pair under other thresholds."""
    chunks = tuple([chunk.text for chunk in side] for side in (e.reference, e.generated))
    return explain(e.result, Evidence(chunks, e.similarity, e.scores.gas), e.params, thresholds)


def caption_similarities(path: Path) -> tuple[list[float], list[float]]:
    """For each video's first caption, the similarity to its other captions, and the best to 20 foreign ones."""
    refs = [video.references for video in read_vatex(path, Problems())]
    texts = list(dict.fromkeys(itertools.chain.from_iterable(refs)))
    draw = np.random.default_rng(0)
    with Embedder.open() as embedder:
        vectors = dict(zip(texts, embedder.embed(texts), strict=True))
    own, foreign = [], []
    for video, captions in enumerate(refs):
        first = vectors[captions[0]]
        own += [float(first @ vectors[other]) for other in captions[1:] if other != captions[0]]
        others = draw.choice([i for i in range(len(refs)) if i != video], 20, replace=False)
        foreign.append(max(float(first @ vectors[refs[i][0]]) for i in others))
    return own, foreign


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("what", choices=["calibrate", "validate"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--captions", type=Path)
    parser.add_argument("--cache", type=Path, help="keep vectors here")
    arguments = parser.parse_args()
    if arguments.what == "calibrate":
        calibrate(arguments.folder, arguments.captions, arguments.cache)
    else:
        validate(arguments.folder, arguments.cache, arguments.keep)


if __name__ == "__main__":
    main()
