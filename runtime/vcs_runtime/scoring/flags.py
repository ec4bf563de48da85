"""Why a VCS is 0, and whether order could be judged (docs/reference/vcs.md, section 13)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vcs_runtime.scoring.score_table import LABELS
from vcs_runtime.util.printable import counted, enumerated, printable

ORDER_UNDEFINED: Final = "order_undefined"
SINGLE_CHUNKS: Final = "single_chunks"
ZERO_CONTENT: Final = "zero_content"
ZERO_ORDER: Final = "zero_order"
BELOW_GATE: Final = "below_gate"
NOT_SPLIT: Final = "not_split"

#: A sentence with more words, or more characters where a script has no spaces, is suspicious beside
#: several sentences of the other text.
MANY_WORDS: Final = 40
MANY_CHARACTERS: Final = 300
_UNSPLIT: Final = (
    f"one text counts as a single sentence, although it has more than {MANY_WORDS} words or is over"
    " half as long as the sentences of the other text together"
)

#: The meaning of each flag.
FLAGS: Final = {
    ORDER_UNDEFINED: (
        "VCS is 0 by definition: the numbers of chunks are too small or too different for an order"
    ),
    SINGLE_CHUNKS: "each text is one chunk without an order; VCS restates the cosine of the texts",
    ZERO_CONTENT: "VCS is 0 because the texts share too little: SAS is 0",
    ZERO_ORDER: "VCS is 0 because the order is no better than chance: NAS is 0",
    BELOW_GATE: "VCS is 0 because content and order together stay below 1: SAS + NAS <= 1",
    NOT_SPLIT: _UNSPLIT,
}
_CAUSE: Final = (
    "Likely cause: missing sentence punctuation, or one very long sentence."
    " Try --segmenter learned, or --short for captions of a few words."
)
#: The flags of pairs whose order could not be judged.
NOT_JUDGED: Final = (ORDER_UNDEFINED, SINGLE_CHUNKS)
#: The reasons for a VCS of 0.
ZEROS: Final = (BELOW_GATE, ZERO_ORDER, ZERO_CONTENT, ORDER_UNDEFINED)


def scores_to_report(zeros: int, pairs: int) -> tuple[str, ...]:
    """Return the scores to report, the main one first.

    VCS does not rank pairs if more than half of them have a VCS of 0. A table of several systems
    counts the pairs of all systems.
    """
    return ("margin", "gas", "las") if 2 * zeros > pairs else ("vcs", "margin")


def what_to_report(zeros: int, pairs: int, follows: bool = False) -> str:
    """Return a sentence on the scores to report and the reason (docs/guide/reading-scores.md).

    It names the number of zeros, unless it `follows` a sentence with this number.
    """
    if pairs == 1:
        return f"Report {'margin, GAS and LAS' if zeros else 'VCS and margin'}."
    if not zeros:
        return "No pair has a VCS of 0. Report VCS and margin."
    share = "" if follows else f"{_have_zero(zeros, pairs)}. "
    if 2 * zeros > pairs:
        weak = "margin, GAS and LAS (default options), and how many pairs are 0"
        return f"{share}This is more than half, so report {weak}."
    return f"{share}This is at most half, so report VCS and margin."


# The part of a signature that makes scores comparable with `POINTS`, without digits of hashes and
# versions.
_MEASURED: Final = (
    "|chunk:1|lct:0|ctx:0.6/4|seg:sentencex+boundary-en|cut:0.55/118/fp32|emb:all-minilm-l6-v2"
    "|long:window_mean/256|prec:fp32|engine:"
)
#: Means of the default model (docs/guide/reading-scores.md). Retellings are pairs with author A2
#: alone, by `benchmarks/agreement.py`, because the other authors' texts are often copies.
POINTS: Final = {
    "another film": {"vcs": 0.0, "margin": -0.684, "gas": 0.619, "las": 0.412, "nas": 0.149},
    "a language model's retelling": {
        "vcs": 0.687,
        "margin": 0.588,
        "gas": 0.890,
        "las": 0.665,
        "nas": 0.756,
    },
}


def points_for(signatures: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return the means of `POINTS` if scores of all these signatures are comparable, else {}."""
    for signature in signatures:
        plain = re.sub(r"@[^|+]*|\|(also|words):[^|]*", "", signature)
        if _MEASURED not in plain:
            return {}
    return POINTS


def reference_points(signature: str) -> str:
    """Return a sentence with the margins of `POINTS`, or "" if the settings are different.

    `POINTS` were measured with one group of settings, which `signature` must match.
    """
    points = points_for([signature])
    if not points:
        return ""
    film = points["another film"]["margin"]
    retold = points["a language model's retelling"]["margin"]
    return (
        f"For comparison: texts about another film have a mean margin of {film:.3f}, and language"
        f" models' retellings of the same scene {retold:.3f}."
    )


def beside_points(means: Mapping[str, float], score: str, signatures: Iterable[str]) -> str:
    """Return sentences on which systems have means below or above all of `POINTS`.

    The result is "" if there is no such system, or if `POINTS` do not fit the signatures.
    """
    points = {
        scores[score]: name for name, scores in points_for(signatures).items() if score in scores
    }
    if not points:
        return ""
    lowest, highest = min(points), max(points)
    below = [system for system, mean in means.items() if mean < lowest]
    above = [system for system, mean in means.items() if mean > highest]
    sentences = []
    for systems, where, point in ((below, "below", lowest), (above, "above", highest)):
        if systems:
            have = "has" if len(systems) == 1 else "have"
            place = f"{points[point]} ({LABELS[score]} {point:.3f})"
            sentences.append(f"{enumerated(systems)} {have} a mean {where} {place}.")
    return " ".join(sentences)


def flags_of_texts(
    reference: Sequence[str], generated: Sequence[str], chunk_size: int
) -> tuple[str, ...]:
    """Return the flags that the chunks of a pair show, and its scores do not: `NOT_SPLIT` or none.

    A chunk of several sentences may have as many times the words.
    """
    fewer, more = sorted((reference, generated), key=len)
    if len(fewer) != 1 or len(more) < 2:
        return ()
    [text] = fewer
    many = len(text) > MANY_CHARACTERS * chunk_size or len(text.split()) > MANY_WORDS * chunk_size
    # As where semicolons join what three or more sentences of the other text say.
    as_long = len(more) > 2 and 2 * len(text) > sum(map(len, more))
    return (NOT_SPLIT,) if many or as_long else ()


def flags_of(
    scores: Mapping[str, float], n_ref: int, n_gen: int, noted: Collection[str] = ()
) -> tuple[str, ...]:
    """Return a pair's flags (facts that the scores do not show): keys of `FLAGS`, in their order.

    `scores` has at least vcs, sas, nas and window_regularizer. A VCS of 0 has at least one of
    `ZEROS`. `noted` has the flags of `flags_of_texts`, or all flags of a record.
    """
    undefined = scores["window_regularizer"] >= 1.0
    zero = scores["vcs"] <= 0.0
    content, order = scores["sas"] > 0.0, scores["nas"] > 0.0
    holds = {
        ORDER_UNDEFINED: undefined,
        SINGLE_CHUNKS: n_ref == n_gen == 1,
        ZERO_CONTENT: zero and not content,
        ZERO_ORDER: zero and not order and not undefined,
        BELOW_GATE: zero and content and order,
        NOT_SPLIT: NOT_SPLIT in noted,
    }
    return tuple(name for name in FLAGS if holds[name])


def judged(flags: Iterable[str]) -> bool:
    """Whether the order of a pair with these flags could be judged."""
    return not any(name in NOT_JUDGED for name in flags)


def describe(
    scores: Mapping[str, float], n_ref: int, n_gen: int, noted: Collection[str] = ()
) -> str:
    """Explain the flags of a pair; "" if it has none. Parameters as for `flags_of`."""
    sentences = [_described(scores, n_ref, n_gen)]
    if NOT_SPLIT in noted:
        sentences.append(f"Here {_UNSPLIT}. {_CAUSE}")
    return " ".join(filter(None, sentences))


def _described(scores: Mapping[str, float], n_ref: int, n_gen: int) -> str:
    """Explain the flags that follow from the scores of a pair; "" if it has none."""
    flags = flags_of(scores, n_ref, n_gen)
    sas, nas, margin = scores["sas"], scores["nas"], scores["margin"]
    if ORDER_UNDEFINED in flags:
        return (
            f"VCS is 0 by definition: with {n_ref} and {n_gen} chunks order cannot be judged. "
            f"Content can be judged: GAS {scores['gas']:z.3f}, LAS {scores['las']:z.3f}."
        )
    if ZERO_CONTENT in flags and ZERO_ORDER in flags:
        text = (
            "VCS is 0 because the texts share too little and order is no better than chance (SAS 0,"
            " NAS 0)"
        )
    elif ZERO_CONTENT in flags:
        text = f"VCS is 0 because the texts share too little (SAS 0, NAS {nas:.3f})"
    elif ZERO_ORDER in flags:
        text = f"VCS is 0 because the order is no better than chance (NAS 0, SAS {sas:.3f})"
    elif BELOW_GATE in flags:
        text = (
            f"VCS is 0 because content (SAS {sas:.3f}) and order (NAS {nas:.3f}) together stay"
            " below 1"
        )
    elif SINGLE_CHUNKS in flags:
        return "Each text is one chunk without an order: VCS restates the cosine of the two texts."
    else:
        return ""
    return f"{text}. The margin is {margin:z.3f}."


@dataclass
class FlagCounts:
    """Numbers of pairs whose VCS is 0, with the reasons, and of pairs that could not be judged."""

    scored: int = 0
    zeros: int = 0
    not_judged: int = 0  # pairs with a flag of `NOT_JUDGED`
    flags: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, ...]] = field(default_factory=Counter)  # of zeros: each pair once
    first_not_split: str = ""  # name of the first pair with the flag `NOT_SPLIT`

    def add(
        self,
        scores: Mapping[str, float],
        n_ref: int,
        n_gen: int,
        noted: Collection[str] = (),
        name: str = "",
    ) -> bool:
        """Count a pair, and return whether it could be judged. Parameters as for `flags_of`."""
        flags = flags_of(scores, n_ref, n_gen, noted)
        if NOT_SPLIT in flags and not self.first_not_split:
            self.first_not_split = name
        was_judged = judged(flags)
        self.scored += 1
        if scores["vcs"] <= 0.0:
            self.zeros += 1
        if not was_judged:
            self.not_judged += 1
        self.flags.update(flags)
        reason = tuple(name for name in ZEROS if name in flags)
        if reason:
            self.reasons[reason] += 1
        return was_judged

    def __iadd__(self, other: FlagCounts) -> FlagCounts:
        """Add the counts of other pairs."""
        self.scored += other.scored
        self.zeros += other.zeros
        self.not_judged += other.not_judged
        self.flags = self.flags + other.flags
        self.reasons = self.reasons + other.reasons
        self.first_not_split = self.first_not_split or other.first_not_split
        return self

    @property
    def mostly_zero(self) -> bool:
        """Whether VCS is 0 for more than half of the pairs, so another score must rank them."""
        return 2 * self.zeros > self.scored

    def sentences(self) -> list[str]:
        """Describe the zeros, and the pairs that could not be judged: at most one sentence each."""
        sentences = []
        if self.zeros:
            reasons = sorted(self.reasons, key=lambda names: [ZEROS.index(name) for name in names])
            parts = []
            for names in reasons:
                meanings = " and ".join(_REASONS[name] for name in names)
                count = f"{self.reasons[names]} " if len(reasons) > 1 else ""
                parts.append(f"{count}because {meanings}")
            joined = f": {'; '.join(parts)}" if len(parts) > 1 else f" {parts[0]}"
            sentences.append(f"{_have_zero(self.zeros, self.scored)}{joined}.")
        if self.not_judged:
            single = self.flags[SINGLE_CHUNKS]
            undefined = self.flags[ORDER_UNDEFINED]
            parts = []
            if single:
                parts.append(f"{single} with one chunk in each text")
            if undefined:
                parts.append(
                    f"{undefined} with numbers of chunks that are too small or too different"
                )
            sentences.append(
                f"Order could not be judged in {self.not_judged} of {counted(self.scored, 'pair')}:"
                f" {', '.join(parts)}."
            )
        return sentences

    def about_not_split(self) -> str:
        """Return a line on the pairs with the flag `NOT_SPLIT`; "" without such pairs."""
        count = self.flags[NOT_SPLIT]
        if not count:
            return ""
        first = f" (first: {printable(self.first_not_split)})" if self.first_not_split else ""
        return f"In {count} of {counted(self.scored, 'pair')}{first}, {_UNSPLIT}. {_CAUSE}"


_REASONS: Final = {
    BELOW_GATE: "content and order are too weak together",
    ZERO_ORDER: "the order is no better than chance",
    ZERO_CONTENT: "the texts share too little",
    ORDER_UNDEFINED: "order cannot be judged",
}


def _have_zero(zeros: int, pairs: int) -> str:
    return f"{zeros} of {counted(pairs, 'pair')} {'has' if zeros == 1 else 'have'} a VCS of 0"
