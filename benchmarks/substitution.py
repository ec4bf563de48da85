"""How well substitution sees replaced words, and what it costs (docs/benchmarks/substitution.md).

    python benchmarks/substitution.py DATA [PART...] [--cache FOLDER] [--keep]

DATA holds vcs-eval/ and vatex-eval/ as benchmarks/experiments.py expects them. The parts:

    scenes    rewrites of the scenes: AUC of each kind of wrong rewrite against the valid ones, for VCS and for
              strict scores, with intervals over scenes; named verbs
    hand      replaced_words.json: pairs of our own with one replaced word, and valid rewrites
    cost      time and memory beside VCS, in processes that take turns

Without PART all are run. Tables hold figures and names of kinds, no text of the data.
"""

from __future__ import annotations

import argparse
import difflib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from records import ANY, keep, parser_of
from scipy.stats import rankdata

from vcs_experiments.datasets.texts import Case, Problems, read_cases
from vcs_experiments.vatex import read_vatex
from vcs_runtime import Options, Scorer
from vcs_runtime.scoring.replaced import ReplacedWord, replaced_words
from vcs_runtime.scoring.result import Evidence, Pair, Result
from vcs_runtime.words.english import stem

ALSO = Options(also=("substitution",))
ACTIONS, THINGS, BOTH = "Action Corruption", "Object Corruption", "Object-Action Corruption"
RESAMPLES, SEED = 1000, 20250101
HAND = Path(__file__).with_name("replaced_words.json")

Row = dict[str, Any]
Scored = tuple[Result, Evidence]


def scored(scorer: Scorer, pairs: Iterable[Pair]) -> list[Scored]:
    """Score pairs, all of which must have scores."""
    found = []
    for result, evidence in scorer.iter_evidence(pairs, ALSO):
        assert evidence is not None, result.error
        found.append((result, evidence))
    return found


def row(name: str, scorer: Scorer | None = None, /, **cells: Any) -> Row:
    """A row to be kept, whose cells are texts."""
    told = {
        head.replace("_", " "): f"{cell:.3f}" if isinstance(cell, float) else str(cell)
        for head, cell in cells.items()
    }
    signatures = {"default": scorer.signature_for(ALSO)} if scorer else {}
    return {"workload": name, "cells": told, "signatures": signatures}


def show(title: str, rows: Sequence[Row]) -> None:
    print(f"\n{title}")
    for own in rows:
        print(f"  {own['workload']:<46}", *(f"{head} {cell};" for head, cell in own["cells"].items()))


def auc(wrong: np.ndarray, valid: np.ndarray) -> float:
    """Return how often a valid text scores higher than a wrong one; equal scores count by half."""
    ranks = rankdata(np.concatenate([wrong, valid]))[len(wrong) :]
    return float((ranks.sum() - len(valid) * (len(valid) + 1) / 2) / (len(wrong) * len(valid)))


class Scenes:
    """The scores of the rewrites of the scenes."""

    def __init__(self, cases: Sequence[Case], found: Sequence[Scored]) -> None:
        self.kind = np.array([case.name for case in cases])
        self.valid = np.array([case.valid for case in cases], bool)
        self.scene = np.array([case.scene for case in cases])
        self.vcs = np.array([result.vcs for result, _ in found])
        self.strict = np.array([result.vcs_strict for result, _ in found])
        self.kept = np.array([1 - result.substitution for result, _ in found])
        self.wrong = sorted(set(self.kind[~self.valid]))

    def figures(self, scores: np.ndarray, chosen: np.ndarray | None = None) -> dict[str, float]:
        """The figures of the goals, of chosen texts (indices, which may repeat)."""
        chosen = np.arange(len(scores)) if chosen is None else chosen
        kind, valid, own, vcs = (a[chosen] for a in (self.kind, self.valid, scores, self.vcs))
        apart = {name: auc(own[kind == name], own[valid]) for name in self.wrong}
        worse = min(apart[name] - auc(vcs[kind == name], vcs[valid]) for name in self.wrong)
        return {
            "wrong actions": apart[ACTIONS],
            "wrong objects": apart[THINGS],
            "both": apart[BOTH],
            "all kinds": auc(own[~valid], own[valid]),
            "worst change of a kind": worse,
            "valid lowered by": float((vcs - own)[valid].mean()),
        }


#: The goals: sign (1 for at least, -1 for at most) and limit.
GOALS = {
    "wrong actions": (1, 0.90), "wrong objects": (1, 0.80), "both": (1, 0.97), "all kinds": (1, 0.95),
    "worst change of a kind": (1, -0.01), "valid lowered by": (-1, 0.05),
}  # fmt: skip


def intervals(scenes: Scenes) -> dict[str, tuple[float, float]]:
    """95 % intervals of the figures, by a bootstrap over scenes."""
    draw = np.random.default_rng(SEED)
    members = [np.flatnonzero(scenes.scene == name) for name in sorted(set(scenes.scene))]
    drawn = []
    for _ in range(RESAMPLES):
        chosen = np.concatenate([members[i] for i in draw.integers(len(members), size=len(members))])
        drawn.append(scenes.figures(scenes.strict, chosen))
    return {name: tuple(np.percentile([own[name] for own in drawn], [2.5, 97.5])) for name in GOALS}  # type: ignore[misc]


def shown(evidence: Evidence) -> tuple[ReplacedWord, ...]:
    """The replaced words as `explain` shows them."""
    assert evidence.words is not None
    return replaced_words(evidence.words, *evidence.chunks)


def named(cases: Sequence[Case], found: Sequence[Scored]) -> Row:
    """How many single words that stand for others in texts of wrong actions are shown with the right word."""
    right, any_word = [], []
    for case, (_, evidence) in zip(cases, found, strict=True):
        if case.name != ACTIONS or evidence.words is None:
            continue
        pairs = {(word.reference.lower(), word.generated.lower()) for word in shown(evidence)}
        partners = {generated for _, generated in pairs}
        sides = [[word.form for word in own.lexemes] for own in evidence.words[:2]]
        matcher = difflib.SequenceMatcher(None, *sides, autojunk=False)
        for kind, a, a_end, b, b_end in matcher.get_opcodes():
            if kind == "replace" and a_end - a == b_end - b == 1 and stem(sides[0][a]) != stem(sides[1][b]):
                right.append((sides[0][a], sides[1][b]) in pairs)
                any_word.append(sides[1][b] in partners)
    sample = np.random.default_rng(18).permutation(len(right))[:100]
    of_sample = int(np.array(right)[sample].sum())
    return row(
        "words replaced in texts of wrong actions", words=len(right), named_rightly=float(np.mean(right)),
        of_those_shown=sum(right) / sum(any_word), of_a_sample_of_100=of_sample,
    )  # fmt: skip


def scenes(scorer: Scorer, data: Path) -> dict[str, list[Row]]:
    cases = [case for case in read_cases(data / "vcs-eval", Problems(print)) if case.valid is not None]
    found = scored(scorer, [(case.reference, case.generated) for case in cases])
    own = Scenes(cases, found)
    figures, ranges = own.figures(own.strict), intervals(own)
    before = own.figures(own.vcs)
    goals = [
        row(
            name, scorer, goal=f"{'>=' if sign > 0 else '<='} {limit:g}", VCS=before[name],
            VCS_strict=figures[name], over_scenes="{:.3f} to {:.3f}".format(*ranges[name]),
        )
        for name, (sign, limit) in GOALS.items()
    ]  # fmt: skip
    apart = {
        name: {
            label: auc(scores[own.kind == name], scores[own.valid])
            for label, scores in (
                ("VCS", own.vcs),
                ("VCS strict", own.strict),
                ("1 - substitution", own.kept),
            )
        }
        for name in own.wrong
    }
    wrong = [row(name, scorer, **apart[name]) for name in sorted(apart, key=lambda name: apart[name]["VCS"])]
    valid = []
    for name in sorted(set(own.kind[own.valid])):
        chosen = own.kind == name
        lowered = float((own.vcs - own.strict)[chosen].mean())
        valid.append(
            row(name, scorer, substitution=float(1 - own.kept[chosen].mean()), VCS=float(own.vcs[chosen].mean()),
                lowered_by=lowered)
        )  # fmt: skip
    return {
        "substitution_goals": goals, "substitution_kinds": wrong, "substitution_valid": valid,
        "substitution_named": [named(cases, found)],
    }  # fmt: skip


def hand(scorer: Scorer) -> dict[str, list[Row]]:
    data = json.loads(HAND.read_text("utf-8"))
    texts = data["texts"]
    rows = []
    for kind in dict.fromkeys(own[1] for own in data["replaced"]):
        chosen = [(texts[about], old, new) for about, name, old, new in data["replaced"] if name == kind]
        pairs = [(text, text.replace(old, new, 1)) for text, old, new in chosen]
        found = scored(scorer, pairs)
        seen = sum(
            any(word.generated in new.strip(".").split() for word in shown(evidence))
            for (_, _, new), (_, evidence) in zip(chosen, found, strict=True)
        )
        rows.append(_hand_row(f"one {kind} replaced", scorer, found, seen))
    for kind in dict.fromkeys(own[1] for own in data["valid"]):
        found = scored(scorer, [(texts[about], new) for about, name, new in data["valid"] if name == kind])
        seen = sum(bool(shown(evidence)) for _, evidence in found)
        rows.append(_hand_row(f"valid: {kind}", scorer, found, seen))
    return {"substitution_hand": rows}


def _hand_row(name: str, scorer: Scorer, found: Sequence[Scored], seen: int) -> Row:
    results = [result for result, _ in found]
    return row(
        name, scorer, pairs=len(found), named=seen,
        substitution=float(np.mean([r.substitution for r in results])),
        VCS=float(np.mean([r.vcs for r in results])), VCS_strict=float(np.mean([r.vcs_strict for r in results])),
    )  # fmt: skip


#: Work of `cost`: what is scored, and what was scored before.
WORK = ("new pairs", "known references", "all vectors known", "captions")


def side(data: Path, work: str, options: Options) -> dict[str, float]:
    """Score in this process, and return CPU seconds a pair and the peak of memory in MB."""
    pairs: list[Pair]
    if work == "captions":
        videos = read_vatex(data / "vatex-eval/vatex-eval-300.jsonl", Problems(print))
        pairs = [(video.references[0], text) for video in videos[:100] for text in video.candidates]
    else:
        cases = [case for case in read_cases(data / "vcs-eval", Problems(print)) if case.valid is not None]
        firsts = {case.scene: case for case in cases if case.name == ACTIONS}
        pairs = [(case.reference, case.generated) for case in list(firsts.values())[:24]]
    with Scorer.open(threads=1) as scorer:
        scorer.score("A man opens a door. He leaves.", "A man shuts a window. He sits.", also=options.also)
        if work == "known references":
            list(scorer.iter_scores([(reference, "Nothing happens.") for reference, _ in pairs], options))
        if work == "all vectors known":
            list(scorer.iter_scores(pairs))  # words are new, vectors are not
        started = time.process_time()
        for pair in pairs if work == "known references" else [pairs]:
            list(scorer.iter_scores([pair] if work == "known references" else pair, options))  # type: ignore[arg-type, list-item]
        seconds = (time.process_time() - started) / len(pairs)
    return {"ms": seconds * 1e3, "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def cost(data: Path, rounds: int) -> dict[str, list[Row]]:
    rows = []
    for work in WORK:
        measured: dict[str, list[dict[str, float]]] = {"plain": [], "with": []}
        for _ in range(rounds):
            for name, figures in measured.items():
                call = [sys.executable, __file__, str(data), "--side", work, name]
                done = subprocess.run(call, capture_output=True, text=True, check=True)
                figures.append(json.loads(done.stdout.splitlines()[-1]))
        plain, with_it = (min(own["ms"] for own in measured[name]) for name in ("plain", "with"))
        memory = [max(own["MB"] for own in measured[name]) for name in ("plain", "with")]
        rows.append(row(
            work, **{
                "ms a pair": f"{plain:.2f}", "with substitution": f"{with_it:.2f}",
                "more time": f"{(with_it / plain - 1) * 100:.1f} %" if with_it < 2 * plain else f"{with_it - plain:.2f} ms", "peak memory": f"{memory[0]:.0f} MB",
                "its peak": f"{memory[1]:.0f} MB",
            },
        ))  # fmt: skip
    return {"substitution_cost": rows}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the cost")
    parser.add_argument("--side", nargs=2, metavar=("WORK", "SIDE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        work, name = options.side
        print(json.dumps(side(options.data, work, ALSO if name == "with" else Options())))
        return
    with Scorer.open(device="cpu", cache=options.cache) as scorer:
        parts: dict[str, Callable[[], dict[str, list[Row]]]] = {
            "scenes": lambda: scenes(scorer, options.data),
            "hand": lambda: hand(scorer),
            "cost": lambda: cost(options.data, options.rounds),
        }
        if unknown := set(options.parts) - parts.keys():
            parser.error(f"no such part: {', '.join(sorted(unknown))}")
        for name in options.parts or parts:
            for script, rows in parts[name]().items():
                show(script, rows)
                if options.keep:
                    print(keep(script, rows, place=None if name == "cost" else ANY))


if __name__ == "__main__":
    main()
