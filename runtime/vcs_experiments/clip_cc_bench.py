"""The CLIP-CC-Bench leaderboard with other judges: all systems and judges, one resumable job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from typing import Final

import numpy as np

from vcs_experiments.agreement import Scores, agreement_tables
from vcs_experiments.datasets.clip_cc import JUDGES, read_published, rounded, write_submission
from vcs_experiments.datasets.texts import Problems, read_descriptions
from vcs_experiments.leaderboard import RULE, Means, Place, leaderboard
from vcs_experiments.rank import Texts, read_models, usable_predictions
from vcs_experiments.results import Output, Results
from vcs_experiments.statistics import Significance
from vcs_runtime.comparing.statistics import Values
from vcs_runtime.comparing.systems import PairedTest, enough_resamples, paired_tests
from vcs_runtime.comparing.tables import NEXT_COLUMNS, Cell, Table, describe_correction, test_cells
from vcs_runtime.errors import BundleError, CacheError, DeviceError, InputError
from vcs_runtime.jobs import run as jobs
from vcs_runtime.jobs.bootstrap import mean_interval
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
Lines = Mapping[str, Mapping[str, Sequence[Record]]]
"""Lines of the score files, by judge, then by system."""


def read_texts(
    references: Path, predictions: Path, added: Sequence[Path], problems: Problems
) -> tuple[Texts, Systems]:
    """Read the references and all predictions by system, `added` files included.

    A clip that no system describes is left out silently: the benchmark lacks the predictions of one
    clip.
    """
    texts = read_descriptions(references, problems)
    described: set[str] = set()
    for predicted in read_models(predictions, texts, Problems()).values():
        described.update(predicted)
    texts = {clip: text for clip, text in texts.items() if clip in described}
    systems = read_models(predictions, texts, problems)
    for path in added:
        if path.stem.lower() in map(str.lower, systems):
            raise InputError(f"{path}: a system is already called {path.stem}: rename the file")
        added_texts = read_descriptions(path, problems, predictions=True)
        systems[path.stem] = usable_predictions(added_texts, texts)
        missing = sorted(texts.keys() - added_texts.keys())
        if missing:
            problems.add(
                f"{path}: there is no prediction for {len(missing)} of the clips, such as"
                f" {missing[0]}"
            )
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
    pairs: dict[str, tuple[InputPair, ...]] = {}
    for system, predicted in systems.items():
        clips = [clip for clip in references if clip in predicted]
        pairs[system] = tuple(
            InputPair(clip, clip, references[clip], predicted[clip]) for clip in clips
        )
    lines: dict[str, dict[str, list[Record]]] = {}
    with progress_bar(len(judges) * sum(map(len, pairs.values()))):
        for judge, opened in judges.items():
            name_step(f"opening {judge}")
            folder = out.folder / "scores" / judge
            folder.mkdir(parents=True, exist_ok=True)
            try:
                with opened() as scorer:
                    lines[judge] = {}
                    for system, listed in pairs.items():
                        named = _Pairs(f"{judge}, {system}", listed, sources)
                        path = folder / f"{system}.jsonl"
                        lines[judge][system] = _score(scorer, named, path, out, problems)
            except (BundleError, CacheError, DeviceError) as error:
                raise type(error)(
                    f"judge {judge}: {error}; finished output is kept: continue with --resume"
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
    lines: Lines,
    out: Output,
    problems: Problems,
    significance: Significance,
    *,
    added: Sequence[str] = (),
    plots: bool = False,
) -> tuple[Results, list[Place], dict[str, dict[str, Means]]]:
    """Rank the systems, and write the files for the benchmark.

    Means are over the clips that all judges have scored for all systems.
    """
    scores = _common(lines, problems)
    means = _rounded_means(scores)
    published, names, source = read_published(None)
    places = leaderboard(means, names)
    order = [place.system for place in places]
    over_judges: dict[str, Values] = {}
    for system in order:
        by_judge = [scores[judge]["hm_cf"][system] for judge in sorted(scores)]
        over_judges[system] = np.mean(by_judge, axis=0)

    correction, seed = significance.correction, significance.seed
    number = max(1, len(order) - 1)
    resamples = significance.resamples or enough_resamples(number, correction)
    tests = paired_tests(
        {"HM-CF": over_judges},
        list(pairwise(order)),
        resamples=resamples,
        correction=correction,
        seed=seed,
    )
    tables = [
        _board(places, over_judges, tests, significance),
        _by_judge(places, scores, means, seed),
    ]
    tables += agreement_tables(scores, published, seed=seed)
    _write_submissions(lines, out.folder)

    signatures = _signatures(lines)
    counts = {
        "systems": len(order),
        "judges": len(scores),
        "clips of all systems": len(next(iter(over_judges.values()))),
        "scored": _scored_count(lines),
    }
    options = {
        "rule": RULE,
        "published": source,
        "correction": correction,
        "resamples": resamples,
        "seed": seed,
    }
    notes = _notes(lines, places, signatures, added)
    signature = "; ".join(f"{judge}: {line}" for judge, line in signatures.items())
    results = Results("clip-cc-bench", signature, options, counts, problems.messages, notes, tables)
    if plots:
        from vcs_experiments.plots import leaderboard_plot

        leaderboard_plot(places, means, out.folder / "leaderboard.png")
    return results, places, means


def _rounded_means(scores: Scores) -> dict[str, dict[str, Means]]:
    """Return the means by judge and system, rounded as in the benchmark's files."""
    means: dict[str, dict[str, Means]] = {}
    for judge, by_score in scores.items():
        means[judge] = {}
        for system in by_score["hm_cf"]:
            values = [rounded(by_score[name][system].tolist()) for name in Means._fields]
            means[judge][system] = Means(*values)
    return means


def _signatures(lines: Lines) -> dict[str, str]:
    """Return the signature of each judge."""
    signatures = {}
    for judge, by_system in lines.items():
        first = next(iter(by_system.values()))[0]
        signatures[judge] = str(first["signature"])
    return signatures


def _scored_count(lines: Lines) -> int:
    """Count the pairs with a score, of all judges and systems."""
    count = 0
    for by_system in lines.values():
        for rows in by_system.values():
            count += len(_scored_rows(rows))
    return count


def _scored_rows(rows: Sequence[Record]) -> list[Record]:
    return [row for row in rows if "error" not in row]


def _notes(
    lines: Lines, places: Sequence[Place], signatures: Mapping[str, str], added: Sequence[str]
) -> list[str]:
    """Return the places of added systems, and how the run differs from the benchmark."""
    notes = [
        f"{place.name} is number {place.rank} of {len(places)} systems."
        for place in places
        if place.system in added
    ]
    if not set(JUDGES) <= lines.keys():
        notes.append(
            "The benchmark's leaderboard is left out: it needs results of all its judges:"
            f" {', '.join(JUDGES)}."
        )
    if any("|seg:punkt@" not in signature for signature in signatures.values()):
        notes.append(
            "The benchmark splits texts into sentences with NLTK's Punkt: --segmenter punkt."
        )
    for judge, by_system in lines.items():
        segmenters: dict[str, dict[str, str]] = {}  # by system, then by clip
        for system, rows in by_system.items():
            scored = _scored_rows(rows)
            segmenters[system] = {str(row["id"]): row.get("segmenter") or "" for row in scored}
        mix = Mix.of(segmenters)
        if len(mix.names) > 1:
            notes += mix.sentences(dict.fromkeys(by_system, signatures[judge]))
    return notes


def _common(lines: Lines, problems: Problems) -> Scores:
    """Return the scores of the clips that all judges have scored for all systems, in one order."""
    by_clip: dict[str, dict[str, dict[str, Record]]] = {}
    for judge, by_system in lines.items():
        by_clip[judge] = {}
        for system, rows in by_system.items():
            by_clip[judge][system] = {str(row["id"]): row for row in _scored_rows(rows)}
    every = [rows for by_system in by_clip.values() for rows in by_system.values()]
    known = list(dict.fromkeys(chain.from_iterable(every)))
    common = [clip for clip in known if all(clip in rows for rows in every)]
    if not common:
        raise InputError(
            "the systems cannot be ranked, because no clip has scores of all judges for all"
            f" systems{_without_scores(by_clip)}"
        )
    incomplete = [clip for clip in known if clip not in common]
    if incomplete:
        problems.add(
            f"clips left out of all means, because a score is missing: {', '.join(incomplete)}"
        )
    scores: dict[str, dict[str, dict[str, Values]]] = {}
    for judge, clips_by_system in by_clip.items():
        scores[judge] = {}
        for name in _SCORES:
            values = scores[judge][name] = {}
            for system, clips in clips_by_system.items():
                values[system] = np.array([clips[clip][name] for clip in common])
    return scores


def _without_scores(by_clip: Mapping[str, Mapping[str, Mapping[str, Record]]]) -> str:
    """Name the systems without any score, in brackets; "" if all have one."""
    names = []
    for judge, by_system in by_clip.items():
        names += [f"{system} by {judge}" for system, rows in by_system.items() if not rows]
    return f" ({', '.join(names)} have no scores)" if names else ""


def _board(
    places: Sequence[Place],
    values: Mapping[str, Values],
    tests: Sequence[PairedTest],
    significance: Significance,
) -> Table:
    """Make the leaderboard, with the tests between neighbours."""
    rows: list[tuple[Cell, ...]] = []
    for place, test in zip_longest(places, tests):
        row: list[Cell] = [place.rank, place.name, place.borda, place.mean_hm_cf]
        row += mean_interval(values[place.system], seed=significance.seed).tolist()
        row += [place.mean_coarse, place.mean_fine]
        row += test_cells(test)
        rows.append(tuple(row))
    columns = (
        "rank",
        "system",
        "Borda",
        "HM-CF",
        "low",
        "high",
        "coarse",
        "fine F1",
        *NEXT_COLUMNS,
    )
    corrected = describe_correction(significance.correction, len(tests))
    note = (
        "Means over judges. Intervals are 95 % bootstrap intervals over clips. `to the next` is"
        f" the paired difference in HM-CF from the system below, {corrected}. Rule: {RULE}."
    )
    return Table("leaderboard", "Leaderboard", columns, rows, note)


def _by_judge(
    places: Sequence[Place], scores: Scores, means: Mapping[str, Mapping[str, Means]], seed: int
) -> Table:
    """Make the table of systems by judge, the best system first."""
    others = [name for name in _SCORES if name != "hm_cf"]
    rows: list[tuple[Cell, ...]] = []
    for judge, by_score in scores.items():
        for place in sorted(places, key=lambda place: -place.points[judge]):
            system = place.system
            row: list[Cell] = [judge, place.name, place.points[judge], means[judge][system].hm_cf]
            row += mean_interval(by_score["hm_cf"][system], seed=seed).tolist()
            row += [float(by_score[name][system].mean()) for name in others]
            rows.append(tuple(row))
    labels = [LABELS[name] for name in others]
    columns = ("judge", "system", "points", LABELS["hm_cf"], "low", "high", *labels)
    return Table(
        "judges", "By judge", columns, rows, "HM-CF with its 95 % bootstrap interval over clips."
    )


def _write_submissions(lines: Lines, folder: Path) -> None:
    for judge, by_system in lines.items():
        submissions = folder / "submission" / judge
        submissions.mkdir(parents=True, exist_ok=True)
        for system, rows in by_system.items():
            scored = folder / "scores" / judge / f"{system}.jsonl"
            write_submission(submissions / f"{system}.json", judge, system, rows, scored)
