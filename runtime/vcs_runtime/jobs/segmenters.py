"""Summary of the segmenters used, with a warning if they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
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
        common = [id_ for id_ in first if all(id_ in other for other in others)]
        counts = {}
        for system, by_id in names.items():
            counts[system] = Counter(filter(None, map(by_id.__getitem__, common)))
        differently = 0
        for id_ in common:
            if any(other[id_] != first[id_] for other in others):
                differently += 1
        return cls(counts, differently)

    @property
    def names(self) -> list[str]:
        """The names of all segmenters, in the order of their number of pairs."""
        total = Counter[str]()
        for counts in self.counts.values():
            total.update(counts)
        return [name for name, count in total.most_common() if count]

    def sentences(self, signatures: Mapping[str, str]) -> list[str]:
        """Name the segmenters, and say what it does to scores if there are several."""
        words = [_in_words(name, signatures.values()) for name in self.names]
        if not words:
            return []
        if len(words) == 1:
            return [f"All texts were split by {words[0]}."]
        parts = []
        if len(self.counts) > 1:
            for system, counts in self.counts.items():
                numbers = " / ".join(str(counts.get(name, 0)) for name in self.names)
                parts.append(f"{printable(system)} {numbers}")
            return [f"Pairs split by {' / '.join(words)}: {', '.join(parts)}.", self._warning()]
        [counts] = self.counts.values()
        for name, word in zip(self.names, words, strict=True):
            parts.append(f"{counts.get(name, 0)} by {word}")
        return [f"Pairs were split as follows: {', '.join(parts)}.", self._warning()]

    def _warning(self) -> str:
        if self._splits_differ():
            if self.differently is None:
                subject = "The systems were split by different segmenters"
            else:
                were = "pair was" if self.differently == 1 else "pairs were"
                subject = f"{self.differently} {were} split by different segmenters"
            return (
                f"{subject}, which may cause a part of the differences. Score all systems with"
                " --segmenter learned."
            )
        return (
            "Two segmenters may split a text differently, which changes scores. To use one"
            " segmenter, add --segmenter learned."
        )

    def _splits_differ(self) -> bool:
        """Return whether the systems differ in a pair or, if only counts are known, in counts."""
        if self.differently is not None:
            return self.differently > 0
        distinct = {tuple(sorted(counts.items())) for counts in self.counts.values()}
        return len(distinct) > 1


def _in_words(name: str, signatures: Iterable[str]) -> str:
    """Return a segmenter's name, with its kind (rules or learned) if a signature shows it.

    A signature with two segmenters names the rules first.
    """
    for signature in signatures:
        for part in signature.split("|"):
            if not part.startswith("seg:") or "+" not in part:
                continue
            names = part.removeprefix("seg:").split("+", 1)
            rules, learned = (segmenter.partition("@")[0] for segmenter in names)
            if name == rules:
                return f"rules ({printable(name)})"
            if name == learned:
                return f"the learned segmenter ({printable(name)})"
    return printable(name)
