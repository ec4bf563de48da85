"""`Limits`: how much a client may ask, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass, fields

from vcs_runtime.util.numbers import checked_count, checked_number


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
        A value is not above 0, a number of seconds or megabytes is above 10^6, or a count is no whole
        number. The message names the field.
    """

    max_body_mb: float = 8.0
    max_pairs: int = 1000
    timeout_s: float = 60.0
    queue: int = 64
    read_s: float = 10.0
    connections: int = 512

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(field.default, int):
                checked_count(field.name, getattr(self, field.name), least=1)
            else:
                allowed = "a number above 0 and up to 10^6"  # timers refuse some larger ones
                checked_number(field.name, getattr(self, field.name), allowed, lambda size: 0 < size <= 1e6)

    @property
    def max_body(self) -> int:
        """Most bytes of a body."""
        return int(self.max_body_mb * 1e6)
