"""Counters of the server, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import accumulate

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts of requests and pairs. Only the event loop's thread uses them."""

    def __init__(self, queue_length: Callable[[], int]) -> None:
        self._queue_length = queue_length
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(_BUCKETS) + 1)
        self._seconds = 0.0
        self.pairs = 0
        self.errors = 0

    def answered(self, path: str, status: int, seconds: float, *, scoring: bool) -> None:
        """Count an answered request; its seconds if it was one for scores."""
        self._requests[path, status] += 1
        if scoring:
            self._buckets[sum(seconds > bound for bound in _BUCKETS)] += 1
            self._seconds += seconds

    def text(self) -> str:
        """Return all counters."""
        lines = [
            *_head("vcs_requests_total", "counter", "Answered requests."),
            *(
                f'vcs_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ),
            *_head("vcs_pairs_total", "counter", "Pairs of answered requests."),
            f"vcs_pairs_total {self.pairs}",
            *_head("vcs_pair_errors_total", "counter", "Pairs that could not be scored."),
            f"vcs_pair_errors_total {self.errors}",
            *_head("vcs_queue_length", "gauge", "Requests that wait or are scored."),
            f"vcs_queue_length {self._queue_length()}",
            *_head("vcs_request_seconds", "histogram", "Seconds of requests for scores and explanations."),
        ]
        totals = list(accumulate(self._buckets))
        for bound, count in zip((*map(str, _BUCKETS), "+Inf"), totals, strict=True):
            lines.append(f'vcs_request_seconds_bucket{{le="{bound}"}} {count}')
        lines += [f"vcs_request_seconds_sum {self._seconds}", f"vcs_request_seconds_count {totals[-1]}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"
