"""An example for documents and for requests that warm up a server."""

from __future__ import annotations

from typing import Final

#: A pair whose VCS is above 0.
EXAMPLE: Final = {
    "reference": (
        "A man opens the door. A dog runs into the garden. "
        "The man throws a red ball. The dog brings the ball back."
    ),
    "generated": (
        "A man opens a door. His dog runs out into the garden. "
        "He throws a ball for the dog. The dog brings it back."
    ),
}
