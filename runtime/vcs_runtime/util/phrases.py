"""Parts of sentences that are made of several names."""

from __future__ import annotations

from collections.abc import Sequence


def enumerated(names: Sequence[str]) -> str:
    """Return names as a part of a sentence: "a, b and c"."""
    first = [", ".join(names[:-1])] if names[1:] else []
    return " and ".join([*first, *names[-1:]])
