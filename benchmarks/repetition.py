"""How often `explain` is right about repeated chunks, and how the threshold `repeat` was chosen.

    python benchmarks/repetition.py loops vcs-eval/comparison [--cache FOLDER]
    python benchmarks/repetition.py outputs pairs.jsonl... [--cache FOLDER]

`loops` takes a folder of the experiments' layout (docs/guide/experiments.md). It makes loops of its descriptions:
what is said once more is known, and whatever else is called repeated is wrong. The copies are exact, or have
another number or other opening words each. Rewrites of the same content, descriptions themselves, and sentences
in which a subject, object or action was exchanged show what must not be called repeated.

`outputs` counts the texts that repeat more than five chunks at each threshold, and by equal words alone.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from operator import attrgetter
from pathlib import Path

import numpy as np

from vcs_experiments.datasets.texts import Case, Problems, read_cases
from vcs_numba import Params, align
from vcs_runtime import Result, Scorer
from vcs_runtime.jobs.pairs import read_pairs
from vcs_runtime.scoring.explanation import explain
from vcs_runtime.scoring.result import Evidence
from vcs_runtime.scoring.verdicts import MOVED, REPEATED, Chunk, Thresholds

GRID = (0.95, 0.9, 0.92, 0.98)
COPIES = 20
OPENINGS = (
    "Then {}",
    "After that {}",
    "The video then shows that {}",
    "Once more {}",
    "In the next scene {}",
)
CHANGED = ("Subject Corruption", "Object Corruption", "Action Corruption")
REWORDED = ("Synonym Substitution", "Active <-> Passive Transformation")
REPETITION = "Scattered Segments Repetition (~50%)"

Vectors = dict[str, np.ndarray]


def generated(
    reference: list[str], chunks: list[str], vectors: Vectors, threshold: float
) -> tuple[Chunk, ...]:
    """The generated chunks of such a pair, with verdicts."""
    left, right = ([vectors[text] for text in side] for side in (reference, chunks))
    similarity = np.clip(np.array(left, np.float64) @ np.array(right, np.float64).T, -1, 1)
    result = Result(align(similarity).scores(1.0), len(left), len(right), "made")
    evidence = Evidence((reference, chunks), similarity, 1.0, vectors=(left, right))
    return explain(result, evidence, Params(), Thresholds(repeat=threshold)).generated


def looped(chunks: list[str], draw: np.random.Generator) -> dict[str, tuple[list[str], list[bool]]]:
    """Loops of a text by kind: the chunks, and which of them say what was said before."""
    at = int(draw.integers(len(chunks) - 3))
    one, three = chunks[at], chunks[at : at + 3]
    before, after = chunks[:at], chunks[at + 1 :]
    numbered = [f"Scene {number} {one}" for number in range(1, COPIES + 2)]
    opened = [opening.format(one) for opening in OPENINGS]
    made = {
        "one sentence": (before, [one], [one] * COPIES, after),
        "three sentences": (before, three, three * 5, chunks[at + 3 :]),
        "whole text": ([], chunks, chunks, []),
        "numbered": (before, numbered[:1], numbered[1:], after),
        "other openings": (before, [one], opened, after),
    }
    return {
        kind: (list(chain(*parts)), list(chain(*([i == 2] * len(part) for i, part in enumerate(parts)))))
        for kind, parts in made.items()
    }


def runs(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))}


def said_before(chunks: list[str]) -> list[bool | None]:
    """Whether an earlier chunk has these words: at least 80 % of the runs of three, at most 20 %, or unclear."""
    found: list[bool | None] = []
    for i, chunk in enumerate(chunks):
        own = runs(chunk)
        share = max((len(own & runs(earlier)) / len(own) for earlier in chunks[:i]), default=0.0)
        found.append(True if share >= 0.8 else False if share <= 0.2 else None)
    return found


def loops(folder: Path, cache: Path | None) -> None:
    cases = read_cases(folder, Problems(lambda message: print("left out:", message)))
    wanted = [case for case in cases if case.valid or case.name in (*CHANGED, REPETITION)]
    evidence: list[tuple[Case, Evidence]] = []
    vectors: Vectors = {}
    draw = np.random.default_rng(0)
    with Scorer.open(cache=cache) as scorer:
        print(scorer.signature)
        pairs = [(case.reference, case.generated) for case in wanted]
        for case, (_, found) in zip(wanted, scorer.iter_evidence(pairs), strict=True):
            if found and found.vectors:
                evidence.append((case, found))
                for chunks, rows in zip(found.chunks, found.vectors, strict=True):
                    vectors |= dict(zip(chunks, rows, strict=True))
        references = {case.scene: found.chunks[0] for case, found in evidence}
        made = {scene: looped(chunks, draw) for scene, chunks in references.items()}
        fresh = sorted(
            {t for own in made.values() for chunks, _ in own.values() for t in chunks} - set(vectors)
        )
        vectors |= dict(zip(fresh, scorer.embedder.embed(fresh), strict=True))
    print(f"{len(references)} descriptions of {sum(map(len, references.values()))} chunks")
    alike(evidence, vectors)
    for threshold in GRID:
        print(f"\nrepeat {threshold}{'kind':>16} copies  recall  wrong  moved", flush=True)
        for kind in made[next(iter(made))]:
            counts = np.zeros(6, int)
            for scene, own in made.items():
                chunks, copies = own[kind]
                said = generated(references[scene], chunks, vectors, threshold)
                counts += count(said, copies)
            show(kind, counts)
        groups: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(6, int))
        for case, found in evidence:
            kind = "scattered copies" if case.name == REPETITION else "valid rewrites"
            if case.name not in CHANGED:
                said = generated(*found.chunks, vectors, threshold)
                groups[kind] += count(said, said_before(found.chunks[1]))
        for chunks in references.values():
            groups["descriptions"] += count(
                generated(chunks, chunks, vectors, threshold), [False] * len(chunks)
            )
        for kind, counts in groups.items():
            show(kind, counts)


def count(chunks: Iterable[Chunk], copies: Iterable[bool | None]) -> np.ndarray:
    """Copies, copies called repeated, others, others called repeated, others called moved, unclear."""
    counts = np.zeros(6, int)
    for chunk, copy in zip(chunks, copies, strict=True):
        repeated = chunk.verdict == REPEATED
        if copy is None:
            counts[5] += 1
        elif copy:
            counts[:2] += (1, repeated)
        else:
            counts[2:5] += (1, repeated, chunk.verdict == MOVED)
    return counts


def show(kind: str, counts: np.ndarray) -> None:
    copies, right, others, wrong, moved, unclear = counts.tolist()
    recall = f"{right / copies:.3f}" if copies else "    -"
    precision = f"{right / (right + wrong):.3f}" if right and wrong else ""
    print(
        f"{kind:>26} {copies:6} {recall:>7} {wrong:4} of {others}, moved {moved}, unclear {unclear} {precision}"
    )


def alike(evidence: Iterable[tuple[Case, Evidence]], vectors: Vectors) -> None:
    """How many sentences would count as alike to their original if both stood in one text."""
    similar: dict[str, list[float]] = defaultdict(list)
    for case, found in evidence:
        reference, chunks = found.chunks
        if case.name in (*CHANGED, *REWORDED) and len(reference) == len(chunks):
            pairs = [(a, b) for a, b in zip(reference, chunks, strict=True) if a.lower() != b.lower()]
            similar[case.name] += [float(vectors[a] @ vectors[b]) for a, b in pairs]
    for name, values in similar.items():
        shares = ", ".join(f"{t:g}: {np.mean(np.array(values) >= t):.3f}" for t in GRID)
        print(f"{name}: {len(values)} sentences, alike from {shares}")


def outputs(files: list[Path], cache: Path | None) -> None:
    texts = defaultdict(list)
    with Scorer.open(cache=cache) as scorer:
        pairs = chain.from_iterable(read_pairs(file) for file in files)
        for block in scorer.stream(pairs, attrgetter("texts")):
            for _, result, evidence in block:
                if evidence is None:
                    continue
                equal = explain(result, evidence._replace(vectors=None), Params())
                texts["equal words"].append((equal.count(REPEATED), result.n_gen))
                for threshold in GRID:
                    e = explain(result, evidence, Params(), Thresholds(repeat=threshold))
                    texts[f"repeat {threshold}"].append((e.count(REPEATED), result.n_gen))
    for name, found in texts.items():
        repeated, chunks = np.array(found).T
        print(f"{name:12} {repeated.sum()} of {chunks.sum()} chunks; more than five in {(repeated > 5).sum()} of "
              f"{len(found)} texts, any in {(repeated > 0).sum()}, most in {(2 * repeated > chunks).sum()}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["loops", "outputs"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--cache", type=Path, help="keep vectors here")
    arguments = parser.parse_args()
    if arguments.what == "loops":
        loops(arguments.paths[0], arguments.cache)
    else:
        outputs(arguments.paths, arguments.cache)


if __name__ == "__main__":
    main()
