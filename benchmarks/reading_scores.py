"""The reference points of docs/guide/reading-scores.md: what pairs of known kinds score, with one bundle.

    python benchmarks/reading_scores.py DATA [--rewrites DIR] [--bundle B] [--cache DIR] [-o FILE]

DATA holds vcs-eval/, vatex-eval/ and clip-cc/ as benchmarks/experiments.py expects them. --rewrites names
another folder of rewrites than DATA/vcs-eval. Printed are the VCS of equal SAS and NAS; zeros and means of
paragraphs (rewrites, a second author, another film), of texts of one and two sentences, and of captions; and
how far the scores of captions agree with human ratings. The tables hold figures and names of kinds, no text.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np

from vcs_experiments import statistics
from vcs_experiments.datasets.texts import Problems, read_authors, read_cases, read_descriptions
from vcs_experiments.metrics.scoring import realign
from vcs_experiments.results import Results
from vcs_experiments.vatex import Video, read_vatex
from vcs_numba import Params, Scores
from vcs_numba.recombine import recombine
from vcs_runtime import Scorer
from vcs_runtime.comparing.tables import Cell, Table
from vcs_runtime.scoring.flags import FlagCounts
from vcs_runtime.scoring.options import Options
from vcs_runtime.scoring.result import Pair
from vcs_runtime.scoring.score_table import LABELS

LCTS = (0.0, 1.0)
SHOWN = ("vcs", "margin", "gas", "las", "nas")
COLUMNS = ("kind", "form", "LCT", "pairs", "zero", "not judged", *(f"mean {LABELS[name]}" for name in SHOWN))


def gate() -> Table:
    """The VCS of a pair whose SAS and NAS are equal, by the core itself."""
    rows: list[tuple[Cell, ...]] = []
    for x in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        parts = {"gas": x, "las_precision": 1.0, "las_recall": 1.0, "window_regularizer": 0.0}
        parts |= {f"nas_{kind}_{side}": x for kind in "dl" for side in ("precision", "recall")}
        made = recombine(Scores._make([0.0] * len(Scores._fields)), **parts)
        rows.append((made.sas, made.nas, made.margin, made.vcs))
    return Table("gate", "VCS where SAS and NAS are equal", ("SAS", "NAS", "margin", "VCS"), rows)


def measure(scorer: Scorer, kind: str, pairs: Iterable[Pair], options: Options) -> list[tuple[Cell, ...]]:
    """Score pairs at every LCT; a row each."""
    every = [evidence for _, evidence in scorer.iter_evidence(pairs, options)]
    evidence = [own for own in every if own is not None]
    rows: list[tuple[Cell, ...]] = []
    for lct in LCTS:
        scores, flags = realign(evidence, Params(lct=lct)), FlagCounts()
        for row, own in zip(scores.tolist(), evidence, strict=True):
            flags.add(Scores._make(row)._asdict(), *own.similarity.shape)
        form = "words" if options.short else f"{options.chunk_size} sentence{'s'[: options.chunk_size > 1]}"
        shares = (flags.zeros / flags.scored, flags.not_judged / flags.scored)
        rows.append(
            (kind, form, f"{lct:g}", flags.scored, *shares, *(float(scores[n].mean()) for n in SHOWN))
        )
    return rows


def sentences(text: str, count: int) -> str:
    """The first sentences of a text."""
    return " ".join(re.split(r"(?<=[.!?])\s+", text.strip())[:count])


def paragraphs(data: Path, rewrites: Path, problems: Problems) -> dict[str, list[Pair]]:
    """Pairs of paragraphs by kind."""
    kinds: dict[str, list[Pair]] = {}
    authors = read_authors(data / "vcs-eval/authors/authors.json", problems)
    for case in read_cases(rewrites, problems):
        label = {True: "valid", False: "corrupted", None: "series"}[case.valid]
        for kind in (f"all {label} rewrites", f"{label}: {case.name}"):
            kinds.setdefault(kind, []).append((case.reference, case.generated))
    kinds["a second author"] = [pair for by in authors.values() for pair in permutations(by.values(), 2)]
    first = [next(iter(by.values())) for by in authors.values()]
    films = [str(text) for text in read_descriptions(data / "clip-cc/references.json", problems).values()]
    kinds["another film (authors' scenes)"] = following(first)
    kinds["another film (CLIP-CC)"] = following(films)
    for count in (1, 2):
        kinds[f"a second author, first {count} sentence{'s'[: count > 1]}"] = [
            (sentences(a, count), sentences(b, count)) for a, b in kinds["a second author"]
        ]
    return kinds


def following(texts: Sequence[str]) -> list[Pair]:
    """Each text with the next one, the last one with the first."""
    return list(zip(texts, [*texts[1:], texts[0]], strict=True))


def captions(scorer: Scorer, videos: Sequence[Video]) -> list[Table]:
    """Human captions against each other, and rated ones against one and all references."""
    rows: list[tuple[Cell, ...]] = []
    rated: list[tuple[Cell, ...]] = []
    human = [pair for video in videos for pair in following(video.references)]
    other = following([video.references[0] for video in videos])
    ratings = np.array([own for video in videos for own in video.ratings])
    for short in (False, True):
        options = Options(short=short)
        rows += measure(scorer, "captions: a second person", human, options)
        rows += measure(scorer, "captions: another video", other, options)
        for count in (1, 9):
            pairs: list[Pair] = [(v.references[:count], text) for v in videos for text in v.candidates]
            results = list(scorer.iter_scores(pairs, options))
            row: list[Cell] = ["words" if short else "1 sentence", count, len(results)]
            row.append(float(np.mean([result.vcs == 0 for result in results])))
            for name in SHOWN:
                values = np.array([getattr(result.scores, name) for result in results])
                taus = [statistics.kendall(values, ratings[:, i]) for i in range(ratings.shape[1])]
                row.append(float(np.mean(taus)))
            rated.append(tuple(row))
    columns = ("form", "references", "captions", "zero", *(LABELS[name] for name in SHOWN))
    note = "Mean of Kendall's tau-b with each of three raters, at LCT 0; of 9 references the best one counts."
    return [
        Table("captions", "Captions", COLUMNS, rows),
        Table("rated", "Agreement with ratings of captions", columns, rated, note),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--rewrites", type=Path)
    parser.add_argument("--bundle", default="default")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    problems = Problems(print)
    tables = [gate()]
    with Scorer.open(options.bundle, device="cpu", cache=options.cache) as scorer:
        videos = read_vatex(options.data / "vatex-eval/vatex-eval-300.jsonl", problems)
        tables += captions(scorer, videos)
        kinds = paragraphs(options.data, options.rewrites or options.data / "vcs-eval", problems)
        rows = [row for kind, pairs in kinds.items() for size in (1, 3) if size == 1 or ":" not in kind
                for row in measure(scorer, kind, pairs, Options(size))]  # fmt: skip
        tables.insert(1, Table("paragraphs", "Paragraphs", COLUMNS, rows))
        counts = {"kinds of paragraphs": len(kinds), "videos with captions": len(videos)}
        results = Results("reading scores", scorer.signature, {}, counts, problems.messages, tables=tables)
    text = results.markdown()
    print(text)
    if options.output:
        options.output.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
