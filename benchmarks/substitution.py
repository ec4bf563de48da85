"""How well substitution finds replaced words (docs/benchmarks/explanations.md).

    python benchmarks/substitution.py DATA [PART...] [--cache FOLDER] [--keep]

DATA contains vcs-eval/ as benchmarks/experiments.py expects it, more scenes in vcs-eval-159/, and
clip-cc/ as benchmarks/pairs.py expects it. The parts are:

    scenes    rewrites of the scenes: AUC of each kind of wrong rewrite against the valid ones, for VCS and for strict
              scores, with intervals over scenes; also the named verbs. Of the scenes in vcs-eval-159, sorted by
              number, the first, third and so on were used for tuning, and the others are blind
    planted   outputs of models, and copies of these outputs with three wrong verbs
    hand      replaced_words.json: our own pairs with one replaced word, and valid rewrites

Without PART, all parts run. Tables contain figures and names of kinds, and no text of the data.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from pairs import clip_cc
from records import ANY, keep, parser_of
from scipy.stats import rankdata

from vcs_experiments.datasets.texts import Case, Problems, read_cases
from vcs_runtime import Options, Scorer
from vcs_runtime.scoring.replaced import ReplacedWord, replaced_words, surest
from vcs_runtime.scoring.result import Evidence, Pair, Result
from vcs_runtime.words.english import stem
from vcs_runtime.words.reading import lexeme, read_words

ALSO = Options(also=("substitution",))
ACTIONS, THINGS, BOTH = "Action Corruption", "Object Corruption", "Object-Action Corruption"
SYNONYMS = "Synonym Substitution"
SETS = ("blind", "tuned", "seen")
RESAMPLES, SEED = 1000, 20250101
INTERVAL, LOSING = "95 % interval", "share that loses more than .05"
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
    """A row of figures, whose cells are texts."""
    texts = {}
    for head, cell in cells.items():
        texts[head.replace("_", " ")] = f"{cell:.3f}" if isinstance(cell, float) else str(cell)
    signatures = {"default": scorer.signature_for(ALSO)} if scorer else {}
    return {"workload": name, "cells": texts, "signatures": signatures}


def show(title: str, rows: Sequence[Row]) -> None:
    print(f"\n{title}")
    for each in rows:
        cells = [f"{head} {cell};" for head, cell in each["cells"].items()]
        print(f"  {each['workload']:<46}", *cells)


def auc(wrong: np.ndarray, valid: np.ndarray) -> float:
    """Return how often a valid text scores higher than a wrong one; equal scores count half."""
    ranks = rankdata(np.concatenate([wrong, valid]))[len(wrong) :]
    return float((ranks.sum() - len(valid) * (len(valid) + 1) / 2) / (len(wrong) * len(valid)))


class Scenes:
    """The scores of the rewrites of some scenes."""

    def __init__(self, scorer: Scorer, cases: Sequence[Case]) -> None:
        self.cases = cases
        self.found = scored(scorer, [(case.reference, case.generated) for case in cases])
        self.kind = np.array([case.name for case in cases])
        self.valid = np.array([case.valid for case in cases], bool)
        scenes = np.array([case.scene for case in cases])
        self.members = [np.flatnonzero(scenes == name) for name in dict.fromkeys(scenes)]
        self.vcs = np.array([result.vcs for result, _ in self.found])
        self.strict = np.array([result.vcs_strict for result, _ in self.found])
        self.wrong = sorted(set(self.kind[~self.valid]))

    def apart(self, scores: np.ndarray, chosen: Any = slice(None)) -> dict[str, float]:
        """The AUC of each wrong kind, of chosen texts (indices, which may repeat)."""
        kind, valid, own = self.kind[chosen], self.valid[chosen], scores[chosen]
        return {name: auc(own[kind == name], own[valid]) for name in self.wrong}

    def figures(self, scores: np.ndarray, chosen: Any = slice(None)) -> dict[str, float]:
        """The figures of the goals, of chosen texts."""
        apart, before = self.apart(scores, chosen), self.apart(self.vcs, chosen)
        own, valid = scores[chosen], self.valid[chosen]
        lowered = (self.vcs - scores)[chosen][self.kind[chosen] == SYNONYMS]
        figures = apart[ACTIONS], apart[THINGS], apart[BOTH], auc(own[~valid], own[valid])
        worst = min(apart[name] - before[name] for name in self.wrong)
        return dict(
            zip(GOALS, (*figures, worst, lowered.mean(), (lowered > 0.05).mean()), strict=True)
        )

    def intervals(self, of: Callable[[np.ndarray, Any], dict[str, float]]) -> dict[str, str]:
        """95 % intervals of figures of the strict scores, by a bootstrap over scenes."""
        draw, count = np.random.default_rng(SEED), len(self.members)
        drawn = []
        for _ in range(RESAMPLES):
            members = [self.members[i] for i in draw.integers(count, size=count)]
            drawn.append(of(self.strict, np.concatenate(members)))
        intervals = {}
        for name in drawn[0]:
            low, high = np.percentile([figures[name] for figures in drawn], [2.5, 97.5])
            intervals[name] = f"{low:.3f} to {high:.3f}"
        return intervals


GOALS = {
    "AUC: wrong actions": ">= 0.92",
    "AUC: wrong objects": ">= 0.86",
    "AUC: wrong actions and objects": ">= 0.97",
    "AUC: all wrong kinds": ">= 0.96",
    "worst change of the AUC of a kind": ">= -0.01",
    "synonyms: mean loss of VCS": "<= 0.02",
    "synonyms: share that loses more than .05": "<= 0.1",
}


def shown(evidence: Evidence) -> tuple[ReplacedWord, ...]:
    """The replaced words as `explain` shows them."""
    assert evidence.words is not None
    return replaced_words(evidence.words, *evidence.chunks)


def named(own: Scenes) -> dict[str, Any]:
    """How many single words that stand for others in texts of wrong actions are shown with the
    right word.

    Of the surest 20, which people see, it is how many stand where the texts differ.
    """
    right, any_word, listed = [], [], []
    for case, (_, evidence) in zip(own.cases, own.found, strict=True):
        if case.name != ACTIONS or evidence.words is None:
            continue
        every = shown(evidence)
        pairs = {(word.reference.lower(), word.generated.lower()) for word in every}
        partners = {generated for _, generated in pairs}
        a, b = ([word.form for word in text.lexemes] for text in evidence.words[:2])
        differing = set()
        for kind, i, end, j, stop in difflib.SequenceMatcher(
            None, a, b, autojunk=False
        ).get_opcodes():
            if kind == "replace":
                differing |= set(product(a[i:end], b[j:stop]))
                if end - i == stop - j == 1 and stem(a[i]) != stem(b[j]):
                    right.append((a[i], b[j]) in pairs)
                    any_word.append(b[j] in partners)
        listed += [
            (lexeme(w.reference).form, lexeme(w.generated).form) in differing for w in surest(every)
        ]
    return {
        "words": len(right),
        "named rightly": float(np.mean(right)),
        "right of those shown": sum(right) / sum(any_word),
        "right of the 20 listed": float(np.mean(listed)),
    }


def halves(data: Path) -> dict[str, list[Case]]:
    """The scenes that were never seen, those that were tuned on, and those that were seen first."""
    further = labelled(data / "vcs-eval-159")
    tuned = set(sorted({case.scene for case in further}, key=int)[::2])
    return {
        "blind": [case for case in further if case.scene not in tuned],
        "tuned": [case for case in further if case.scene in tuned],
        "seen": labelled(data / "vcs-eval"),
    }


def labelled(folder: Path) -> list[Case]:
    """The rewrites of a folder that are valid or wrong; none if there is no folder."""
    if not folder.is_dir():
        return []
    return [case for case in read_cases(folder, Problems(print)) if case.valid is not None]


def scenes(scorer: Scorer, data: Path, names: Sequence[str]) -> dict[str, list[Row]]:
    sets = {
        name: Scenes(scorer, cases)
        for name, cases in halves(data).items()
        if cases and name in names
    }
    label, own = next(iter(sets.items()))
    before, ranges = own.figures(own.vcs), own.intervals(own.figures)
    every = {
        f"strict VCS, {len(each.members)} {name}": each.figures(each.strict)
        for name, each in sets.items()
    }
    goals = [
        row(
            name,
            scorer,
            **{
                "goal": goal,
                f"VCS, {label}": before[name],
                **{head: own[name] for head, own in every.items()},
                f"95 % interval, {label}": ranges[name],
            },
        )
        for name, goal in GOALS.items()
    ]
    vcs, strict, ranges = own.apart(own.vcs), own.apart(own.strict), own.intervals(own.apart)
    wrong = [
        row(name, scorer, VCS=vcs[name], VCS_strict=strict[name], **{INTERVAL: ranges[name]})
        for name in sorted(vcs, key=lambda name: vcs[name])
    ]
    valid = []
    for name in sorted(set(own.kind[own.valid])):
        before, lowered = (a[own.kind == name] for a in (own.vcs, own.vcs - own.strict))
        many = float((lowered > 0.05).mean())
        loss = float(lowered.mean())
        valid.append(row(name, scorer, VCS=float(before.mean()), mean_loss=loss, **{LOSING: many}))
    return {
        "substitution_goals": goals,
        "substitution_kinds": wrong,
        "substitution_valid": valid,
        "substitution_named": [row(f"{name} scenes", **named(each)) for name, each in sets.items()],
    }


#: Verbs that do not occur in films. Each gets the ending of the verb that it replaces.
PLANTED = "bark climb hammer iron juggle kick knead launder lick measure paint peel repair sew weigh yawn".split()


def plant(text: str, draw: np.random.Generator) -> str | None:
    """Put three wrong verbs in the places of different verbs of a text; None for a text with
    fewer."""
    words = read_words([text])
    scores = words.class_scores
    places: dict[str, tuple[int, int, str]] = {}
    for i, word in enumerate(words.lexemes):
        ending = next((end for end in ("ing", "ed", "s") if word.form.endswith(end)), "")
        if ending and scores[i, 1] > scores[i, [0, 2]].max() + 1 and not words.is_name[i]:
            places.setdefault(word.stem, (words.start[i], words.stop[i], ending))
    if len(places) < 3:
        return None
    chosen = [list(places.values())[k] for k in draw.choice(len(places), 3, replace=False)]
    for (start, stop, ending), verb in sorted(zip(chosen, draw.permutation(PLANTED), strict=False))[
        ::-1
    ]:
        base = verb.removesuffix("e") if ending != "s" else verb
        text = f"{text[:start]}{base}{ending}{text[stop:]}"
    return text


def planted(scorer: Scorer, data: Path, every: int) -> dict[str, list[Row]]:
    draw = np.random.default_rng(SEED)
    pairs = []  # of each text, followed by its copy with wrong verbs
    for output in list(clip_cc(data / "clip-cc"))[::every]:
        reference, text = output["reference"], output["generated"]
        wrong = plant(text, draw)
        if text and wrong:
            pairs += [(reference, text), (reference, wrong)]
    results = [result for result, _ in scored(scorer, pairs)]
    rows = []
    for name in ("vcs", "las", "margin", "margin_strict"):
        before, after = np.array([getattr(result, name) for result in results]).reshape(-1, 2).T
        higher = np.where(before == after, 0.5, before > after)
        ends = higher.mean() + 1.96 * higher.std() / len(higher) ** 0.5 * np.array([-1, 1])
        rows.append(
            row(
                name,
                scorer,
                texts=len(before),
                AUC=float(higher.mean()),
                **{INTERVAL: "{:.3f} to {:.3f}".format(*ends)},
                equal_scores=float((before == after).mean()),
                AUC_between_outputs=auc(after, before),
            )
        )
    return {"substitution_planted": rows}


def hand(scorer: Scorer) -> dict[str, list[Row]]:
    data = json.loads(HAND.read_text("utf-8"))
    texts = data["texts"]
    rows = []
    for kind in dict.fromkeys(own[1] for own in data["replaced"]):
        chosen = [
            (texts[about], old, new) for about, name, old, new in data["replaced"] if name == kind
        ]
        pairs = [(text, text.replace(old, new, 1)) for text, old, new in chosen]
        found = scored(scorer, pairs)
        seen = sum(
            any(word.generated in new.strip(".").split() for word in shown(evidence))
            for (_, _, new), (_, evidence) in zip(chosen, found, strict=True)
        )
        rows.append(_hand_row(f"one {kind} replaced", scorer, found, seen))
    for kind in dict.fromkeys(own[1] for own in data["valid"]):
        found = scored(
            scorer, [(texts[about], new) for about, name, new in data["valid"] if name == kind]
        )
        seen = sum(bool(shown(evidence)) for _, evidence in found)
        rows.append(_hand_row(f"valid: {kind}", scorer, found, seen))
    return {"substitution_hand": rows}


def _hand_row(name: str, scorer: Scorer, found: Sequence[Scored], seen: int) -> Row:
    results = [result for result, _ in found]
    return row(
        name,
        scorer,
        pairs=len(found),
        pairs_with_named_words=seen,
        substitution=float(np.mean([r.substitution for r in results])),
        VCS=float(np.mean([r.vcs for r in results])),
        VCS_strict=float(np.mean([r.vcs_strict for r in results])),
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--cache", type=Path)
    parser.add_argument(
        "--sets", nargs="+", default=SETS, choices=SETS, help="sets of scenes [default: all]"
    )
    parser.add_argument(
        "--every", type=int, default=1, help="use only every N-th output [default: 1]"
    )
    options = parser.parse_args()
    with Scorer.open(device="cpu", cache=options.cache) as scorer:
        parts: dict[str, Callable[[], dict[str, list[Row]]]] = {
            "scenes": lambda: scenes(scorer, options.data, options.sets),
            "planted": lambda: planted(scorer, options.data, options.every),
            "hand": lambda: hand(scorer),
        }
        if unknown := set(options.parts) - parts.keys():
            parser.error(f"no such part: {', '.join(sorted(unknown))}")
        for name in options.parts or parts:
            for script, rows in parts[name]().items():
                show(script, rows)
                if options.keep:
                    print(keep(script, rows, place=ANY))


if __name__ == "__main__":
    main()
