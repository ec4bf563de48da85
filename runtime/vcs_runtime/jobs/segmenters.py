"""Summary of the segmenters used, with a warning if they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vcs_runtime.util.printable import printable


@dataclass(frozen=True)
class Mix:
    """The segmenters of one or several systems."""

    # Pairs by system and segmenter.
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    # Pairs that are not split by one segmenter in all systems, if known.
    differently: int | None = None

    @classmethod
    def of(cls, names: Mapping[str, Mapping[str, str]]) -> Mix:
        """Count the segmenters over the pairs that all systems have."""
        first, *others = names.values()
        common = [id_ for id_ in first if all(id_ in own for own in others)]
        counts = {
            system: Counter(own[id_] for id_ in common if own[id_]) for system, own in names.items()
        }
        return cls(counts, sum(any(own[id_] != first[id_] for own in others) for id_ in common))

    @property
    def names(self) -> list[str]:
        """The names of all segmenters, in the order of their number of pairs."""
        total = Counter[str]()
        for own in self.counts.values():
            total.update(own)
        return [name for name, count in total.most_common() if count]

    def sentences(self, signatures: Mapping[str, str]) -> list[str]:
        """Name the segmenters, and say what it does to scores if there are several."""
        words = [_in_words(name, signatures.values()) for name in self.names]
        if not words:
            return []
        if len(words) == 1:
            return [f"All texts were split by {words[0]}."]
        numbers = {
            system: [own.get(name, 0) for name in self.names] for system, own in self.counts.items()
        }
        if len(numbers) > 1:
            parts = [
                f"{printable(system)} {' / '.join(map(str, own))}"
                for system, own in numbers.items()
            ]
            return [f"Pairs split by {' / '.join(words)}: {', '.join(parts)}.", self._warning()]
        [own] = numbers.values()
        parts = [f"{count} by {word}" for count, word in zip(own, words, strict=True)]
        return [f"Pairs were split as follows: {', '.join(parts)}.", self._warning()]

    def _warning(self) -> str:
        differently = self.differently
        which = (
            f"{differently} pair{'s were' if differently != 1 else ' was'} not split alike in all"
            " systems"
        )
        if differently is None:  # only numbers are known
            differently = len({tuple(sorted(own.items())) for own in self.counts.values()}) - 1
            which = "The systems were not split alike"
        if differently:
            return (
                f"{which}, so a part of their differences may come from the segmenters: score all"
                " systems with --segmenter learned."
            )
        return (
            "Two segmenters cut one text differently, and scores of their pairs differ by that,"
            " too: --segmenter learned splits all texts by one."
        )


def _in_words(name: str, signatures: Iterable[str]) -> str:
    """Return a segmenter's name, with its kind (rules or learned) if a signature shows it.

    A signature with two segmenters names the rules first.
    """
    for signature in signatures:
        fields: Sequence[str] = [
            part[4:] for part in signature.split("|") if part.startswith("seg:")
        ]
        rules, _, learned = (part.partition("@")[0] for part in "".join(fields).partition("+"))
        if learned and name in (rules, learned):
            return f"{'rules' if name == rules else 'the learned segmenter'} ({printable(name)})"
    return printable(name)
