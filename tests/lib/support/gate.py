"""A scorer that waits, so that a test decides what happens meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.waiting import HANGS_AFTER_S
from vcs_runtime import Scorer


class Gate:
    """Holds every batch until it is opened, and records what is in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        self.batches: list[list[str]] = []
        stream = Scorer.stream

        def held(scorer: Scorer, items: Any, key: Any, options: Any) -> Iterator[Any]:
            self.reached.set()
            assert self.open.wait(HANGS_AFTER_S)
            batch = list(items)
            self.batches.append([key(item)[1] for item in batch])
            return stream(scorer, batch, key, options)

        monkeypatch.setattr(Scorer, "stream", held)
