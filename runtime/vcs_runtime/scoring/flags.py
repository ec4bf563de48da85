"""Why a VCS is 0, and whether order could be judged (docs/reference/vcs.md, section 13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

ORDER_UNDEFINED: Final = "order_undefined"
SINGLE_CHUNKS: Final = "single_chunks"
ZERO_CONTENT: Final = "zero_content"
ZERO_ORDER: Final = "zero_order"
BELOW_GATE: Final = "below_gate"

#: The meaning of each flag.
FLAGS: Final = {
    ORDER_UNDEFINED: "VCS is 0 by definition: with so few or such unequal chunks any order earns all of NAS",
    SINGLE_CHUNKS: "one chunk against one has no order; VCS restates the cosine of the two texts",
    ZERO_CONTENT: "VCS is 0 because content earns nothing: SAS is 0",
    ZERO_ORDER: "VCS is 0 because order earns no more than chance would: NAS is 0",
    BELOW_GATE: "VCS is 0 because content and order together stay below 1: SAS + NAS <= 1",
}
#: The flags of pairs whose order could not be judged.
NOT_JUDGED: Final = (ORDER_UNDEFINED, SINGLE_CHUNKS)
#: The reasons for a VCS of 0.
ZEROS: Final = (BELOW_GATE, ZERO_ORDER, ZERO_CONTENT, ORDER_UNDEFINED)


def scores_to_report(zeros: int, pairs: int) -> tuple[str, ...]:
    """Return the scores to report, the first one first: they depend on how many of all pairs have a VCS of 0.

    VCS does not rank pairs that are all 0. Of several systems in one table, all pairs of all systems count.
    """
    return ("margin", "gas", "las") if 2 * zeros > pairs else ("vcs", "margin")


def what_to_report(zeros: int, pairs: int) -> str:
    """Say which scores to report, and why: docs/guide/reading-scores.md has the same rule."""
    share = f"VCS is 0 for {zeros} of {_pairs(pairs)}"
    if 2 * zeros > pairs:
        return (
            f"{share}, more than half: report margin, GAS and LAS at the defaults, with the share of zeros."
        )
    return f"{share}: report VCS and margin."


def flags_of(scores: Mapping[str, float], n_ref: int, n_gen: int) -> tuple[str, ...]:
    """Return the flags of a pair, facts that its scores do not show: keys of `FLAGS`, in their order.

    `scores` has at least vcs, sas, nas and window_regularizer. A VCS of 0 has at least one of `ZEROS`.
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
    }
    return tuple(name for name in FLAGS if holds[name])


def judged(flags: Iterable[str]) -> bool:
    """Whether the order of a pair with these flags could be judged."""
    return not any(name in NOT_JUDGED for name in flags)


def describe(scores: Mapping[str, float], n_ref: int, n_gen: int) -> str:
    """Explain the flags of a pair in one sentence; "" if it has none. Parameters as for `flags_of`."""
    flags = flags_of(scores, n_ref, n_gen)
    sas, nas, margin = scores["sas"], scores["nas"], scores["margin"]
    if ORDER_UNDEFINED in flags:
        return (
            f"VCS is 0 by definition: with {n_ref} and {n_gen} chunks order cannot be judged. "
            "This 0 says nothing about the text; read GAS and LAS."
        )
    if ZERO_CONTENT in flags and ZERO_ORDER in flags:
        text = "VCS is 0 because neither content (SAS 0) nor order (NAS 0) earns anything"
    elif ZERO_CONTENT in flags:
        text = f"VCS is 0 because content earns nothing (SAS 0, NAS {nas:.3f})"
    elif ZERO_ORDER in flags:
        text = f"VCS is 0 because order earns no more than chance would (NAS 0, SAS {sas:.3f})"
    elif BELOW_GATE in flags:
        text = f"VCS is 0 because content (SAS {sas:.3f}) and order (NAS {nas:.3f}) together stay below 1"
    elif SINGLE_CHUNKS in flags:
        return "One chunk against one has no order: VCS restates the cosine of the two texts."
    else:
        return ""
    return f"{text}: margin {margin:.3f}."


@dataclass
class FlagCounts:
    """How many pairs of a job have a VCS of 0, and why; and how many could not be judged."""

    scored: int = 0
    zeros: int = 0
    not_judged: int = 0  # pairs with a flag of `NOT_JUDGED`
    flags: Counter[str] = field(default_factory=Counter)

    def add(self, scores: Mapping[str, float], n_ref: int, n_gen: int) -> bool:
        """Count a pair, and return whether it could be judged. Parameters as for `flags_of`."""
        flags = flags_of(scores, n_ref, n_gen)
        was_judged = judged(flags)
        self.scored += 1
        self.zeros += scores["vcs"] <= 0.0
        self.not_judged += not was_judged
        self.flags.update(flags)
        return was_judged

    @property
    def mostly_zero(self) -> bool:
        """Whether VCS is 0 for more than half of the pairs, so that another score has to order them."""
        return 2 * self.zeros > self.scored

    def sentences(self) -> list[str]:
        """Describe the zeros, and the pairs that could not be judged: at most one sentence each."""
        sentences = []
        if self.zeros:
            reasons = [f"in {self.flags[name]}, {_REASONS[name]}" for name in ZEROS if self.flags[name]]
            twice = sum(self.flags[name] for name in ZEROS) - self.zeros
            overlap = f" (two reasons in {twice})" if twice else ""
            sentences.append(
                f"VCS is 0 for {self.zeros} of {_pairs(self.scored)}: {'; '.join(reasons)}{overlap}. "
                "Rank them by margin."
            )
        if self.not_judged:
            single, undefined = self.flags[SINGLE_CHUNKS], self.flags[ORDER_UNDEFINED]
            why = [f"{single} with one chunk against one"] * bool(single)
            why += [f"{undefined} with too few or too unequal chunks"] * bool(undefined)
            sentences.append(
                f"Order could not be judged in {self.not_judged} of {_pairs(self.scored)}: {', '.join(why)}."
            )
        return sentences


_REASONS: Final = {
    BELOW_GATE: "content and order together stay below 1",
    ZERO_ORDER: "order earns no more than chance would",
    ZERO_CONTENT: "content earns nothing",
    ORDER_UNDEFINED: "order cannot be judged",
}


def _pairs(count: int) -> str:
    return f"{count} pair{'s' if count != 1 else ''}"
