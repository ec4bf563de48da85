"""The CLIP-CC-Bench leaderboard with your own judges: all systems and judges, one resumable job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Final

import numpy as np

from vcs_experiments.agreement import Scores, agreement_tables
from vcs_experiments.datasets.clip_cc import JUDGES, read_published, rounded, write_submission
from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.leaderboard import RULE, Means, Place, leaderboard
from vcs_experiments.rank import Texts, read_models
from vcs_experiments.results import Output, Results
from vcs_runtime.comparing.statistics import Values
from vcs_runtime.comparing.systems import PairedTest, enough_resamples, paired_tests
from vcs_runtime.comparing.tables import Cell, Table, describe_correction, test_cells
from vcs_runtime.errors import BundleError, CacheError, DeviceError, InputError
from vcs_runtime.jobs import run as jobs
from vcs_runtime.jobs.bootstrap import SEED, mean_interval
from vcs_runtime.jobs.jsonl import Record
from vcs_runtime.jobs.output import JobFiles
from vcs_runtime.jobs.pairs import InputPair
from vcs_runtime.jobs.score_files import read_scores
from vcs_runtime.jobs.segmenters import Mix
from vcs_runtime.scoring.options import HM_CF, Options
from vcs_runtime.scoring.score_table import HM_CF_NAMES, LABELS
from vcs_runtime.scoring.scorer import Scorer
from vcs_runtime.util.progress import name_step, progress_bar

#: How pairs are scored.
OPTIONS: Final = Options(also=(HM_CF,))
_SCORES: Final = (*HM_CF_NAMES, "las", "vcs", "margin")

Systems = Mapping[str, Mapping[str, str]]
"""Generated texts by system, then by clip."""


def read_texts(
    references: Path, predictions: Path, added: Sequence[Path], problems: Problems
) -> tuple[Texts, Systems]:
    """Read the references and all predictions by system, `added` files included.

    A clip that no system describes is left out silently: the benchmark lacks the predictions of one
    clip.
    """
    texts = read_descriptions(references, problems)
    described = {
        clip for own in read_models(predictions, texts, Problems()).values() for clip in own
    }
    texts = {clip: text for clip, text in texts.items() if clip in described}
    systems = read_models(predictions, texts, problems)
    for path in added:
        if path.stem.lower() in map(str.lower, systems):
            raise InputError(f"{path}: there is a system {path.stem} already: rename the file")
        own = read_descriptions(path, problems, predictions=True)
        systems[path.stem] = {
            clip: text for clip, text in own.items() if clip in texts and isinstance(text, str)
        }
        if missing := sorted(texts.keys() - own.keys()):
            problems.add(f"{path}: no prediction for {len(missing)} clips, such as {missing[0]}")
    return texts, systems


@dataclass(frozen=True)
class _Pairs:
    """The pairs of one system, in the order of the references."""

    system: str
    pairs: tuple[InputPair, ...]
    paths: tuple[Path, ...]

    def __str__(self) -> str:
        return self.system

    def read(self) -> Iterator[InputPair]:
        """Yield the pairs."""
        return iter(self.pairs)


def score_all(
    judges: Mapping[str, Callable[[], AbstractContextManager[Scorer]]],
    references: Texts,
    systems: Systems,
    out: Output,
    sources: tuple[Path, ...],
    problems: Problems,
) -> dict[str, dict[str, list[Record]]]:
    """Score all systems with all judges, one judge after the other.

    Each system has a score file for each judge, `scores/JUDGE/SYSTEM.jsonl`, as `vcs-runtime score`
    writes them. With `out.resume` a file is continued, and a whole one is only read. Returns its
    lines.
    """
    pairs = {
        system: tuple(
            InputPair(clip, clip, text, own[clip])
            for clip, text in references.items()
            if clip in own
        )
        for system, own in systems.items()
    }
    lines: dict[str, dict[str, list[Record]]] = {}
    with progress_bar(len(judges) * sum(map(len, pairs.values()))):
        for judge, opened in judges.items():
            name_step(f"opening {judge}")
            folder = out.folder / "scores" / judge
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with opened() as scorer:
                    lines[judge] = {
                        system: _score(
                            scorer,
                            _Pairs(f"{judge}, {system}", own, sources),
                            folder / f"{system}.jsonl",
                            out,
                            problems,
                        )
                        for system, own in pairs.items()
                    }
            except (BundleError, CacheError, DeviceError) as error:
                raise type(error)(
                    f"judge {judge}: {error}; what was scored before is kept, continue with"
                    " --resume"
                ) from error
    return lines


def _score(
    scorer: Scorer, pairs: _Pairs, path: Path, out: Output, problems: Problems
) -> list[Record]:
    """Score one system by one judge, and return the lines of its score file."""
    name_step(str(pairs))
    files = JobFiles(path, out.resume, out.overwrite, report=problems.add)
    jobs.score_file(scorer, pairs, files, OPTIONS)
    return [row for _, row in read_scores(path, _SCORES)]


def run(
    lines: Mapping[str, Mapping[str, Sequence[Record]]],
    out: Output,
    problems: Problems,
    *,
    added: Sequence[str] = (),
    correction: str = "holm",
    resamples: int | None = None,
    seed: int = SEED,
    plots: bool = False,
) -> tuple[Results, list[Place], dict[str, dict[str, Means]]]:
    """Rank the systems, and write the files for the benchmark.

    Means are over the clips that all judges have scored for all systems.
    """
    scores = _common(lines, problems)
    means = {
        judge: {
            system: Means(*(rounded(own[name][system].tolist()) for name in Means._fields))
            for system in own["hm_cf"]
        }
        for judge, own in scores.items()
    }
    published, names, source = read_published(None)
    places = leaderboard(means, names)
    order = [place.system for place in places]
    over_judges = {
        system: np.mean([scores[judge]["hm_cf"][system] for judge in sorted(scores)], axis=0)
        for system in order
    }
    resamples = resamples or enough_resamples(max(1, len(order) - 1), correction)
    tests = paired_tests(
        {"HM-CF": over_judges},
        list(pairwise(order)),
        resamples=resamples,
        correction=correction,
        seed=seed,
    )
    tables = [
        _board(places, over_judges, tests, correction, seed),
        _by_judge(places, scores, means, seed),
    ]
    tables += agreement_tables(scores, published, seed=seed)
    _write_submissions(lines, out.folder)
    signatures = {
        judge: str(next(iter(own.values()))[0]["signature"]) for judge, own in lines.items()
    }
    notes = [
        f"{place.name}: place {place.rank} of {len(places)}."
        for place in places
        if place.system in added
    ]
    if not set(JUDGES) <= scores.keys():
        notes.append(
            f"The benchmark's own leaderboard needs results of all its judges: {', '.join(JUDGES)}."
        )
    if any("|seg:punkt@" not in signature for signature in signatures.values()):
        notes.append(
            "The benchmark splits texts into sentences with NLTK's Punkt: --segmenter punkt."
        )
    for judge, own in lines.items():
        split_by = {
            system: {
                str(row["id"]): row.get("segmenter") or "" for row in rows if "error" not in row
            }
            for system, rows in own.items()
        }
        mix = Mix.of(split_by)
        if len(mix.names) > 1:
            notes += mix.sentences(dict.fromkeys(own, signatures[judge]))
    counts = {
        "systems": len(order),
        "judges": len(scores),
        "clips of all systems": len(next(iter(over_judges.values()))),
        "scored": sum(
            "error" not in row for own in lines.values() for rows in own.values() for row in rows
        ),
    }
    options = {
        "rule": RULE,
        "published": source,
        "correction": correction,
        "resamples": resamples,
        "seed": seed,
    }
    signature = "; ".join(f"{judge}: {line}" for judge, line in signatures.items())
    results = Results("clip-cc-bench", signature, options, counts, problems.messages, notes, tables)
    if plots:
        from vcs_experiments.plots import leaderboard_plot

        leaderboard_plot(places, means, out.folder / "leaderboard.png")
    return results, places, means


def _common(lines: Mapping[str, Mapping[str, Sequence[Record]]], problems: Problems) -> Scores:
    """Return the scores of the clips that all judges have scored for all systems, in one order."""
    by_clip = {
        judge: {
            system: {str(row["id"]): row for row in rows if "error" not in row}
            for system, rows in own.items()
        }
        for judge, own in lines.items()
    }
    every = [rows for own in by_clip.values() for rows in own.values()]
    known = list(dict.fromkeys(clip for rows in every for clip in rows))
    common = [clip for clip in known if all(clip in rows for rows in every)]
    if not common:
        none = [
            f"{system} by {judge}"
            for judge, own in by_clip.items()
            for system, rows in own.items()
            if not rows
        ]
        without = f" (none of {', '.join(none)})" if none else ""
        raise InputError(
            f"no clip that all judges have scored for all systems{without}: nothing to rank by"
        )
    if left_out := [clip for clip in known if clip not in common]:
        problems.add(
            f"{len(left_out)} clips lack a score, and are left out of all means:"
            f" {', '.join(left_out)}"
        )
    return {
        judge: {
            name: {
                system: np.array([rows[clip][name] for clip in common])
                for system, rows in own.items()
            }
            for name in _SCORES
        }
        for judge, own in by_clip.items()
    }


def _board(
    places: Sequence[Place],
    values: Mapping[str, Values],
    tests: Sequence[PairedTest],
    correction: str,
    seed: int,
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for place, test in zip_longest(places, tests):
        interval = mean_interval(values[place.system], seed=seed).tolist()
        rows.append(
            (
                place.rank,
                place.name,
                place.borda,
                place.mean_hm_cf,
                *interval,
                place.mean_coarse,
                place.mean_fine,
                *(test_cells(test) if test else [None] * 5),
            )
        )
    columns = (
        "rank",
        "system",
        "Borda",
        "HM-CF",
        "low",
        "high",
        "coarse",
        "fine F1",
        "to the next",
        "to the next low",
        "to the next high",
        "p bootstrap",
        "p permutation",
    )
    corrected = describe_correction(correction, len(tests))
    note = (
        "Means over judges. Intervals are 95 % bootstrap intervals over clips; `to the next` is"
        f" the paired difference of HM-CF to the system below, {corrected}. Rule: {RULE}."
    )
    return Table("leaderboard", "Leaderboard", columns, rows, note)


def _by_judge(
    places: Sequence[Place], scores: Scores, means: Mapping[str, Mapping[str, Means]], seed: int
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for judge, own in scores.items():
        for place in sorted(places, key=lambda place: -place.points[judge]):
            values = {name: by_system[place.system] for name, by_system in own.items()}
            low, high = mean_interval(values["hm_cf"], seed=seed).tolist()
            others = (float(values[name].mean()) for name in _SCORES if name != "hm_cf")
            rows.append(
                (
                    judge,
                    place.name,
                    place.points[judge],
                    means[judge][place.system].hm_cf,
                    low,
                    high,
                    *others,
                )
            )
    labels = (LABELS[name] for name in _SCORES if name != "hm_cf")
    columns = ("judge", "system", "points", LABELS["hm_cf"], "low", "high", *labels)
    return Table(
        "judges", "By judge", columns, rows, "HM-CF with its 95 % bootstrap interval over clips."
    )


def _write_submissions(lines: Mapping[str, Mapping[str, Sequence[Record]]], folder: Path) -> None:
    for judge, own in lines.items():
        (folder / "submission" / judge).mkdir(parents=True, exist_ok=True)
        for system, rows in own.items():
            scored = folder / "scores" / judge / f"{system}.jsonl"
            write_submission(
                folder / "submission" / judge / f"{system}.json", judge, system, rows, scored
            )
