"""`Limits`: how much a client may ask, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Limits of the server.

    Parameters
    ----------
    max_body_mb
        Most megabytes (10^6 bytes) of the body of a request.
    max_pairs
        Most pairs of a request.
    timeout_s
        Most seconds that a request may wait and be scored; also the time that a stopping server has left.
    queue
        Most requests that wait or are scored at once.
    read_s
        Most seconds until the headers of a request have arrived, and its body after them.
    connections
        Most open connections. Others are closed at once.

    Raises
    ------
    ValueError
        A value is not above 0. The message names the field.
    """

    max_body_mb: float = 8.0
    max_pairs: int = 1000
    timeout_s: float = 60.0
    queue: int = 64
    read_s: float = 10.0
    connections: int = 512

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name} must be above 0, not {getattr(self, field.name)!r}")

    @property
    def max_body(self) -> int:
        """Most bytes of a body."""
        return int(self.max_body_mb * 1e6)
