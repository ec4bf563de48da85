"""`Limits`: the size, number and duration of requests and connections."""

from __future__ import annotations

from dataclasses import dataclass, fields

from vcs_runtime.util.numbers import checked_count, checked_number


@dataclass(frozen=True)
class Limits:
    """Limits of the server. Raises ValueError with the name of a field that is out of range."""

    max_body_mb: float = 8.0  # 10^6 bytes of a request's body
    max_pairs: int = 1000  # of a request
    max_pair_characters: int = 200_000  # of all texts of a pair
    timeout_s: float = 60.0  # for waiting and scoring, and for the end of a stopping server
    queue: int = 64  # requests that wait or are scored at once
    read_s: float = 10.0  # until the headers have arrived, and the body after them
    connections: int = 512  # further ones are closed at once

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, int):
                checked_count(field.name, value, least=1)
            else:
                allowed = "a number above 0 and up to 10^6"  # timers refuse some larger numbers
                checked_number(field.name, value, allowed, lambda size: 0 < size <= 1e6)

    @property
    def max_body(self) -> int:
        """Maximum number of bytes of a body."""
        return int(self.max_body_mb * 1e6)
